// SPDX-License-Identifier: Apache-2.0
// LLaVA-NeXT-Video: pictures as in LLaVA-NeXT; frames are pooled before the projector.
#include "src/vision/common.h"

namespace kvgauge {
namespace {

void ReadLlavaNextVideo(ConfigReader& top, ConfigReader& tower, VisionSpec& spec) {
  ReadClipOrSiglip(tower, spec.tower);
  ReadFeatures(top, -2, "default", spec);
  ReadTwoLayers(top, spec);
  ReadCanvases(top, spec);
  const std::string mode = top.Text("spatial_pool_mode", "average");
  if (mode != "average" && mode != "max") top.Fail("spatial_pool_mode", "average or max");
  spec.video_pooling = mode == "max" ? VideoPooling::kMax : VideoPooling::kMean;
  spec.video_stride = top.Int("spatial_pool_stride", 2, 1, 64);
  top.Neutral("use_image_newline_parameter", true);
  top.Ignore({"image_seq_length", "video_seq_length", "spatial_pool_out_channels"});
}

const VisionNames& LlavaNextVideoPartNames(const VisionSpec&) {
  static const VisionNames names = LlavaNames(true);
  return names;
}

}  // namespace

KVG_VISION_FAMILY(llava_next_video, {.title = "LLaVA-NeXT-Video",
                                     .read = ReadLlavaNextVideo,
                                     .names = LlavaNextVideoPartNames})

}  // namespace kvgauge
