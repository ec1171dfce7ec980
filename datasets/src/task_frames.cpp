// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/strings.h"
#include "datasets/frames.h"
#include "src/frame_folder.h"

namespace kvgauge {

Result<std::vector<int64_t>> FramesThatTaskShows(const Task& task, int64_t total, double fps) {
  const std::string name = StrCat("task ", Quoted(task.name));
  const Params& params = task.source_params;
  if (task.source != "pictures" || params.Text("video").empty()) {
    return BadInput(StrCat(name, " has no source.video; expected a task that shows videos"));
  }
  const bool bounded = !params.Text("video_begin").empty();
  const bool timed =
      params.Text("frame_rule") == "whole_seconds" && !params.Text("video_duration").empty();
  if (bounded || timed) {
    return BadInput(StrCat(name, ": its records say ",
                           bounded ? "where their videos begin" : "how long their videos are",
                           ", so the frames differ ",
                           "between records; expected --frame-rule every:1, which writes all"));
  }
  FrameChoice choice;
  choice.rule = ShownFramesFromName(params.Text("frame_rule"));
  choice.count = params.Int("frame_count");
  choice.rate = params.Real("frame_rate");
  choice.first_number = params.Int("frame_first");
  choice.fps = fps;
  Result<std::vector<int64_t>> frames = ChooseFrames(choice, total);
  if (!frames.ok()) return BadInput(StrCat(name, ": the video ", frames.error().message));
  std::sort(frames->begin(), frames->end());
  frames->erase(std::unique(frames->begin(), frames->end()), frames->end());
  return frames;
}

}  // namespace kvgauge
