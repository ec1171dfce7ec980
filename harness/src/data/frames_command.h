// SPDX-License-Identifier: Apache-2.0
// Files of videos as the folders of frames that tasks read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"

namespace kvgauge {

struct DataFramesOptions {
  std::vector<std::string> videos;  // files, or directories of such
  std::string out;                  // a folder for each video below it
  std::string task;                 // whose frames are written; "": those of the rule
  std::string task_directory;       // "": the shipped ones
  std::string frame_rule = "every:1";
  int64_t frames = 16;
  double fps = 0;  // of the videos; 0: what the file says
  bool json = false;
};

// Writes OUT/STEM/INDEX.png and OUT/STEM/frames.json for each video. A folder that is there gets
// the frames that it lacks; one of another file, or of another decoder, is an error.
Status RunDataFrames(const DataFramesOptions& options);

}  // namespace kvgauge
