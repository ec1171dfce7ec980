// SPDX-License-Identifier: Apache-2.0
// Looking back while decoding: the last rows' queries and their attention to what is held.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "runner/engine_fixture.h"
#include "src/compress/view.h"
#include "support/compare.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

class StepWindowTest : public EngineTest {
 protected:
  static constexpr int64_t kTokens = 70, kRows = 12;

  // Keeps what a step's hook of a method keeps.
  class Hook final : public LayerHook {
   public:
    explicit Hook(StepCapture& step) : step_(step) {}
    void BeforeAttend(int64_t, const Tensor&) override {}
    void AfterAttend(int64_t layer, const Tensor& q, const Tensor& sums, const Tensor&) override {
      step_.Keep(layer, q, sums);
    }

   private:
    StepCapture& step_;
  };

  void Pass(const Prompt& prompt, KvCache& cache, int64_t end, LayerHook* hook) {
    const int64_t begin = cache.tokens();
    ASSERT_TRUE(cache.Append(end - begin).ok());
    const SequenceStep step = {
        .cache = &cache, .prompt = &prompt, .begin = begin, .end = end, .hook = hook};
    model_.Forward({&step, 1});
  }

  std::vector<float> Numbers(const Tensor& t) { return HostFloats(model_.ops(), t); }

  const Prompt prompt_ = Prompt::FromTokens(RandomIds(kTokens, 5));
  const ModelShape shape_ = model_.shape();
};

// Token by token behind a prompt, the window is that of a prompt of all tokens: across the end of
// the prompt, and when the ring has gone round.
TEST_F(StepWindowTest, LooksBackAsAPromptOfAllTokensDoes) {
  KvCache whole = model_.NewCache(kTokens);
  PrefillCapture all(model_.config(), whole, {.window = kRows}, kTokens);
  Pass(prompt_, whole, kTokens, &all);
  for (const int64_t steps : {int64_t{1}, int64_t{5}, kRows, 3 * kRows + 1}) {
    KvCache cache = model_.NewCache(kTokens);
    const Needs needs = {.window = kRows, .step_window = kRows};
    PrefillCapture begun(model_.config(), cache, needs, kTokens - steps);
    Pass(prompt_, cache, kTokens - steps, &begun);
    StepCapture step(model_.config(), needs, model_.ops());
    step.KeepPrompt(begun, cache.tokens());
    Hook hook(step);
    for (int64_t i = 0; i < steps; ++i) {
      Pass(prompt_, cache, cache.tokens() + 1, &hook);
      step.KeepLast(cache.tokens() - 1);
    }
    for (int64_t layer = 0; layer < shape_.layers; ++layer) {
      const ViewSource source = {
          .model = &model_, .shape = &shape_, .cache = &whole, .prefill = &all};
      CacheView want(source, layer);
      ViewSource decoded = source;
      decoded.cache = &cache;
      decoded.prefill = nullptr;
      decoded.step = &step;
      CacheView got(decoded, layer);
      for (const int64_t rows : {kRows, int64_t{3}}) {
        EXPECT_TRUE(
            AllWithin(Numbers(got.WindowQueries(rows)), Numbers(want.WindowQueries(rows)), 1e-5));
        EXPECT_TRUE(AllWithin(Numbers(got.WindowAttention(rows)),
                              Numbers(want.WindowAttention(rows)), 1e-5))
            << steps << " steps, " << rows << " rows";
      }
    }
  }
}

// Heads of different lengths: each row's attention to what a head holds sums to 1, and rows see no
// entry behind their own.
TEST_F(StepWindowTest, RowsAttendOverWhatEachHeadHolds) {
  KvCache cache = model_.NewCache(kTokens + 1);
  const Needs needs = {.window = kRows, .step_window = kRows};
  PrefillCapture begun(model_.config(), cache, needs, kTokens);
  Pass(prompt_, cache, kTokens, &begun);
  StepCapture step(model_.config(), needs, model_.ops());
  step.KeepPrompt(begun, kTokens);
  std::vector<int32_t> few(20), more(40);
  std::iota(few.begin(), few.end(), 50);
  std::iota(more.begin(), more.end(), 30);
  std::vector<HeadPlan> plan(2);
  plan[0].keep = View(few, {20});
  plan[1].keep = View(more, {40});
  ASSERT_TRUE(cache.Reduce(0, plan).ok());
  const ViewSource source = {.model = &model_, .shape = &shape_, .cache = &cache, .step = &step};
  CacheView view(source, 0);
  const Tensor attention = view.WindowAttention(kRows);
  for (int64_t h = 0; h < shape_.query_heads; ++h) {
    const int64_t length = view.lengths()[static_cast<size_t>(h / shape_.group())];
    for (int64_t r = 0; r < kRows; ++r) {
      const std::vector<float> row = Numbers(attention[h][r]);
      double sum = 0;
      for (int64_t j = 0; j < 40; ++j) {
        if (j > length - kRows + r) {
          EXPECT_EQ(row[static_cast<size_t>(j)], 0.0f) << h << " " << r << " " << j;
        }
        sum += row[static_cast<size_t>(j)];
      }
      EXPECT_NEAR(sum, 1, 1e-5);
    }
  }
}

using StepWindowEngineTest = EngineTest;

// A question behind a context that was not compressed yet is looked back upon like the end of a
// prompt: the same entries stay.
TEST_F(StepWindowEngineTest, RowsOfAQuestionAreAmongTheLast) {
  EngineSample sample = {.id = "s", .context = RandomIds(100, 4)};
  sample.turns.push_back({.ids = RandomIds(37, 5), .max_new_tokens = 6});
  for (const char* id : {"decoding_snapkv", "rkv_decode"}) {
    const Method method =
        Shipped(id, {"trigger.steps=5", "trigger.prompt=false", "score.window=24"});
    std::map<CompressAt, std::vector<std::vector<int32_t>>> kept;
    for (const CompressAt at : {CompressAt::kPrompt, CompressAt::kContext}) {
      EngineOptions options = {.compress_at = at};
      options.inspect = [&](const CellResult&, const KvCache& cache, Compressor&) {
        for (int64_t layer = 0; layer < 2; ++layer) {
          for (int64_t h = 0; h < 2; ++h) kept[at].push_back(cache.Positions(layer, h));
        }
      };
      Contender contender = At(method, 1);
      contender.budget = {Budget::Kind::kEntries, 60};
      const Cells cells = RunEngine({contender}, options, {sample});
      ASSERT_TRUE(cells.at({0, 0}).status.ok()) << cells.at({0, 0}).status.error().message;
      EXPECT_EQ(cells.at({0, 0}).record.compressions, 1);
    }
    EXPECT_EQ(kept[CompressAt::kPrompt][0].size(), 60u);
    EXPECT_EQ(kept[CompressAt::kContext], kept[CompressAt::kPrompt]) << id;
  }
}

// The heads of a layer share its budget anew each time, and hold no more than it together.
TEST_F(StepWindowEngineTest, AllocatesAgain) {
  const Method once =
      Shipped("decoding_adakv", {"trigger.steps=8", "trigger.again=false", "score.window=8"});
  const Method again = Shipped("decoding_adakv", {"trigger.steps=8", "score.window=8"});
  std::map<int64_t, std::vector<int64_t>> held;
  EngineOptions options;
  options.inspect = [&](const CellResult& cell, const KvCache& cache, Compressor&) {
    for (int64_t layer = 0; layer < 2; ++layer) {
      int64_t of_layer = 0;
      for (int64_t h = 0; h < 2; ++h) {
        held[cell.contender].push_back(cache.length(layer, h));
        of_layer += cache.length(layer, h);
      }
      EXPECT_EQ(of_layer, 2 * 50);
    }
  };
  const Cells cells = RunEngine({At(once, 0.25), At(again, 0.25)}, options, {Sample(200, 3, 41)});
  for (int64_t contender : {0, 1}) {
    const CellResult& cell = cells.at({0, contender});
    ASSERT_TRUE(cell.status.ok()) << cell.status.error().message;
    EXPECT_EQ(cell.record.compressions, 6);  // of the prompt and five times
  }
  const auto& at_prompt = cells.at({0, 0}).record.entries_after;
  EXPECT_THAT(held[0], ::testing::ElementsAre(at_prompt[0][0], at_prompt[0][1], at_prompt[1][0],
                                              at_prompt[1][1]));
  EXPECT_NE(held[1], held[0]);
}

// The queries are held for the method: they count as its bytes, and as the plan's.
TEST_F(StepWindowEngineTest, LastRowsCountAsBytes) {
  const Method method = Shipped("decoding_snapkv", {"score.window=24"});
  const Cells cells = RunEngine({At(method, 0.5)}, {}, {Sample(120, 3)});
  const ModelConfig& config = model_.config();
  EXPECT_EQ(cells.at({0, 0}).record.reader_bytes,
            24 * config.layer_count() * config.query_heads * config.key_dim * 4);
}

}  // namespace
}  // namespace kvgauge
