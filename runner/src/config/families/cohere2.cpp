// SPDX-License-Identifier: Apache-2.0
#include "core/strings.h"
#include "src/config/cohere.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

void ReadCohere2(ConfigReader& reader, ModelConfig& config) {
  ReadCohereParts(reader, config);
  const int64_t pattern = reader.Int("sliding_window_pattern", 4, 1, kMostLayers);
  const int64_t other = reader.Int("_sliding_window_pattern", pattern, 1, kMostLayers);
  if (reader.Has("sliding_window_pattern") && other != pattern) {
    reader.Fail("_sliding_window_pattern",
                StrCat("the same as key 'sliding_window_pattern' (", pattern, ")"));
  }
  const int64_t window = ReadWindow(reader, "sliding_window", 4096);
  if (window == 0) {
    reader.Fail("sliding_window", "a positive window: this family has sliding layers");
  }
  const std::optional<std::vector<bool>> said = ReadLayerTypes(reader, config);
  std::vector<bool> still;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const bool slides = said ? (*said)[i] : (static_cast<int64_t>(i) + 1) % other != 0;
    if (slides) config.layers[i].window = window;
    still.push_back(!slides);
  }
  ReadRope(reader, {.head_dim = config.key_dim, .layout = RopeLayout::kInterleaved}, config);
  StopRopeIn(still, config);
  reader.Neutral("use_qk_norm", false);
  reader.Neutral("order_of_interleaved_layers", std::string_view("local_attn_first"));
  if (reader.Real("rotary_pct", 1.0, 0, 1) != 1.0) {
    reader.Fail("rotary_pct", "1: this family rotates whole heads");
  }
  reader.Ignore({"layer_switch"});
}

}  // namespace

KVG_MODEL_FAMILY(cohere2,
                 {.title = "Command R7B, Command A",
                  .notes = "as cohere; three of four layers slide, and the others do not turn",
                  .read = ReadCohere2})

}  // namespace kvgauge
