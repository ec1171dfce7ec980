// SPDX-License-Identifier: Apache-2.0
// Layers that read later ones: a prompt goes through them several times, whoever goes with it, and
// what cannot be had of such a model is refused by name. The numbers are held by model_golden.cpp.
#include <gmock/gmock.h>

#include <algorithm>

#include "runner/engine_fixture.h"
#include "runner/generate.h"
#include "runner/speculate.h"
#include "support/compare.h"
#include "support/fixtures.h"
#include "support/test_ops.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class PromptPasses : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<Model>> loaded =
        Model::Load(StrCat(KVG_TEST_DATA, "/golden/models/lckv_top"), {}, *ops_);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    model_ = std::move(loaded).value();
    passes_ = model_->config().prompt_passes;
  }

  struct Sequence {
    Prompt prompt;
    KvCache cache;

    SequenceStep Next(const ModelConfig& config) {
      const int64_t begin = cache.tokens();
      const int64_t end = PassEnd(config, prompt, begin, Model::kChunkRows);
      EXPECT_TRUE(cache.Append(end - begin).ok());
      return {&cache, &prompt, begin, end, LogitRows::kAll};
    }
  };
  // The first `read` of so many tokens are read.
  Sequence At(int64_t tokens, uint64_t seed, int64_t read = 0) {
    const std::vector<int32_t> ids = RandomIds(tokens, seed, model_->config().vocab_size);
    Sequence sequence = {Prompt::FromTokens(std::span(ids).first(static_cast<size_t>(read))),
                         model_->NewCache(tokens)};
    const auto ignore = [](const Tensor&) { return Status(); };
    if (read > 0) {
      EXPECT_TRUE(Prefill(*model_, sequence.prompt, sequence.cache, 512, false, ignore).ok());
    }
    sequence.prompt = Prompt::FromTokens(ids);
    return sequence;
  }
  std::vector<float> Forward(std::vector<SequenceStep> steps) {
    return HostFloats(model_->ops(), model_->Forward(steps));
  }

  const std::unique_ptr<Ops> ops_ = MakeTestOps("cpu", 2);
  std::unique_ptr<Model> model_;
  int64_t passes_ = 0;
};

TEST_F(PromptPasses, APromptGoesAsAWholeOrRowByRow) {
  const ModelConfig& config = model_->config();
  const Prompt prompt = Prompt::FromTokens(RandomIds(700, 1, config.vocab_size));
  EXPECT_EQ(PassEnd(config, prompt, 0, 512), 700);
  EXPECT_EQ(PassEnd(config, prompt, 0, 1), 700);
  EXPECT_EQ(PassEnd(config, prompt, 700 - passes_ - 1, 512), 700);
  EXPECT_EQ(PassEnd(config, prompt, 700 - passes_, 512), 701 - passes_);
}

// Prompts, rows of answers and short prompts have the bits beside each other that they have alone.
TEST_F(PromptPasses, CompanyChangesNoBit) {
  const ModelConfig& config = model_->config();
  const auto all = [&] {
    std::vector<Sequence> sequences;
    sequences.push_back(At(40, 1));
    sequences.push_back(At(25, 2, 24));  // one row of an answer
    sequences.push_back(At(passes_, 3, 2));
    sequences.push_back(At(70, 4, 40));  // a question of 30 behind a context
    return sequences;
  };
  std::vector<Sequence> apart = all(), together = all();
  std::vector<float> alone;
  for (Sequence& sequence : apart) {
    const std::vector<float> rows = Forward({sequence.Next(config)});
    alone.insert(alone.end(), rows.begin(), rows.end());
  }
  std::vector<SequenceStep> steps;
  for (Sequence& sequence : together) steps.push_back(sequence.Next(config));
  ASSERT_EQ(std::ssize(alone), (40 + 1 + 1 + 30) * config.vocab_size);
  EXPECT_TRUE(SameBits(Forward(steps), alone));
  // What is left in the caches, too.
  for (size_t i = 0; i < apart.size(); ++i) {
    for (Sequence* sequence : {&apart[i], &together[i]}) {
      if (sequence->cache.tokens() == sequence->prompt.size()) sequence->prompt.AppendText(7);
    }
    EXPECT_TRUE(SameBits(Forward({apart[i].Next(config)}), Forward({together[i].Next(config)})))
        << i;
  }
}

TEST_F(PromptPasses, LaterRowsChangeNoEarlierOne) {
  const ModelConfig& config = model_->config();
  Sequence whole = At(60, 5), half = At(60, 5);
  half.prompt.positions.resize(30);
  const std::vector<float> rows = Forward({whole.Next(config)});
  EXPECT_TRUE(SameBits(std::span(rows).first(static_cast<size_t>(30 * config.vocab_size)),
                       Forward({half.Next(config)})));
}

TEST_F(PromptPasses, TheEngineAnswersAsTheModelDoes) {
  const Method full = Shipped("full");
  std::vector<EngineSample> samples;
  for (const int64_t tokens : {int64_t{5}, passes_, passes_ + 1, int64_t{33}}) {
    samples.push_back({.id = StrCat("s", tokens),
                       .turns = {{.ids = RandomIds(tokens, 11, model_->config().vocab_size),
                                  .max_new_tokens = 20}}});
  }
  const Contender contender = {.method = &full, .budget = {}, .model = model_.get()};
  const Cells cells = RunEngine({contender}, {}, samples);
  for (size_t i = 0; i < samples.size(); ++i) {
    GenerateOptions options;
    options.max_new_tokens = 20;
    const Result<GenerateResult> alone =
        Generate(*model_, Prompt::FromTokens(samples[i].turns[0].ids), options, nullptr);
    ASSERT_TRUE(alone.ok());
    EXPECT_EQ(cells.at({static_cast<int64_t>(i), 0}).turns[0].ids, alone->ids) << i;
  }
}

// A pass holds the whole prompt.
TEST_F(PromptPasses, TheMemoryPlanCountsTheWholePrompt) {
  const Method full = Shipped("full");
  const auto working = [&](int64_t tokens) {
    const EngineSample sample = {.id = "s",
                                 .turns = {{.ids = RandomIds(tokens, 1), .max_new_tokens = 1}}};
    const Contender contender = {.method = &full, .budget = {}, .model = model_.get()};
    const Result<MemoryPlan> plan = Engine({contender}, {}).PlanMemory({&sample, 1});
    EXPECT_TRUE(plan.ok()) << plan.error().message;
    return plan->working_bytes;
  };
  const ModelConfig& config = model_->config();
  // The residual, its norm, what it was before the passes, gates and what they open.
  const int64_t row = 4 * (3 * config.hidden_size + 2 * config.ffn_size);
  EXPECT_GE(working(5000) - working(1000), 4000 * row);
}

TEST_F(PromptPasses, RefusesAllButTheFullCache) {
  const ModelShape shape = model_->shape();
  EXPECT_TRUE(CheckMethod(Shipped("full"), shape, {}, 100).ok());
  for (const char* id : {"snapkv", "kivi_2bit", "streaming_llm", "quest", "cla", "fastv"}) {
    const Method method = Shipped(id);
    const Status refused =
        CheckMethod(method, shape, method.takes_budget ? Fraction(0.5) : Budget{}, 100);
    ASSERT_FALSE(refused.ok()) << id;
  }
  EXPECT_THAT(CheckMethod(Shipped("snapkv"), shape, Fraction(0.5), 100).error().message,
              AllOf(HasSubstr("score.snapkv"), HasSubstr("9 times")));
  EXPECT_THAT(CheckMethod(Shipped("kivi_2bit"), shape, {}, 100).error().message,
              AllOf(HasSubstr("store.kivi"), HasSubstr("use store.plain")));
  EXPECT_THAT(CheckDraft(Shipped("full"), shape, {}, 100).error().message,
              HasSubstr("several times"));
}

}  // namespace
}  // namespace kvgauge
