// SPDX-License-Identifier: Apache-2.0
// What the readers of Gemma-2 and Gemma-3 share.
#pragma once

#include <vector>

#include "src/config/common.h"

namespace kvgauge {

struct GemmaDefaults {
  int64_t max_position = 0;
  // Caps of attention scores and of logits; 0: none.
  double attention_cap = 0;
  double logit_cap = 0;
};
// All but the rope and the windows.
void ReadGemma(ConfigReader& reader, const GemmaDefaults& defaults, ModelConfig& config);

// sliding_window for the layers that layer_types says slide, or for those of `sliding`.
void ReadGemmaWindows(ConfigReader& reader, const std::vector<bool>& sliding, ModelConfig& config,
                      int64_t default_window = 4096);
// A cap, or 0 for null. Absent is the class default.
float ReadGemmaCap(ConfigReader& reader, std::string_view key, double fallback);
// So many last layers read the cache of the last layer of their kind before them.
void ShareGemmaCaches(ConfigReader& reader, int64_t shared, ModelConfig& config);
// hidden_activation decides. Early exports also carry a hidden_act, wrongly "gelu" in some.
void ReadGemmaActivation(ConfigReader& reader, ModelConfig& config);

}  // namespace kvgauge
