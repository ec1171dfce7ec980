// SPDX-License-Identifier: Apache-2.0
// A video as a folder of its frames, and which of them a rule shows.
//
// Such a folder holds INDEX.jpg (.jpeg, .png, .webp, .ppm), INDEX being the frame's number in the
// source, from 0 on, and frames.json {"fps", "total", "width", "height", "source_sha256"}. Frames
// that no rule asks for may be missing. A folder without frames.json is a whole video: its pictures
// in the order of their numbers, which the names are or hold (f_12.jpg), or of their names where
// none holds one.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "images/decode.h"

namespace kvgauge {

struct FrameFolder {
  std::string path;
  double fps = 0;                        // of the source; 0: not known
  int64_t total = 0;                     // frames of the source
  std::string source_sha256;             // "": not known
  std::map<int64_t, std::string> files;  // by index; paths
};
// A file that is a link to somewhere outside of the folder is refused, and so are two files of one
// index and, without frames.json, numbers with holes and a picture that is named otherwise than the
// others.
Result<FrameFolder> OpenFrameFolder(const std::string& path);

struct FrameRule {
  enum class Kind {
    kUniform,   // `count` from the first to the last: int(i (total - 1) / (count - 1))
    kInterior,  // `count` inside: int(i total / (count + 1)), i from 1
    kRate,      // `number` a second: int(i fps / number), i < int(total / fps number)
    kEvery,     // each `number`-th
  };
  Kind kind = Kind::kUniform;
  int64_t count = 16;
  double number = 0;
};
// "uniform", "interior", "fps:NUMBER", "every:NUMBER".
Result<FrameRule> ParseFrameRule(std::string_view text, int64_t count);

// Indices that the rule shows, ascending; with fewer frames than `count` some are shown twice. A
// rate needs a known `fps`.
Result<std::vector<int64_t>> ChooseFrames(const FrameRule& rule, int64_t total, double fps);

// Frames of a folder at these indices. All have one size. A missing one is an error that names it.
Result<std::vector<Image>> ReadFrames(const FrameFolder& folder,
                                      const std::vector<int64_t>& indices,
                                      const ImageLimits& limits = {});

}  // namespace kvgauge
