// SPDX-License-Identifier: Apache-2.0
#include "src/vision/places.h"

#include <algorithm>
#include <cmath>

namespace kvgauge {
namespace {

// Appends the windows of one grid, in merged units, and the units in their order. Windows at the
// right and at the bottom may be smaller.
void AppendWindows(const PixelValues& pixels, int64_t merge, int64_t window, int64_t first_row,
                   RowPlan& plan) {
  const int64_t times = pixels.grid[0];
  const int64_t rows = pixels.grid[1] / merge, columns = pixels.grid[2] / merge;
  const int64_t unit = merge * merge;
  int64_t at = first_row;
  for (int64_t t = 0; t < times; ++t) {
    for (int64_t top = 0; top < rows; top += window) {
      for (int64_t left = 0; left < columns; left += window) {
        const int64_t bottom = std::min(top + window, rows);
        const int64_t right = std::min(left + window, columns);
        for (int64_t y = top; y < bottom; ++y) {
          for (int64_t x = left; x < right; ++x) {
            const int64_t from = first_row + ((t * rows + y) * columns + x) * unit;
            for (int64_t i = 0; i < unit; ++i) {
              plan.order.push_back(static_cast<int32_t>(from + i));
            }
          }
        }
        const int64_t count = (bottom - top) * (right - left) * unit;
        plan.windows.push_back({at, count});
        at += count;
      }
    }
  }
}

// One axis of a table of `side` places at index `i` of `size`: two places and the second's weight.
struct Between {
  int64_t low = 0, high = 0;
  float weight = 0;
};
Between Stretched(int64_t i, int64_t size, int64_t side) {
  const float at = static_cast<float>(i) * static_cast<float>(side - 1) /
                   static_cast<float>(std::max<int64_t>(size - 1, 1));
  const float low = std::floor(at);
  const auto index = static_cast<int64_t>(low);
  return {std::min(index, side - 1), std::min(index + 1, side - 1), at - low};
}

}  // namespace

int64_t RowsOf(const TowerSpec& tower, const PixelValues& pixels) {
  if (!tower.tiled()) return int64_t{pixels.grid[0]} * pixels.grid[1] * pixels.grid[2];
  return pixels.tiles * (tower.grid_rows() * tower.grid_columns() + (tower.class_token ? 1 : 0));
}

RowPlan PlanRows(const TowerSpec& tower, int64_t merge,
                 std::span<const PixelValues* const> pixels) {
  RowPlan plan;
  for (const PixelValues* picture : pixels) {
    const int64_t rows = RowsOf(tower, *picture);
    const int64_t slices = tower.tiled() ? picture->tiles : picture->grid[0];
    for (int64_t i = 0; i < slices; ++i) {
      plan.slices.push_back({plan.rows + i * (rows / slices), rows / slices});
    }
    if (tower.window > 0) AppendWindows(*picture, merge, tower.window, plan.rows, plan);
    plan.pictures.push_back({plan.rows, rows});
    plan.rows += rows;
  }
  return plan;
}

std::vector<int32_t> PlacesOf(const PixelValues& pixels, int64_t merge) {
  const auto [times, rows, columns] = pixels.grid;
  const auto side = static_cast<int32_t>(merge);
  std::vector<int32_t> places;
  places.reserve(static_cast<size_t>(times) * static_cast<size_t>(rows * columns) * 2);
  for (int32_t t = 0; t < times; ++t) {
    for (int32_t top = 0; top < rows; top += side) {
      for (int32_t left = 0; left < columns; left += side) {
        for (int32_t y = top; y < top + side; ++y) {
          for (int32_t x = left; x < left + side; ++x) {
            places.push_back(y);
            places.push_back(x);
          }
        }
      }
    }
  }
  return places;
}

void StretchPlaces(const std::vector<float>& table, int64_t side, int64_t width,
                   const PixelValues& pixels, int64_t merge, float* out) {
  const std::vector<int32_t> places = PlacesOf(pixels, merge);
  for (size_t i = 0; i < places.size(); i += 2, out += width) {
    const Between y = Stretched(places[i], pixels.grid[1], side);
    const Between x = Stretched(places[i + 1], pixels.grid[2], side);
    const float* const corners[4] = {table.data() + (y.low * side + x.low) * width,
                                     table.data() + (y.low * side + x.high) * width,
                                     table.data() + (y.high * side + x.low) * width,
                                     table.data() + (y.high * side + x.high) * width};
    const float weights[4] = {(1 - y.weight) * (1 - x.weight), (1 - y.weight) * x.weight,
                              y.weight * (1 - x.weight), y.weight * x.weight};
    for (int64_t c = 0; c < width; ++c) {
      float sum = 0;
      for (int k = 0; k < 4; ++k) sum += corners[k][c] * weights[k];
      out[c] = sum;
    }
  }
}

}  // namespace kvgauge
