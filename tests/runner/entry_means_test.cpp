// SPDX-License-Identifier: Apache-2.0
// Rows that join the newest entry of their head: what a cache then holds, whoever asked for it and
// in whatever pieces.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <numeric>
#include <vector>

#include "methods/method.h"
#include "runner/engine.h"
#include "runner/engine_fixture.h"
#include "support/compare.h"
#include "support/tiny_models.h"

namespace kvgauge {
namespace {

TinyModel MeanModel(const std::string& kind, const std::vector<std::string>& more = {},
                    DType dtype = DType::kF32) {
  std::vector<std::string> overrides = {"prepare.offset=0"};
  overrides.insert(overrides.end(), more.begin(), more.end());
  const Method method = Shipped("dmc", overrides);
  const Pipeline pipeline = MakePipeline(method);
  ModelOptions options;
  options.dtype = dtype;
  options.prepare = pipeline.prepare.get();
  return MakeTinyModel(kind, 1, options);
}

// Everything that is held, and the logits of the last row.
struct Held {
  std::vector<std::vector<int32_t>> positions;
  std::vector<std::vector<float>> rows;
  std::vector<float> logits;

  bool operator==(const Held&) const = default;
};

Held HeldBy(const KvCache& cache, std::vector<float> logits) {
  Held held;
  held.logits = std::move(logits);
  for (int64_t layer = 0; layer < cache.layer_count(); ++layer) {
    for (int64_t head = 0; head < cache.kv_heads(); ++head) {
      held.positions.push_back(cache.Positions(layer, head));
      const int64_t length = cache.length(layer, head);
      for (const bool keys : {true, false}) {
        const int64_t dim = keys ? cache.format().key_dim : cache.format().value_dim;
        std::vector<float>& rows = held.rows.emplace_back(static_cast<size_t>(length * dim));
        const Tensor out = View(rows, {length, dim});
        keys ? cache.ReadKeys(layer, head, 0, out) : cache.ReadValues(layer, head, 0, out);
      }
    }
  }
  return held;
}

std::vector<float> FeedRows(Model& model, KvCache& cache, const Prompt& prompt, int64_t end) {
  const SequenceStep step = {
      .cache = &cache, .prompt = &prompt, .begin = cache.tokens(), .end = end};
  EXPECT_TRUE(cache.Append(end - step.begin).ok());
  return HostFloats(model.ops(), model.Forward({&step, 1}));
}

// A prompt in pieces of so many rows.
Held HeldAfter(Model& model, const Prompt& prompt, int64_t piece) {
  KvCache cache = model.NewCache(prompt.size() + 8);
  std::vector<float> logits;
  for (int64_t end = 0; end < prompt.size();) {
    end = std::min(prompt.size(), end + piece);
    logits = FeedRows(model, cache, prompt, end);
  }
  return HeldBy(cache, std::move(logits));
}

TEST(EntryMeans, PiecesOfAPromptChangeNoBit) {
  for (const char* kind : {"mha", "gqa", "mqa"}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      TinyModel tiny = MeanModel(kind, {"prepare.window=3"}, dtype);
      const Prompt prompt = Prompt::FromTokens(RandomIds(150, 4));
      const Held whole = HeldAfter(*tiny.model, prompt, 150);
      for (const int64_t piece : {1, 2, 64, 65}) {
        EXPECT_EQ(HeldAfter(*tiny.model, prompt, piece), whole)
            << kind << " in pieces of " << piece;
      }
      int64_t held = 0;
      for (const auto& head : whole.positions) {
        EXPECT_EQ(head.back(), 149);
        held += std::ssize(head);
      }
      EXPECT_LT(held, 150 * std::ssize(whole.positions));
    }
  }
}

// The two numbers are out of sight, and every row makes an entry.
TEST(EntryMeans, WithoutMergesEveryRowIsAnEntry) {
  TinyModel tiny = MeanModel("gqa", {"prepare.merge=false"});
  const Held held = HeldAfter(*tiny.model, Prompt::FromTokens(RandomIds(70, 5)), 70);
  const int64_t dim = tiny.model->config().key_dim;
  for (size_t head = 0; head < held.positions.size(); ++head) {
    std::vector<int32_t> all(70);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(held.positions[head], all);
    for (size_t i = 0; i < 70; ++i) {
      EXPECT_EQ(held.rows[2 * head][(i + 1) * static_cast<size_t>(dim) - 1], 0.0f);
    }
  }
}

// Where all weights are alike and all rows join, the only entry is the mean of the last rows.
TEST(EntryMeans, WhereAllJoinTheEntryIsTheMeanOfTheWindow) {
  constexpr int64_t kRows = 20;
  const Prompt prompt = Prompt::FromTokens(RandomIds(kRows, 6));
  TinyModel apart = MeanModel("gqa", {"prepare.merge=false", "prepare.offset=-1000"});
  // So low an offset lets everybody join, each with the least weight there is.
  TinyModel joined = MeanModel("gqa", {"prepare.offset=-1000", "prepare.window=4"});
  const Held rows = HeldAfter(*apart.model, prompt, kRows);
  const Held mean = HeldAfter(*joined.model, prompt, kRows);
  const int64_t dim = apart.model->config().value_dim;
  for (int64_t head = 0; head < apart.model->config().kv_heads; ++head) {
    ASSERT_EQ(mean.positions[static_cast<size_t>(head)], std::vector<int32_t>{kRows - 1});
    // In the first layer nothing depends on entries yet.
    const std::vector<float>& values = rows.rows[static_cast<size_t>(2 * head + 1)];
    for (int64_t d = 0; d < dim; ++d) {
      double want = 0;
      for (int64_t i = kRows - 4; i < kRows; ++i) want += values[static_cast<size_t>(i * dim + d)];
      EXPECT_NEAR(mean.rows[static_cast<size_t>(2 * head + 1)][static_cast<size_t>(d)], want / 4,
                  1e-5);
    }
  }
}

TEST(EntryMeans, ForksGoOnApart) {
  TinyModel tiny = MeanModel("gqa");
  Model& model = *tiny.model;
  std::vector<int32_t> ids = RandomIds(64, 7);
  KvCache cache = model.NewCache(96);
  FeedRows(model, cache, Prompt::FromTokens(ids), 64);
  const Held before = HeldBy(cache, {});
  KvCache fork = cache.Fork();
  std::vector<int32_t> longer = ids;
  for (const int32_t id : {9, 4, 33, 61, 8, 17}) {
    longer.push_back(id);
    FeedRows(model, fork, Prompt::FromTokens(longer), std::ssize(longer));
  }
  EXPECT_EQ(HeldBy(cache, {}), before) << "a fork wrote into what it shares";
  EXPECT_NE(HeldBy(fork, {}), before);
  KvCache again = cache.Fork();
  for (int64_t end = 65; end <= std::ssize(longer); ++end) {
    FeedRows(model, again, Prompt::FromTokens(longer), end);
  }
  EXPECT_EQ(HeldBy(again, {}), HeldBy(fork, {}));
}

TEST(EntryMeans, NothingIsForgotten) {
  TinyModel tiny = MeanModel("gqa");
  KvCache cache = tiny.model->NewCache(32);
  FeedRows(*tiny.model, cache, Prompt::FromTokens(RandomIds(20, 8)), 20);
  const Status status = cache.Truncate(10);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("entries that rows have joined"), std::string::npos);
}

// A method that acts on entries has a refusal as its result, and the others do not notice.
TEST(EntryMeans, OthersAreRefusedOnSuchAModel) {
  TinyModel tiny = MeanModel("gqa");
  const Method dmc = Shipped("dmc", {"prepare.offset=0"}), snapkv = Shipped("snapkv");
  const Contender own = {.method = &dmc, .budget = {}, .model = tiny.model.get()};
  const Contender other = {.method = &snapkv, .budget = Fraction(0.5), .model = tiny.model.get()};
  const std::vector<EngineSample> samples = {
      {.id = "a", .turns = {{.ids = RandomIds(90, 9), .max_new_tokens = 4}}}};
  const Cells alone = RunEngine({own}, {}, samples);
  const Cells both = RunEngine({other, own}, {}, samples);
  const Status& refused = both.at({0, 0}).status;
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("acts on entries"), std::string::npos);
  EXPECT_EQ(both.at({0, 1}).turns[0].ids, alone.at({0, 0}).turns[0].ids);
  const CompressionRecord& record = alone.at({0, 0}).record;
  EXPECT_EQ(record.engagement, Engagement::kEngaged);
  int64_t merged = 0, held = 0;
  for (const int64_t of_layer : record.merged) merged += of_layer;
  for (const auto& layer : record.entries_after)
    held = std::accumulate(layer.begin(), layer.end(), held);
  EXPECT_EQ(merged + held, 90 * 2 * 2);
  EXPECT_LT(record.bytes.payload, record.full_bytes);
}

// A checkpoint that nobody trained for it: said, and not ranked.
TEST(EntryMeans, WhereNobodyJoinsTheMethodIsNotEngaged) {
  TinyModel tiny = MeanModel("gqa", {"prepare.offset=1000"});
  const Method dmc = Shipped("dmc", {"prepare.offset=1000"});
  const Contender own = {.method = &dmc, .budget = {}, .model = tiny.model.get()};
  const Cells cells = RunEngine(
      {own}, {}, {{.id = "a", .turns = {{.ids = RandomIds(50, 9), .max_new_tokens = 2}}}});
  const CompressionRecord& record = cells.at({0, 0}).record;
  EXPECT_EQ(record.engagement, Engagement::kNotEngaged);
  EXPECT_NE(record.reason.find("none of 50 tokens joined"), std::string::npos) << record.reason;
}

}  // namespace
}  // namespace kvgauge
