// SPDX-License-Identifier: Apache-2.0
// Qwen2.5-VL: most blocks attend within windows; gated MLPs with biases, RMSNorm.
#include "core/strings.h"
#include "src/vision/common.h"

namespace kvgauge {
namespace {

void ReadQwen25Vl(ConfigReader&, ConfigReader& tower, VisionSpec& spec) {
  TowerSpec& t = spec.tower;
  ReadQwenTower(tower, "hidden_size", 3584, "silu", spec);
  t.ffn = tower.Int("intermediate_size", 3420, 1, kMostTowerFfn);
  t.gated = true;
  t.norm = TowerNorm::kRms;
  const int64_t window = tower.Int("window_size", 112, 1, kMostImageSide);
  t.window = window / spec.merge / t.patch;
  if (t.window == 0) {
    tower.Fail("window_size",
               StrCat("at least spatial_merge_size times patch_size (", spec.merge * t.patch, ")"));
  }
  t.full_layers = tower.IntOrInts("fullatt_block_indexes", 0, kMostTowerLayers);
  if (!tower.Has("fullatt_block_indexes")) t.full_layers = {7, 15, 23, 31};
  spec.hidden_size = tower.Int("out_hidden_size", 3584, 1, kMostTowerWidth);
  // Positions of the text model.
  tower.Ignore({"tokens_per_second"});
}

const VisionNames& Qwen25VlPartNames(const VisionSpec&) {
  static const VisionNames names = [] {
    VisionNames n = {
        .tower_prefixes = {"visual.", "model.visual."},
        .tower = QwenNames(),
        .projector_prefixes = {},
        .projector = {.norm = "merger.ln_q", .first = "merger.mlp.0", .second = "merger.mlp.2"}};
    n.tower.up = {"blocks.#.mlp.gate_proj", "blocks.#.mlp.up_proj"};
    n.tower.down = "blocks.#.mlp.down_proj";
    return n;
  }();
  return names;
}

}  // namespace

KVG_VISION_FAMILY(qwen2_5_vl,
                  {.title = "Qwen2.5-VL", .read = ReadQwen25Vl, .names = Qwen25VlPartNames})

}  // namespace kvgauge
