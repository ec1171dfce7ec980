// SPDX-License-Identifier: Apache-2.0
// Speculative decoding: the tokens are the full cache's, and what was rejected leaves no trace.
#include "runner/speculate.h"

#include <gmock/gmock.h>

#include <cstring>

#include "runner/engine_fixture.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

struct DraftCase {
  std::string id;
  std::string budget;
  std::vector<std::string> overrides = {};
};

// All kinds of caches: cut once, cut at every step by what steps attend to, coded, read in part.
const std::vector<DraftCase> kDraftCases = {
    {"full", "none"},
    {"snapkv", "20%", {"score.window=8"}},
    {"streaming_llm", "40"},
    {"h2o", "25%"},
    {"tova", "25%"},
    {"kivi_2bit", "none"},
    {"snapkv_kivi", "30%", {"score.window=8"}},
    {"q4_0", "none"},
    {"quest", "none", {"read.page=8", "read.tokens=40", "read.dense_layers=0"}},
    {"snapkv_quest",
     "60%",
     {"score.window=8", "read.page=4", "read.tokens=16", "read.dense_layers=0"}},
    {"sparq", "none", {"read.tokens=32", "read.rank=8", "read.local=8"}},
    {"sepllm", "48"},
    // Indexes of the prompt alone.
    {"clusterkv", "none", {"read.tokens=40", "read.sinks=4", "read.dense_layers=0"}},
    {"retroinfer",
     "none",
     {"read.span=4", "read.share=0.2", "read.estimated=0.2", "read.local=8", "place.recent=8"}},
    {"omnikv", "none", {"read.layers=\"0\"", "read.tokens=40", "read.prompt_only=true"}},
    // Choices that hold for several steps.
    {"recycled_attention", "none", {"read.tokens=40", "read.stride=4"}},
    {"full", "none", {"read.id=loopserve", "read.steps=3", "read.tokens=40"}},
    {"full", "none", {"read.id=lserve", "read.logical=4", "read.parts=2", "read.tokens=40"}},
    {"full", "none", {"read.id=sentences", "read.tokens=40", "read.sinks=4", "read.local=8"}},
};

class SpeculateTest : public EngineTest {
 protected:
  static constexpr int64_t kPrompt = 150, kTokens = 32;

  std::vector<int32_t> FullAnswer(const std::vector<int32_t>& ids) {
    const EngineSample sample = {.id = "s", .turns = {{.ids = ids, .max_new_tokens = kTokens}}};
    return RunEngine({At(full_, 1)}, {}, {sample}).at({0, 0}).turns[0].ids;
  }

  const std::vector<int32_t> ids_ = RandomIds(kPrompt, 11);
};

TEST_F(SpeculateTest, TokensAreTheFullCaches) {
  const std::vector<int32_t> want = FullAnswer(ids_);
  int64_t accepted = 0, rejected = 0;
  for (const DraftCase& c : kDraftCases) {
    const Method method = Shipped(c.id, c.overrides);
    const Budget budget = *Budget::Parse(c.budget);
    ASSERT_TRUE(CheckDraft(method, model_.shape(), budget, kPrompt).ok()) << c.id;
    Speculation speculation(model_, method, budget, Prompt::FromTokens(ids_), kTokens);
    ASSERT_TRUE(speculation.Read().ok()) << c.id;
    for (const int64_t gamma : {0, 1, 3, 6}) {
      SCOPED_TRACE(StrCat(c.id, ", ", gamma, " drafted"));
      const Result<SpeculationResult> result = speculation.Answer(gamma, kTokens);
      ASSERT_TRUE(result.ok()) << result.error().message;
      EXPECT_EQ(result->tokens, want);
      EXPECT_EQ(result->checks + result->accepted(), kTokens - 1)
          << "every check gives one token more than it accepts";
      if (gamma == 0) {
        EXPECT_EQ(result->drafted(), 0);
        continue;
      }
      accepted += result->accepted();
      rejected += result->drafted() - result->accepted();
      for (int64_t i = 1; i < gamma; ++i) {
        EXPECT_LE(result->accepted_at[i], result->accepted_at[i - 1]);
      }
      if (c.id != "full" || !c.overrides.empty()) continue;
      EXPECT_EQ(result->acceptance(), 1);
      EXPECT_EQ(result->checks, (kTokens - 1 + gamma) / (gamma + 1));
    }
  }
  EXPECT_GT(accepted, 50);
  EXPECT_GT(rejected, 50);
}

// Hooks number the layers that have a cache, of which such a model has fewer.
TEST_F(SpeculateTest, LayersMayReadTheCachesOfOthers) {
  const Method shares = Shipped("cla"), snapkv = Shipped("snapkv", {"score.window=8"});
  const Pipeline pipeline = MakePipeline(shares);
  ModelOptions options;
  options.prepare = pipeline.prepare.get();
  const TinyModel tiny = MakeTinyModel("gqa", 1, options, 4);
  ASSERT_EQ(tiny.model->shape().layers, 2);
  const Budget budget = *Budget::Parse("20%");
  ASSERT_TRUE(CheckDraft(snapkv, tiny.model->shape(), budget, kPrompt).ok());
  Speculation speculation(*tiny.model, snapkv, budget, Prompt::FromTokens(ids_), kTokens);
  ASSERT_TRUE(speculation.Read().ok());
  const Result<SpeculationResult> alone = speculation.Answer(0, kTokens);
  const Result<SpeculationResult> drafted = speculation.Answer(3, kTokens);
  ASSERT_TRUE(alone.ok() && drafted.ok());
  EXPECT_EQ(drafted->tokens, alone->tokens);
  EXPECT_GT(drafted->drafted(), drafted->accepted());
}

// The draft ends as a row of a run does that is fed the same tokens one by one: what it evicted,
// coded, scored and read because of rejected tokens is undone.
TEST_F(SpeculateTest, RejectedTokensLeaveNoTrace) {
  const std::vector<int32_t> want = FullAnswer(ids_);
  for (const DraftCase& c : kDraftCases) {
    const Method method = Shipped(c.id, c.overrides);
    const Budget budget = *Budget::Parse(c.budget);
    Speculation speculation(model_, method, budget, Prompt::FromTokens(ids_), kTokens);
    ASSERT_TRUE(speculation.Read().ok()) << c.id;
    for (const int64_t gamma : {1, 5}) {
      SCOPED_TRACE(StrCat(c.id, ", ", gamma, " drafted"));
      const Result<SpeculationResult> result = speculation.Answer(gamma, kTokens);
      ASSERT_TRUE(result.ok()) << result.error().message;
      const int64_t steps = result->record.steps;
      ASSERT_GT(steps, kTokens / 2);
      EngineSample sample = {.id = "s"};
      sample.turns.push_back({.ids = ids_,
                              .max_new_tokens = steps + 1,
                              .forced = {want.begin(), want.begin() + steps + 1}});
      const CellResult fed =
          RunEngine({{.method = &method, .budget = budget, .model = &model_}}, {}, {sample})
              .at({0, 0});
      ASSERT_TRUE(fed.status.ok()) << fed.status.error().message;
      EXPECT_EQ(fed.record.steps, steps);
      EXPECT_EQ(fed.record.compressions, result->record.compressions);
      EXPECT_EQ(fed.record.merged, result->record.merged);
      EXPECT_EQ(fed.record.final_bytes, result->record.final_bytes);
      EXPECT_EQ(fed.record.reads_per_step, result->record.reads_per_step);
      EXPECT_EQ(fed.record.read_share, result->record.read_share);
      EXPECT_EQ(fed.record.reader_bytes, result->record.reader_bytes);
    }
  }
}

// What makes the first test hold: rows of one pass have the bits of single steps.
TEST_F(SpeculateTest, ACheckHasTheBitsOfSingleSteps) {
  for (const char* kind : {"mha", "gqa", "mqa", "mla", "three_axes", "gemma"}) {
    TinyModel tiny = MakeTinyModel(kind, 2);
    Model& model = *tiny.model;
    const Prompt prompt = Prompt::FromTokens(ids_);
    const int64_t vocab = model.config().vocab_size;
    KvCache alone = model.NewCache(kPrompt), together = model.NewCache(kPrompt);
    const auto pass = [&](KvCache& cache, int64_t end) {
      const int64_t begin = cache.tokens();
      EXPECT_TRUE(cache.Append(end - begin).ok());
      const SequenceStep step = {.cache = &cache,
                                 .prompt = &prompt,
                                 .begin = begin,
                                 .end = end,
                                 .logits = LogitRows::kAll};
      const Tensor logits = model.Forward({&step, 1});
      std::vector<float> host(static_cast<size_t>((end - begin) * vocab));
      model.ops().memory->Copy(logits, View(host, {end - begin, vocab}));
      model.ops().memory->Synchronize();
      return host;
    };
    pass(alone, 130);
    pass(together, 130);
    for (int64_t end = 137; end < kPrompt; end += 7) {
      const std::vector<float> rows = pass(together, end);
      for (int64_t row = 0; row < 7; ++row) {
        const std::vector<float> one = pass(alone, alone.tokens() + 1);
        EXPECT_EQ(std::memcmp(one.data(), rows.data() + row * vocab,
                              static_cast<size_t>(vocab) * sizeof(float)),
                  0)
            << kind << ", row " << row;
      }
      // Some are taken back, and come again.
      ASSERT_TRUE(together.Truncate(end - 3).ok());
      pass(together, end);
    }
  }
}

// Pages that the draft leaves as they are it shares with the judge.
TEST_F(SpeculateTest, TheTwoShareTheirPrefix) {
  const Method quest = Shipped("quest");
  const std::vector<int32_t> ids = RandomIds(1024, 3);
  Speculation sharing(model_, quest, {}, Prompt::FromTokens(ids), 8);
  ASSERT_TRUE(sharing.Read().ok());
  EXPECT_EQ(sharing.draft_bytes(), sharing.judge_bytes());
  EXPECT_LT(sharing.held_bytes(), 1.2 * static_cast<double>(sharing.judge_bytes()));
  Speculation copying(model_, snapkv_, Fraction(0.5), Prompt::FromTokens(ids), 8);
  ASSERT_TRUE(copying.Read().ok());
  EXPECT_GT(copying.held_bytes(), 1.3 * static_cast<double>(copying.judge_bytes()));
}

// A draft may read another prompt, or be another model: the judge's tokens are its own all the
// same.
TEST_F(SpeculateTest, ADraftApartChangesNoToken) {
  const std::vector<int32_t> want = FullAnswer(ids_);
  const std::unique_ptr<Model> another = std::move(*LoadTinyModel(model_.ops(), "mqa", {}, 2));
  std::vector<int32_t> part(ids_.begin(), ids_.begin() + 20);
  part.insert(part.end(), ids_.end() - 30, ids_.end());
  for (Model* other : {static_cast<Model*>(nullptr), another.get()}) {
    for (const char* id : {"full", "snapkv", "kivi_2bit"}) {
      SCOPED_TRACE(id);
      const Method method =
          Shipped(id, id == std::string("snapkv") ? std::vector<std::string>{"score.window=8"}
                                                  : std::vector<std::string>{});
      const Budget budget = *Budget::Parse(method.takes_budget ? "40%" : "none");
      Speculation speculation(model_, method, budget, Prompt::FromTokens(ids_), kTokens, 0, 0,
                              {.model = other, .prompt = Prompt::FromTokens(part)});
      ASSERT_TRUE(speculation.Read().ok());
      EXPECT_GT(speculation.draft_prefill_s(), 0);
      EXPECT_LT(speculation.draft_bytes(), speculation.judge_bytes());
      for (const int64_t gamma : {0, 1, 6}) {
        const Result<SpeculationResult> result = speculation.Answer(gamma, kTokens);
        ASSERT_TRUE(result.ok()) << result.error().message;
        EXPECT_EQ(result->tokens, want);
        EXPECT_EQ(result->checks + result->accepted(), kTokens - 1);
      }
    }
  }
  // One that reads the same as the judge, apart from it, is always right.
  Speculation equal(model_, full_, {}, Prompt::FromTokens(ids_), kTokens, 0, 0,
                    {.prompt = Prompt::FromTokens(ids_)});
  ASSERT_TRUE(equal.Read().ok());
  EXPECT_EQ(equal.Answer(4, kTokens)->acceptance(), 1);
}

TEST_F(SpeculateTest, RefusesWhatCannotDraft) {
  const auto refused = [&](const std::string& id, const std::string& why) {
    const Status status = CheckDraft(Shipped(id), model_.shape(), *Budget::Parse("none"), kPrompt);
    ASSERT_FALSE(status.ok()) << id;
    EXPECT_THAT(status.error().message, HasSubstr(why)) << id;
  };
  refused("a_shape", "it reads prompts in another way");
  refused("block_attention", "it reads prompts in another way");
  const Status small = CheckDraft(snapkv_, model_.shape(), *Budget::Parse("none"), kPrompt);
  EXPECT_FALSE(small.ok()) << "a budget is missing";
}

}  // namespace
}  // namespace kvgauge
