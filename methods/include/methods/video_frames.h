// SPDX-License-Identifier: Apache-2.0
// The pictures of a prompt, or the times of its videos, as frames that can be held against each
// other place by place.
#pragma once

#include <cstdint>
#include <vector>

#include "methods/layer_view.h"

namespace kvgauge {

struct VideoFrames {
  int64_t count = 0, rows = 0, columns = 0;  // count 0: none, or frames of unequal grids
  std::vector<int32_t> entries;              // [count, rows, columns] positions of the prompt

  int64_t area() const { return rows * columns; }
};
// Ends of lines and of pictures belong to no frame. A picture of several pieces has no grid.
VideoFrames FramesOf(LayerView& view);

// Where each picture, and each time of a video, begins of those that were read: positions of the
// prompt, ascending.
std::vector<int64_t> FrameStarts(LayerView& view);

}  // namespace kvgauge
