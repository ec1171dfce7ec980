// SPDX-License-Identifier: Apache-2.0
// LLaVA-NeXT (1.6): the whole picture, then the tiles of a canvas without its padding.
#include "src/vision/common.h"

namespace kvgauge {
namespace {

void ReadLlavaNext(ConfigReader& top, ConfigReader& tower, VisionSpec& spec) {
  ReadClipOrSiglip(tower, spec.tower);
  ReadFeatures(top, -2, "default", spec);
  ReadTwoLayers(top, spec);
  ReadCanvases(top, spec);
  // Later versions always add the newline, as every published checkpoint says.
  top.Neutral("use_image_newline_parameter", true);
  top.Ignore({"image_seq_length"});
}

const VisionNames& LlavaNextPartNames(const VisionSpec&) {
  static const VisionNames names = LlavaNames(true);
  return names;
}

}  // namespace

KVG_VISION_FAMILY(llava_next,
                  {.title = "LLaVA-NeXT (1.6)", .read = ReadLlavaNext, .names = LlavaNextPartNames})

}  // namespace kvgauge
