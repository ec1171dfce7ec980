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

constexpr GgufName kGemma[] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_norm", "pre_feedforward_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
};

constexpr GgufName kPhi3[] = {
    {"attn_qkv", "self_attn.qkv_proj"},
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_up", "mlp.gate_up_proj"},
    {"ffn_down", "mlp.down_proj"},
};

constexpr GgufArchitecture kArchitectures[] = {
    {.name = "gemma2", .model_type = "gemma2", .norms_plus_one = true, .layer = kGemma},
    {.name = "gemma3", .model_type = "gemma3_text", .norms_plus_one = true, .layer = kGemma},
    {.name = "llama", .model_type = "llama", .paired = true, .layer = kLlama},
    {.name = "llama", .model_type = "mixtral", .mixture = true, .paired = true, .layer = kMixtral},
    {.name = "phi3", .model_type = "phi3", .layer = kPhi3},
    {.name = "qwen2", .model_type = "qwen2", .layer = kLlama},
    {.name = "qwen3", .model_type = "qwen3", .layer = kLlama},
    {.name = "qwen3moe", .model_type = "qwen3_moe", .mixture = true, .layer = kQwenMoe},
};

const GgufName* FindName(std::span<const GgufName> names, std::string_view file) {
  const auto found = std::ranges::find(names, file, &GgufName::file);
  return found == names.end() ? nullptr : &*found;
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
  const std::string_view kind = name.substr(dot);
  if (kind != ".weight" && kind != ".bias") return std::nullopt;
  const std::string_view stem = name.substr(0, dot);
  GgufPlace place;
  std::string_view part = stem;
  const GgufName* found = FindName(kTop, stem);
  if (found != nullptr) {
    place.name = StrCat(found->checkpoint, kind);
  } else {
    const std::optional<NumberedName> layer = SplitLayer(stem);
    if (!layer) return std::nullopt;
    part = layer->rest;
    found = FindName(architecture.layer, part);
    if (found == nullptr) found = FindName(kAttention, part);
    if (found == nullptr) return std::nullopt;
    place.name = StrCat("model.layers.", layer->layer, ".", found->checkpoint, kind);
  }
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
