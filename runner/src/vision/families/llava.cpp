// SPDX-License-Identifier: Apache-2.0
// LLaVA-1.5 and what is saved as such: one tile, a class token that is dropped, two linear layers.
#include "src/vision/common.h"

namespace kvgauge {
namespace {

void ReadLlava(ConfigReader& top, ConfigReader& tower, VisionSpec& spec) {
  ReadClipOrSiglip(tower, spec.tower);
  ReadFeatures(top, -2, "default", spec);
  ReadTwoLayers(top, spec);
  // Counted from the tower, not believed.
  top.Ignore({"image_seq_length"});
}

const VisionNames& LlavaPartNames() {
  static const VisionNames names = LlavaNames(false);
  return names;
}

}  // namespace

KVG_VISION_FAMILY(llava, {.title = "LLaVA-1.5", .read = ReadLlava, .names = LlavaPartNames})

}  // namespace kvgauge
