// SPDX-License-Identifier: Apache-2.0
#include "src/config/gguf_rope.h"

#include <cmath>
#include <string>
#include <utility>

#include "core/json.h"
#include "src/config/gguf_metadata.h"

namespace kvgauge {
namespace {

// Divisors of frequencies that the file has as tensors: those of long and short texts (Phi-3), or
// one list (Llama-3.1), which is then both.
void SetListedScaling(GgufMetadata& data, Json scaling) {
  const auto both = GgufNumbers(data.file(), "rope_freqs.weight");
  auto longer = GgufNumbers(data.file(), "rope_factors_long.weight");
  auto shorter = GgufNumbers(data.file(), "rope_factors_short.weight");
  if (both) longer = shorter = both;
  if (!longer || !shorter) {
    return data.Fail("rope.scaling.type", "tensors rope_factors_long and rope_factors_short");
  }
  scaling["long_factor"] = *longer;
  scaling["short_factor"] = *shorter;
  data.Set("rope_scaling", std::move(scaling));
}

void SetYarn(GgufMetadata& data, std::optional<int64_t> original, Json& scaling) {
  if (original) scaling["original_max_position_embeddings"] = *original;
  struct Named {
    std::string_view file, config;
  };
  for (const Named& key : {Named{"rope.scaling.yarn_beta_fast", "beta_fast"},
                           Named{"rope.scaling.yarn_beta_slow", "beta_slow"},
                           Named{"rope.scaling.yarn_attn_factor", "attention_factor"}}) {
    if (const auto value = data.Real(key.file)) scaling[std::string(key.config)] = *value;
  }
  if (const auto ramp = data.Real("rope.scaling.yarn_ext_factor"); ramp && *ramp != 1.0) {
    data.Refuse("rope.scaling.yarn_ext_factor", "a ramp that counts for a part, expected 1");
  }
  // DeepSeek's files have a tenth of mscale_all_dim, and no mscale, which is the same number.
  const bool latent = data.type() == "deepseek_v2" || data.type() == "deepseek_v3";
  if (latent) {
    if (const auto tenth = data.Real("rope.scaling.yarn_log_multiplier")) {
      scaling["mscale"] = scaling["mscale_all_dim"] = std::round(*tenth * 1e7) / 1e6;
    }
  }
  // What every published checkpoint of the family says, and no file.
  if (data.type() == "gpt_oss") scaling["truncate"] = false;
}

}  // namespace

std::optional<std::vector<double>> GgufNumbers(const GgufFile& file, std::string_view name) {
  constexpr int64_t kMost = 1 << 14;
  const GgufTensor* tensor = file.FindTensor(name);
  if (tensor == nullptr || tensor->shape.size() != 1 || tensor->shape[0] > kMost ||
      tensor->type->elements != 1) {
    return std::nullopt;
  }
  std::vector<float> floats(static_cast<size_t>(tensor->shape[0]));
  ReadBlocks(*tensor->type, file.BytesOf(*tensor).data(), tensor->shape[0], floats.data());
  return std::vector<double>(floats.begin(), floats.end());
}

void SetScaling(GgufMetadata& data) {
  std::string type = data.Text("rope.scaling.type");
  std::optional<double> factor = data.Real("rope.scaling.factor");
  if (const auto old = data.Real("rope.scale_linear"); old && !factor) {
    factor = old;
    if (type.empty()) type = "linear";
  }
  const auto original = data.Int("rope.scaling.original_context_length");
  const auto magnitude = data.Real("rope.scaling.attn_factor");
  const bool lists = data.file().FindTensor("rope_factors_long.weight") != nullptr;
  if (data.file().FindTensor("rope_freqs.weight") != nullptr) {
    if (!type.empty() && type != "none") {
      return data.Refuse("rope.scaling.type", "a scaling beside the list rope_freqs");
    }
    return SetListedScaling(data, {{"rope_type", "longrope"}, {"attention_factor", 1.0}});
  }
  if (lists) {
    Json scaling = {{"type", "longrope"}};
    data.SetIf("original_max_position_embeddings", original);
    if (data.type() == "phimoe") {
      if (!magnitude) return data.Fail("rope.scaling.attn_factor", "a factor beside the two lists");
      scaling["short_mscale"] = scaling["long_mscale"] = *magnitude;
    } else if (magnitude) {
      scaling["attention_factor"] = *magnitude;
    }
    return SetListedScaling(data, std::move(scaling));
  }
  if (magnitude && *magnitude != 1.0) {
    return data.Refuse("rope.scaling.attn_factor", "a factor beside this scaling");
  }
  if (type.empty() || type == "none") {
    if (factor && *factor != 1.0 && *factor != 0.0)
      data.Fail("rope.scaling.type", "linear or yarn");
    return;
  }
  if (type != "linear" && type != "yarn") {
    return data.Fail("rope.scaling.type", "none, linear, yarn or longrope with its tensors");
  }
  if (!factor) return data.Fail("rope.scaling.factor", "a factor");
  Json scaling = {{"rope_type", type}, {"factor", *factor}};
  if (type == "yarn") SetYarn(data, original, scaling);
  data.Set("rope_scaling", std::move(scaling));
}

}  // namespace kvgauge
