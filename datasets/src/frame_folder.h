// SPDX-License-Identifier: Apache-2.0
// A video as a folder with a picture for each of its frames, in the order of the numbers in their
// names, and which of them the published code shows.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"

namespace kvgauge {

enum class ShownFrames {
  kLinspace,       // np.linspace(0, T - 1, n, dtype=int)
  kLinspaceRound,  // torch.linspace(0, T - 1, n).round()
  kInterior,       // int(i * T / (n + 1)), i from 1
  kCentre,         // int(first + seg / 2 + round(seg * i)), seg = (last - first) / n
  kStep,           // int(T / n) * i
  kFraction,       // i * T // n
  kArange,         // torch.arange(0, T, T / n).int()
  kArangeCentre,   // the same from T / n / 2 on
  kRate,           // int(i * fps / rate); the number of frames follows from the duration
  kWholeSeconds,   // n = min(count, int(duration)); int(int(duration * fps) / n) * i
};
std::vector<std::string> ShownFramesNames();  // "linspace", "linspace_round", ...
ShownFrames ShownFramesFromName(std::string_view name);

struct FrameChoice {
  ShownFrames rule = ShownFrames::kLinspace;
  int64_t count = 8;
  double fps = 0;         // of the video; 0: not known. kRate, kWholeSeconds and bounds need it
  double rate = 1;        // frames a second, kRate
  double duration_s = 0;  // kWholeSeconds: 0: frames / fps
  double begin_s = -1, end_s = -1;  // kCentre: bounds in seconds; both or neither
  int64_t first_number = 0;         // kCentre: of the first frame
};

// Indices into `total` frames, ascending but for rounding; at most `total` - 1. An error says that
// there are too few frames, or what else is wrong.
Result<std::vector<int64_t>> ChooseFrames(const FrameChoice& choice, int64_t total);

// A folder of frames, as `--video` takes one. With a frames.json that says `fps` and `total`, the
// number in a file's name is that of its frame, from 0, and others may be missing; without one the
// files are all frames, in the order of their numbers, wherever these begin.
struct VideoFolder {
  double fps = 0;                                      // 0: not known
  int64_t total = 0;                                   // frames of the video
  std::vector<std::pair<int64_t, std::string>> files;  // frame and name, ascending
};
// An error, to be read behind the folder's place, says that it holds no frames (PNG, JPEG, WebP,
// PPM), that a picture's name has no number or another's, or what is wrong with its frames.json.
Result<VideoFolder> ReadVideoFolder(const std::string& folder);
// The name of the file of a frame; an error that it is missing.
Result<std::string> FileOfFrame(const VideoFolder& video, int64_t frame);

}  // namespace kvgauge
