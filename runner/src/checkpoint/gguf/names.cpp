// SPDX-License-Identifier: Apache-2.0
#include "src/checkpoint/gguf/names.h"

#include <algorithm>
#include <charconv>

#include "core/strings.h"
#include "src/checkpoint/gguf/architectures.h"

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

const GgufName* FindName(std::span<const GgufName> names, std::string_view file) {
  const auto found = std::ranges::find(names, file, &GgufName::file);
  return found == names.end() ? nullptr : &*found;
}

const GgufName* FindInLayer(const GgufArchitecture& architecture, std::string_view file) {
  const GgufName* found = FindName(architecture.layer, file);
  return found != nullptr ? found : FindName(architecture.more, file);
}

const GgufMade* FindMade(const GgufArchitecture& architecture, std::string_view part) {
  const auto found = std::ranges::find_if(architecture.made, [&](const GgufMade& made) {
    return std::ranges::find(made.parts, part) != made.parts.end();
  });
  return found == architecture.made.end() ? nullptr : &*found;
}

std::string NameIn(const GgufArchitecture& architecture, std::string_view scope,
                   std::string_view checkpoint, std::string_view kind) {
  if (!checkpoint.starts_with('@')) return StrCat(scope, checkpoint, kind);
  return StrCat(scope, architecture.state, checkpoint.substr(1), kind);
}

}  // namespace

std::optional<NumberedName> SplitGgufLayer(std::string_view name) {
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

const GgufArchitecture* FindGgufArchitecture(std::string_view name, bool mixture,
                                             const GgufHeader& header) {
  for (const GgufArchitecture& architecture : GgufArchitectures()) {
    if (architecture.name != name || architecture.mixture != mixture) continue;
    if (architecture.fits == nullptr || architecture.fits(header)) return &architecture;
  }
  return nullptr;
}

std::vector<std::string> GgufArchitectureNames() {
  std::vector<std::string> names;
  for (const GgufArchitecture& architecture : GgufArchitectures()) {
    if (names.empty() || names.back() != architecture.name) names.emplace_back(architecture.name);
  }
  return names;
}

std::optional<GgufPlace> PlaceOfGgufTensor(const GgufArchitecture& architecture,
                                           std::string_view name) {
  GgufPlace place;
  std::string scope;  // "model.layers.12."
  std::string_view rest = name;
  const std::optional<NumberedName> layer = SplitGgufLayer(name);
  if (layer) {
    rest = layer->rest;
    scope = StrCat(architecture.layers, layer->layer, ".");
    // One with its ending, or without any, says all of the name.
    const GgufName* whole = FindInLayer(architecture, rest);
    if (whole != nullptr && (whole->whole || rest.find('.') != std::string_view::npos)) {
      place.name = NameIn(architecture, scope, whole->checkpoint, "");
      place.form = whole->form;
      return place;
    }
  }
  const size_t dot = rest.rfind('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const std::string_view part = rest.substr(0, dot), kind = rest.substr(dot);
  if (kind != ".weight" && kind != ".bias") return std::nullopt;
  place.paired = architecture.paired && (part == "attn_q" || part == "attn_k");
  const GgufName* found = nullptr;
  if (!layer) {
    found = FindName(architecture.top, part);
    if (found == nullptr) found = FindName(kTop, part);
  } else if ((place.made = FindMade(architecture, part)) != nullptr) {
    place.name = StrCat(scope, place.made->checkpoint, kind);
    return place;
  } else {
    found = FindInLayer(architecture, part);
    if (found == nullptr) found = FindName(kAttention, part);
    if (found == nullptr && part == "attn_qkv") {
      place.name = StrCat(scope, "self_attn.", part, kind);
      place.fused = true;
      return place;
    }
  }
  if (found == nullptr) return std::nullopt;
  place.name = NameIn(architecture, scope, found->checkpoint, kind);
  if (!found->second.empty()) place.second = StrCat(scope, found->second, kind);
  place.stacked = place.name.find('#') != std::string::npos;
  place.plus_one = architecture.norms_plus_one && part.ends_with("_norm") && part != "ssm_norm" &&
                   kind == ".weight";
  place.unrounded = part == "ffn_gate_inp";
  if (kind == ".weight") place.form = found->form;
  return place;
}

bool IsGgufRopeTensor(std::string_view name) {
  return name == "rope_freqs.weight" || name == "rope_factors_long.weight" ||
         name == "rope_factors_short.weight";
}

}  // namespace kvgauge
