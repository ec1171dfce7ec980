// SPDX-License-Identifier: Apache-2.0
// Qwen3-VL: learned places beside rotation, and hidden states of some blocks that go to the first
// layers of the text model.
#include <algorithm>
#include <cmath>

#include "core/strings.h"
#include "src/vision/common.h"

namespace kvgauge {
namespace {

void ReadQwen3Vl(ConfigReader&, ConfigReader& tower, VisionSpec& spec) {
  TowerSpec& t = spec.tower;
  // Defaults of this class differ from those of its predecessors.
  ReadQwenTower(tower, "hidden_size", 1152, "gelu_pytorch_tanh", spec);
  if (!tower.Has("depth")) {
    t.layers = 27;
    UseLastLayer(spec);
  }
  if (!tower.Has("patch_size")) t.patch = 16;
  t.ffn = tower.Int("intermediate_size", 4304, 1, kMostTowerFfn);
  t.patch_bias = true;
  t.places = PatchPlaces::kInterpolated;
  const int64_t places = tower.Int("num_position_embeddings", 2304, 1, int64_t{1} << 24);
  t.place_side = static_cast<int64_t>(std::sqrt(static_cast<double>(places)));
  if (t.place_side * t.place_side != places) {
    tower.Fail("num_position_embeddings", "a square number");
  }
  spec.deepstack = tower.IntOrInts("deepstack_visual_indexes", 0, kMostTowerLayers);
  if (!tower.Has("deepstack_visual_indexes")) spec.deepstack = {8, 16, 24};
  if (!std::ranges::is_sorted(spec.deepstack, std::less_equal<>()) ||
      (!spec.deepstack.empty() && spec.deepstack.back() >= t.layers)) {
    tower.Fail("deepstack_visual_indexes",
               StrCat("ascending numbers of blocks below depth (", t.layers, ")"));
    spec.deepstack.clear();
  }
  spec.hidden_size = tower.Int("out_hidden_size", 3584, 1, kMostTowerWidth);
}

const VisionNames& Qwen3VlPartNames(const VisionSpec&) {
  static const VisionNames names = [] {
    VisionNames n = {.tower_prefixes = {"model.visual.", "visual."},
                     .tower = QwenNames(),
                     .projector_prefixes = {},
                     .projector = {.norm = "merger.norm",
                                   .first = "merger.linear_fc1",
                                   .second = "merger.linear_fc2",
                                   .deepstack = "deepstack_merger_list.#.",
                                   .deepstack_norm = "norm",
                                   .deepstack_first = "linear_fc1",
                                   .deepstack_second = "linear_fc2"}};
    n.tower.places = "pos_embed";
    n.tower.up = {"blocks.#.mlp.linear_fc1"};
    n.tower.down = "blocks.#.mlp.linear_fc2";
    return n;
  }();
  return names;
}

}  // namespace

KVG_VISION_FAMILY(qwen3_vl, {.title = "Qwen3-VL", .read = ReadQwen3Vl, .names = Qwen3VlPartNames})

}  // namespace kvgauge
