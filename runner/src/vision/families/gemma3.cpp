// SPDX-License-Identifier: Apache-2.0
// Gemma-3 with pictures: SigLIP with its last norm, the mean of squares of rows, one matrix.
#include <cmath>

#include "core/strings.h"
#include "src/vision/common.h"

namespace kvgauge {
namespace {

void ReadGemma3(ConfigReader& top, ConfigReader& tower, VisionSpec& spec) {
  TowerSpec& t = spec.tower;
  tower.Neutral("model_type", std::string_view("siglip_vision_model"));
  ReadSiglipKeys(tower, {.patch = 16, .activation = "gelu_pytorch_tanh"}, t);
  t.post_norm = true;
  UseLastLayer(spec);
  const int64_t tokens = top.Int("mm_tokens_per_image", 256, 1, int64_t{1} << 20);
  const auto side = static_cast<int64_t>(std::sqrt(static_cast<double>(tokens)));
  if (side * side != tokens || t.grid_rows() % side != 0) {
    top.Fail("mm_tokens_per_image", StrCat("a square number whose root divides the ", t.grid_rows(),
                                           " rows of patches of a picture"));
  } else {
    spec.merge = t.grid_rows() / side;
  }
  spec.projector = ProjectorKind::kPooledOne;
  spec.projector_bias = false;
}

const VisionNames& Gemma3PartNames(const VisionSpec&) {
  static const VisionNames names = [] {
    VisionNames n = LlavaNames(false);
    // Stored as [in, out].
    n.projector = {.norm = "mm_soft_emb_norm", .first = "mm_input_projection_weight."};
    return n;
  }();
  return names;
}

}  // namespace

KVG_VISION_FAMILY(gemma3, {.title = "Gemma-3", .read = ReadGemma3, .names = Gemma3PartNames})

}  // namespace kvgauge
