// SPDX-License-Identifier: Apache-2.0
// Qwen2-VL: patches of a picture of any size, turned by row and column, merged in squares.
#include "core/strings.h"
#include "src/vision/common.h"

namespace kvgauge {
namespace {

void ReadQwen2Vl(ConfigReader&, ConfigReader& tower, VisionSpec& spec) {
  ReadQwenTower(tower, "embed_dim", 1280, "quick_gelu", spec);
  const double ratio = tower.Real("mlp_ratio", 4.0, 1.0 / 64, 64.0);
  spec.tower.ffn = static_cast<int64_t>(static_cast<double>(spec.tower.width) * ratio);
  spec.hidden_size = tower.Int("hidden_size", 3584, 1, kMostTowerWidth);
}

const VisionNames& Qwen2VlPartNames(const VisionSpec&) {
  static const VisionNames names = {
      .tower_prefixes = {"visual.", "model.visual."},
      .tower = QwenNames(),
      .projector_prefixes = {},
      .projector = {.norm = "merger.ln_q", .first = "merger.mlp.0", .second = "merger.mlp.2"}};
  return names;
}

}  // namespace

KVG_VISION_FAMILY(qwen2_vl, {.title = "Qwen2-VL", .read = ReadQwen2Vl, .names = Qwen2VlPartNames})

}  // namespace kvgauge
