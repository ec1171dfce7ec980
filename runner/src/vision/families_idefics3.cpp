// SPDX-License-Identifier: Apache-2.0
#include "src/vision/families_idefics3.h"

#include "core/strings.h"

namespace kvgauge {

void ReadIdefics3(ConfigReader& top, ConfigReader& tower, VisionSpec& spec) {
  TowerSpec& t = spec.tower;
  // The reference finds the place of a patch by comparing fractions of a side in float. For full
  // tiles that is the patch's own place, but for some numbers of rows that no published model has
  // (19, 25 and others), where the last bit, which depends on the machine, moves it by one. Here it
  // is always its own.
  ReadSiglipKeys(tower, {.width = 1152, .heads = 16, .activation = "gelu_pytorch_tanh"}, t);
  t.post_norm = true;
  // How pictures are cut is the preprocessor's business.
  tower.Ignore({"max_image_size", "size", "use_base_siglip", "tie_word_embeddings"});
  UseLastLayer(spec);
  spec.merge = top.Int("scale_factor", 2, 1, 64);
  if (t.grid_rows() % spec.merge != 0) {
    top.Fail("scale_factor",
             StrCat("a divisor of the ", t.grid_rows(), " rows of patches that a tile has"));
  }
  spec.projector = ProjectorKind::kShuffledOne;
  spec.projector_bias = false;
}

const VisionNames& Idefics3Names(const VisionSpec&) {
  static const VisionNames names = {.tower_prefixes = {"model.vision_model.", "vision_model."},
                                    .tower = ClipNames(),
                                    .projector_prefixes = {"model.connector.modality_projection.",
                                                           "connector.modality_projection."},
                                    .projector = {.first = "proj"}};
  return names;
}

}  // namespace kvgauge
