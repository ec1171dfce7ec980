// SPDX-License-Identifier: Apache-2.0
// Subtitles of a video, and which of them the published code shows with its frames.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace kvgauge {

// Larger files of subtitles are refused.
inline constexpr int64_t kMaxSubtitleBytes = int64_t{16} << 20;

enum class SubtitleRule {
  kFirstAtFrame,  // VLMEvalKit, SubRip as pysubs2 reads it: the first one at each frame's time
  kAnyAtFrame,    // lmms-eval, SubRip: those at any frame, in the order of Python's set
  kInterleaved,   // LongVideoBench, JSON: between the frames, where they are said
};
std::vector<std::string> SubtitleRuleNames();  // "first_at_frame", "any_at_frame", "interleaved"
SubtitleRule SubtitleRuleFromName(std::string_view name);

// The rules of a SubRip file; one subtitle a line. `frames` are the shown ones, `fps` the video's,
// above 0. An error, to be read behind the file's name, says what is wrong with its text.
Result<std::string> FirstSubtitleAtFrames(std::string_view srt, std::span<const int64_t> frames,
                                          double fps);
Result<std::string> SubtitlesAtAnyFrame(std::string_view srt, std::span<const int64_t> frames,
                                        double fps);

struct Interleaving {
  std::vector<double> frames_s;  // when each frame is shown, ascending
  double offset_s = 0;           // what the clip's second 0 is in the times of the file
  double duration_s = 0;         // the end of a subtitle whose end is not said
};
// A frame, by its place in `frames_s`, or a subtitle.
struct FrameOrSubtitle {
  int64_t frame = -1;  // -1: a subtitle
  std::string text = {};
};
// All frames, and each subtitle during which a frame is shown, in front of the frames that come
// after its middle. `json`: an array of {"timestamp": [start, end], "text"} or {"start", "end",
// "line"}.
Result<std::vector<FrameOrSubtitle>> InterleavedSubtitles(std::string_view json,
                                                          const Interleaving& how);

}  // namespace kvgauge
