// SPDX-License-Identifier: Apache-2.0
#include "src/config/family.h"
#include "src/config/gemma.h"

namespace kvgauge {
namespace {

void ReadGemma2(ConfigReader& reader, ModelConfig& config) {
  ReadGemma(reader, {.max_position = 8192, .attention_cap = 50.0, .logit_cap = 30.0}, config);
  ReadRope(reader, {.head_dim = config.key_dim}, config);
  std::vector<bool> sliding;
  for (size_t i = 0; i < config.layers.size(); ++i) sliding.push_back(i % 2 == 0);
  ReadGemmaWindows(reader, sliding, config);
}

}  // namespace

KVG_MODEL_FAMILY(gemma2, {.title = "Gemma-2",
                          .notes = "soft caps; alternating windows",
                          .read = ReadGemma2})

}  // namespace kvgauge
