// SPDX-License-Identifier: Apache-2.0
// Positions, spans and the keys of prompts with pictures.
#include "runner/visual_prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runner/config_cases.h"
#include "runner/generate.h"
#include "support/checkpoint_folder.h"
#include "support/test_ops.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int32_t> Axis(const Prompt& prompt, size_t axis) {
  std::vector<int32_t> places;
  for (const PromptPosition& position : prompt.positions) {
    places.push_back(position.rope_position[axis]);
  }
  return places;
}

// Ids with `rows` placeholders behind three tokens and three tokens behind them.
std::vector<int32_t> IdsAround(int64_t rows, int32_t placeholder) {
  std::vector<int32_t> ids = {1, 5, 92};
  ids.insert(ids.end(), static_cast<size_t>(rows), placeholder);
  for (const int32_t id : {93, 7, 8}) ids.push_back(id);
  return ids;
}

VisualSpan Video(std::array<int32_t, 3> grid, double time_step, bool by_sides) {
  return {.first = 3,
          .count = int64_t{grid[0]} * grid[1] * grid[2],
          .modality = Modality::kVideo,
          .piece = VisualSpan::Piece::kFrames,
          .grid = grid,
          .time_step = time_step,
          .next_by_sides = by_sides};
}

// As transformers 5.23 has it: a picture of 2 x 3 rows between texts.
TEST(VisualPrompt, PositionsOfAPicture) {
  Prompt prompt;
  const VisualSpan picture = {.first = 3, .count = 6, .grid = {1, 2, 3}};
  prompt.Append(IdsAround(6, 90), std::span(&picture, 1), true);
  EXPECT_THAT(Axis(prompt, 0), ElementsAre(0, 1, 2, 3, 3, 3, 3, 3, 3, 6, 7, 8));
  EXPECT_THAT(Axis(prompt, 1), ElementsAre(0, 1, 2, 3, 3, 3, 4, 4, 4, 6, 7, 8));
  EXPECT_THAT(Axis(prompt, 2), ElementsAre(0, 1, 2, 3, 4, 5, 3, 4, 5, 6, 7, 8));
  EXPECT_EQ(prompt.next_rope_position - prompt.size(), -3);
  // Tokens of an answer follow, wherever the prompt ends.
  prompt.AppendText(4);
  EXPECT_EQ(prompt.positions.back().rope_position, (RopePosition{9, 9, 9}));
  const std::shared_ptr<const RopePlaces> places = RopePlaces::Of(prompt);
  ASSERT_NE(places, nullptr);
  EXPECT_EQ(places->At(8), (RopePosition{3, 4, 5}));
  EXPECT_EQ(places->At(15), (RopePosition{12, 12, 12}));
  // With one axis a picture counts like text.
  Prompt plain;
  plain.Append(IdsAround(6, 90), std::span(&picture, 1), false);
  EXPECT_EQ(RopePlaces::Of(plain), nullptr);
}

// Eight times of 2 x 2: text behind them as the models were trained, and as transformers 5.23 has
// it.
TEST(VisualPrompt, TextBehindAVideo) {
  for (const bool by_sides : {false, true}) {
    Prompt prompt;
    const VisualSpan video = Video({8, 2, 2}, 1, by_sides);
    prompt.Append(IdsAround(32, 91), std::span(&video, 1), true);
    const int32_t next = by_sides ? 5 : 11;
    EXPECT_EQ(prompt.positions[34].rope_position, (RopePosition{10, 4, 4}));
    EXPECT_EQ(prompt.positions[35].rope_position, (RopePosition{next, next, next}));
    EXPECT_EQ(prompt.next_rope_position - prompt.size(), by_sides ? -27 : -24);
  }
}

// Qwen2.5-VL holds seconds: two positions a second, cut last, or seconds cut first.
TEST(VisualPrompt, TimesOfAVideo) {
  ModelConfig config;
  config.vision_family = "qwen2_5_vl";
  config.visual_ids = {.image = 90, .video = 91, .tokens_per_second = 2};
  const auto times = [&](double gap, const VideoPositions& positions) {
    ShownVisual video;
    video.modality = Modality::kVideo;
    video.layout.rows = 18;
    video.layout.blocks = {{.kind = VisualBlock::Kind::kVideo, .rows = 18, .grid = {3, 2, 3}}};
    for (int i = 0; i < 6; ++i) video.frame_seconds.push_back(i * gap);
    const std::vector<int32_t> ids = IdsAround(18, 91);
    const Result<std::vector<VisualSpan>> spans =
        PlaceVisuals(config, ids, std::span(&video, 1), positions);
    EXPECT_TRUE(spans.ok()) << spans.error().message;
    Prompt prompt;
    prompt.Append(ids, *spans, true);
    return std::vector<int32_t>{prompt.positions[3].rope_position[0],
                                prompt.positions[9].rope_position[0],
                                prompt.positions[15].rope_position[0]};
  };
  // Two frames are one time: half a second, three quarters, one second apart.
  EXPECT_THAT(times(0.25, {}), ElementsAre(3, 4, 5));
  EXPECT_THAT(times(0.375, {}), ElementsAre(3, 4, 6));
  EXPECT_THAT(times(0.5, {}), ElementsAre(3, 5, 7));
  EXPECT_THAT(times(0.15, {}), ElementsAre(3, 3, 4));
  EXPECT_THAT(times(0.25, {.whole_seconds = true}), ElementsAre(3, 3, 3));
  EXPECT_THAT(times(0.5, {.whole_seconds = true}), ElementsAre(3, 5, 7));
}

TEST(VisualPrompt, SpansKnowTheirPlaces) {
  ModelConfig config;
  config.path = "dir/config.json";
  config.vision_family = "llava_next";
  config.visual_ids.image = 90;
  ShownVisual picture;
  picture.layout.rows = 10;
  picture.layout.blocks = {
      {.kind = VisualBlock::Kind::kWhole, .first = 0, .rows = 4, .grid = {1, 2, 2}},
      {.kind = VisualBlock::Kind::kCanvas,
       .first = 4,
       .rows = 6,
       .grid = {1, 2, 2},
       .newlines = true}};
  const std::vector<int32_t> ids = IdsAround(10, 90);
  const Result<std::vector<VisualSpan>> spans = PlaceVisuals(config, ids, std::span(&picture, 1));
  ASSERT_TRUE(spans.ok()) << spans.error().message;
  ASSERT_EQ(spans->size(), 2u);
  EXPECT_EQ((*spans)[1].first, 7);
  EXPECT_EQ((*spans)[1].count, 6);
  EXPECT_EQ((*spans)[1].embedding_row, 4);
  const VisualPlace end_of_row = PlaceIn((*spans)[1], 9);
  EXPECT_TRUE(end_of_row.newline);
  EXPECT_EQ(end_of_row.row, 0);
  const VisualPlace second_row = PlaceIn((*spans)[1], 11);
  EXPECT_FALSE(second_row.newline);
  EXPECT_EQ(second_row.row, 1);
  EXPECT_EQ(second_row.column, 1);
  // Counts that differ, and text where none may be.
  const Result<std::vector<VisualSpan>> fewer =
      PlaceVisuals(config, IdsAround(9, 90), std::span(&picture, 1));
  ASSERT_FALSE(fewer.ok());
  EXPECT_THAT(fewer.error().message, AllOf(HasSubstr("dir/config.json"),
                                           HasSubstr("9 placeholders"), HasSubstr("10 rows")));
  std::vector<int32_t> cut = IdsAround(10, 90);
  std::swap(cut[5], cut[14]);
  EXPECT_FALSE(PlaceVisuals(config, cut, std::span(&picture, 1)).ok());
}

// A model with three axes, and what its cache makes of keys.
class ThreeAxes : public ::testing::Test {
 protected:
  void SetUp() override {
    Json text = {{"model_type", "qwen2_vl_text"},
                 {"vocab_size", 120},
                 {"hidden_size", 32},
                 {"intermediate_size", 48},
                 {"num_hidden_layers", 2},
                 {"num_attention_heads", 4},
                 {"num_key_value_heads", 2},
                 {"max_position_embeddings", 512},
                 {"tie_word_embeddings", false},
                 {"rope_scaling", {{"type", "mrope"}, {"mrope_section", {1, 1, 2}}}}};
    const Json config = {
        {"model_type", "qwen2_vl"}, {"text_config", text}, {"vision_config", Json::object()}};
    const Result<ModelConfig> parsed = ParseModelConfig(config, "three");
    ASSERT_TRUE(parsed.ok()) << parsed.error().message;
    folder_.WriteConfig(config);
    folder_.WriteWeights(DrawTensors(ExpectedTensors(*parsed)));
    ops_ = *MakeOps("cpu", MakeThreadSettings(2));
    Result<std::unique_ptr<Model>> model = Model::Load(folder_.path(), {}, *ops_);
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_ = *std::move(model);
    rows_ = RandomValues(24 * 32, 5, 0.5f);
    const VisualSpan picture = {.first = 3, .count = 24, .grid = {1, 4, 6}};
    prompt_.embeddings = {{View(rows_, {24, 32})}};
    prompt_.Append(IdsAround(24, 90), std::span(&picture, 1), true);
  }

  std::vector<float> Prefilled(KvCache& cache) {
    std::vector<float> logits;
    EXPECT_TRUE(Prefill(*model_, prompt_, cache, 512, false, [&](const Tensor& rows) -> Status {
                  logits.assign(rows.f32(), rows.f32() + rows.Numel());
                  return {};
                }).ok());
    return logits;
  }
  // Logits behind some more tokens.
  std::vector<float> Decoded(KvCache& cache) {
    Prompt sequence = prompt_;
    std::vector<float> logits;
    for (const int32_t id : {11, 12, 13}) {
      sequence.AppendText(id);
      const SequenceStep step = {&cache, &sequence, sequence.size() - 1, sequence.size()};
      EXPECT_TRUE(cache.Append(1).ok());
      const Tensor rows = model_->Forward({&step, 1});
      logits.insert(logits.end(), rows.f32(), rows.f32() + rows.Numel());
    }
    return logits;
  }
  static std::vector<float> KeysOf(const KvCache& cache, bool raw) {
    std::vector<float> keys(static_cast<size_t>(cache.length(1, 0) * 8));
    const Tensor rows = View(keys, {cache.length(1, 0), 8});
    raw ? cache.ReadRawKeys(1, 0, 0, rows) : cache.ReadKeys(1, 0, 0, rows);
    return keys;
  }
  static void ExpectNear(const std::vector<float>& got, const std::vector<float>& want) {
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 2e-4) << i;
  }
  static Status StoreRaw(KvCache& cache, PositionPolicy policy) {
    StorePlan plan;
    plan.turn = {.raw = true, .position = policy};
    for (int64_t layer = 0; layer < cache.layer_count(); ++layer) {
      KVG_TRY(cache.Store(layer, plan));
    }
    return {};
  }

  CheckpointFolder folder_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Model> model_;
  std::vector<float> rows_;
  Prompt prompt_;
};

TEST(MutualPictures, RowsSeeAheadAndPassesDoNotCut) {
  ModelConfig config;
  VisualSpan first, second;
  first.first = 2;
  first.count = 4;
  second.first = 6;
  second.count = 3;
  second.embedding_row = 4;
  Prompt prompt;
  prompt.Append(std::vector<int32_t>(11, 5), std::vector{first, second}, false);
  EXPECT_TRUE(RowsAhead(config, prompt, 0, 11).empty());
  EXPECT_EQ(PassEnd(config, prompt, 0, 4), 4);
  config.mutual_pictures = true;
  EXPECT_THAT(RowsAhead(config, prompt, 0, 11),
              ::testing::ElementsAre(0, 0, 3, 2, 1, 0, 2, 1, 0, 0, 0));
  EXPECT_THAT(RowsAhead(config, prompt, 4, 8), ::testing::ElementsAre(1, 0, 1, 0));
  EXPECT_TRUE(RowsAhead(config, prompt, 9, 11).empty());
  EXPECT_EQ(PassEnd(config, prompt, 0, 4), 2);  // before the picture
  EXPECT_EQ(PassEnd(config, prompt, 2, 3), 6);  // all of it, however long
  EXPECT_EQ(PassEnd(config, prompt, 2, 4), 6);
  EXPECT_EQ(PassEnd(config, prompt, 2, 6), 6);  // not into the next
  EXPECT_EQ(PassEnd(config, prompt, 0, 100), 11);
}

TEST_F(ThreeAxes, RawKeysTurnByTheirPlaces) {
  KvCache plain = model_->NewCache(64);
  Prefilled(plain);
  KvCache raw = plain.Fork();
  ASSERT_TRUE(StoreRaw(raw, PositionPolicy::kOriginal).ok());
  ExpectNear(KeysOf(raw, false), KeysOf(plain, false));
  ExpectNear(KeysOf(raw, true), KeysOf(plain, true));
  // Not what one axis would give.
  KvCache flat = model_->NewCache(64);
  Prompt text = prompt_;
  for (size_t i = 0; i < text.positions.size(); ++i) {
    const auto at = static_cast<int32_t>(i);
    text.positions[i].rope_position = {at, at, at};
  }
  std::swap(text, prompt_);
  Prefilled(flat);
  std::swap(text, prompt_);
  EXPECT_NE(KeysOf(flat, false), KeysOf(plain, false));
  // Steps behind the picture see the same, and bytes bring everything back.
  KvCache copy = raw.Fork();
  const Result<std::string> bytes = raw.Serialize();
  ASSERT_TRUE(bytes.ok()) << bytes.error().message;
  KvCache again = model_->NewCache(64);
  ASSERT_TRUE(again.Deserialize(*bytes).ok());
  const std::vector<float> want = Decoded(plain);
  const std::vector<float> got = Decoded(raw);
  ExpectNear(got, want);
  EXPECT_EQ(Decoded(copy), got);
  EXPECT_EQ(Decoded(again), got);
}

// By slot all three axes are the slot.
TEST_F(ThreeAxes, SlotsTurnAllAxesAlike) {
  KvCache plain = model_->NewCache(64);
  Prefilled(plain);
  KvCache slots = plain.Fork();
  ASSERT_TRUE(StoreRaw(slots, PositionPolicy::kSlot).ok());
  ExpectNear(KeysOf(slots, true), KeysOf(plain, true));
  // The same numbers before rotation, turned by 0, 1, 2 ..
  const std::vector<float> raw = KeysOf(plain, true), turned = KeysOf(slots, false);
  const RopeFrequencies& frequencies = plain.frequencies(0);
  for (size_t entry = 0; entry < raw.size() / 8; ++entry) {
    for (size_t pair = 0; pair < 4; ++pair) {
      const double angle = static_cast<double>(entry) * frequencies.inverse[pair];
      const double a = raw[entry * 8 + pair], b = raw[entry * 8 + pair + 4];
      ASSERT_NEAR(turned[entry * 8 + pair], a * std::cos(angle) - b * std::sin(angle), 2e-4);
      ASSERT_NEAR(turned[entry * 8 + pair + 4], b * std::cos(angle) + a * std::sin(angle), 2e-4);
    }
  }
}

TEST_F(ThreeAxes, BadBytesAreRefused) {
  KvCache cache = model_->NewCache(64);
  Prefilled(cache);
  std::string bytes = *cache.Serialize();
  // The number behind the magic, six numbers and the count of places is where text goes on.
  const size_t at = 9 + 6 * 8 + 8;
  bytes[at + 3] = static_cast<char>(0x80);
  KvCache again = model_->NewCache(64);
  const Status status = again.Deserialize(bytes);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr("where tokens stand"));
}

}  // namespace
}  // namespace kvgauge
