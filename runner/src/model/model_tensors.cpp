// SPDX-License-Identifier: Apache-2.0
#include "src/model/model_tensors.h"

#include <cmath>
#include <numeric>

#include "core/strings.h"
#include "kernels/block_products.h"
#include "kernels/ops.h"
#include "runner/layer_division.h"

namespace kvgauge {
namespace {

constexpr const char* kBlockDecoder = "block_decoder.gpt_neox.";

// Names under one place of the checkpoint, e.g. "model.layers.3.self_attn.".
class Scope {
 public:
  Scope(const ModelConfig& config, std::string prefix)
      : config_(config), prefix_(std::move(prefix)) {}

  // An empty name is this very place.
  Scope In(std::string_view name) const {
    return {config_, name.empty() ? prefix_ : StrCat(prefix_, name, ".")};
  }

  std::string Name(std::string_view name) const { return StrCat(prefix_, name); }

  TensorSpec Matrix(std::string_view name, int64_t rows, int64_t columns) const {
    // Variance-preserving draws, so that random models have logits of ordinary size.
    const float stddev = 1.0f / std::sqrt(static_cast<float>(columns));
    return {StrCat(prefix_, name, ".weight"), {rows, columns}, TensorSpec::Init::kNormal, stddev};
  }

  // A vector of factors.
  TensorSpec Vector(std::string_view name, int64_t size) const {
    return {StrCat(prefix_, name), {size}, TensorSpec::Init::kOnes, 0};
  }

  TensorSpec Zeros(std::string_view name, int64_t size) const {
    return {StrCat(prefix_, name), {size}, TensorSpec::Init::kZeros, 0};
  }

  LinearSpec Linear(const std::vector<std::pair<std::string_view, int64_t>>& parts, int64_t columns,
                    bool bias) const {
    LinearSpec spec;
    for (const auto& [name, rows] : parts) {
      spec.parts.push_back(Matrix(name, rows, columns));
      if (bias) spec.biases.push_back(Zeros(StrCat(name, ".bias"), rows));
    }
    return spec;
  }

  NormSpec Norm(std::string_view name, int64_t size) const {
    NormSpec spec;
    const bool layer = config_.norm == NormKind::kLayer;
    spec.from_one = layer && config_.norm_from_one;
    const bool zero_based = config_.norm == NormKind::kRmsOffsetOne || spec.from_one;
    spec.weight = {StrCat(prefix_, name, ".weight"),
                   {size},
                   zero_based ? TensorSpec::Init::kZeros : TensorSpec::Init::kOnes,
                   0};
    if (layer && !config_.norm_weight) spec.weight.name.clear();
    if (layer && config_.norm_bias) spec.bias = Zeros(StrCat(name, ".bias"), size);
    return spec;
  }

  // A norm of `heads` heads of queries or keys.
  NormSpec HeadNorm(std::string_view name, int64_t heads, int64_t dim) const {
    NormSpec spec;
    switch (config_.qk_norm_kind) {
      case QkNorm::kHead:
      case QkNorm::kLayer:
        return Norm(name, dim);
      case QkNorm::kWidth:
        return Norm(name, heads * dim);
      case QkNorm::kLayerHeads:
        spec = Norm(name, dim);
        spec.weight.shape = {heads, dim};
        break;
      case QkNorm::kLength:
        break;
      case QkNorm::kLayerLists:
        spec = Norm(StrCat(name, ".norms.0"), dim);
        for (int64_t h = 1; h < heads; ++h) {
          spec.others.push_back(Norm(StrCat(name, ".norms.", h), dim).weight);
        }
        break;
    }
    spec.bias = {};
    return spec;
  }

  struct MlpNames {
    std::string_view gate, up, down, gate_up;
  };
  MlpSpec Mlp(const MlpNames& names, int64_t ffn_size) const {
    const int64_t d = config_.hidden_size;
    const bool bias = config_.mlp_bias;
    MlpSpec mlp;
    if (!config_.gated_mlp) {
      mlp.up = Linear({{names.up, ffn_size}}, d, bias);
    } else if (!names.gate_up.empty()) {
      mlp.up = Linear({{names.gate_up, 2 * ffn_size}}, d, bias);
    } else {
      mlp.up = Linear({{names.gate, ffn_size}, {names.up, ffn_size}}, d, bias);
    }
    mlp.down = Linear({{names.down, d}}, ffn_size, bias);
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

// `beside`: of the whole layer.
void DescribeMixture(const ModelConfig& config, const Scope& beside, LayerSpec& layer) {
  const MoeConfig& moe = *config.moe;
  const TensorNames& names = config.tensor_names;
  const Scope scope = beside.In(names.mixture);
  if (moe.beside_mlp) {
    const int64_t d = config.hidden_size;
    layer.router_scale = scope.Vector("router.scale", d);
    layer.expert_scales = scope.Vector("router.per_expert_scale", moe.experts);
    layer.experts_norm = scope.Norm("pre_feedforward_layernorm_2", d);
    layer.mlp_part_norm = scope.Norm("post_feedforward_layernorm_1", d);
    layer.experts_part_norm = scope.Norm("post_feedforward_layernorm_2", d);
  }
  layer.router =
      scope.Linear({{names.router, moe.experts}}, config.hidden_size, config.router_bias);
  if (moe.sigmoid && !moe.weighs_inputs) {
    layer.router_correction = scope.Zeros(names.correction, moe.experts);
  }
  const Scope::MlpNames expert = {names.expert_gate, names.expert_up, names.expert_down, ""};
  for (int64_t e = 0; e < moe.experts; ++e) {
    layer.experts.push_back(scope.In(StrCat("experts.", e)).Mlp(expert, moe.expert_ffn_size));
  }
  if (moe.shared_ffn_size == 0) return;
  if (names.shared_as_mlp) {
    layer.mlp = beside.In(names.mlp).Mlp({names.gate, names.up, names.down, names.gate_up},
                                         moe.shared_ffn_size);
  } else {
    layer.mlp = scope.In(names.shared_experts).Mlp(expert, moe.shared_ffn_size);
  }
  if (moe.shared_gate) {
    layer.shared_gate =
        scope.Linear({{StrCat(names.shared_experts, "_gate"), 1}}, config.hidden_size, false);
  }
}

void DescribeNorms(const ModelConfig& config, const LayerConfig& parts, const Scope& scope,
                   LayerSpec& layer) {
  const TensorNames& names = config.tensor_names;
  const int64_t d = config.hidden_size;
  if (config.input_norms) {
    if (parts.mixes()) layer.input_norm = scope.Norm(names.input_norm, d);
    if (parts.mlp && !config.shared_norm) layer.mlp_norm = scope.Norm(names.mlp_norm, d);
  }
  if (config.output_norms) {
    if (parts.mixes()) layer.attention_norm = scope.Norm(names.attention_norm, d);
    if (parts.mlp) layer.mlp_output_norm = scope.Norm(names.mlp_output_norm, d);
  }
}

void DescribeMlp(const ModelConfig& config, int64_t index, const Scope& scope, LayerSpec& layer) {
  const TensorNames& names = config.tensor_names;
  if (!config.layers[static_cast<size_t>(index)].mlp) return;
  const bool moe = config.layers[static_cast<size_t>(index)].moe;
  if (moe) DescribeMixture(config, scope, layer);
  if (moe && !config.moe->beside_mlp) return;
  if (config.mlp_mixes) {
    const Scope mlp = scope.In(names.mlp);
    layer.mlp_mixed = DescribeMixedMlp(config, scope.Name(names.mlp));
    layer.mlp.down = mlp.Linear({{names.down, config.hidden_size}}, config.ffn_size, false);
  } else {
    layer.mlp = scope.In(names.mlp).Mlp({names.gate, names.up, names.down, names.gate_up},
                                        config.FfnSizeOf(index));
  }
}

void DescribeLayerEmbeddings(const ModelConfig& config, const Scope& scope,
                             LayerEmbeddingSpec& spec) {
  const int64_t d = config.hidden_size, columns = config.layer_embeddings->columns;
  spec.gate = scope.Linear({{"per_layer_input_gate", columns}}, d, false);
  spec.projection = scope.Linear({{"per_layer_projection", d}}, columns, false);
  spec.projection_norm = scope.Norm("post_per_layer_input_norm", d);
}

void DescribeStreams(const ModelConfig& config, const Scope& scope, LayerStreamSpec& spec) {
  const StreamsConfig& streams = *config.streams;
  const int64_t d = config.hidden_size, count = streams.streams;
  const Scope altup = scope.In("altup"), laurel = scope.In("laurel");
  spec.router_norm = altup.Norm("router_norm", d);
  spec.router = altup.Linear({{"modality_router", count}}, d, false);
  spec.predicts = altup.Linear({{"prediction_coefs", count * count}}, count, false);
  spec.corrects = altup.Linear({{"correction_coefs", count}}, count, false);
  spec.scale = altup.Zeros("correct_output_scale", d);
  spec.laurel_left = laurel.Linear({{"linear_left", streams.laurel_rank}}, d, false);
  spec.laurel_right = laurel.Linear({{"linear_right", d}}, streams.laurel_rank, false);
  spec.laurel_norm = laurel.Norm("post_laurel_norm", d);
}

void DescribeCross(const ModelConfig& config, const Scope& cross, CrossSpec& spec) {
  const int64_t d = config.hidden_size, width = config.encoder->hidden_size;
  spec.norm = cross.Norm("layernorm", d);
  spec.query = cross.Linear({{"q_proj", config.query_heads * config.key_dim}}, d, false);
  spec.keys = cross.Linear({{"k_proj", config.kv_heads * config.key_dim}}, width, false);
  spec.values = cross.Linear({{"v_proj", config.kv_heads * config.value_dim}}, width, false);
  spec.output = cross.Linear({{"o_proj", d}}, config.query_heads * config.value_dim, false);
}

LayerSpec DescribeLayer(const ModelConfig& config, int64_t index, const Scope& scope) {
  const TensorNames& names = config.tensor_names;
  const int64_t d = config.hidden_size;
  const HeadSizes heads = config.HeadsOf(index);
  const int64_t q_size = config.query_heads * heads.key_dim;
  const int64_t k_size = heads.kv_heads * heads.key_dim;
  const int64_t v_size = heads.kv_heads * heads.value_dim;
  LayerSpec layer;
  const LayerConfig& parts = config.layers[static_cast<size_t>(index)];
  DescribeNorms(config, parts, scope, layer);
  DescribeMlp(config, index, scope, layer);
  if (config.streams) DescribeStreams(config, scope, layer.streams);
  if (config.layer_embeddings) DescribeLayerEmbeddings(config, scope, layer.embeddings);
  if (config.layer_scales) layer.scale = scope.Vector("layer_scalar", 1);
  if (parts.crosses) DescribeCross(config, scope.In("cross_attn"), layer.cross);
  if (parts.state && !parts.rows_alone) {
    layer.state = DescribeState(config, index, scope.Name(names.state));
  }
  if (!parts.attends) return layer;
  if (config.made_keys) {
    DescribeMadeKeys(config, index, scope.Name(names.attention), layer);
    return layer;
  }
  // Or it needs neither keys nor values.
  const bool own = config.HasCache(index) || parts.in_block;
  const Scope attention = scope.In(names.attention);
  if (config.mla) {
    DescribeLatentAttention(config, attention, layer);
  } else if (!names.qkv.empty()) {
    layer.qkv = attention.Linear({{names.qkv, q_size + k_size + v_size}}, d, config.qkv_bias);
    if (names.qkv_by_group) {
      GroupedRows rows = RowsByGroup(config);
      layer.qkv.order = std::move(rows.queries);
      for (const std::vector<RowSpan>* some : {&rows.keys, &rows.values}) {
        if (own) layer.qkv.order.insert(layer.qkv.order.end(), some->begin(), some->end());
      }
    } else if (!own) {
      layer.qkv.order = {{0, q_size}};
    }
  } else if (config.attention_gate) {
    layer.qkv =
        attention.Linear({{names.query, 2 * q_size}, {names.key, k_size}, {names.value, v_size}}, d,
                         config.qkv_bias);
    // Behind each head's queries is what weighs its output: that comes last.
    for (int64_t h = 0; h < config.query_heads; ++h) {
      layer.qkv.order.push_back({2 * h * config.key_dim, (2 * h + 1) * config.key_dim});
    }
    layer.qkv.order.push_back({2 * q_size, 2 * q_size + k_size});
    layer.qkv.order.push_back({2 * q_size + k_size, 2 * q_size + k_size + v_size});
    for (int64_t h = 0; h < config.query_heads; ++h) {
      layer.qkv.order.push_back({(2 * h + 1) * config.key_dim, (2 * h + 2) * config.key_dim});
    }
  } else if (own && parts.values_are_keys) {
    layer.qkv = attention.Linear({{names.query, q_size}, {names.key, k_size}}, d, config.qkv_bias);
  } else if (own) {
    layer.qkv = attention.Linear(
        {{names.query, q_size}, {names.key, k_size}, {names.value, v_size}}, d, config.qkv_bias);
  } else {
    layer.qkv = attention.Linear({{names.query, q_size}}, d, config.qkv_bias);
  }
  layer.output = attention.Linear({{names.output, d}}, config.query_heads * heads.value_dim,
                                  config.output_bias);
  if (config.qk_norm) {
    layer.q_norm = attention.HeadNorm(names.query_norm, config.query_heads, heads.key_dim);
    if (own) layer.k_norm = attention.HeadNorm(names.key_norm, heads.kv_heads, heads.key_dim);
  }

  if (config.sinks) layer.sinks = attention.Zeros(names.sinks, config.query_heads);
  return layer;
}

void DescribeBlocks(const ModelConfig& config, const Scope& first, const Scope& top,
                    BlockSpec& spec) {
  const BlockConfig& blocks = *config.blocks;
  const int64_t d = config.hidden_size, columns = blocks.embedding_columns;
  spec.embedding = top.Matrix("embedder.embeddings", config.vocab_size, columns);
  if (blocks.projects) {
    spec.projection = top.Linear({{"embedder.projection_layer", d}}, blocks.tokens * columns, true);
  }
  spec.norm = first.Norm(config.tensor_names.final_norm, d);
  spec.expansion = top.Linear({{"token_decoder.expansion_layer", blocks.given_rows * d}}, d, true);
}

void Append(const LinearSpec& linear, std::vector<TensorSpec>& out) {
  out.insert(out.end(), linear.parts.begin(), linear.parts.end());
  out.insert(out.end(), linear.biases.begin(), linear.biases.end());
}

void Append(const NormSpec& norm, std::vector<TensorSpec>& out) {
  if (!norm.weight.name.empty()) out.push_back(norm.weight);
  out.insert(out.end(), norm.others.begin(), norm.others.end());
  if (!norm.bias.name.empty()) out.push_back(norm.bias);
}

void Append(const MixedSpec& spec, std::vector<TensorSpec>& out) {
  if (!spec.mix.name.empty()) out.push_back(spec.mix);
  Append(spec.linear, out);
}

void Append(const std::vector<MixedSpec>& mixed, std::vector<TensorSpec>& out) {
  for (const MixedSpec& spec : mixed) Append(spec, out);
}

void Append(const MixesSpec& mixes, std::vector<TensorSpec>& out) {
  if (mixes.shares.name.empty()) return;
  out.push_back(mixes.shares);
  out.insert(out.end(), mixes.biases.begin(), mixes.biases.end());
}

void Append(const MadeKeysSpec& made, std::vector<TensorSpec>& out) {
  Append(made.down, out);
  Append(made.up, out);
  Append(made.narrow_query, out);
  Append(made.query_mix, out);
  Append(made.query, out);
  Append(made.narrow, out);
  Append(made.mixes, out);
  for (size_t i = 0; i < made.first.size(); ++i) {
    Append(made.first[i], out);
    Append(made.second[i], out);
  }
  for (const NormSpec* norm :
       {&made.query_norm, &made.key_norm, &made.value_norm, &made.output_norm}) {
    Append(*norm, out);
  }
}

void Append(const StateSpec& state, std::vector<TensorSpec>& out) {
  Append(state.input, out);
  Append(state.mixed, out);
  Append(state.narrow, out);
  Append(state.mixes, out);
  for (const LinearSpec* linear : {&state.decays, &state.writes, &state.gates, &state.values}) {
    Append(*linear, out);
  }
  for (const TensorSpec* spec : {&state.conv, &state.conv_bias, &state.step_bias, &state.rates,
                                 &state.skip, &state.first, &state.find_scale, &state.key_scale}) {
    if (!spec->name.empty()) out.push_back(*spec);
  }
  Append(state.norm, out);
  Append(state.selected, out);
  for (const NormSpec* norm : {&state.step_norm, &state.key_norm, &state.query_norm}) {
    Append(*norm, out);
  }
  Append(state.step_input, out);
  Append(state.output, out);
}

void Append(const LayerStreamSpec& streams, std::vector<TensorSpec>& out) {
  for (const LinearSpec* linear : {&streams.router, &streams.predicts, &streams.corrects,
                                   &streams.laurel_left, &streams.laurel_right}) {
    Append(*linear, out);
  }
  for (const NormSpec* norm : {&streams.router_norm, &streams.laurel_norm}) {
    Append(*norm, out);
  }
  if (!streams.scale.name.empty()) out.push_back(streams.scale);
}

void Append(const LayerEmbeddingSpec& embeddings, std::vector<TensorSpec>& out) {
  Append(embeddings.gate, out);
  Append(embeddings.projection, out);
  Append(embeddings.projection_norm, out);
}

void Append(const MlpSpec& mlp, std::vector<TensorSpec>& out) {
  Append(mlp.up, out);
  Append(mlp.down, out);
}

}  // namespace

GroupedRows RowsByGroup(const ModelConfig& config) {
  GroupedRows rows;
  const int64_t queries = config.query_heads / config.kv_heads * config.key_dim;
  int64_t at = 0;
  const auto take = [&](std::vector<RowSpan>& some, int64_t count) {
    some.push_back({at, at + count});
    at += count;
  };
  for (int64_t group = 0; group < config.kv_heads; ++group) {
    take(rows.queries, queries);
    take(rows.keys, config.key_dim);
    take(rows.values, config.value_dim);
  }
  return rows;
}

ModelTensors DescribeTensors(const ModelConfig& config, const TensorPlaces& places) {
  const TensorNames& names = config.tensor_names;
  const Scope body(config, places.body ? *places.body : std::string(names.body));
  const Scope top(config, places.head);
  const int64_t d = config.hidden_size, embedding = config.embedding_size;

  ModelTensors tensors;
  tensors.embedding = body.Matrix(names.embedding, config.vocab_size, embedding);
  tensors.embedding.stddev = 1.0f / std::sqrt(static_cast<float>(d));
  if (config.learned_positions) {
    tensors.positions = body.Matrix("embed_positions", config.max_position + 2, d);
  }
  if (embedding != d) {
    tensors.project_in = body.Linear({{"project_in", d}}, embedding, false);
    tensors.project_out = body.Linear({{"project_out", embedding}}, d, false);
  }
  if (config.layer_embeddings) {
    const int64_t columns = config.layer_embeddings->columns;
    const int64_t all = config.layer_count() * columns;
    tensors.layer_embedding =
        body.Matrix("embed_tokens_per_layer", config.layer_embeddings->vocab, all);
    tensors.layer_embedding.stddev = 1.0f / std::sqrt(static_cast<float>(columns));
    tensors.layer_projection = body.Linear({{"per_layer_model_projection", all}}, d, false);
    tensors.layer_norm = body.Norm("per_layer_projection_norm", columns);
  }
  if (config.streams) {
    for (int64_t i = 0; i + 1 < config.streams->streams; ++i) {
      tensors.stream_projections.push_back(
          body.Linear({{StrCat("altup_projections.", i), d}}, d, false));
      tensors.stream_returns.push_back(
          body.Linear({{StrCat("altup_unembed_projections.", i), d}}, d, false));
    }
  }
  if (config.embedding_norm) tensors.embedding_norm = body.Norm(names.embedding_norm, d);
  if (config.final_norm) tensors.final_norm = body.Norm(names.final_norm, d);
  tensors.head = top.Linear({{names.head, config.vocab_size}}, embedding, config.head_bias);
  if (config.tied_head) tensors.head.parts[0] = tensors.embedding;
  const Scope first(config, kBlockDecoder);
  const int64_t first_layers = config.blocks ? config.block_layer_count() : 0;
  for (int64_t i = 0; i < config.layer_count(); ++i) {
    const bool of_blocks = i < first_layers;
    const std::string name = StrCat(names.layers, ".", of_blocks ? i : i - first_layers);
    tensors.layers.push_back(DescribeLayer(config, i, (of_blocks ? first : body).In(name)));
  }
  if (config.blocks) DescribeBlocks(config, first, top, tensors.blocks);
  if (config.encoder != nullptr) {
    tensors.encoder.push_back(DescribeTensors(*config.encoder, {.body = "encoder.", .head = ""}));
  }
  return tensors;
}

namespace {

void Append(const LayerSpec& layer, std::vector<TensorSpec>& specs) {
  Append(layer.input_norm, specs);
  Append(layer.qkv, specs);
  Append(layer.q_norm, specs);
  Append(layer.k_norm, specs);
  if (!layer.sinks.name.empty()) specs.push_back(layer.sinks);
  Append(layer.q_latent_norm, specs);
  Append(layer.q_up, specs);
  Append(layer.kv_down, specs);
  Append(layer.kv_latent_norm, specs);
  Append(layer.kv_up, specs);
  Append(layer.state, specs);
  Append(layer.made, specs);
  Append(layer.streams, specs);
  Append(layer.embeddings, specs);
  Append(layer.output, specs);
  Append(layer.cross.norm, specs);
  for (const LinearSpec* linear :
       {&layer.cross.query, &layer.cross.keys, &layer.cross.values, &layer.cross.output}) {
    Append(*linear, specs);
  }
  Append(layer.attention_norm, specs);
  Append(layer.mlp_norm, specs);
  Append(layer.router, specs);
  for (const TensorSpec* spec : {&layer.router_scale, &layer.expert_scales, &layer.scale}) {
    if (!spec->name.empty()) specs.push_back(*spec);
  }
  for (const NormSpec* norm :
       {&layer.experts_norm, &layer.mlp_part_norm, &layer.experts_part_norm}) {
    Append(*norm, specs);
  }
  if (!layer.router_correction.name.empty()) specs.push_back(layer.router_correction);
  for (const MlpSpec& expert : layer.experts) Append(expert, specs);
  Append(layer.mlp_mixed, specs);
  Append(layer.mlp, specs);
  Append(layer.shared_gate, specs);
  Append(layer.mlp_output_norm, specs);
}

std::vector<TensorSpec> ListBefore(const ModelTensors& tensors) {
  std::vector<TensorSpec> specs = {tensors.embedding};
  if (!tensors.positions.name.empty()) specs.push_back(tensors.positions);
  Append(tensors.project_in, specs);
  Append(tensors.embedding_norm, specs);
  if (!tensors.layer_embedding.name.empty()) specs.push_back(tensors.layer_embedding);
  Append(tensors.layer_projection, specs);
  Append(tensors.layer_norm, specs);
  for (const LinearSpec& linear : tensors.stream_projections) Append(linear, specs);
  for (const LinearSpec& linear : tensors.stream_returns) Append(linear, specs);
  if (!tensors.blocks.embedding.name.empty()) specs.push_back(tensors.blocks.embedding);
  Append(tensors.blocks.projection, specs);
  Append(tensors.blocks.norm, specs);
  Append(tensors.blocks.expansion, specs);
  for (const ModelTensors& encoder : tensors.encoder) {
    specs.push_back(encoder.embedding);
    for (const LayerSpec& layer : encoder.layers) Append(layer, specs);
    Append(encoder.final_norm, specs);
  }
  return specs;
}

// A tied head is listed before the layers.
std::vector<TensorSpec> ListBehind(const ModelTensors& tensors) {
  std::vector<TensorSpec> specs;
  Append(tensors.final_norm, specs);
  Append(tensors.project_out, specs);
  if (tensors.head.parts[0].name != tensors.embedding.name) {
    Append(tensors.head, specs);
  } else {
    specs.insert(specs.end(), tensors.head.biases.begin(), tensors.head.biases.end());
  }
  return specs;
}

}  // namespace

std::vector<TensorSpec> ListTensors(const ModelTensors& tensors) {
  std::vector<TensorSpec> specs = ListBefore(tensors);
  for (const LayerSpec& layer : tensors.layers) Append(layer, specs);
  for (TensorSpec& spec : ListBehind(tensors)) specs.push_back(std::move(spec));
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

namespace {

int64_t ElementsOf(const TensorSpec& spec) {
  int64_t size = spec.name.empty() ? 0 : 1;
  for (const int64_t d : spec.shape) size *= d;
  return size;
}

// Bytes of a tensor held as `dtype`, or in the blocks that its file has it in.
int64_t HeldBytes(const TensorSpec& spec, DType dtype, const WeightSource* blocks) {
  const int64_t unpacked = ElementsOf(spec) * SizeOf(dtype);
  if (blocks == nullptr || spec.shape.size() != 2 || !blocks->Contains(spec.name)) return unpacked;
  const Result<WeightInfo> info = blocks->Describe(spec.name);
  if (!info.ok() || !info->blocks) return unpacked;
  const BlockShape& shape = BlockShapeOf(*info->blocks);
  return spec.shape[0] * spec.shape[1] / shape.elements * shape.bytes;
}

// `blocks`: whose matrices stay in blocks; null: all are unpacked.
LayerCosts CostsOf(const ModelConfig& config, DType dtype, DType stored,
                   const WeightSource* blocks) {
  const ModelTensors tensors = DescribeTensors(config);
  const auto sum = [&](const std::vector<TensorSpec>& specs) {
    int64_t bytes = 0;
    for (const TensorSpec& spec : specs) {
      const bool table =
          spec.name == tensors.embedding.name || spec.name == tensors.positions.name ||
          spec.name == tensors.blocks.embedding.name ||
          (!tensors.encoder.empty() && spec.name == tensors.encoder[0].embedding.name);
      bytes += HeldBytes(spec, table ? stored : dtype, blocks);
    }
    return bytes;
  };
  LayerCosts costs;
  costs.first_bytes = sum(ListBefore(tensors));
  for (int64_t layer = 0; layer < config.layer_count(); ++layer) {
    std::vector<TensorSpec> specs;
    Append(tensors.layers[static_cast<size_t>(layer)], specs);
    costs.weight_bytes.push_back(sum(specs));
    costs.caches.push_back(config.HasCache(layer));
  }
  costs.last_bytes = sum(ListBehind(tensors));
  // A tied head is packed beside the table.
  if (config.tied_head) costs.last_bytes += HeldBytes(tensors.embedding, dtype, blocks);
  return costs;
}

int64_t TotalOf(const LayerCosts& costs) {
  return std::accumulate(costs.weight_bytes.begin(), costs.weight_bytes.end(),
                         costs.first_bytes + costs.last_bytes);
}

const WeightSource* KeptBlocks(const WeightSource& source, const Ops* keeps) {
  return keeps != nullptr && BlockProducts::Of(*keeps->linear) != nullptr ? &source : nullptr;
}

}  // namespace

int64_t PlannedWeightBytes(const ModelConfig& config, DType dtype, DType stored) {
  return TotalOf(CostsOf(config, dtype, stored, nullptr));
}

int64_t PlannedWeightBytes(const ModelConfig& config, DType dtype, const WeightSource& source,
                           const Ops* keeps) {
  return TotalOf(CostsOf(config, dtype, config.TableType(dtype), KeptBlocks(source, keeps)));
}

LayerCosts CostsOfLayers(const ModelConfig& config, DType dtype, const WeightSource* source,
                         const Ops* keeps) {
  if (source == nullptr) return CostsOf(config, dtype, dtype, nullptr);
  return CostsOf(config, dtype, config.TableType(dtype), KeptBlocks(*source, keeps));
}

bool IsDraftTensor(const ModelConfig& config, const std::string& name) {
  const TensorNames& names = config.tensor_names;
  if (!names.ahead.empty() && name.starts_with(names.ahead)) return true;
  for (int64_t i = 0; i < config.draft_layers; ++i) {
    const std::string scope = StrCat(names.body, names.layers, ".", config.layer_count() + i, ".");
    if (name.starts_with(scope)) return true;
  }
  return false;
}

bool IsUnreadTensor(const ModelConfig& config, const ModelTensors& tensors,
                    const std::string& name) {
  const TensorNames& names = config.tensor_names;
  for (int64_t i = 0; i < config.layer_count(); ++i) {
    if (config.layers[static_cast<size_t>(i)].reads < 0) continue;
    // The layer's queries are there: what lies beside them.
    const std::string query = StrCat(names.query, ".weight");
    const std::string& own = tensors.layers[static_cast<size_t>(i)].qkv.parts[0].name;
    if (!own.ends_with(query)) continue;
    const std::string scope = own.substr(0, own.size() - query.size());
    for (const std::string_view part : {names.key, names.value, names.key_norm}) {
      if (name == StrCat(scope, part, ".weight") || name == StrCat(scope, part, ".bias")) {
        return true;
      }
    }
  }
  return false;
}

bool IsIgnorableTensor(const std::string& name) {
  // Buffers that old files carry: frequencies, and the triangle of causal masks.
  for (const char* ending :
       {".rotary_emb.inv_freq", ".self_attn.masked_bias", ".attention.masked_bias",
        ".attention.bias", ".attn.masked_bias", ".attn.bias"}) {
    if (name.ends_with(ending)) return true;
  }
  return false;
}

}  // namespace kvgauge
