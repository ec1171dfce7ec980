// SPDX-License-Identifier: Apache-2.0
#include "src/model/model_tensors.h"

#include <cmath>

#include "core/strings.h"

namespace kvgauge {
namespace {

// Names under one place of the checkpoint, e.g. "model.layers.3.self_attn.".
class Scope {
 public:
  Scope(const ModelConfig& config, std::string prefix)
      : config_(config), prefix_(std::move(prefix)) {}

  Scope In(const std::string& name) const { return {config_, prefix_ + name + "."}; }

  TensorSpec Matrix(const std::string& name, int64_t rows, int64_t columns) const {
    // Variance-preserving draws, so that random models have logits of ordinary size.
    const float stddev = 1.0f / std::sqrt(static_cast<float>(columns));
    return {prefix_ + name + ".weight", {rows, columns}, TensorSpec::Init::kNormal, stddev};
  }

  LinearSpec Linear(const std::vector<std::pair<std::string, int64_t>>& parts, int64_t columns,
                    bool bias) const {
    LinearSpec spec;
    for (const auto& [name, rows] : parts) {
      spec.parts.push_back(Matrix(name, rows, columns));
      if (bias) {
        spec.biases.push_back({prefix_ + name + ".bias", {rows}, TensorSpec::Init::kZeros, 0});
      }
    }
    return spec;
  }

  NormSpec Norm(const std::string& name, int64_t size) const {
    NormSpec spec;
    const bool zero_based = config_.norm == NormKind::kRmsOffsetOne;
    spec.weight = {prefix_ + name + ".weight",
                   {size},
                   zero_based ? TensorSpec::Init::kZeros : TensorSpec::Init::kOnes,
                   0};
    if (config_.norm == NormKind::kLayer) {
      spec.bias = {prefix_ + name + ".bias", {size}, TensorSpec::Init::kZeros, 0};
    }
    return spec;
  }

  MlpSpec GatedMlp(int64_t ffn_size, bool fused) const {
    const int64_t d = config_.hidden_size;
    MlpSpec mlp;
    mlp.up = fused ? Linear({{"gate_up_proj", 2 * ffn_size}}, d, config_.mlp_bias)
                   : Linear({{"gate_proj", ffn_size}, {"up_proj", ffn_size}}, d, config_.mlp_bias);
    mlp.down = Linear({{"down_proj", d}}, ffn_size, config_.mlp_bias);
    return mlp;
  }

 private:
  const ModelConfig& config_;
  std::string prefix_;
};

void DescribeLatentAttention(const ModelConfig& config, const Scope& attention, LayerSpec& layer) {
  const MlaConfig& mla = *config.mla;
  const int64_t d = config.hidden_size, heads = config.query_heads;
  const int64_t q_size = heads * (mla.nope_dim + mla.rope_dim);
  if (mla.q_lora_rank > 0) {
    layer.qkv = attention.Linear({{"q_a_proj", mla.q_lora_rank}}, d, false);
    layer.q_latent_norm = attention.Norm("q_a_layernorm", mla.q_lora_rank);
    layer.q_up = attention.Linear({{"q_b_proj", q_size}}, mla.q_lora_rank, false);
  } else {
    layer.qkv = attention.Linear({{"q_proj", q_size}}, d, false);
  }
  layer.kv_down =
      attention.Linear({{"kv_a_proj_with_mqa", mla.kv_lora_rank + mla.rope_dim}}, d, false);
  layer.kv_latent_norm = attention.Norm("kv_a_layernorm", mla.kv_lora_rank);
  layer.kv_up = attention.Linear({{"kv_b_proj", heads * (mla.nope_dim + config.value_dim)}},
                                 mla.kv_lora_rank, false);
}

LayerSpec DescribeLayer(const ModelConfig& config, int64_t index, const Scope& scope) {
  const bool opt = config.tensor_names == TensorNames::kOpt;
  const bool fused = config.tensor_names == TensorNames::kFusedLlama;
  const int64_t d = config.hidden_size;
  const int64_t q_size = config.query_heads * config.key_dim;
  const int64_t k_size = config.kv_heads * config.key_dim;
  const int64_t v_size = config.kv_heads * config.value_dim;
  LayerSpec layer;

  if (opt) {
    layer.input_norm = scope.Norm("self_attn_layer_norm", d);
    layer.mlp_norm = scope.Norm("final_layer_norm", d);
  } else {
    layer.input_norm = scope.Norm("input_layernorm", d);
    layer.mlp_norm = scope.Norm(
        config.sandwich_norms ? "pre_feedforward_layernorm" : "post_attention_layernorm", d);
  }
  if (config.sandwich_norms) {
    layer.attention_norm = scope.Norm("post_attention_layernorm", d);
    layer.mlp_output_norm = scope.Norm("post_feedforward_layernorm", d);
  }

  const Scope attention = scope.In("self_attn");
  if (config.mla) {
    DescribeLatentAttention(config, attention, layer);
  } else if (fused) {
    layer.qkv = attention.Linear({{"qkv_proj", q_size + k_size + v_size}}, d, config.qkv_bias);
  } else {
    layer.qkv = attention.Linear({{"q_proj", q_size}, {"k_proj", k_size}, {"v_proj", v_size}}, d,
                                 config.qkv_bias);
  }
  layer.output = attention.Linear({{opt ? "out_proj" : "o_proj", d}},
                                  config.query_heads * config.value_dim, config.output_bias);
  if (config.qk_norm) {
    layer.q_norm = attention.Norm("q_norm", config.key_dim);
    layer.k_norm = attention.Norm("k_norm", config.key_dim);
  }

  const Scope mlp = scope.In("mlp");
  if (config.layers[index].moe) {
    const MoeConfig& moe = *config.moe;
    layer.router = mlp.Linear({{"gate", moe.experts}}, d, false);
    for (int64_t e = 0; e < moe.experts; ++e) {
      layer.experts.push_back(mlp.In(StrCat("experts.", e)).GatedMlp(moe.expert_ffn_size, false));
    }
    if (moe.shared_experts > 0) {
      layer.mlp =
          mlp.In("shared_experts").GatedMlp(moe.shared_experts * moe.expert_ffn_size, false);
    }
  } else if (config.gated_mlp) {
    layer.mlp = mlp.GatedMlp(config.ffn_size, fused);
  } else {
    layer.mlp.up = scope.Linear({{"fc1", config.ffn_size}}, d, config.mlp_bias);
    layer.mlp.down = scope.Linear({{"fc2", d}}, config.ffn_size, config.mlp_bias);
  }
  return layer;
}

void Append(const LinearSpec& linear, std::vector<TensorSpec>& out) {
  out.insert(out.end(), linear.parts.begin(), linear.parts.end());
  out.insert(out.end(), linear.biases.begin(), linear.biases.end());
}

void Append(const NormSpec& norm, std::vector<TensorSpec>& out) {
  if (!norm.weight.name.empty()) out.push_back(norm.weight);
  if (!norm.bias.name.empty()) out.push_back(norm.bias);
}

void Append(const MlpSpec& mlp, std::vector<TensorSpec>& out) {
  Append(mlp.up, out);
  Append(mlp.down, out);
}

}  // namespace

ModelTensors DescribeTensors(const ModelConfig& config, const TensorPlaces& places) {
  const bool opt = config.tensor_names == TensorNames::kOpt;
  const Scope body(config, opt ? places.body + "decoder." : places.body);
  const Scope top(config, places.head);
  const int64_t d = config.hidden_size, embedding = config.embedding_size;

  ModelTensors tensors;
  tensors.embedding = body.Matrix("embed_tokens", config.vocab_size, embedding);
  tensors.embedding.stddev = 1.0f / std::sqrt(static_cast<float>(d));
  if (config.learned_positions) {
    tensors.positions = body.Matrix("embed_positions", config.max_position + 2, d);
  }
  if (embedding != d) {
    tensors.project_in = body.Linear({{"project_in", d}}, embedding, false);
    tensors.project_out = body.Linear({{"project_out", embedding}}, d, false);
  }
  if (config.final_norm) tensors.final_norm = body.Norm(opt ? "final_layer_norm" : "norm", d);
  tensors.head = top.Linear({{"lm_head", config.vocab_size}}, embedding, false);
  if (config.tied_head) tensors.head.parts[0] = tensors.embedding;
  for (int64_t i = 0; i < config.layer_count(); ++i) {
    tensors.layers.push_back(DescribeLayer(config, i, body.In(StrCat("layers.", i))));
  }
  return tensors;
}

std::vector<TensorSpec> ListTensors(const ModelTensors& tensors) {
  std::vector<TensorSpec> specs = {tensors.embedding};
  if (!tensors.positions.name.empty()) specs.push_back(tensors.positions);
  Append(tensors.project_in, specs);
  for (const LayerSpec& layer : tensors.layers) {
    Append(layer.input_norm, specs);
    Append(layer.qkv, specs);
    Append(layer.q_norm, specs);
    Append(layer.k_norm, specs);
    Append(layer.q_latent_norm, specs);
    Append(layer.q_up, specs);
    Append(layer.kv_down, specs);
    Append(layer.kv_latent_norm, specs);
    Append(layer.kv_up, specs);
    Append(layer.output, specs);
    Append(layer.attention_norm, specs);
    Append(layer.mlp_norm, specs);
    Append(layer.router, specs);
    for (const MlpSpec& expert : layer.experts) Append(expert, specs);
    Append(layer.mlp, specs);
    Append(layer.mlp_output_norm, specs);
  }
  Append(tensors.final_norm, specs);
  Append(tensors.project_out, specs);
  if (tensors.head.parts[0].name != tensors.embedding.name) Append(tensors.head, specs);
  return specs;
}

std::vector<TensorSpec> ExpectedTensors(const ModelConfig& config) {
  return ListTensors(DescribeTensors(config));
}

int64_t ParameterCount(const ModelConfig& config) {
  int64_t count = 0;
  for (const TensorSpec& spec : ExpectedTensors(config)) {
    int64_t size = 1;
    for (const int64_t d : spec.shape) size *= d;
    count += size;
  }
  return count;
}

int64_t PlannedWeightBytes(const ModelConfig& config, DType dtype, DType stored) {
  const ModelTensors tensors = DescribeTensors(config);
  const auto elements = [](const TensorSpec& spec) {
    int64_t size = spec.name.empty() ? 0 : 1;
    for (const int64_t d : spec.shape) size *= d;
    return size;
  };
  const int64_t tables = elements(tensors.embedding) + elements(tensors.positions);
  // A tied head is packed beside the table.
  const int64_t head = config.tied_head ? elements(tensors.embedding) : 0;
  return tables * SizeOf(stored) + (ParameterCount(config) - tables + head) * SizeOf(dtype);
}

bool IsIgnorableTensor(const std::string& name) {
  for (const char* ending : {".rotary_emb.inv_freq", ".self_attn.masked_bias"}) {
    if (name.ends_with(ending)) return true;
  }
  return false;
}

}  // namespace kvgauge
