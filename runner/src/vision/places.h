// SPDX-License-Identifier: Apache-2.0
// Where patches are: the order of rows, who attends to whom, and what a place adds.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "images/preprocess.h"
#include "runner/vision_spec.h"

namespace kvgauge {

struct RowRange {
  int64_t first = 0, rows = 0;
};

// The rows of some pictures as they run together.
struct RowPlan {
  int64_t rows = 0;
  std::vector<RowRange> pictures;  // of each picture
  // Rows that attend to each other; they cover all rows in order.
  std::vector<RowRange> slices;   // tiles, or times
  std::vector<RowRange> windows;  // empty where no block has windows
  // Row i of the batch is row order[i] of the pixels; empty: the same. Windows make it differ.
  std::vector<int32_t> order;
};

RowPlan PlanRows(const TowerSpec& tower, int64_t merge, std::span<const PixelValues* const> pixels);

// Rows of hidden states that a picture runs as.
int64_t RowsOf(const TowerSpec& tower, const PixelValues& pixels);

// Row and column of each patch of a grid, in the order of the pixels: [rows, 2].
std::vector<int32_t> PlacesOf(const PixelValues& pixels, int64_t merge);

// What the places of a grid add to its rows, from a square table [side * side, width] that is
// stretched over it so that corners meet. `out` [rows, width] is written.
void StretchPlaces(const std::vector<float>& table, int64_t side, int64_t width,
                   const PixelValues& pixels, int64_t merge, float* out);

}  // namespace kvgauge
