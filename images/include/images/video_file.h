// SPDX-License-Identifier: Apache-2.0
// Videos as files: mp4, webm, mkv and what else FFmpeg's libraries read. They are decoded by the
// program kvgauge-video, in a process of its own that opens no file, no network and no process and
// whose memory and time are limited. It is an optional part of the build.
//
// Frames are numbered as they are decoded, and nothing seeks to a time. Their RGB is swscale's
// (bilinear chroma, accurate rounding), so it depends on the version of the libraries.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/image.h"
#include "core/result.h"
#include "images/decode.h"

namespace kvgauge {

struct VideoFile {
  std::string path;
  int64_t total = 0;  // decoded frames
  double fps = 0;     // 0: not known
  int32_t width = 0, height = 0;
  std::string decoder;  // the libraries and their versions
};
// Decodes the whole file once, to count. Without the program: an error that says where it was
// looked for and how it is built.
Result<VideoFile> OpenVideoFile(const std::string& path);

// The frames at ascending `indices`, of which some may be there twice.
Result<std::vector<Image>> ReadVideoFrames(const VideoFile& video,
                                           const std::vector<int64_t>& indices,
                                           const ImageLimits& limits = {});

}  // namespace kvgauge
