// SPDX-License-Identifier: Apache-2.0
// LLaVA-OneVision: SigLIP, a canvas that is shrunk where it is large, frames of a fourth of the
// rows.
#include "core/strings.h"
#include "src/vision/common.h"

namespace kvgauge {
namespace {

void ReadLlavaOneVision(ConfigReader& top, ConfigReader& tower, VisionSpec& spec) {
  ReadClipOrSiglip(tower, spec.tower);
  ReadFeatures(top, -1, "full", spec);
  ReadTwoLayers(top, spec);
  ReadCanvases(top, spec);
  const std::string aspect = top.Text("vision_aspect_ratio", "anyres_max_9");
  constexpr std::string_view kPrefix = "anyres_max_";
  int64_t tiles = 0;
  const std::string number = aspect.starts_with(kPrefix) ? aspect.substr(kPrefix.size()) : "";
  for (const char digit : number) {
    tiles = digit >= '0' && digit <= '9' && tiles < 10000 ? 10 * tiles + digit - '0' : 100000;
  }
  if (number.empty() || tiles < 1 || tiles >= 100000) {
    top.Fail("vision_aspect_ratio", "anyres_max_ and a number of tiles");
  }
  spec.most_canvas_tiles = tiles;
  spec.video_pooling = VideoPooling::kBilinear;
  spec.video_newline = true;
  top.Neutral("use_image_newline_parameter", true);
}

const VisionNames& LlavaOneVisionPartNames(const VisionSpec&) {
  static const VisionNames names = LlavaNames(true);
  return names;
}

}  // namespace

KVG_VISION_FAMILY(llava_onevision, {.title = "LLaVA-OneVision",
                                    .read = ReadLlavaOneVision,
                                    .names = LlavaOneVisionPartNames})

}  // namespace kvgauge
