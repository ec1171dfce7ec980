// SPDX-License-Identifier: Apache-2.0
#include "src/run/picture_record.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/sha256.h"
#include "core/strings.h"
#include "images/encode.h"
#include "images/resize.h"
#include "methods/visual_span.h"

namespace kvgauge {
namespace {

constexpr int kThumbnailQuality = 75;
// Around a picture that was padded.
constexpr std::array<uint8_t, 3> kBorder = {128, 128, 128};

// Tiles together are one grid.
void AddBlock(const VisualBlock& block, std::vector<ShownPicture::Grid>& whole,
              std::vector<ShownPicture::Grid>& tiles) {
  switch (block.kind) {
    case VisualBlock::Kind::kWhole:
      whole.push_back({block.grid[1], block.grid[2]});
      return;
    case VisualBlock::Kind::kCanvas:
      tiles.push_back({block.grid[1], block.grid[2]});
      return;
    case VisualBlock::Kind::kTile: {
      if (tiles.empty()) tiles.emplace_back();
      ShownPicture::Grid& grid = tiles.back();
      grid.rows = std::max(grid.rows, int64_t{block.tile_row + 1} * block.grid[1]);
      grid.columns = std::max(grid.columns, int64_t{block.tile_column + 1} * block.grid[2]);
      return;
    }
    case VisualBlock::Kind::kVideo:
    case VisualBlock::Kind::kNewline:
      return;
  }
}

std::vector<ShownPicture::Grid> GridsOf(const VisualLayout& layout) {
  std::vector<ShownPicture::Grid> whole, tiles;
  for (const VisualBlock& block : layout.blocks) AddBlock(block, whole, tiles);
  whole.insert(whole.end(), tiles.begin(), tiles.end());
  return whole;
}

// The cell of a picture's grids that a position shows; -1: none.
int64_t CellOf(const VisualSpan& span, int64_t position, const ShownPicture& shown) {
  const VisualPlace place = PlaceIn(span, position);
  if (place.newline || place.nowhere || shown.grids.empty()) return -1;
  int64_t row = place.row, column = place.column, first = 0;
  size_t number = 0;
  if (span.piece != VisualSpan::Piece::kWhole) {
    number = shown.grids.size() - 1;
    if (number > 0) first = shown.grids[0].rows * shown.grids[0].columns;
  }
  if (span.piece == VisualSpan::Piece::kTile) {
    row += int64_t{span.tile_row} * span.grid[1];
    column += int64_t{span.tile_column} * span.grid[2];
  }
  const ShownPicture::Grid& grid = shown.grids[number];
  KVG_CHECK(row < grid.rows && column < grid.columns, "a row outside of its picture");
  return first + row * grid.columns + column;
}

}  // namespace

Result<std::shared_ptr<const PictureRow>> MakeThumbnail(const Image& image, const SeenPart& part,
                                                        const std::string& hash) {
  auto row = std::make_shared<PictureRow>();
  row->width = part.width;
  row->height = part.height;
  const bool whole =
      part.left == 0 && part.top == 0 && part.width == image.width && part.height == image.height;
  row->key = whole ? hash
                   : Sha256Hex(StrCat(hash, " ", part.left, " ", part.top, " ", part.width, " ",
                                      part.height));
  // What of the picture lies in the part, shrunk; then the part's borders around it.
  const int32_t left = std::clamp(part.left, 0, image.width - 1);
  const int32_t top = std::clamp(part.top, 0, image.height - 1);
  const int32_t width = std::clamp(part.left + part.width - left, 1, image.width - left);
  const int32_t height = std::clamp(part.top + part.height - top, 1, image.height - top);
  const double shrink =
      std::min(1.0, static_cast<double>(kThumbnailSide) / std::max(part.width, part.height));
  const auto shrunk = [&](int32_t length) {
    return std::max(1, static_cast<int32_t>(std::lround(length * shrink)));
  };
  Image small = whole ? image : Crop(image, left, top, width, height);
  small = Resize(small, shrunk(width), shrunk(height), ResizeFilter::kBox);
  const int32_t to_width = std::max(small.width, shrunk(part.width));
  const int32_t to_height = std::max(small.height, shrunk(part.height));
  if (to_width != small.width || to_height != small.height) {
    const auto border = [&](int32_t before, int32_t room) {
      return std::clamp(static_cast<int32_t>(std::lround(before * shrink)), 0, room);
    };
    small = Pad(small, border(left - part.left, to_width - small.width),
                border(top - part.top, to_height - small.height), to_width, to_height, kBorder);
  }
  KVG_ASSIGN(row->thumbnail, EncodeJpeg(small, kThumbnailQuality));
  return std::shared_ptr<const PictureRow>(std::move(row));
}

std::shared_ptr<const SightRow> MakeSight(const Sample& sample, std::span<const SeenPicture> seen) {
  KVG_CHECK(seen.size() == sample.pictures.size(), "not every picture was seen");
  const bool apart = sample.mode == QuestionMode::kMultiRequest;
  std::vector<bool> answers(seen.size());
  for (const Mark& mark : sample.marks) {
    if (mark.kind != MarkKind::kNeedle || mark.picture < 0) continue;
    answers[static_cast<size_t>(mark.picture)] = true;
  }
  auto sight = std::make_shared<SightRow>();
  for (size_t i = 0; i < seen.size(); ++i) {
    const Picture& picture = sample.pictures[i];
    if (picture.question > 0 || (apart && picture.question == 0)) continue;
    sight->pictures.push_back({.name = picture.name,
                               .frame = picture.frame,
                               .answer = answers[i],
                               .grids = GridsOf(*seen[i].layout),
                               .picture = seen[i].thumbnail});
  }
  return sight;
}

std::vector<int64_t> CellsOfPositions(const EngineSample& tokens, const SightRow& sight) {
  std::vector<int64_t> first_cell;  // of each picture
  int64_t cells = 0;
  for (const ShownPicture& shown : sight.pictures) {
    first_cell.push_back(cells);
    for (const ShownPicture::Grid& grid : shown.grids) cells += grid.rows * grid.columns;
  }
  const int64_t context = std::ssize(tokens.context);
  std::vector<int64_t> cell_at;
  const auto place = [&](std::span<const VisualSpan> spans, int64_t before) {
    for (const VisualSpan& span : spans) {
      const auto picture = static_cast<size_t>(span.index);
      if (picture >= sight.pictures.size()) continue;  // of a later question
      const int64_t end = before + span.first + span.count;
      if (std::ssize(cell_at) < end) cell_at.resize(static_cast<size_t>(end), -1);
      for (int64_t i = 0; i < span.count; ++i) {
        const int64_t cell = CellOf(span, span.first + i, sight.pictures[picture]);
        if (cell < 0) continue;
        cell_at[static_cast<size_t>(before + span.first + i)] = first_cell[picture] + cell;
      }
    }
  };
  place(tokens.context_spans, 0);
  if (!tokens.turns.empty()) place(tokens.turns[0].spans, context);
  return cell_at;
}

std::string KeptPatches(const KvCache& cache, const EngineSample& tokens, const SightRow& sight) {
  const std::vector<int64_t> cell_at = CellsOfPositions(tokens, sight);
  std::vector<int64_t> held(static_cast<size_t>(sight.cells()));
  for (int64_t layer = 0; layer < cache.layer_count(); ++layer) {
    for (int64_t head = 0; head < cache.kv_heads(layer); ++head) {
      for (const int32_t position : cache.Positions(layer, head)) {
        if (position >= std::ssize(cell_at)) continue;
        const int64_t cell = cell_at[static_cast<size_t>(position)];
        if (cell >= 0) ++held[static_cast<size_t>(cell)];
      }
    }
  }
  int64_t heads = 0;
  for (int64_t layer = 0; layer < cache.layer_count(); ++layer) heads += cache.kv_heads(layer);
  const auto most = static_cast<double>(heads);
  std::string patches;
  for (const int64_t times : held) patches += PatchDigit(static_cast<double>(times) / most);
  const bool alike = !patches.empty() && patches.find_first_not_of(patches[0]) == std::string::npos;
  return alike ? patches.substr(0, 1) : patches;
}

}  // namespace kvgauge
