// SPDX-License-Identifier: Apache-2.0
#include "src/compress/draft_pass.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runner/capture.h"
#include "runner/compressor.h"
#include "runner/engine_fixture.h"
#include "runner/generate.h"
#include "support/compare.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

class DraftPassTest : public EngineTest {
 protected:
  static constexpr int64_t kPrompt = 90, kRows = 5;

  DraftPassTest() : prompt_(Prompt::FromTokens(RandomIds(kPrompt, 8))), cache_(Read(prompt_)) {}

  // The cache of a prompt; `capture_` has the queries of its last rows.
  KvCache Read(const Prompt& prompt) {
    KvCache cache = model_.NewCache(prompt.size());
    capture_ = std::make_unique<PrefillCapture>(model_.config(), cache, Needs{.window = 32},
                                                prompt.size());
    EXPECT_TRUE(cache.Append(prompt.size()).ok());
    const SequenceStep step = {.cache = &cache,
                               .prompt = &prompt,
                               .begin = 0,
                               .end = prompt.size(),
                               .logits = LogitRows::kLast,
                               .hook = capture_.get()};
    next_ = model_.BestTokens(model_.Forward({&step, 1}), 0)[0];
    return cache;
  }
  ViewSource Source() {
    return {.model = &model_,
            .shape = &shape_,
            .cache = &cache_,
            .prompt = &prompt_,
            .prefill = capture_.get()};
  }
  static std::vector<float> Numbers(const Tensor& t) { return {t.f32(), t.f32() + t.Numel()}; }
  static Method Laq(int64_t draft, int64_t entries) {
    return Shipped("laq", {StrCat("score.draft=", draft), StrCat("score.draft_entries=", entries)});
  }

  const ModelShape shape_ = model_.shape();
  std::unique_ptr<PrefillCapture> capture_;
  int32_t next_ = -1;
  const Prompt prompt_;
  const KvCache cache_;
};

TEST_F(DraftPassTest, WithAllEntriesItIsTheModelsOwnAnswer) {
  GenerateOptions options;
  options.max_new_tokens = kRows;
  const auto answer = Generate(model_, prompt_, options, nullptr);
  ASSERT_TRUE(answer.ok());
  Prompt all = prompt_;
  for (const int32_t id : answer->ids) all.AppendText(id);
  const ViewSource source = Source();
  const auto scorer = MakeStage(*Laq(kRows, kPrompt).score);
  DraftPass pass(model_, source, prompt_);
  ASSERT_TRUE(pass.Run(static_cast<const Scorer&>(*scorer), next_, 0).ok());
  EXPECT_EQ(cache_.tokens(), kPrompt);
  EXPECT_LE(pass.bytes(), DraftPass::PlannedBytes(model_.config(), shape_, kPrompt, kRows));

  std::vector<std::vector<float>> got;
  for (int64_t layer = 0; layer < shape_.layers; ++layer)
    got.push_back(Numbers(pass.Queries(layer)));
  Read(all);
  for (int64_t layer = 0; layer < shape_.layers; ++layer) {
    const Tensor want = capture_->WindowQueries(layer, kRows);
    const int64_t width = shape_.query_heads * shape_.key_dim;
    for (int64_t i = 0; i < kRows * width; ++i) {
      const float expected = want[i / width][i % width / shape_.key_dim].f32()[i % shape_.key_dim];
      EXPECT_NEAR(got[static_cast<size_t>(layer)][static_cast<size_t>(i)], expected, 1e-4);
    }
  }
}

TEST_F(DraftPassTest, FewEntriesAreHeldWhileItRunsAndAllAfterwards) {
  const ViewSource source = Source();
  const auto few = MakeStage(*Laq(kRows, 40).score), all = MakeStage(*Laq(kRows, kPrompt).score);
  DraftPass thin(model_, source, prompt_), whole(model_, source, prompt_);
  ASSERT_TRUE(thin.Run(static_cast<const Scorer&>(*few), next_, 0).ok());
  ASSERT_TRUE(whole.Run(static_cast<const Scorer&>(*all), next_, 0).ok());
  // The first row's first layer has not looked at the cache yet.
  EXPECT_EQ(Numbers(thin.Queries(0)[0]), Numbers(whole.Queries(0)[0]));
  EXPECT_NE(Numbers(thin.Queries(1)[0]), Numbers(whole.Queries(1)[0]));
  for (int64_t layer = 0; layer < shape_.layers; ++layer) {
    for (int64_t h = 0; h < shape_.kv_heads; ++h) EXPECT_EQ(cache_.length(layer, h), kPrompt);
  }
}

TEST_F(DraftPassTest, RefusesWhatDoesNotFit) {
  const int64_t most = model_.config().max_position;
  const ViewSource source = Source();
  const auto scorer = MakeStage(*Laq(most, 40).score);
  DraftPass pass(model_, source, prompt_);
  const Status beyond = pass.Run(static_cast<const Scorer&>(*scorer), next_, 0);
  ASSERT_FALSE(beyond.ok());
  EXPECT_THAT(beyond.error().message, HasSubstr(StrCat("the model was made for ", most)));
}

// A draft needs the likeliest token, which sampled answers do not.
TEST_F(DraftPassTest, AloneAsInCompanyAndAsSampled) {
  const Method laq = Laq(kRows, 40);
  const std::vector<Contender> contenders = {At(full_, 1), At(laq, 0.4), At(snapkv_, 0.4),
                                             At(laq, 0.6)};
  const std::vector<EngineSample> samples = {Sample(300, 1), Sample(120, 2)};
  const Cells together = RunEngine(contenders, {}, samples);
  EngineOptions sampled;
  sampled.sampling.temperature = 1;
  const Cells drawn = RunEngine(contenders, sampled, samples);
  for (size_t c = 0; c < contenders.size(); ++c) {
    const Cells alone = RunEngine({contenders[c]}, {}, samples);
    for (int64_t sample = 0; sample < 2; ++sample) {
      const CellResult& got = together.at({sample, static_cast<int64_t>(c)});
      ASSERT_TRUE(got.status.ok()) << got.status.error().message;
      EXPECT_EQ(got.turns[0].ids, alone.at({sample, 0}).turns[0].ids) << c;
      EXPECT_EQ(got.record.entries_after, alone.at({sample, 0}).record.entries_after) << c;
      const CellResult& other = drawn.at({sample, static_cast<int64_t>(c)});
      ASSERT_TRUE(other.status.ok()) << other.status.error().message;
      EXPECT_EQ(got.record.entries_after, other.record.entries_after) << c;
    }
  }
}

}  // namespace
}  // namespace kvgauge
