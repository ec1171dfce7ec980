// SPDX-License-Identifier: Apache-2.0
// Placeholders as the processors of transformers 5.23 expand them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/strings.h"
#include "runner/visual_prompt.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Knows how the placeholders are spelled, and nothing else.
class Spelling final : public Tokenizer {
 public:
  Result<std::vector<int32_t>> Encode(std::string_view, const EncodeOptions&) const override {
    return BadInput("not asked");
  }
  std::unique_ptr<Detokenizer> NewDetokenizer(const DecodeOptions&) const override {
    return nullptr;
  }
  std::string Kind() const override { return "spelling"; }
  int64_t VocabSize() const override { return 100; }
  std::string TokenText(int32_t id) const override {
    static const std::vector<std::string> names = {"<image>", "<vid>", "<s>",
                                                   "<e>",     "<boi>", "<eoi>"};
    return names[static_cast<size_t>(id - 90)];
  }
  std::optional<int32_t> IdOf(std::string_view) const override { return std::nullopt; }
  bool IsSpecial(int32_t) const override { return true; }
};

ModelConfig ConfigOf(const std::string& family, bool video) {
  ModelConfig config;
  config.path = "dir/config.json";
  config.vision_family = family;
  config.visual_ids = {.image = 90, .video = video ? 91 : -1, .vision_start = 92, .vision_end = 93};
  return config;
}

VisualBlock Tile(int32_t row, int32_t column) {
  return {.kind = VisualBlock::Kind::kTile,
          .rows = 2,
          .grid = {1, 1, 2},
          .tile_row = row,
          .tile_column = column};
}

ShownVisual Shown(Modality modality, std::vector<VisualBlock> blocks) {
  ShownVisual visual;
  visual.modality = modality;
  for (VisualBlock& block : blocks) {
    block.first = visual.layout.rows;
    visual.layout.rows += block.rows;
  }
  visual.layout.blocks = std::move(blocks);
  return visual;
}

ShownVisual Whole(int64_t rows) {
  return Shown(Modality::kImage, {{.rows = rows, .grid = {1, 1, static_cast<int32_t>(rows)}}});
}

// Two rows of three, with text behind each.
ShownVisual InLines() {
  return Shown(Modality::kImage, {{.rows = 6, .grid = {1, 2, 3}, .lines_apart = true}});
}

ShownVisual Film(int32_t times, std::vector<double> seconds) {
  ShownVisual visual =
      Shown(Modality::kVideo,
            {{.kind = VisualBlock::Kind::kVideo, .rows = 2 * times, .grid = {times, 1, 2}}});
  visual.frame_seconds = std::move(seconds);
  visual.duration_s = 75;
  return visual;
}

std::string Expanded(const ModelConfig& config, const std::string& text,
                     const std::vector<ShownVisual>& visuals) {
  const Result<std::string> out = ExpandVisuals(config, Spelling(), text, visuals);
  return out.ok() ? *out : out.error().message;
}

TEST(VisualExpand, PicturesOfEachFamily) {
  EXPECT_EQ(Expanded(ConfigOf("llava", false), "a <image> b <image>", {Whole(2), Whole(1)}),
            "a <image><image> b <image>");
  EXPECT_EQ(Expanded(ConfigOf("internvl", false), "<image>\nx", {Whole(2)}),
            "<img><image><image></img>\nx");
  ModelConfig gemma = ConfigOf("gemma3", false);
  gemma.visual_ids = {.image = 90, .image_begin = 94, .image_end = 95};
  EXPECT_EQ(Expanded(gemma, "a<boi>b<boi>", {Whole(2), Whole(1)}),
            "a\n\n<boi><image><image><eoi>\n\nb\n\n<boi><image><eoi>\n\n");
  EXPECT_THAT(Expanded(gemma, "a<boi>", {}), HasSubstr("1 placeholders '<boi>'"));
  EXPECT_EQ(Expanded(ConfigOf("llava", false), "a<image>b", {InLines()}),
            "a<image><image><image>[IMG_BREAK]<image><image><image>[IMG_END]b");
  const ModelConfig split = ConfigOf("idefics3", false);
  EXPECT_EQ(Expanded(split, "u:<image>q", {Whole(2)}),
            "u:<fake_token_around_image><global-img><image><image><fake_token_around_image>q");
  const ShownVisual tiles =
      Shown(Modality::kImage,
            {Tile(0, 0), Tile(0, 1), Tile(1, 0), Tile(1, 1), {.rows = 2, .grid = {1, 1, 2}}});
  EXPECT_EQ(Expanded(split, "<image>", {tiles}),
            "<fake_token_around_image><row_1_col_1><image><image>"
            "<fake_token_around_image><row_1_col_2><image><image>\n"
            "<fake_token_around_image><row_2_col_1><image><image>"
            "<fake_token_around_image><row_2_col_2><image><image>\n"
            "\n<fake_token_around_image><global-img><image><image><fake_token_around_image>");
}

// Each row is a span of its own, which knows its row; a row that is too short is an error.
TEST(VisualExpand, LinesApartKnowTheirRow) {
  const ModelConfig config = ConfigOf("llava", false);
  const std::vector<ShownVisual> shown = {InLines()};
  const std::vector<int32_t> ids = {5, 90, 90, 90, 7, 90, 90, 90, 8, 6};
  const Result<std::vector<VisualSpan>> spans = PlaceVisuals(config, ids, shown);
  ASSERT_TRUE(spans.ok()) << spans.error().message;
  ASSERT_EQ(spans->size(), 2u);
  EXPECT_EQ((*spans)[1].first, 5);
  EXPECT_EQ((*spans)[1].embedding_row, 3);
  EXPECT_EQ(PlaceIn((*spans)[0], 3).column, 2);
  EXPECT_EQ(PlaceIn((*spans)[1], 6).row, 1);
  EXPECT_EQ(PlaceIn((*spans)[1], 6).column, 1);
  // What a stage leaves of them keeps its row and column; the text between stays.
  std::vector<int32_t> left = ids;
  std::vector<VisualSpan> kept = *spans;
  ShowLess(std::vector<SeenVisual>{{6, {1, 3, 5}}}, left, kept);
  EXPECT_EQ(left, (std::vector<int32_t>{5, 90, 7, 90, 90, 8, 6}));
  ASSERT_EQ(kept.size(), 2u);
  EXPECT_EQ(PlaceIn(kept[0], 1).column, 1);
  EXPECT_EQ(PlaceIn(kept[1], 4).row, 1);
  EXPECT_EQ(PlaceIn(kept[1], 4).column, 2);
  const std::vector<int32_t> cut = {5, 90, 90, 7, 90, 90, 90, 90, 8, 6};
  EXPECT_FALSE(PlaceVisuals(config, cut, shown).ok());
}

TEST(VisualExpand, VideosOfEachFamily) {
  EXPECT_EQ(Expanded(ConfigOf("qwen2_vl", true), "<s><vid><e>", {Film(2, {})}),
            "<s><vid><vid><vid><vid><e>");
  EXPECT_EQ(Expanded(ConfigOf("internvl", false), "<video>?", {Film(2, {})}),
            "Frame1: <img><image><image></img>\nFrame2: <img><image><image></img>?");
  EXPECT_EQ(Expanded(ConfigOf("smolvlm", false), "<video>", {Film(2, {0, 62.5})}),
            "You are provided the following series of two frames from a 0:01:15 [H:MM:SS] video.\n"
            "\nFrame from 00:00:<fake_token_around_image><global-img><image><image>"
            "<fake_token_around_image>"
            "\nFrame from 01:02:<fake_token_around_image><global-img><image><image>"
            "<fake_token_around_image>\n\n");
  EXPECT_EQ(Expanded(ConfigOf("qwen3_vl", true), "<s><vid><e>", {Film(2, {0, 1, 2, 3.1})}),
            "<0.5 seconds><s><vid><vid><e><2.5 seconds><s><vid><vid><e>");
  EXPECT_THAT(Expanded(ConfigOf("smolvlm", false), "<video>", {Film(1, {})}),
              HasSubstr("no frame rate"));
}

TEST(VisualExpand, CountsMustAgree) {
  const ModelConfig config = ConfigOf("llava", false);
  EXPECT_THAT(
      Expanded(config, "<image> <image>", {Whole(1)}),
      AllOf(HasSubstr("dir/config.json"), HasSubstr("2 placeholders"), HasSubstr("1 is given")));
  EXPECT_THAT(Expanded(config, "none", {Whole(1), Whole(1)}),
              AllOf(HasSubstr("0 placeholders"), HasSubstr("2 are given")));
  EXPECT_THAT(Expanded(config, "<video>", {Film(1, {})}), HasSubstr("shows no videos"));
  EXPECT_THAT(Expanded(ConfigOf("", false), "<image>", {Whole(1)}), HasSubstr("text model"));
}

}  // namespace
}  // namespace kvgauge
