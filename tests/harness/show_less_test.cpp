// SPDX-License-Identifier: Apache-2.0
// Prompts whose pictures lost rows: tokens, spans and positions of what is left.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runner/visual_prompt.h"
#include "src/model/visual_input.h"
#include "src/run/picture_features.h"
#include "src/run/sample_visuals.h"
#include "support/in_pairs.h"
#include "support/test_ops.h"
#include "support/visual_rows.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;

// Two words, a picture of 2 x 3, a word, one of 1 x 2 with the end of its line, a word.
struct Shown {
  std::vector<int32_t> ids = {1, 2, 9, 9, 9, 9, 9, 9, 3, 9, 9, 9, 4};
  std::vector<VisualSpan> spans = {{.first = 2, .count = 6, .index = 0, .grid = {1, 2, 3}},
                                   {.first = 9,
                                    .count = 3,
                                    .index = 1,
                                    .grid = {1, 1, 2},
                                    .newlines = true,
                                    .embedding_row = 6}};
};

TEST(ShowLess, TakesRowsOutOfTokensAndSpans) {
  Shown shown;
  // A row that stands for all of the first picture, and two of its places; one of the second.
  const std::vector<int64_t> now =
      ShowLess(std::vector<SeenVisual>{{6, {-1, 1, 5}}, {3, {0, 2}}}, shown.ids, shown.spans);
  EXPECT_THAT(shown.ids, ElementsAre(1, 2, 9, 9, 9, 3, 9, 9, 4));
  ASSERT_EQ(shown.spans.size(), 2u);
  EXPECT_EQ(shown.spans[0].first, 2);
  EXPECT_EQ(shown.spans[0].count, 3);
  EXPECT_EQ(shown.spans[0].embedding_row, 0);
  EXPECT_THAT(shown.spans[0].places, ElementsAre(-1, 1, 5));
  EXPECT_EQ(shown.spans[1].first, 6);
  EXPECT_EQ(shown.spans[1].embedding_row, 3);
  EXPECT_THAT(shown.spans[1].places, ElementsAre(0, 2));
  EXPECT_THAT(now, ElementsAre(0, 1, 2, 3, 4, 5, 5, 5, 5, 6, 7, 8, 8, 9));

  EXPECT_TRUE(PlaceIn(shown.spans[0], 2).nowhere);
  EXPECT_EQ(PlaceIn(shown.spans[0], 4).row, 1);
  EXPECT_EQ(PlaceIn(shown.spans[0], 4).column, 2);
  EXPECT_TRUE(PlaceIn(shown.spans[1], 7).newline);

  // One axis: no gap. Three: each row turns by its own place, and text stands where it stood.
  Prompt flat;
  flat.Append(shown.ids, shown.spans, false);
  for (int32_t i = 0; i < 9; ++i)
    EXPECT_EQ(flat.positions[static_cast<size_t>(i)].rope_position[0], i);
  Prompt turned, whole;
  turned.Append(shown.ids, shown.spans, true);
  const Shown all;
  whole.Append(all.ids, all.spans, true);
  EXPECT_THAT(turned.positions[4].rope_position, ElementsAre(2, 3, 4));
  EXPECT_EQ(turned.positions[4].rope_position, whole.positions[7].rope_position);
  EXPECT_EQ(turned.positions[5].rope_position, whole.positions[8].rope_position);
  EXPECT_EQ(turned.next_rope_position, whole.next_rope_position);
}

TEST(ShowLess, NothingTakenChangesNothing) {
  Shown shown;
  const Shown before;
  ShowLess(std::vector<SeenVisual>{{6, {}}, {3, {}}}, shown.ids, shown.spans);
  EXPECT_EQ(shown.ids, before.ids);
  EXPECT_EQ(shown.spans, before.spans);
}

// A picture of which a piece is gone entirely, in the middle of another's rows.
TEST(ShowLess, PiecesMayVanish) {
  std::vector<int32_t> ids = {9, 9, 5, 9, 9, 6};
  std::vector<VisualSpan> spans = {
      {.first = 0, .count = 2, .index = 0, .grid = {1, 1, 2}},
      {.first = 3, .count = 2, .index = 0, .grid = {1, 1, 2}, .embedding_row = 2}};
  ShowLess(std::vector<SeenVisual>{{4, {2, 3}}}, ids, spans);
  EXPECT_THAT(ids, ElementsAre(5, 9, 9, 6));
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_EQ(spans[0].first, 1);
  EXPECT_EQ(spans[0].embedding_row, 0);
  EXPECT_THAT(spans[0].places, ElementsAre(0, 1));
}

TEST(ShowLess, PicturesMayVanish) {
  Shown shown;
  const std::vector<int64_t> now =
      ShowLess(std::vector<SeenVisual>{{6, {}, true}, {3, {}}}, shown.ids, shown.spans);
  EXPECT_THAT(shown.ids, ElementsAre(1, 2, 3, 9, 9, 9, 4));
  ASSERT_EQ(shown.spans.size(), 1u);
  EXPECT_EQ(shown.spans[0].first, 3);
  EXPECT_EQ(shown.spans[0].count, 3);
  EXPECT_EQ(shown.spans[0].index, 1);
  EXPECT_EQ(shown.spans[0].embedding_row, 0);
  EXPECT_THAT(now, ElementsAre(0, 1, 2, 2, 2, 2, 2, 2, 2, 3, 4, 5, 6, 7));
}

// A visual of one number a row, and one in its deepstack, ten times as large.
std::shared_ptr<const VisualFeatures> OfNumbers(const std::vector<VisualBlock>& blocks,
                                                const std::vector<float>& numbers) {
  auto visual = std::make_shared<VisualFeatures>();
  visual->layout = {std::ssize(numbers), blocks};
  std::vector<float> deep = numbers;
  for (float& number : deep) number *= 10;
  visual->rows = VisualRows(HostMemory(), numbers, 1, {deep});
  return visual;
}

// Three times of two rows each and the newline behind them.
TEST(JoinFrames, AVideoKeepsItsFirstsAndWhatIsNoFrame) {
  const auto video =
      OfNumbers({{.kind = VisualBlock::Kind::kVideo, .first = 0, .rows = 6, .grid = {3, 1, 2}},
                 {.kind = VisualBlock::Kind::kNewline, .first = 6, .rows = 1}},
                {1, 2, 3, 6, 5, 9, 7});
  const auto left = *JoinFrames(InPairs(), {{video}}, {{-1}}, HostMemory());
  ASSERT_EQ(left.size(), 1u);
  EXPECT_THAT(left[0]->places, ElementsAre(0, 1, 4, 5, 6));
  EXPECT_THAT(NumbersOf(left[0]->rows), ElementsAre(2, 4, 5, 9, 7));
  EXPECT_THAT(NumbersOf(left[0]->rows, 1), ElementsAre(20, 40, 50, 90, 70));
  EXPECT_EQ(left[0]->count(), 5);
  EXPECT_EQ(video->count(), 7) << "others show it whole";
}

// Frames join those of their own video alone, and of their own shape.
TEST(JoinFrames, PicturesThatAreNoFramesOfOneVideoStay) {
  const std::vector<VisualBlock> two = {
      {.kind = VisualBlock::Kind::kWhole, .rows = 2, .grid = {1, 1, 2}}};
  const std::vector<VisualBlock> other = {
      {.kind = VisualBlock::Kind::kWhole, .rows = 2, .grid = {1, 2, 1}}};
  const std::vector<std::shared_ptr<const VisualFeatures>> pictures = {
      OfNumbers(two, {1, 2}), OfNumbers(two, {3, 4}),   OfNumbers(two, {5, 6}),
      OfNumbers(two, {7, 8}), OfNumbers(two, {9, 10}),  OfNumbers(other, {1, 1}),
      OfNumbers(two, {1, 1}), OfNumbers(two, {11, 12}), OfNumbers(two, {13, 16})};
  // A picture, one frame of a video, two of the next, one of another shape and its neighbours.
  const auto left = *JoinFrames(InPairs(), pictures,
                                std::vector<int32_t>{-1, 0, 1, 1, -1, 2, 2, 3, 3}, HostMemory());
  const auto gone = [&](size_t i) { return left[i]->gone; };
  for (const size_t same : {0u, 1u, 4u, 5u, 6u}) EXPECT_EQ(left[same], pictures[same]) << same;
  EXPECT_FALSE(gone(2));
  EXPECT_TRUE(gone(3));
  EXPECT_TRUE(gone(8));
  EXPECT_EQ(left[3]->count(), 0);
  EXPECT_THAT(NumbersOf(left[2]->rows), ElementsAre(6, 7));
  EXPECT_THAT(NumbersOf(left[7]->rows), ElementsAre(12, 14));
  EXPECT_THAT(NumbersOf(left[7]->rows, 1), ElementsAre(120, 140));
  const auto joined = JoinRows(left, 1);
  EXPECT_EQ(joined->count(), 14);
  EXPECT_EQ(NumbersOf(*joined, 1).size(), 14u);
}

// Keeps every patch, in order.
class KeepAll final : public See {
 public:
  // `unit`: how many rows of the tower a patch is.
  KeepAll(const EyesShape& eyes, int64_t unit) : eyes_(eyes), unit_(unit) {}
  SeeNeeds sees() const override {
    return {.attention = eyes_.by_row, .behind = eyes_.behind, .rows = eyes_.by_row};
  }
  std::vector<SeenRow> Reduce(const TileView& tile) const override {
    if (eyes_.by_row) {
      // Attention of the class token to all but itself, or what all rows get of one each.
      for (int64_t h = 0; h < tile.heads; ++h) {
        double sum = 0;
        for (int64_t i = 0; i < tile.patches; ++i) {
          sum += double{tile.attention[static_cast<size_t>(h * tile.patches + i)]};
        }
        EXPECT_GT(sum * static_cast<double>(unit_), 0.5);
        EXPECT_LT(sum * static_cast<double>(unit_), 1.00001);
      }
      EXPECT_EQ(std::ssize(tile.rows), tile.patches * tile.hidden);
    }
    if (eyes_.behind) {
      EXPECT_EQ(std::ssize(tile.behind.keys), tile.patches * tile.width);
      EXPECT_EQ(std::ssize(tile.behind.class_key), eyes_.class_token ? tile.width : 0);
    }
    std::vector<SeenRow> rows;
    for (int32_t i = 0; i < tile.patches; ++i) rows.push_back(SeenRow::Kept(i));
    return rows;
  }

 private:
  const EyesShape eyes_;
  const int64_t unit_;
};

// A stage that keeps everything gives the bits of the tower alone; one that keeps some, some of
// them.
TEST(SeeInTowers, WhatIsKeptHasTheBitsOfTheWhole) {
  for (const char* family : {"llava", "pixtral", "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "internvl",
                             "idefics3", "gemma3"}) {
    SCOPED_TRACE(family);
    const std::string model = std::string(KVG_SOURCE_DIR) + "/tests/golden/vision/" + family;
    const std::unique_ptr<Ops> ops = MakeTestOps("cpu", 1);
    VisionSpec spec = **ReadVisionConfig(model);
    if (std::string(family) == "qwen2_5_vl") {
      EXPECT_FALSE(ShapeOfEyes(spec).by_row);  // its last block has windows
      spec.tower.full_layers.push_back(spec.tower.layers - 1);
    }
    const EyesShape eyes = ShapeOfEyes(spec);
    EXPECT_TRUE(eyes.by_row);
    EXPECT_EQ(eyes.behind, std::string(family) == "llava");
    const auto weights = OpenSafetensors(model);
    ASSERT_TRUE(weights.ok());
    const auto tower = VisionTower::Load(spec, **weights, DType::kF32, *ops, eyes.behind);
    ASSERT_TRUE(tower.ok()) << tower.error().message;
    const Result<Preprocessor> preprocessor = ReadPicturePreprocessor(model);
    ASSERT_TRUE(preprocessor.ok());
    Image image = Image::OfSize(50, 40);
    for (size_t i = 0; i < image.rgb.size(); ++i) image.rgb[i] = static_cast<uint8_t>(i * 7);
    const std::vector<PixelValues> pixels = {*Preprocess(*preprocessor, image),
                                             *Preprocess(*preprocessor, image)};
    const auto plain = (*tower)->Encode(pixels, Modality::kImage);
    const KeepAll all(eyes, spec.merge * spec.merge);
    const auto same = (*tower)->Encode(pixels, Modality::kImage, nullptr, &all);
    ASSERT_TRUE(plain.ok() && same.ok());
    const std::vector<float> whole = NumbersOf((*plain)[1].rows);
    for (size_t table = 0; table <= spec.deepstack.size(); ++table) {
      EXPECT_EQ(NumbersOf((*same)[1].rows, table), NumbersOf((*plain)[1].rows, table)) << table;
    }
    EXPECT_EQ((*same)[1].count(), (*plain)[1].layout.rows);

    const Result<Method> method = LoadMethod("random_see", KVG_SOURCE_DIR "/configs/methods", {});
    ASSERT_TRUE(method.ok());
    const Pipeline stages = MakePipeline(*method);
    const std::vector<uint64_t> seeds = {1, 2};
    const auto some = (*tower)->Encode(pixels, Modality::kImage, nullptr, stages.see.get(), seeds);
    ASSERT_TRUE(some.ok());
    EXPECT_NE((*some)[0].places, (*some)[1].places);
    const VisualFeatures& left = (*some)[1];
    ASSERT_GT(left.places.size(), 0u);
    ASSERT_LT(left.count(), left.layout.rows);
    const int64_t width = (*tower)->spec().hidden_size;
    const std::vector<float> rows = NumbersOf(left.rows);
    for (size_t i = 0; i < left.places.size(); ++i) {
      const auto want = whole.begin() + left.places[i] * width;
      EXPECT_TRUE(std::equal(want, want + width, rows.begin() + static_cast<int64_t>(i) * width))
          << i;
    }
  }
}

// The mean of two neighbours, as the text model would be shown them.
class MeanOfPairs final : public See {
 public:
  SeeNeeds sees() const override { return {.rows = true, .mixes_shown = true}; }
  std::vector<SeenRow> Reduce(const TileView& tile) const override {
    std::vector<SeenRow> rows;
    for (int32_t i = 0; i + 1 < tile.patches; i += 2) {
      rows.push_back({i, {{i, 0.5f}, {i + 1, 0.5f}}, false});
    }
    return rows;
  }
};

// One tower has a class token and shows its rows one by one, the other shows squares of them.
TEST(SeeInTowers, MixesBehindTheProjector) {
  for (const char* family : {"llava", "qwen2_vl"}) {
    SCOPED_TRACE(family);
    const std::string model = std::string(KVG_SOURCE_DIR) + "/tests/golden/vision/" + family;
    const std::unique_ptr<Ops> ops = MakeTestOps("cpu", 1);
    VisionOptions options;
    options.dtype = DType::kF32;
    const auto tower = VisionTower::Load(model, options, *ops);
    ASSERT_TRUE(tower.ok()) << tower.error().message;
    const Result<Preprocessor> preprocessor = ReadPicturePreprocessor(model);
    ASSERT_TRUE(preprocessor.ok());
    Image image = Image::OfSize(50, 40);
    for (size_t i = 0; i < image.rgb.size(); ++i) image.rgb[i] = static_cast<uint8_t>(i * 7);
    const PixelValues pixels = *Preprocess(*preprocessor, image);
    const auto plain = (*tower)->Encode({&pixels, 1}, Modality::kImage, nullptr, nullptr);
    const MeanOfPairs pairs;
    const auto mixed = (*tower)->Encode({&pixels, 1}, Modality::kImage, nullptr, &pairs);
    ASSERT_TRUE(plain.ok() && mixed.ok());
    const int64_t width = (*tower)->spec().hidden_size;
    const VisualFeatures& seen = (*mixed)[0];
    ASSERT_GE(seen.count(), 2);
    const std::vector<float> rows = NumbersOf((*plain)[0].rows), shown = NumbersOf(seen.rows);
    for (int64_t i = 0; i < seen.count(); ++i) {
      const int32_t place = seen.places[static_cast<size_t>(i)];
      ASSERT_EQ(place, 2 * i);
      for (int64_t c = 0; c < width; ++c) {
        const size_t at = static_cast<size_t>(place * width + c);
        const double mean = (double{rows[at]} + double{rows[at + static_cast<size_t>(width)]}) / 2;
        ASSERT_NEAR(double{shown[static_cast<size_t>(i * width + c)]}, mean, 1e-6) << i;
      }
    }
  }
}

// A canvas of tiles keeps its order across tiles, without the ends of its lines; rows of its border
// have no place.
TEST(SeeInTowers, TilesOfACanvasStandInItsOrder) {
  const std::string model = std::string(KVG_SOURCE_DIR) + "/tests/golden/vision/llava_next";
  const std::unique_ptr<Ops> ops = MakeTestOps("cpu", 1);
  const VisionSpec spec = **ReadVisionConfig(model);
  const EyesShape eyes = ShapeOfEyes(spec);
  ASSERT_TRUE(eyes.by_row && eyes.class_token && eyes.behind);
  const auto tower =
      VisionTower::Load(model, {.dtype = DType::kF32, .random_seed = 3, .behind = true}, *ops);
  ASSERT_TRUE(tower.ok()) << tower.error().message;
  const Result<Preprocessor> preprocessor = ReadPicturePreprocessor(model);
  ASSERT_TRUE(preprocessor.ok());
  Image image = Image::OfSize(56, 40);
  for (size_t i = 0; i < image.rgb.size(); ++i) image.rgb[i] = static_cast<uint8_t>(i * 7);
  const PixelValues pixels = *Preprocess(*preprocessor, image);
  const auto plain = (*tower)->Encode({&pixels, 1}, Modality::kImage);
  const KeepAll all(eyes, 1);
  const auto kept = (*tower)->Encode({&pixels, 1}, Modality::kImage, nullptr, &all);
  ASSERT_TRUE(plain.ok() && kept.ok());
  const VisualFeatures& seen = (*kept)[0];
  // 16 patches of the whole, and of 4 tiles; of 70 rows 6 end lines, so 16 are border.
  ASSERT_EQ(seen.count(), 80);
  ASSERT_EQ(seen.layout.rows, 70);
  const int64_t width = spec.hidden_size;
  const std::vector<float> whole = NumbersOf((*plain)[0].rows), shown = NumbersOf(seen.rows);
  int64_t placed = 0;
  int32_t last = -1;
  for (int64_t i = 0; i < seen.count(); ++i) {
    const int32_t place = seen.places[static_cast<size_t>(i)];
    if (place < 0) continue;
    ++placed;
    EXPECT_GT(place, last);
    last = place;
    const auto want = whole.begin() + place * width;
    EXPECT_TRUE(std::equal(want, want + width, shown.begin() + i * width)) << i;
  }
  EXPECT_EQ(placed, 64);
}

}  // namespace
}  // namespace kvgauge
