// SPDX-License-Identifier: Apache-2.0
#include "src/checkpoint/gguf/names.h"

#include <algorithm>
#include <charconv>

#include "core/strings.h"

namespace kvgauge {
namespace {

constexpr GgufName kTop[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
    {"per_layer_token_embd", "model.embed_tokens_per_layer"},
    {"per_layer_model_proj", "model.per_layer_model_projection"},
    {"per_layer_proj_norm", "model.per_layer_projection_norm"},
};

constexpr GgufName kAttention[] = {
    {"attn_norm", "input_layernorm"},    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},      {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"}, {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"},
};

constexpr GgufName kLlama[] = {
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
};

constexpr GgufName kLlama4[] = {
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "feed_forward.gate_proj"},
    {"ffn_up", "feed_forward.up_proj"},
    {"ffn_down", "feed_forward.down_proj"},
    {"ffn_gate_inp", "feed_forward.router"},
    {"ffn_gate_exps", "feed_forward.experts.#.gate_proj"},
    {"ffn_up_exps", "feed_forward.experts.#.up_proj"},
    {"ffn_down_exps", "feed_forward.experts.#.down_proj"},
    {"ffn_gate_shexp", "feed_forward.shared_expert.gate_proj"},
    {"ffn_up_shexp", "feed_forward.shared_expert.up_proj"},
    {"ffn_down_shexp", "feed_forward.shared_expert.down_proj"},
};

// Phi-3.5-MoE's too.
constexpr GgufName kMixtral[] = {
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate_inp", "block_sparse_moe.gate"},
    {"ffn_gate_exps", "block_sparse_moe.experts.#.w1"},
    {"ffn_up_exps", "block_sparse_moe.experts.#.w3"},
    {"ffn_down_exps", "block_sparse_moe.experts.#.w2"},
};

constexpr GgufName kQwenMoe[] = {
    {"ffn_norm", "post_attention_layernorm"},     {"ffn_gate_inp", "mlp.gate"},
    {"ffn_gate_exps", "mlp.experts.#.gate_proj"}, {"ffn_up_exps", "mlp.experts.#.up_proj"},
    {"ffn_down_exps", "mlp.experts.#.down_proj"},
};

constexpr GgufName kGptOss[] = {
    {"attn_sinks.weight", "self_attn.sinks"}, {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_gate_inp", "mlp.router"},           {"ffn_gate_exps", "mlp.experts.#.gate_proj"},
    {"ffn_up_exps", "mlp.experts.#.up_proj"}, {"ffn_down_exps", "mlp.experts.#.down_proj"},
};

constexpr GgufName kGemma[] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_norm", "pre_feedforward_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
};

// What it has beside kGemma. Its experts are stacked, gates in front of what they open or apart
// from it.
constexpr GgufName kGemma4[] = {
    {"layer_output_scale.weight", "layer_scalar"},
    {"inp_gate", "per_layer_input_gate"},
    {"proj", "per_layer_projection"},
    {"post_norm", "post_per_layer_input_norm"},
    {"pre_ffw_norm_2", "pre_feedforward_layernorm_2"},
    {"post_ffw_norm_1", "post_feedforward_layernorm_1"},
    {"post_ffw_norm_2", "post_feedforward_layernorm_2"},
    {"ffn_gate_inp", "router.proj"},
    {"ffn_gate_inp.scale", "router.scale"},
    {"ffn_gate_up_exps", "experts.#.gate_proj", "experts.#.up_proj"},
    {"ffn_gate_exps", "experts.#.gate_proj"},
    {"ffn_up_exps", "experts.#.up_proj"},
    {"ffn_down_exps", "experts.#.down_proj"},
    {"ffn_down_exps.scale", "router.per_expert_scale"},
};

constexpr GgufName kPhi3[] = {
    {"attn_qkv", "self_attn.qkv_proj"},
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_up", "mlp.gate_up_proj"},
    {"ffn_down", "mlp.down_proj"},
};

constexpr GgufArchitecture kArchitectures[] = {
    {.name = "gemma", .model_type = "gemma", .norms_plus_one = true, .layer = kLlama},
    {.name = "gemma2", .model_type = "gemma2", .norms_plus_one = true, .layer = kGemma},
    {.name = "gemma3", .model_type = "gemma3_text", .norms_plus_one = true, .layer = kGemma},
    {.name = "gemma4", .model_type = "gemma4_text", .layer = kGemma, .more = kGemma4},
    {.name = "gemma4",
     .model_type = "gemma4_text",
     .mixture = true,
     .layer = kGemma,
     .more = kGemma4},
    {.name = "gpt-oss", .model_type = "gpt_oss", .mixture = true, .layer = kGptOss},
    {.name = "llama", .model_type = "llama", .paired = true, .layer = kLlama},
    {.name = "llama", .model_type = "mixtral", .mixture = true, .paired = true, .layer = kMixtral},
    {.name = "llama4", .model_type = "llama4_text", .mixture = true, .layer = kLlama4},
    {.name = "phi3", .model_type = "phi3", .layer = kPhi3},
    {.name = "phimoe", .model_type = "phimoe", .mixture = true, .layer = kMixtral},
    {.name = "qwen2", .model_type = "qwen2", .layer = kLlama},
    {.name = "qwen3", .model_type = "qwen3", .layer = kLlama},
    {.name = "qwen3moe", .model_type = "qwen3_moe", .mixture = true, .layer = kQwenMoe},
    {.name = "smollm3", .model_type = "smollm3", .paired = true, .layer = kLlama},
};

const GgufName* FindName(std::span<const GgufName> names, std::string_view file) {
  const auto found = std::ranges::find(names, file, &GgufName::file);
  return found == names.end() ? nullptr : &*found;
}

const GgufName* FindInLayer(const GgufArchitecture& architecture, std::string_view file) {
  const GgufName* found = FindName(architecture.layer, file);
  return found != nullptr ? found : FindName(architecture.more, file);
}

// "blk.12.rest": 12 and "rest".
struct NumberedName {
  int64_t layer;
  std::string_view rest;
};
std::optional<NumberedName> SplitLayer(std::string_view name) {
  constexpr std::string_view kScope = "blk.";
  if (!name.starts_with(kScope)) return std::nullopt;
  name.remove_prefix(kScope.size());
  int64_t layer = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  const auto digits = static_cast<size_t>(end - name.data());
  // One spelling per number, so that no two tensors have one name.
  if (error != std::errc() || layer < 0 || std::to_string(layer).size() != digits ||
      digits >= name.size() || name[digits] != '.') {
    return std::nullopt;
  }
  return NumberedName{layer, name.substr(digits + 1)};
}

}  // namespace

const GgufArchitecture* FindGgufArchitecture(std::string_view name, bool mixture) {
  for (const GgufArchitecture& architecture : kArchitectures) {
    if (architecture.name == name && architecture.mixture == mixture) return &architecture;
  }
  return nullptr;
}

std::vector<std::string> GgufArchitectureNames() {
  std::vector<std::string> names;
  for (const GgufArchitecture& architecture : kArchitectures) {
    if (names.empty() || names.back() != architecture.name) names.emplace_back(architecture.name);
  }
  return names;
}

std::optional<GgufPlace> PlaceOfGgufTensor(const GgufArchitecture& architecture,
                                           std::string_view name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const std::string_view stem = name.substr(0, dot), kind = name.substr(dot);
  GgufPlace place;
  std::string_view part = stem;
  std::string scope;  // "model.layers.12."
  const GgufName* found = FindName(kTop, stem);
  if (found == nullptr) {
    const std::optional<NumberedName> layer = SplitLayer(stem);
    if (!layer) return std::nullopt;
    part = layer->rest;
    scope = StrCat("model.layers.", layer->layer, ".");
    // One with its ending says all of the name.
    if (const GgufName* whole = FindInLayer(architecture, StrCat(part, kind))) {
      place.name = StrCat(scope, whole->checkpoint);
      return place;
    }
    found = FindInLayer(architecture, part);
    if (found == nullptr) found = FindName(kAttention, part);
  }
  if (found == nullptr || (kind != ".weight" && kind != ".bias")) return std::nullopt;
  place.name = StrCat(scope, found->checkpoint, kind);
  if (!found->second.empty()) place.second = StrCat(scope, found->second, kind);
  place.stacked = place.name.find('#') != std::string::npos;
  place.paired = architecture.paired && (part == "attn_q" || part == "attn_k");
  place.plus_one = architecture.norms_plus_one && part.ends_with("_norm") && kind == ".weight";
  place.unrounded = part == "ffn_gate_inp";
  return place;
}

bool IsGgufRopeTensor(std::string_view name) {
  return name == "rope_freqs.weight" || name == "rope_factors_long.weight" ||
         name == "rope_factors_short.weight";
}

}  // namespace kvgauge
