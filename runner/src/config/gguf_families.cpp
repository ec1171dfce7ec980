// SPDX-License-Identifier: Apache-2.0
// The keys of families of attention alone whose config.json has names or rules of its own.
#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/json.h"
#include "core/strings.h"
#include "src/config/gguf_metadata.h"

namespace kvgauge {
namespace {

// Six digits, which is more than a factor of a config.json has, and less than an f32.
double SixDigits(double value) { return std::round(value * 1e6) / 1e6; }

// Which heads there are and how wide; how much of them turns. A key for the part that turns: in
// such families absent is not all of it.
void SetOwnHeads(GgufMetadata& data, std::string_view part_key = "") {
  const std::optional<int64_t> width = HeadWidthOf(data);
  if (!width || *width < 1) return data.Fail("attention.head_count", "heads that share the width");
  if (const auto values = data.Int("attention.value_length"); values && *values != *width) {
    data.Refuse("attention.value_length", "another width than that of keys");
  }
  const auto turning = data.Int("rope.dimension_count");
  if (!part_key.empty()) {
    data.Set(part_key, static_cast<double>(turning.value_or(*width)) / static_cast<double>(*width));
  } else if (turning && *turning != *width) {
    data.Refuse("rope.dimension_count", "a part of each head that does not turn");
  }
  data.Set("head_dim", *width);
}

void SetDecoder(GgufMetadata& data, std::string_view part_key = "") {
  SetOwnHeads(data, part_key);
  data.SetIf("intermediate_size", data.Int("feed_forward_length"));
  SetScaling(data);
}

void SetLayerNormEps(GgufMetadata& data, std::string_view key) {
  data.SetIf(key, data.Real("attention.layer_norm_epsilon"));
}

void SetBias(GgufMetadata& data, std::string_view key, std::string_view tensor) {
  data.Set(key, data.HasInLayers(tensor));
}

// Biases of queries, keys and values, which may stand in one tensor.
void SetAttentionBias(GgufMetadata& data, std::string_view key) {
  data.Set(key, data.HasInLayers("attn_q.bias") || data.HasInLayers("attn_qkv.bias"));
}

// layer_types of flags for layers that slide; false where the file has none.
bool SetSliding(GgufMetadata& data) {
  constexpr std::string_view kKey = "attention.sliding_window_pattern";
  if (data.file().Find(kKey) == nullptr) return false;
  Json types = Json::array();
  for (const bool slides : data.LayerFlags(kKey, GgufLayers(data))) {
    types.push_back(slides ? "sliding_attention" : "full_attention");
  }
  data.Set("layer_types", std::move(types));
  return true;
}

// Sizes that some writers leave to the tensors.
void SetExpertSizes(GgufMetadata& data) {
  data.SetIf("num_experts", data.Int("expert_count"));
  const auto width = data.Int("expert_feed_forward_length");
  data.SetIf("moe_intermediate_size", width ? width : data.RowsInLayers("ffn_gate_exps.weight"));
  const auto shared = data.Int("expert_shared_feed_forward_length");
  data.SetIf("shared_expert_intermediate_size",
             shared ? shared : data.RowsInLayers("ffn_gate_shexp.weight"));
}

// Experts of DeepSeek's kind. Files before groups were written leave them out.
void SetRoutedExperts(GgufMetadata& data, int64_t groups = 1, int64_t top_groups = 1) {
  data.SetIf("n_routed_experts", data.Int("expert_count"));
  data.SetIf("n_shared_experts", data.Int("expert_shared_count"));
  data.SetIf("moe_intermediate_size", data.Int("expert_feed_forward_length"));
  data.Set("first_k_dense_replace", data.Int("leading_dense_block_count").value_or(0));
  data.Set("routed_scaling_factor", data.Real("expert_weights_scale").value_or(1.0));
  data.Set("norm_topk_prob", data.Bool("expert_weights_norm").value_or(false));
  data.Set("n_group", data.Int("expert_group_count").value_or(groups));
  data.Set("topk_group", data.Int("expert_group_used_count").value_or(top_groups));
}

void NeedSigmoid(GgufMetadata& data) {
  constexpr int64_t kSigmoid = 2;
  if (data.Int("expert_gating_func").value_or(kSigmoid) != kSigmoid) {
    data.Refuse("expert_gating_func", "this family chooses experts by sigmoids, expected 2");
  }
}

// Ranks and widths of latent attention. In older files keys and values have the widths of one head;
// newer ones count the latents as one head, and these widths have names of their own.
void SetLatents(GgufMetadata& data) {
  const auto keys = data.Int("attention.key_length"), values = data.Int("attention.value_length");
  const auto own_keys = data.Int("attention.key_length_mla");
  const auto own_values = data.Int("attention.value_length_mla");
  const std::optional<int64_t> width = own_keys ? own_keys : keys;
  const auto turning = data.Int("rope.dimension_count");
  if (!width || !turning || *turning >= *width) {
    return data.Fail("rope.dimension_count", "a number below the width of a head of keys");
  }
  data.Set("qk_rope_head_dim", *turning);
  data.Set("qk_nope_head_dim", *width - *turning);
  data.SetIf("v_head_dim", own_keys ? own_values : values);
  data.SetIf("kv_lora_rank", data.Int("attention.kv_lora_rank"));
  const auto rank = data.Int("attention.q_lora_rank");
  data.Set("q_lora_rank",
           rank && data.HasInLayers("attn_q_a.weight") ? Json(*rank) : Json(nullptr));
  data.SetIf("num_key_value_heads", data.Int("attention.head_count"));
  data.SetIf("intermediate_size", data.Int("feed_forward_length"));
  SetScaling(data);
}

void SetDeepseek(GgufMetadata& data) {
  SetLatents(data);
  // Files before groups were written: V3 and R1 have 256 experts, V2 160.
  const bool third = data.type() == "deepseek_v3";
  const bool grouped = data.Int("expert_count") == (third ? 256 : 160);
  SetRoutedExperts(data, grouped ? 8 : 1, grouped ? (third ? 4 : 3) : 1);
  const int64_t groups = data.Int("expert_group_count").value_or(grouped ? 8 : 1);
  data.Int("expert_gating_func");  // says which of the two it is
  if (!third) data.Set("topk_method", groups > 1 ? "group_limited_greedy" : "greedy");
}

void SetMinicpmScales(GgufMetadata& data, double embedding, double depth, double base) {
  data.Set("scale_emb", embedding);
  data.Set("scale_depth", depth);
  data.Set("dim_model_base", base);
}

// Files before the three were written are of models that have these numbers.
constexpr double kMinicpmEmbedding = 12, kMinicpmDepth = 1.4, kMinicpmBase = 256;

void SetMinicpm(GgufMetadata& data) {
  SetDecoder(data);
  const auto embedding = data.Real("embedding_scale"), branch = data.Real("residual_scale"),
             logits = data.Real("logit_scale");
  const double layers = static_cast<double>(GgufLayers(data));
  const double hidden = static_cast<double>(data.Int("embedding_length").value_or(0));
  SetMinicpmScales(data, embedding.value_or(kMinicpmEmbedding),
                   branch ? SixDigits(*branch * std::sqrt(layers)) : kMinicpmDepth,
                   logits && *logits > 0 ? SixDigits(hidden / *logits) : kMinicpmBase);
  SetAttentionBias(data, "attention_bias");
}

// No file has the three numbers, which are those of the one published model.
void SetMinicpm3(GgufMetadata& data) {
  SetLatents(data);
  SetMinicpmScales(data, kMinicpmEmbedding, kMinicpmDepth, kMinicpmBase);
}

void SetQwen2Moe(GgufMetadata& data) {
  SetDecoder(data);
  SetExpertSizes(data);
  data.Set("norm_topk_prob", false);
  SetAttentionBias(data, "qkv_bias");
}

void SetOlmoe(GgufMetadata& data) {
  SetDecoder(data);
  data.SetIf("num_experts", data.Int("expert_count"));
  data.Set("norm_topk_prob", false);
  SetAttentionBias(data, "attention_bias");
}

void SetOlmo(GgufMetadata& data) {
  SetDecoder(data);
  SetAttentionBias(data, "attention_bias");
  if (data.type() == "olmo3") SetSliding(data);
}

void SetDots1(GgufMetadata& data) {
  SetDecoder(data);
  SetRoutedExperts(data);
  NeedSigmoid(data);
  SetAttentionBias(data, "attention_bias");
  data.Set("sliding_window", nullptr);
}

void SetGlm(GgufMetadata& data) {
  SetDecoder(data, "partial_rotary_factor");
  SetAttentionBias(data, "attention_bias");
}

void SetGlm4Moe(GgufMetadata& data) {
  SetGlm(data);
  SetRoutedExperts(data);
  NeedSigmoid(data);
  SetBias(data, "use_qk_norm", "attn_q_norm.weight");
}

// Multipliers of embeddings, of what layers add, of attention and of logits.
void SetGranite(GgufMetadata& data) {
  SetDecoder(data);
  data.SetIf("embedding_multiplier", data.Real("embedding_scale"));
  data.SetIf("residual_multiplier", data.Real("residual_scale"));
  data.SetIf("attention_multiplier", data.Real("attention.scale"));
  data.SetIf("logits_scaling", data.Real("logit_scale"));
  SetAttentionBias(data, "attention_bias");
  SetBias(data, "mlp_bias", "ffn_up.bias");
  if (!data.Bool("rope.scaling.finetuned").value_or(true)) {
    data.Refuse("rope.scaling.finetuned", "a Granite whose layers do not turn, expected true");
  }
  // A Granite 4 without states is one, whose file has keys of the hybrids as well.
  data.SetIf("intermediate_size", data.RowsInLayers("ffn_up.weight"));
  data.Drop("num_experts_per_tok");
  for (const std::string_view key :
       {"expert_count", "expert_shared_feed_forward_length", "ssm.conv_kernel", "ssm.state_size",
        "ssm.group_count", "ssm.inner_size", "ssm.time_step_rank"}) {
    data.Take(key);
  }
}

void SetCohere(GgufMetadata& data) {
  SetDecoder(data);
  SetLayerNormEps(data, "layer_norm_eps");
  data.SetIf("logit_scale", data.Real("logit_scale"));
  SetAttentionBias(data, "attention_bias");
  if (data.type() == "cohere") {
    SetBias(data, "use_qk_norm", "attn_q_norm.weight");
  } else if (!SetSliding(data)) {
    data.Set("sliding_window_pattern", 4);  // that of every published model
  }
}

void SetInternlm2(GgufMetadata& data) {
  SetDecoder(data);
  SetBias(data, "bias", "attn_output.bias");
}

// Files without a pattern are of the model without windows, or of the one with 64 layers, whose
// every fourth layer is full.
void SetExaone4(GgufMetadata& data) {
  constexpr int64_t kLayersOf32B = 64, kWindowOf32B = 4096;
  SetDecoder(data);
  const auto window = data.Int("attention.sliding_window");
  const bool slides = window.value_or(0) > 0 || GgufLayers(data) == kLayersOf32B;
  if (slides) {
    data.Set("sliding_window", window.value_or(kWindowOf32B));
    if (!SetSliding(data)) data.Set("sliding_window_pattern", 4);
  } else {
    data.Set("sliding_window", nullptr);
    data.Set("sliding_window_pattern", nullptr);
  }
}

void SetSeedOss(GgufMetadata& data) {
  SetDecoder(data);
  SetAttentionBias(data, "attention_bias");
  SetBias(data, "attention_out_bias", "attn_output.bias");
  SetBias(data, "mlp_bias", "ffn_up.bias");
}

void SetErnie45(GgufMetadata& data) {
  SetDecoder(data);
  SetAttentionBias(data, "use_bias");
}

// No file says that the published models, which were trained on 16384 positions, see windows.
void SetStarcoder2(GgufMetadata& data) {
  constexpr int64_t kTrained = 16384, kWindow = 4096;
  SetDecoder(data);
  SetLayerNormEps(data, "norm_epsilon");
  SetAttentionBias(data, "use_bias");
  const bool windows = data.Int("context_length") == kTrained;
  data.Set("sliding_window", windows ? Json(kWindow) : Json(nullptr));
}

// The key of parallel residuals is true in files of models that have none: their tensors say it.
void SetStablelm(GgufMetadata& data) {
  SetDecoder(data, "partial_rotary_factor");
  SetLayerNormEps(data, "layer_norm_eps");
  data.Bool("use_parallel_residual");
  data.Set("use_parallel_residual", !data.HasInLayers("ffn_norm.weight"));
  SetAttentionBias(data, "use_qkv_bias");
  SetBias(data, "qk_layernorm", "attn_q_norm.weight");
}

void SetPhi(GgufMetadata& data) {
  SetDecoder(data, "partial_rotary_factor");
  SetLayerNormEps(data, "layer_norm_eps");
  // The converter writes four times the width, whatever it is.
  data.SetIf("intermediate_size", data.RowsInLayers("ffn_up.weight"));
}

// BLOOM and Falcon share names. Widths of MLPs are those of the tensors.
void SetBloom(GgufMetadata& data) {
  SetLayerNormEps(data, "layer_norm_epsilon");
  data.Int("feed_forward_length");
  data.Rename("num_hidden_layers", "n_layer");
  data.Rename("num_attention_heads", "n_head");
  data.Rename("max_position_embeddings", "seq_length");
  data.Drop("num_key_value_heads");
}

void SetFalcon(GgufMetadata& data) {
  SetLayerNormEps(data, "layer_norm_epsilon");
  data.Int("feed_forward_length");
  data.SetIf("ffn_hidden_size", data.RowsInLayers("ffn_up.weight"));
  data.Rename("num_key_value_heads", "num_kv_heads");
  // 40B and 180B norm twice, 11B once; 7B has one head of keys.
  const bool two = data.HasInLayers("attn_norm_2.weight");
  const bool grouped = two || data.Int("attention.head_count_kv").value_or(1) > 1;
  data.Set("new_decoder_architecture", grouped);
  if (grouped) data.Set("num_ln_in_parallel_attn", two ? 2 : 1);
  data.Set("multi_query", true);
  data.Set("parallel_attn", true);
  data.Set("alibi", false);
  SetAttentionBias(data, "bias");
}

void SetGptNeox(GgufMetadata& data) {
  SetOwnHeads(data, "rotary_pct");
  data.Drop("head_dim");
  data.Drop("num_key_value_heads");
  SetLayerNormEps(data, "layer_norm_eps");
  data.SetIf("intermediate_size", data.Int("feed_forward_length"));
  data.Rename("rope_theta", "rotary_emb_base");
  data.Set("use_parallel_residual", data.Bool("use_parallel_residual").value_or(true));
  SetAttentionBias(data, "attention_bias");
  // No file says that the model of 20B was trained with the other GELU.
  constexpr int64_t kLayersOf20B = 44, kHiddenOf20B = 6144;
  if (GgufLayers(data) == kLayersOf20B && data.Int("embedding_length") == kHiddenOf20B) {
    data.Set("hidden_act", "gelu_fast");
  }
  SetScaling(data);
}

void SetMpt(GgufMetadata& data) {
  SetLayerNormEps(data, "layer_norm_epsilon");
  data.Int("feed_forward_length");
  data.Rename("hidden_size", "d_model");
  data.Rename("num_hidden_layers", "n_layers");
  data.Rename("num_attention_heads", "n_heads");
  data.Rename("max_position_embeddings", "max_seq_len");
  data.Drop("num_key_value_heads");
  const double most = data.Real("attention.max_alibi_bias").value_or(0.0);
  if (most <= 0) {
    data.Refuse("attention.max_alibi_bias", "an MPT whose scores do not count distances");
  }
  Json attention = {{"alibi", true}, {"alibi_bias_max", most}};
  if (const auto limit = data.Real("attention.clamp_kqv")) attention["clip_qkv"] = *limit;
  data.Set("attn_config", std::move(attention));
}

struct OwnFamily {
  std::string_view model_type;
  void (*set)(GgufMetadata& data);
};
constexpr OwnFamily kOwnFamilies[] = {
    {"bloom", SetBloom},
    {"cohere", SetCohere},
    {"cohere2", SetCohere},
    {"deepseek_v2", SetDeepseek},
    {"deepseek_v3", SetDeepseek},
    {"dots1", SetDots1},
    {"ernie4_5", SetErnie45},
    {"exaone4", SetExaone4},
    {"falcon", SetFalcon},
    {"glm", SetGlm},
    {"glm4", SetGlm},
    {"glm4_moe", SetGlm4Moe},
    {"gpt_neox", SetGptNeox},
    {"granite", SetGranite},
    {"internlm2", SetInternlm2},
    {"minicpm", SetMinicpm},
    {"minicpm3", SetMinicpm3},
    {"mpt", SetMpt},
    {"olmo2", SetOlmo},
    {"olmo3", SetOlmo},
    {"olmoe", SetOlmoe},
    {"phi", SetPhi},
    {"qwen2_moe", SetQwen2Moe},
    {"seed_oss", SetSeedOss},
    {"stablelm", SetStablelm},
    {"starcoder2", SetStarcoder2},
};

}  // namespace

bool SetOwnFamily(GgufMetadata& data) {
  const auto* const found = std::ranges::find(kOwnFamilies, data.type(), &OwnFamily::model_type);
  if (found == std::end(kOwnFamilies)) return false;
  found->set(data);
  return true;
}

}  // namespace kvgauge
