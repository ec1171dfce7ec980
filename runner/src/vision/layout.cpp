// SPDX-License-Identifier: Apache-2.0
// How many rows a picture becomes, and where each belongs: integers and doubles as the reference
// computes them, since a count that is off by one misses the placeholders.
#include "src/vision/layout.h"

#include <cmath>

#include "core/strings.h"

namespace kvgauge {
namespace {

// a // b of two positive doubles as Python has it.
int64_t FloorDivide(double a, double b) {
  const double remainder = std::fmod(a, b);
  const double quotient = (a - remainder) / b;
  double whole = std::floor(quotient);
  if (quotient - whole > 0.5) whole += 1;
  return static_cast<int64_t>(whole);
}

// int(round(v, 7)): quotients of sides are whole, or far from it.
int64_t Truncated(double v) { return static_cast<int64_t>(std::floor(v + 5e-8)); }

std::string PixelsText(int64_t height, int64_t width) { return StrCat(width, " x ", height); }

Status CheckWholeTiles(const VisionSpec& spec, const PixelValues& pixels) {
  const TowerSpec& tower = spec.tower;
  if (pixels.grid[0] != 0) {
    return BadInput(StrCat(spec.path, ": ", spec.family, " sees tiles of ",
                           PixelsText(tower.image_height, tower.image_width),
                           " pixels, but the preprocessor gives patches; its "
                           "preprocessor_config.json belongs to another model"));
  }
  if (pixels.height != tower.image_height || pixels.width != tower.image_width) {
    return BadInput(StrCat(spec.path, ": the preprocessor gives tiles of ",
                           PixelsText(pixels.height, pixels.width),
                           " pixels, but key 'vision_config.image_size' is ",
                           PixelsText(tower.image_height, tower.image_width)));
  }
  if (pixels.tiles < 1) return BadInput(StrCat(spec.path, ": a picture of no tiles"));
  return {};
}

// Whether tiles are those of the rows and columns they claim to be in, and one of the whole.
Status CheckCut(const VisionSpec& spec, const PixelValues& pixels) {
  const int64_t cut = int64_t{pixels.rows} * pixels.columns;
  if (pixels.tiles == (cut == 0 ? 1 : cut + 1)) return {};
  return BadInput(StrCat(spec.path, ": ", pixels.tiles, " tiles are not ", pixels.rows, " x ",
                         pixels.columns, " and one of the whole picture"));
}

void AppendBlock(VisualLayout& layout, VisualBlock block) {
  block.first = layout.rows;
  const int64_t columns = block.grid[2] + (block.newlines ? 1 : 0);
  block.rows = int64_t{block.grid[0]} * block.grid[1] * columns;
  if (block.rows == 0) return;  // a picture so thin that its canvas shows no row of it
  layout.rows += block.rows;
  layout.blocks.push_back(block);
}

std::array<int32_t, 3> GridOf(int64_t times, const TileGrid& grid) {
  return {static_cast<int32_t>(times), static_cast<int32_t>(grid.rows),
          static_cast<int32_t>(grid.columns)};
}

VisualLayout OfVideo(const VisionSpec& spec, int64_t frames) {
  VisualLayout layout;
  AppendBlock(layout,
              {.kind = VisualBlock::Kind::kVideo, .grid = GridOf(frames, GridOfFrame(spec))});
  if (spec.video_newline) AppendBlock(layout, {.kind = VisualBlock::Kind::kNewline});
  return layout;
}

VisualLayout OfCanvas(const VisionSpec& spec, const PixelValues& pixels) {
  VisualLayout layout;
  AppendBlock(layout, {.kind = VisualBlock::Kind::kWhole, .grid = GridOf(1, GridOfTile(spec))});
  if (pixels.tiles == 1) {
    AppendBlock(layout, {.kind = VisualBlock::Kind::kNewline});
    return layout;
  }
  const CanvasCut cut = CutCanvas(spec, pixels);
  AppendBlock(layout, {.kind = VisualBlock::Kind::kCanvas,
                       .grid = GridOf(1, {cut.to_rows, cut.to_columns}),
                       .newlines = true});
  return layout;
}

VisualLayout OfTiles(const VisionSpec& spec, const PixelValues& pixels) {
  VisualLayout layout;
  const std::array<int32_t, 3> grid = GridOf(1, GridOfTile(spec));
  for (int32_t row = 0; row < pixels.rows; ++row) {
    for (int32_t column = 0; column < pixels.columns; ++column) {
      AppendBlock(
          layout,
          {.kind = VisualBlock::Kind::kTile, .grid = grid, .tile_row = row, .tile_column = column});
    }
  }
  AppendBlock(layout, {.kind = VisualBlock::Kind::kWhole, .grid = grid});
  return layout;
}

Result<VisualLayout> OfPatches(const VisionSpec& spec, const PixelValues& pixels,
                               Modality modality) {
  const auto [times, rows, columns] = pixels.grid;
  if (times < 1 || rows < 1 || columns < 1) {
    return BadInput(StrCat(spec.path, ": ", spec.family,
                           " sees patches, but the preprocessor gives tiles; its "
                           "preprocessor_config.json belongs to another model"));
  }
  if (rows % spec.merge != 0 || columns % spec.merge != 0) {
    return BadInput(StrCat(spec.path, ": ", rows, " rows and ", columns,
                           " columns of patches are no multiples of key "
                           "'vision_config.spatial_merge_size' (",
                           spec.merge, ")"));
  }
  VisualLayout layout;
  AppendBlock(layout, {.kind = modality == Modality::kVideo ? VisualBlock::Kind::kVideo
                                                            : VisualBlock::Kind::kWhole,
                       .grid = GridOf(times, {rows / spec.merge, columns / spec.merge}),
                       .lines_apart = spec.lines_apart});
  return layout;
}

}  // namespace

TileGrid GridOfTile(const VisionSpec& spec) {
  const TowerSpec& tower = spec.tower;
  // With its class token a tile is no grid.
  if (tower.class_token && !spec.drop_class) {
    return {1, tower.grid_rows() * tower.grid_columns() + 1};
  }
  return {tower.grid_rows() / spec.merge, tower.grid_columns() / spec.merge};
}

TileGrid GridOfFrame(const VisionSpec& spec) {
  const TileGrid tile = GridOfTile(spec);
  switch (spec.video_pooling) {
    case VideoPooling::kNone:
      return tile;
    case VideoPooling::kMean:
    case VideoPooling::kMax:
      return {tile.rows / spec.video_stride, tile.columns / spec.video_stride};
    case VideoPooling::kBilinear:
      return {(tile.rows + 1) / 2, (tile.columns + 1) / 2};
  }
  return tile;
}

CanvasCut CutCanvas(const VisionSpec& spec, const PixelValues& pixels) {
  const TileGrid tile = GridOfTile(spec);
  const int64_t rows = pixels.rows * tile.rows, columns = pixels.columns * tile.columns;
  const double height = pixels.original_height, width = pixels.original_width;
  CanvasCut cut = {.rows = rows, .columns = columns};
  if (width / height > static_cast<double>(columns) / static_cast<double>(rows)) {
    const int64_t shown = Truncated(height * (static_cast<double>(columns) / width));
    cut.top = (rows - shown) / 2;
    cut.rows = rows - 2 * cut.top;
  } else {
    const int64_t shown = Truncated(width * (static_cast<double>(rows) / height));
    cut.left = (columns - shown) / 2;
    cut.columns = columns - 2 * cut.left;
  }
  cut.to_rows = cut.rows;
  cut.to_columns = cut.columns;
  if (spec.most_canvas_tiles > 0) {
    const double ratio =
        std::sqrt(static_cast<double>(cut.rows * cut.columns) /
                  static_cast<double>(spec.most_canvas_tiles * tile.rows * tile.rows));
    if (ratio > 1.1) {
      cut.to_rows = FloorDivide(static_cast<double>(cut.rows), ratio);
      cut.to_columns = FloorDivide(static_cast<double>(cut.columns), ratio);
    }
  }
  return cut;
}

Result<VisualLayout> LayOutVisual(const VisionSpec& spec, const PixelValues& pixels,
                                  Modality modality) {
  KVG_CHECK(modality == Modality::kImage || modality == Modality::kVideo, "eyes see pictures");
  if (!spec.tower.tiled()) return OfPatches(spec, pixels, modality);
  KVG_TRY(CheckWholeTiles(spec, pixels));
  if (modality == Modality::kVideo) return OfVideo(spec, pixels.tiles);
  KVG_TRY(CheckCut(spec, pixels));
  if (spec.packing == Packing::kPlain) return OfTiles(spec, pixels);
  if (pixels.original_height < 1 || pixels.original_width < 1) {
    return BadInput(StrCat(spec.path, ": the size of the picture before it was cut is missing"));
  }
  return OfCanvas(spec, pixels);
}

}  // namespace kvgauge
