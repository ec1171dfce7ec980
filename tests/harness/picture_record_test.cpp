// SPDX-License-Identifier: Apache-2.0
// What is recorded of pictures: small copies, grids, and where rows of the prompt lie in them.
#include "src/run/picture_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/strings.h"
#include "images/decode.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;

Image Filled(int32_t width, int32_t height, uint8_t level) {
  Image image;
  image.width = width;
  image.height = height;
  image.rgb.assign(static_cast<size_t>(width) * static_cast<size_t>(height) * 3, level);
  return image;
}

Image Small(const PictureRow& row) {
  const Result<Image> image = DecodeImage(row.thumbnail, "thumbnail");
  EXPECT_TRUE(image.ok()) << image.error().message;
  return *image;
}

TEST(Thumbnail, IsSmallAndKnowsWhatItShows) {
  const auto row = MakeThumbnail(Filled(1000, 500, 200), {0, 0, 1000, 500}, "hash");
  ASSERT_TRUE(row.ok()) << row.error().message;
  EXPECT_EQ((*row)->key, "hash");
  EXPECT_EQ((*row)->width, 1000);
  const Image small = Small(**row);
  EXPECT_EQ(small.width, 128);
  EXPECT_EQ(small.height, 64);
  EXPECT_NEAR(small.rgb[0], 200, 2);
  // Pictures that are small already stay as they are.
  EXPECT_EQ(Small(**MakeThumbnail(Filled(30, 20, 9), {0, 0, 30, 20}, "h")).width, 30);
}

TEST(Thumbnail, PartsAreOtherPictures) {
  Image image = Filled(400, 100, 10);
  for (int32_t y = 0; y < 100; ++y) {
    for (int32_t x = 150; x < 250; ++x) {
      for (int c = 0; c < 3; ++c) image.rgb[static_cast<size_t>((y * 400 + x) * 3 + c)] = 250;
    }
  }
  const auto crop = MakeThumbnail(image, {150, 0, 100, 100}, "hash");
  EXPECT_NE((*crop)->key, "hash");
  EXPECT_NEAR(Small(**crop).rgb[0], 250, 3);
  // All of it with a border above and below.
  const auto square = MakeThumbnail(image, {0, -150, 400, 400}, "hash");
  EXPECT_NE((*square)->key, (*crop)->key);
  const Image small = Small(**square);
  EXPECT_EQ(small.width, 128);
  EXPECT_EQ(small.height, 128);
  EXPECT_NEAR(small.rgb[0], 128, 3) << "a border";
  EXPECT_NEAR(small.rgb[static_cast<size_t>((64 * 128 + 64) * 3)], 250, 3) << "the picture";
}

// A bound on memory: a thin picture in a square is never that square.
TEST(Thumbnail, ThinPicturesInLargeSquaresAreSmall) {
  const auto row = MakeThumbnail(Filled(60000, 1, 77), {0, -29999, 60000, 60000}, "hash");
  ASSERT_TRUE(row.ok()) << row.error().message;
  EXPECT_EQ(Small(**row).height, 128);
}

VisualSpan SpanOf(const VisualBlock& block, int32_t index, int64_t first) {
  VisualSpan span;
  span.first = first;
  span.count = block.rows;
  span.index = index;
  span.grid = block.grid;
  span.newlines = block.newlines;
  span.tile_row = block.tile_row;
  span.tile_column = block.tile_column;
  span.piece = block.kind == VisualBlock::Kind::kWhole    ? VisualSpan::Piece::kWhole
               : block.kind == VisualBlock::Kind::kCanvas ? VisualSpan::Piece::kCanvas
               : block.kind == VisualBlock::Kind::kTile   ? VisualSpan::Piece::kTile
                                                          : VisualSpan::Piece::kNewline;
  return span;
}

TEST(Sight, TilesAreOneGridAndLineEndsNone) {
  VisualLayout canvas, tiles;
  canvas.blocks = {
      {.kind = VisualBlock::Kind::kWhole, .rows = 4, .grid = {1, 2, 2}},
      {.kind = VisualBlock::Kind::kCanvas, .rows = 8, .grid = {1, 2, 3}, .newlines = true},
      {.kind = VisualBlock::Kind::kNewline, .rows = 1}};
  for (int32_t column = 0; column < 2; ++column) {
    tiles.blocks.push_back({.kind = VisualBlock::Kind::kTile,
                            .rows = 4,
                            .grid = {1, 2, 2},
                            .tile_row = 0,
                            .tile_column = column});
  }
  tiles.blocks.push_back({.kind = VisualBlock::Kind::kWhole, .rows = 4, .grid = {1, 2, 2}});
  Sample sample;
  sample.pictures.resize(3);
  sample.pictures[1].name = "second";
  sample.pictures[1].frame = 5;
  sample.pictures[2].question = 1;
  sample.marks = {{.kind = MarkKind::kNeedle, .picture = 1}};
  const auto picture = std::make_shared<PictureRow>();
  const auto sight = MakeSight(
      sample, std::vector<SeenPicture>{{&canvas, picture}, {&tiles, picture}, {&tiles, picture}});
  ASSERT_EQ(sight->pictures.size(), 2u) << "the later question's is left out";
  using Grids = std::vector<ShownPicture::Grid>;
  EXPECT_EQ(sight->pictures[0].grids, (Grids{{2, 2}, {2, 3}}));
  EXPECT_EQ(sight->pictures[1].grids, (Grids{{2, 2}, {2, 4}}));
  EXPECT_FALSE(sight->pictures[0].answer);
  EXPECT_TRUE(sight->pictures[1].answer);
  EXPECT_EQ(sight->pictures[1].frame, 5);
  EXPECT_EQ(sight->cells(), 10 + 12);

  EngineSample tokens;
  tokens.context.resize(14);
  int64_t at = 1;
  for (const VisualBlock& block : canvas.blocks) {
    tokens.context_spans.push_back(SpanOf(block, 0, at));
    at += block.rows;
  }
  tokens.turns.resize(1);
  at = 2;
  for (const VisualBlock& block : tiles.blocks) {
    tokens.turns[0].spans.push_back(SpanOf(block, 1, at));
    at += block.rows;
  }
  // One row of the last piece was shown, its second.
  VisualSpan& last = tokens.turns[0].spans.back();
  last.count = 2;
  last.places = {1, -1};
  EXPECT_THAT(CellsOfPositions(tokens, *sight),
              ElementsAre(-1, 0, 1, 2, 3, 4, 5, 6, -1, 7, 8, 9, -1, -1,  // the context
                          -1, -1, 14, 15, 18, 19, 16, 17, 20, 21, 11, -1));
}

}  // namespace
}  // namespace kvgauge
