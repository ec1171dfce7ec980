// SPDX-License-Identifier: Apache-2.0
#include "core/strings.h"
#include "src/config/family.h"
#include "src/config/gemma.h"

namespace kvgauge {
namespace {

// Every `pattern`-th layer is full. Files have the number under either name, or none.
int64_t ReadPattern(ConfigReader& reader) {
  constexpr std::string_view kKey = "sliding_window_pattern", kOther = "_sliding_window_pattern";
  const int64_t pattern = reader.Int(kKey, 6, 1, kMostLayers);
  const int64_t other = reader.Int(kOther, pattern, 1, kMostLayers);
  if (reader.Has(kKey) && other != pattern) {
    reader.Fail(kOther, StrCat("the same as key '", kKey, "' (", pattern, ")"));
  }
  return other;
}

void ReadGemma3(ConfigReader& reader, ModelConfig& config) {
  ReadGemma(reader, {.max_position = 131072}, config);
  config.qk_norm = true;
  const int64_t pattern = ReadPattern(reader);
  std::vector<bool> sliding;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    sliding.push_back((static_cast<int64_t>(i) + 1) % pattern != 0);
  }
  ReadGemmaWindows(reader, sliding, config);
  for (LayerConfig& layer : config.layers) layer.local_rope = layer.window > 0;
  ReadLayerRopes(reader, {.head_dim = config.key_dim, .theta = 1e6}, 1e4, config);
}

}  // namespace

KVG_MODEL_FAMILY(gemma3_text, {.title = "Gemma-3",
                               .notes = "a rope for windows and one for full layers; norms of "
                                        "queries and keys",
                               .read = ReadGemma3})

}  // namespace kvgauge
