// SPDX-License-Identifier: Apache-2.0
// Which frames of a video a task shows.
#pragma once

#include <cstdint>
#include <vector>

#include "core/result.h"
#include "datasets/task.h"

namespace kvgauge {

// Indices into `total` frames, ascending and each once; fps 0: not known. An error says that the
// task shows no videos, that its records say where they begin, or that there are too few frames.
Result<std::vector<int64_t>> FramesThatTaskShows(const Task& task, int64_t total, double fps);

}  // namespace kvgauge
