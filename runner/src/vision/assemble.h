// SPDX-License-Identifier: Apache-2.0
// Projected rows of tiles and frames to the rows of a prompt.
#pragma once

#include <span>
#include <vector>

#include "images/preprocess.h"
#include "runner/vision.h"
#include "src/vision/pass.h"

namespace kvgauge {

// Which rows a picture shows, in the order of the prompt: of those of its tiles or frames or
// patches behind merging, `count` of them in the order of the pixels; -1: the newline. `layout` is
// the picture's.
std::vector<int32_t> ShownRows(const VisionSpec& spec, const PixelValues& pixels,
                               const VisualLayout& layout, int64_t count);

// Whether a picture shows rows that lie between those of the tower.
bool ShowsBetween(const VisionSpec& spec, const PixelValues& pixels, const VisualLayout& layout);
// Then ShownRows counts these, which are made of `rows` [.., hidden_size].
std::vector<float> RowsBetween(const VisionSpec& spec, const PixelValues& pixels,
                               const VisualLayout& layout, std::span<const float> rows);

// What a stage left of a picture in the order of the prompt: which of its rows (-1: the newline),
// and their places in the layout, SeenRow::kNowhere for those without one.
struct SeenOrder {
  std::vector<int32_t> from;
  std::vector<int32_t> places;
};
SeenOrder ArrangeSeen(const VisionSpec& spec, const PixelValues& pixels, const VisualLayout& layout,
                      std::span<const SeenPlace> seen);

}  // namespace kvgauge
