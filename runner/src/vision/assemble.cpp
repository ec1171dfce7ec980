// SPDX-License-Identifier: Apache-2.0
#include "src/vision/assemble.h"

#include <algorithm>
#include <numeric>

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

// Rows of tiles that show the picture, canvas row by canvas row. The first tile is the whole.
std::vector<int32_t> RowsOfCanvas(const VisionSpec& spec, const PixelValues& pixels,
                                  const CanvasCut& cut) {
  const TileGrid tile = GridOfTile(spec);
  std::vector<int32_t> rows;
  rows.reserve(static_cast<size_t>(cut.rows * cut.columns));
  for (int64_t row = cut.top; row < cut.top + cut.rows; ++row) {
    for (int64_t column = cut.left; column < cut.left + cut.columns; ++column) {
      const int64_t number = 1 + row / tile.rows * pixels.columns + column / tile.columns;
      const int64_t place =
          number * tile.count() + row % tile.rows * tile.columns + column % tile.columns;
      rows.push_back(static_cast<int32_t>(place));
    }
  }
  return rows;
}

bool IsVideo(const VisualLayout& layout) {
  return layout.blocks[0].kind == VisualBlock::Kind::kVideo;
}
bool IsCanvas(const VisionSpec& spec, const PixelValues& pixels, const VisualLayout& layout) {
  return !IsVideo(layout) && spec.packing == Packing::kAnyRes && pixels.tiles > 1;
}

// Where rows of a canvas of tiles stand: its own rows and columns, before its borders are cut.
class CanvasPlaces {
 public:
  CanvasPlaces(const VisionSpec& spec, const PixelValues& pixels, const VisualLayout& layout)
      : tile_(GridOfTile(spec)),
        columns_(pixels.columns),
        cut_(CutCanvas(spec, pixels)),
        layout_(layout) {}

  // The order of rows: those of the canvas, those without a place, those apart.
  std::pair<int, int64_t> Rank(const SeenPlace& seen) const {
    if (seen.patch < 0) return {1, 0};
    if (seen.apart) return {2, 0};
    const auto [row, column] = At(seen);
    return {0, row * columns_ * tile_.columns + column};
  }
  int32_t InLayout(const SeenPlace& seen) const {
    if (seen.patch < 0 || layout_.blocks.size() < 2) return SeenRow::kNowhere;
    const auto [row, column] = At(seen);
    const int64_t y = row - cut_.top, x = column - cut_.left;
    if (y < 0 || y >= cut_.rows || x < 0 || x >= cut_.columns) return SeenRow::kNowhere;
    return static_cast<int32_t>(layout_.blocks[1].first + y * (cut_.columns + 1) + x);
  }

 private:
  std::pair<int64_t, int64_t> At(const SeenPlace& seen) const {
    const int64_t number = seen.tile - 1;  // behind the whole picture
    return {number / columns_ * tile_.rows + seen.patch / tile_.columns,
            number % columns_ * tile_.columns + seen.patch % tile_.columns};
  }

  const TileGrid tile_;
  const int64_t columns_;
  const CanvasCut cut_;
  const VisualLayout& layout_;
};

}  // namespace

SeenOrder ArrangeSeen(const VisionSpec& spec, const PixelValues& pixels, const VisualLayout& layout,
                      std::span<const SeenPlace> seen) {
  SeenOrder order;
  const auto add = [&](int64_t row, int32_t place) {
    order.from.push_back(static_cast<int32_t>(row));
    order.places.push_back(place);
  };
  const bool canvas = spec.packing == Packing::kAnyRes;
  const int64_t tiles = spec.tower.tiled() ? pixels.tiles : pixels.grid[0];
  const int64_t of_tile = canvas ? GridOfTile(spec).count() : layout.rows / tiles;
  const auto row_at = [&](int64_t i) -> const SeenPlace& { return seen[static_cast<size_t>(i)]; };
  std::vector<int64_t> all(seen.size()), of_canvas;
  std::iota(all.begin(), all.end(), 0);
  // Text stands between the rows of the picture, so each row stays in its own.
  if (spec.lines_apart) {
    std::ranges::stable_sort(all, {}, [&](int64_t i) { return row_at(i).patch; });
  }
  for (const int64_t i : all) {
    const SeenPlace& row = row_at(i);
    if (canvas && row.tile > 0) {
      of_canvas.push_back(i);
    } else {
      const int64_t place = row.patch < 0 ? SeenRow::kNowhere : row.tile * of_tile + row.patch;
      add(i, static_cast<int32_t>(place));
    }
  }
  if (canvas && tiles == 1) add(-1, static_cast<int32_t>(layout.rows - 1));
  if (of_canvas.empty()) return order;
  const CanvasPlaces places(spec, pixels, layout);
  std::ranges::stable_sort(of_canvas, {}, [&](int64_t i) { return places.Rank(row_at(i)); });
  for (const int64_t i : of_canvas) add(i, places.InLayout(row_at(i)));
  return order;
}

bool ShowsBetween(const VisionSpec& spec, const PixelValues& pixels, const VisualLayout& layout) {
  if (IsVideo(layout)) {
    return spec.tower.tiled() && spec.video_pooling == VideoPooling::kBilinear;
  }
  if (!IsCanvas(spec, pixels, layout)) return false;
  const CanvasCut cut = CutCanvas(spec, pixels);
  return cut.to_rows != cut.rows || cut.to_columns != cut.columns;
}

std::vector<float> RowsBetween(const VisionSpec& spec, const PixelValues& pixels,
                               const VisualLayout& layout, std::span<const float> rows) {
  const int64_t width = spec.hidden_size;
  const TileGrid tile = GridOfTile(spec);
  const auto whole = static_cast<size_t>(tile.count() * width);
  std::vector<float> out;
  if (IsVideo(layout)) {
    const TileGrid frame = GridOfFrame(spec);
    for (int64_t t = 0; t < pixels.tiles; ++t) {
      const std::span<const float> own = rows.subspan(static_cast<size_t>(t) * whole, whole);
      const RowGrid small = Interpolated({tile.rows, tile.columns, {own.begin(), own.end()}},
                                         frame.rows, frame.columns, width);
      out.insert(out.end(), small.values.begin(), small.values.end());
    }
    return out;
  }
  const CanvasCut cut = CutCanvas(spec, pixels);
  RowGrid canvas = {cut.rows, cut.columns, {}};
  for (const int32_t row : RowsOfCanvas(spec, pixels, cut)) {
    const auto from = rows.begin() + row * width;
    canvas.values.insert(canvas.values.end(), from, from + width);
  }
  const RowGrid shrunk = Interpolated(canvas, cut.to_rows, cut.to_columns, width);
  out.assign(rows.begin(), rows.begin() + static_cast<int64_t>(whole));
  out.insert(out.end(), shrunk.values.begin(), shrunk.values.end());
  return out;
}

std::vector<int32_t> ShownRows(const VisionSpec& spec, const PixelValues& pixels,
                               const VisualLayout& layout, int64_t count) {
  std::vector<int32_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  if (IsVideo(layout)) {
    if (spec.tower.tiled() && spec.video_newline) order.push_back(-1);
    return order;
  }
  if (spec.packing == Packing::kPlain) return order;
  const int64_t whole = GridOfTile(spec).count();
  order.resize(static_cast<size_t>(whole));
  if (pixels.tiles == 1) {
    order.push_back(-1);
    return order;
  }
  const CanvasCut cut = CutCanvas(spec, pixels);
  std::vector<int32_t> canvas = RowsOfCanvas(spec, pixels, cut);
  if (ShowsBetween(spec, pixels, layout)) {
    canvas.resize(static_cast<size_t>(cut.to_rows * cut.to_columns));
    std::iota(canvas.begin(), canvas.end(), static_cast<int32_t>(whole));
  }
  // Lines may be so thin that they are nothing but their ends.
  auto at = canvas.begin();
  for (int64_t line = 0; line < cut.to_rows; ++line, at += cut.to_columns) {
    order.insert(order.end(), at, at + cut.to_columns);
    order.push_back(-1);
  }
  return order;
}

}  // namespace kvgauge
