// SPDX-License-Identifier: Apache-2.0
#include "src/vision/assemble.h"

#include <algorithm>

#include "src/vision/layout.h"

namespace kvgauge {
namespace {

// A picture of rows: [rows, columns, width].
struct RowGrid {
  int64_t rows = 0, columns = 0;
  std::vector<float> values;
};

// One axis of bilinear interpolation between the centres of cells, in float as PyTorch has it.
struct Tap {
  int64_t low = 0, high = 0;
  float low_weight = 1, high_weight = 0;
};
std::vector<Tap> TapsOf(int64_t from, int64_t to) {
  const float scale = static_cast<float>(from) / static_cast<float>(to);
  std::vector<Tap> taps;
  for (int64_t i = 0; i < to; ++i) {
    const float at = std::max(0.0f, scale * (static_cast<float>(i) + 0.5f) - 0.5f);
    Tap tap;
    tap.low = std::min(static_cast<int64_t>(at), from - 1);
    tap.high = std::min(tap.low + 1, from - 1);
    tap.high_weight = std::clamp(at - static_cast<float>(tap.low), 0.0f, 1.0f);
    tap.low_weight = 1.0f - tap.high_weight;
    taps.push_back(tap);
  }
  return taps;
}

RowGrid Interpolated(const RowGrid& grid, int64_t rows, int64_t columns, int64_t width) {
  RowGrid out = {rows, columns, std::vector<float>(static_cast<size_t>(rows * columns * width))};
  const std::vector<Tap> down = TapsOf(grid.rows, rows), across = TapsOf(grid.columns, columns);
  float* to = out.values.data();
  for (const Tap& y : down) {
    for (const Tap& x : across) {
      const auto at = [&](int64_t row, int64_t column) {
        return grid.values.data() + (row * grid.columns + column) * width;
      };
      const float *a = at(y.low, x.low), *b = at(y.low, x.high);
      const float *c = at(y.high, x.low), *d = at(y.high, x.high);
      for (int64_t i = 0; i < width; ++i) {
        *to++ = y.low_weight * (x.low_weight * a[i] + x.high_weight * b[i]) +
                y.high_weight * (x.low_weight * c[i] + x.high_weight * d[i]);
      }
    }
  }
  return out;
}

// The part of the canvas that shows the picture, from tiles row by row.
RowGrid CutFromTiles(const VisionSpec& spec, const PixelValues& pixels, const CanvasCut& cut,
                     std::span<const float> tiles) {
  const TileGrid tile = GridOfTile(spec);
  const int64_t width = spec.hidden_size;
  RowGrid grid = {cut.rows, cut.columns, {}};
  grid.values.reserve(static_cast<size_t>(cut.rows * cut.columns * width));
  for (int64_t row = cut.top; row < cut.top + cut.rows; ++row) {
    for (int64_t column = cut.left; column < cut.left + cut.columns; ++column) {
      const int64_t number = row / tile.rows * pixels.columns + column / tile.columns;
      const int64_t place =
          number * tile.count() + row % tile.rows * tile.columns + column % tile.columns;
      const auto from = tiles.begin() + place * width;
      grid.values.insert(grid.values.end(), from, from + width);
    }
  }
  return grid;
}

void AppendWithNewlines(const RowGrid& grid, int64_t width, std::span<const float> newline,
                        std::vector<float>& out) {
  for (int64_t row = 0; row < grid.rows; ++row) {
    const auto from = grid.values.begin() + row * grid.columns * width;
    out.insert(out.end(), from, from + grid.columns * width);
    out.insert(out.end(), newline.begin(), newline.end());
  }
}

std::vector<float> OfFrames(const VisionSpec& spec, const PixelValues& pixels,
                            std::span<const float> rows, std::span<const float> newline) {
  std::vector<float> out;
  if (spec.video_pooling == VideoPooling::kBilinear) {
    const TileGrid tile = GridOfTile(spec), frame = GridOfFrame(spec);
    const int64_t size = tile.count() * spec.hidden_size;
    for (int64_t t = 0; t < pixels.tiles; ++t) {
      const std::span<const float> own =
          rows.subspan(static_cast<size_t>(t * size), static_cast<size_t>(size));
      const RowGrid small = Interpolated({tile.rows, tile.columns, {own.begin(), own.end()}},
                                         frame.rows, frame.columns, spec.hidden_size);
      out.insert(out.end(), small.values.begin(), small.values.end());
    }
  } else {
    out.assign(rows.begin(), rows.end());
  }
  if (spec.video_newline) out.insert(out.end(), newline.begin(), newline.end());
  return out;
}

}  // namespace

std::vector<float> AssembleRows(const VisionSpec& spec, const PixelValues& pixels,
                                const VisualLayout& layout, std::span<const float> rows,
                                std::span<const float> newline) {
  const int64_t width = spec.hidden_size;
  if (layout.blocks[0].kind == VisualBlock::Kind::kVideo) {
    return spec.tower.tiled() ? OfFrames(spec, pixels, rows, newline)
                              : std::vector<float>(rows.begin(), rows.end());
  }
  if (spec.packing == Packing::kPlain) return {rows.begin(), rows.end()};
  const auto whole = static_cast<size_t>(GridOfTile(spec).count() * width);
  std::vector<float> out(rows.begin(), rows.begin() + static_cast<int64_t>(whole));
  if (pixels.tiles == 1) {
    out.insert(out.end(), newline.begin(), newline.end());
    return out;
  }
  const CanvasCut cut = CutCanvas(spec, pixels);
  RowGrid grid = CutFromTiles(spec, pixels, cut, rows.subspan(whole));
  if (cut.to_rows != cut.rows || cut.to_columns != cut.columns) {
    grid = Interpolated(grid, cut.to_rows, cut.to_columns, width);
  }
  AppendWithNewlines(grid, width, newline, out);
  return out;
}

}  // namespace kvgauge
