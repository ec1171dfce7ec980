// SPDX-License-Identifier: Apache-2.0
// Projected rows of tiles and frames to the rows of a prompt.
#pragma once

#include <span>
#include <vector>

#include "images/preprocess.h"
#include "runner/vision.h"
#include "src/vision/pass.h"

namespace kvgauge {

// `rows`: [tiles or frames or patches behind merging, hidden_size] in the order of the pixels.
// `layout` is the picture's.
std::vector<float> AssembleRows(const VisionSpec& spec, const PixelValues& pixels,
                                const VisualLayout& layout, std::span<const float> rows,
                                std::span<const float> newline);

// What a stage left of a picture in the order of the prompt: which of its rows (-1: the newline),
// and their places in the layout, SeenRow::kNowhere for those without one.
struct SeenOrder {
  std::vector<int64_t> from;
  std::vector<int32_t> places;
};
SeenOrder ArrangeSeen(const VisionSpec& spec, const PixelValues& pixels, const VisualLayout& layout,
                      std::span<const SeenPlace> seen);

}  // namespace kvgauge
