// SPDX-License-Identifier: Apache-2.0
// Serving with a model: a request's tokens are those it has alone, and memory is never exceeded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/strings.h"
#include "runner/engine.h"
#include "src/run/run_config.h"
#include "src/serve/capacity_bench.h"
#include "src/serve/serve_model.h"
#include "support/tiny_models.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

ChosenMethod ChooseFor(const std::string& id, const std::string& budget) {
  Result<Method> method = LoadMethod(id, KVG_SOURCE_DIR "/configs/methods", {});
  EXPECT_TRUE(method.ok()) << id << ": " << method.error().message;
  return {.method = std::move(method).value(), .budget = *Budget::Parse(budget)};
}

ServePolicy PolicyOf(const std::string& name) { return *FindServePolicy(name); }

GeneratedTrace MixOf(int64_t requests) {
  GeneratedTrace mix;
  mix.requests = requests;
  mix.prompts = *LengthMix::Parse("40..330", "--prompt-tokens");
  mix.answers = *LengthMix::Parse("1..40", "--answer-tokens");
  return mix;
}

// What a request's prompt is made of, as the loop makes it.
std::vector<TokenRun> RunsOf(const Trace& trace, int64_t r) {
  const TraceRequest& request = trace.requests[static_cast<size_t>(r)];
  std::vector<TokenRun> runs = request.prefix;
  int64_t own = request.prompt_tokens;
  for (const TokenRun& run : runs) own -= run.tokens;
  if (own > 0) runs.push_back(OwnRun(r, own));
  return runs;
}

// The same prompts, each alone in the engine.
std::vector<std::vector<int32_t>> AnswersAlone(Model& model, const ChosenMethod& chosen,
                                               const Trace& trace, uint64_t seed) {
  ServeModelOptions options;
  options.method = &chosen.method;
  options.budget = chosen.budget;
  options.seed = seed;
  const ServeModel prompts(model, trace, options, model.pools());
  std::vector<std::vector<int32_t>> answers;
  for (int64_t r = 0; r < std::ssize(trace.requests); ++r) {
    Engine engine({{.method = &chosen.method, .budget = chosen.budget, .model = &model}}, {});
    const EngineSample sample = {
        .id = StrCat(r),
        .turns = {{.ids = prompts.PromptOf(RunsOf(trace, r)),
                   .max_new_tokens = trace.requests[static_cast<size_t>(r)].answer_tokens}}};
    const Status ran = engine.Run({&sample, 1}, [&](CellResult cell) {
      answers.push_back(cell.turns[0].ids);
      return cell.status;
    });
    EXPECT_TRUE(ran.ok()) << ran.error().message;
  }
  return answers;
}

// The memory that a refusal asks for, between two of its words.
int64_t AskedFor(const std::string& refused, const std::string& before, const std::string& after) {
  const size_t begin = refused.find(before) + before.size();
  const Result<int64_t> bytes =
      ParseBytes(refused.substr(begin, refused.find(after, begin) - begin));
  EXPECT_TRUE(bytes.ok()) << refused;
  return bytes.ok() ? *bytes : 0;
}
int64_t EnoughForOne(const CapacityResult& result) {
  return AskedFor(result.refused, "expected at least ", " (");
}
int64_t EnoughForAll(const CapacityResult& result) {
  return AskedFor(result.refused, ", and ", " for all requests");
}

class CapacityTest : public ::testing::Test {
 protected:
  Result<CapacityResult> Measure(const ChosenMethod& chosen, const std::string& policy,
                                 const Trace& trace, int64_t batch, int64_t cache_bytes,
                                 int64_t host_bytes = 0) {
    CapacityCase of;
    of.chosen = &chosen;
    of.policy = PolicyOf(policy);
    of.max_batch = batch;
    of.host_bytes = host_bytes;
    of.seed = 3;
    if (cache_bytes > 0) {
      CapacityCase probe = of;
      probe.memory_bytes = int64_t{1} << 40;
      const PlannedModel planned = {.config = &tiny_.model->config(),
                                    .caches = &tiny_.model->cache_config(),
                                    .shape = tiny_.model->shape(),
                                    .checkpoint_shape = tiny_.model->checkpoint_shape(),
                                    .weight_bytes = tiny_.model->weight_bytes(),
                                    .ops = tiny_.ops.get()};
      const Result<CapacityPlan> plan = PlanCapacity(probe, trace, planned);
      if (!plan.ok()) return plan.error();
      of.memory_bytes = planned.weight_bytes + plan->working_bytes + cache_bytes;
    }
    return MeasureCapacity(of, trace, *tiny_.model);
  }

  static void ExpectServed(const CapacityResult& result) {
    EXPECT_EQ(result.refused, "");
    EXPECT_EQ(result.metrics.failed, 0);
    for (const ServedRequest& request : result.outcome.requests) EXPECT_EQ(request.failure, "");
    EXPECT_EQ(result.metrics.served, std::ssize(result.outcome.requests));
    ExpectWithin(result);
  }
  static void ExpectWithin(const CapacityResult& result) {
    if (result.cache_bytes == 0) return;
    EXPECT_LE(result.outcome.planned_peak_bytes, result.cache_bytes);
    EXPECT_LE(result.peak_bytes, result.cache_bytes);
  }

  TinyModel tiny_ = MakeTinyModel("gqa");
};

TEST_F(CapacityTest, TokensAreThoseOfARequestAlone) {
  const Trace trace = GenerateTrace(MixOf(7));
  const std::vector<std::pair<std::string, std::string>> methods = {
      {"full", "none"},      {"snapkv", "30%"},      {"h2o", "40%"},      {"streaming_llm", "64"},
      {"kivi_2bit", "none"}, {"snapkv_kivi", "40%"}, {"quest", "none"},   {"tova", "50%"},
      {"adakv", "30%"},      {"cam", "40%"},         {"lazyllm", "none"}, {"a_shape", "none"}};
  for (const auto& [id, budget] : methods) {
    const ChosenMethod chosen = ChooseFor(id, budget);
    // What draws at random draws by the request here, by the sample there.
    const bool draws = id == "cam";
    const auto alone = draws ? Measure(chosen, "fcfs", trace, 1, 0)->answers
                             : AnswersAlone(*tiny_.model, chosen, trace, 3);
    for (const std::string policy :
         {"fcfs", "whole_prompts", "shortest", "recompute", "swap", "queues"}) {
      SCOPED_TRACE(StrCat(id, " ", policy));
      // Small enough that sequences wait for each other, and have to go.
      const int64_t cache_bytes = id == "full" ? 1200000 : id == "a_shape" ? 3000000 : 1600000;
      const Result<CapacityResult> result = Measure(chosen, policy, trace, 6, cache_bytes);
      ASSERT_TRUE(result.ok()) << result.error().message;
      ExpectServed(*result);
      EXPECT_EQ(result->answers, alone);
    }
  }
}

TEST_F(CapacityTest, PreemptedSequencesGoOnAsTheyWere) {
  GeneratedTrace mix = MixOf(8);
  mix.prompts = *LengthMix::Parse("64", "--prompt-tokens");
  mix.answers = *LengthMix::Parse("150", "--answer-tokens");
  const Trace trace = GenerateTrace(mix);
  for (const auto& [id, budget] : std::vector<std::pair<std::string, std::string>>{
           {"full", "none"}, {"kivi_2bit", "none"}, {"h2o", "60"}, {"quest", "none"}}) {
    const ChosenMethod chosen = ChooseFor(id, budget);
    const auto alone = AnswersAlone(*tiny_.model, chosen, trace, 3);
    int64_t preemptions = 0;
    for (const std::string policy : {"recompute", "swap", "queues"}) {
      SCOPED_TRACE(StrCat(id, " ", policy));
      const Result<CapacityResult> result = Measure(chosen, policy, trace, 8, 700000);
      ASSERT_TRUE(result.ok()) << result.error().message;
      ExpectServed(*result);
      EXPECT_EQ(result->answers, alone);
      preemptions += result->metrics.preemptions;
      if (policy == "swap" && result->metrics.preemptions > 0) {
        EXPECT_GT(result->outcome.host_peak_bytes, 0);
        EXPECT_EQ(result->outcome.replayed_tokens, 0);
      }
    }
    EXPECT_GE(preemptions, id == "full" ? 1 : 0);
    // Nothing has room on the host.
    const Result<CapacityResult> none = Measure(chosen, "queues", trace, 8, 700000, 1);
    ASSERT_TRUE(none.ok()) << none.error().message;
    ExpectServed(*none);
    EXPECT_EQ(none->answers, alone);
    EXPECT_EQ(none->outcome.host_peak_bytes, 0);
  }
}

// As many as fit whole would never grow into each other: the policies would say nothing of max.
TEST_F(CapacityTest, AsManyBeginAsFitAtFirstWherePoliciesPreempt) {
  GeneratedTrace mix = MixOf(40);
  mix.prompts = *LengthMix::Parse("64", "--prompt-tokens");
  mix.answers = *LengthMix::Parse("200", "--answer-tokens");
  const Trace trace = GenerateTrace(mix);
  const ChosenMethod full = ChooseFor("full", "none");
  const Result<CapacityResult> whole = Measure(full, "fcfs", trace, 0, 900000);
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  ExpectServed(*whole);
  EXPECT_EQ(whole->metrics.preemptions, 0);
  EXPECT_EQ(whole->planned_held, whole->max_batch);
  EXPECT_LT(whole->max_batch, std::ssize(trace.requests));
  for (const std::string policy : {"recompute", "swap", "queues"}) {
    SCOPED_TRACE(policy);
    const Result<CapacityResult> result = Measure(full, policy, trace, 0, 900000);
    ASSERT_TRUE(result.ok()) << result.error().message;
    ExpectServed(*result);
    EXPECT_GT(result->max_batch, whole->max_batch);
    EXPECT_LT(result->planned_held, result->max_batch);
    EXPECT_GT(result->outcome.most_held, whole->outcome.most_held);
    EXPECT_GT(result->metrics.preemptions, 0);
    EXPECT_EQ(result->answers, whole->answers);
  }
  // There is room for a short answer from the beginning, so none has to go.
  mix.answers = *LengthMix::Parse("64", "--answer-tokens");
  const Trace brief = GenerateTrace(mix);
  const Result<CapacityResult> fcfs = Measure(full, "fcfs", brief, 0, 900000);
  const Result<CapacityResult> swap = Measure(full, "swap", brief, 0, 900000);
  ASSERT_TRUE(fcfs.ok() && swap.ok());
  EXPECT_EQ(swap->max_batch, fcfs->max_batch);
  EXPECT_EQ(swap->metrics.preemptions, 0);
}

TEST_F(CapacityTest, SharedBeginningsAreReadOnceAndChangeNothing) {
  GeneratedTrace mix = MixOf(12);
  mix.shared_tokens = 200;
  mix.shared_groups = 2;
  const Trace trace = GenerateTrace(mix);
  for (const auto& [id, budget] : std::vector<std::pair<std::string, std::string>>{
           {"full", "none"}, {"snapkv", "30%"}, {"kivi_2bit", "none"}}) {
    const ChosenMethod chosen = ChooseFor(id, budget);
    const auto alone = AnswersAlone(*tiny_.model, chosen, trace, 3);
    const Result<CapacityResult> plain = Measure(chosen, "fcfs", trace, 4, 0);
    ASSERT_TRUE(plain.ok());
    const Result<Trace> saved = ParseTrace(WriteTrace(trace), "saved.jsonl");
    ASSERT_TRUE(saved.ok()) << saved.error().message;
    EXPECT_EQ(Measure(chosen, "radix", *saved, 4, 0)->answers, plain->answers);
    for (const std::string policy : {"radix", "chunk_tree"}) {
      for (const int64_t cache_bytes : {int64_t{0}, int64_t{2000000}}) {
        SCOPED_TRACE(StrCat(id, " ", policy, " ", cache_bytes));
        const Result<CapacityResult> result = Measure(chosen, policy, trace, 4, cache_bytes);
        ASSERT_TRUE(result.ok()) << result.error().message;
        ExpectServed(*result);
        EXPECT_EQ(result->answers, alone);
        const bool forgets = policy == "chunk_tree" && id != "full";
        if (!forgets && cache_bytes == 0) {
          // All but the first of each group; a tree without readers forgets in between.
          EXPECT_GE(result->metrics.shared_tokens, (policy == "radix" ? 10 : 6) * 192);
          EXPECT_EQ(result->outcome.prompt_rows + result->metrics.shared_tokens,
                    plain->outcome.prompt_rows);
        }
      }
    }
  }
}

TEST_F(CapacityTest, SharedPagesAreHeldOnce) {
  GeneratedTrace mix = MixOf(16);
  mix.shared_tokens = 512;
  mix.prompts = *LengthMix::Parse("20", "--prompt-tokens");
  mix.answers = *LengthMix::Parse("40", "--answer-tokens");
  const Trace trace = GenerateTrace(mix);
  const ChosenMethod full = ChooseFor("full", "none");
  const Result<CapacityResult> plain = Measure(full, "fcfs", trace, 16, 2500000);
  ASSERT_TRUE(plain.ok()) << plain.error().message;
  ExpectServed(*plain);
  for (const std::string policy : {"radix", "chunk_tree"}) {
    SCOPED_TRACE(policy);
    const Result<CapacityResult> shared = Measure(full, policy, trace, 16, 2500000);
    ASSERT_TRUE(shared.ok()) << shared.error().message;
    ExpectServed(*shared);
    EXPECT_EQ(shared->answers, plain->answers);
    EXPECT_GE(shared->outcome.most_held, 2 * plain->outcome.most_held);
  }
}

TEST_F(CapacityTest, ConversationsGoOnFromWhatWasKept) {
  GeneratedTrace mix = MixOf(12);
  mix.turns = 3;
  mix.prompts = *LengthMix::Parse("20..90", "--prompt-tokens");
  const Trace trace = GenerateTrace(mix);
  const ChosenMethod full = ChooseFor("full", "none");
  const Result<CapacityResult> plain = Measure(full, "fcfs", trace, 4, 0);
  ASSERT_TRUE(plain.ok()) << plain.error().message;
  ExpectServed(*plain);
  struct Row {
    std::string policy;
    int64_t host_bytes;
    bool shares;
  };
  for (const Row& row : {Row{"keep_host", 0, true}, Row{"keep_host", 1, false},
                         Row{"keep_disk", 1, true}, Row{"radix", 0, true}}) {
    SCOPED_TRACE(StrCat(row.policy, " ", row.host_bytes));
    const Result<CapacityResult> result = Measure(full, row.policy, trace, 4, 0, row.host_bytes);
    ASSERT_TRUE(result.ok()) << result.error().message;
    ExpectServed(*result);
    EXPECT_EQ(result->answers, plain->answers);
    EXPECT_EQ(result->metrics.shared_tokens > 0, row.shares);
    EXPECT_EQ(result->outcome.prompt_rows + result->metrics.shared_tokens,
              plain->outcome.prompt_rows);
  }
  const ChosenMethod snapkv = ChooseFor("snapkv", "30%");
  const Result<CapacityResult> refused = Measure(snapkv, "keep_host", trace, 4, 0);
  ASSERT_TRUE(refused.ok());
  EXPECT_THAT(refused->refused, HasSubstr("snapkv: policy keep_host goes on with a cache"));
  const ChosenMethod h2o = ChooseFor("h2o", "30%");
  const Result<CapacityResult> sums = Measure(h2o, "radix", trace, 4, 0);
  ASSERT_TRUE(sums.ok());
  EXPECT_THAT(sums->refused, HasSubstr("needs the attention of all its rows"));
}

TEST_F(CapacityTest, WhatNoTurnReadsIsNotKept) {
  const auto turn = [](double at_s, int64_t prompt, int64_t conversation) {
    return TraceRequest{
        .at_s = at_s, .prompt_tokens = prompt, .answer_tokens = 4, .conversation = conversation};
  };
  // The model has 2048 positions, so the second turns of all but the last fail.
  Trace trace;
  trace.conversations = 4;
  for (int64_t i = 0; i < 4; ++i) {
    trace.requests.push_back(turn(0, 100, i));
    trace.requests.push_back(turn(0, i < 3 ? 4000 : 10, i));
  }
  const ChosenMethod full = ChooseFor("full", "none");
  const Result<CapacityResult> result = Measure(full, "keep_host", trace, 1, 0);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->metrics.served, 5);
  Trace last;
  last.conversations = 1;
  last.requests = {turn(0, 100, 0), turn(0, 10, 0)};
  const Result<CapacityResult> alone = Measure(full, "keep_host", last, 1, 0);
  ASSERT_TRUE(alone.ok()) << alone.error().message;
  EXPECT_EQ(result->outcome.host_peak_bytes, alone->outcome.host_peak_bytes);
}

TEST_F(CapacityTest, MemoryIsNeverExceeded) {
  const Trace trace = GenerateTrace(MixOf(9));
  for (const char* kind : {"gqa", "mla"}) {
    tiny_ = MakeTinyModel(kind);
    for (const auto& [id, budget] : std::vector<std::pair<std::string, std::string>>{
             {"full", "none"}, {"snapkv", "20%"}, {"pyramidkv", "30%"}, {"kivi_4bit", "none"}}) {
      const ChosenMethod chosen = ChooseFor(id, budget);
      for (const std::string policy : {"fcfs", "swap", "radix"}) {
        for (const int64_t cache_bytes : {900000, 2500000}) {
          SCOPED_TRACE(StrCat(kind, " ", id, " ", policy, " ", cache_bytes));
          const Result<CapacityResult> result = Measure(chosen, policy, trace, 32, cache_bytes);
          ASSERT_TRUE(result.ok()) << result.error().message;
          EXPECT_EQ(result->refused, "");
          ExpectWithin(*result);
          EXPECT_GT(result->metrics.served, 0);
          for (const ServedRequest& request : result->outcome.requests) {
            if (request.served) continue;
            EXPECT_THAT(request.failure, HasSubstr("; the memory leaves "));
          }
        }
      }
    }
  }
}

// A reader's index lies beside the pools: it is planned, and the peak has it.
TEST_F(CapacityTest, WhatReadersKnowIsPlannedAndCounted) {
  GeneratedTrace mix = MixOf(24);
  mix.prompts = *LengthMix::Parse("320", "--prompt-tokens");
  mix.answers = *LengthMix::Parse("80", "--answer-tokens");
  const Trace trace = GenerateTrace(mix);
  const ChosenMethod full = ChooseFor("full", "none");
  const Result<CapacityResult> plain = Measure(full, "fcfs", trace, 12, 0);
  const Result<CapacityResult> fits = Measure(full, "fcfs", trace, 24, 2500000);
  ASSERT_TRUE(plain.ok() && fits.ok());
  for (const char* id : {"double_sparsity", "magicpig"}) {
    SCOPED_TRACE(id);
    const ChosenMethod reads = ChooseFor(id, "none");
    const Result<CapacityResult> free = Measure(reads, "fcfs", trace, 12, 0);
    ASSERT_TRUE(free.ok()) << free.error().message;
    ASSERT_EQ(free->outcome.most_held, 12);
    const double index = free->sequence_bytes - plain->sequence_bytes;
    EXPECT_GT(index, 0);
    EXPECT_GE(static_cast<double>(free->peak_bytes - plain->peak_bytes), 0.9 * 12 * index);
    const Result<CapacityResult> result = Measure(reads, "fcfs", trace, 24, 2500000);
    ASSERT_TRUE(result.ok()) << result.error().message;
    ExpectServed(*result);
    EXPECT_GE(result->planned_held, 1);
    EXPECT_LT(result->planned_held, fits->planned_held);
  }
}

TEST_F(CapacityTest, CompressionHoldsMoreSequences) {
  GeneratedTrace mix = MixOf(24);
  mix.prompts = *LengthMix::Parse("512", "--prompt-tokens");
  mix.answers = *LengthMix::Parse("16", "--answer-tokens");
  const Trace trace = GenerateTrace(mix);
  const Result<CapacityResult> full =
      Measure(ChooseFor("full", "none"), "fcfs", trace, 64, 4000000);
  const Result<CapacityResult> few =
      Measure(ChooseFor("snapkv", "20%"), "fcfs", trace, 64, 4000000);
  ASSERT_TRUE(full.ok() && few.ok());
  ExpectServed(*full);
  ExpectServed(*few);
  EXPECT_GE(few->outcome.most_held, 2 * full->outcome.most_held);
  EXPECT_GE(full->outcome.most_held, full->planned_held);
  EXPECT_GE(few->outcome.most_held, few->planned_held);
  EXPECT_LT(few->sequence_bytes, 0.5 * full->sequence_bytes);
}

TEST_F(CapacityTest, WhatDoesNotFitFailsAloneAndTheOthersAreServed) {
  Trace trace = GenerateTrace(MixOf(5));
  trace.requests[1].prompt_tokens = 1900;
  trace.requests[3].prompt_tokens = 1700;
  for (const auto& [id, budget] : std::vector<std::pair<std::string, std::string>>{
           {"full", "none"}, {"snapkv", "30%"}, {"kivi_2bit", "none"}}) {
    const ChosenMethod chosen = ChooseFor(id, budget);
    const auto alone = AnswersAlone(*tiny_.model, chosen, trace, 3);
    const Result<CapacityResult> none = Measure(chosen, "fcfs", trace, 4, 1000);
    ASSERT_TRUE(none.ok()) << none.error().message;
    for (const std::string policy : {"fcfs", "shortest", "recompute", "swap", "queues", "radix"}) {
      for (const int64_t batch : {int64_t{4}, int64_t{0}}) {
        SCOPED_TRACE(StrCat(id, " ", policy, " ", batch));
        CapacityCase of;
        of.chosen = &chosen;
        of.policy = PolicyOf(policy);
        of.max_batch = batch;
        of.seed = 3;
        of.memory_bytes = EnoughForOne(*none) + 500000;
        const Result<CapacityResult> result = MeasureCapacity(of, trace, *tiny_.model);
        ASSERT_TRUE(result.ok()) << result.error().message;
        EXPECT_EQ(result->refused, "");
        ExpectWithin(*result);
        EXPECT_LE(result->weight_bytes + result->working_bytes + result->cache_bytes,
                  of.memory_bytes);
        EXPECT_EQ(result->metrics.served, 3);
        EXPECT_EQ(result->metrics.failed, 2);
        EXPECT_GE(result->planned_held, batch == 0 ? result->max_batch : 1);
        for (const size_t r : {size_t{0}, size_t{2}, size_t{4}}) {
          EXPECT_EQ(result->answers[r], alone[r]);
        }
        for (const size_t r : {size_t{1}, size_t{3}}) {
          EXPECT_THAT(result->outcome.requests[r].failure, HasSubstr(" for its cache and "));
          EXPECT_THAT(result->outcome.requests[r].failure,
                      HasSubstr(" of working memory; the memory leaves "));
          EXPECT_THAT(result->answers[r], IsEmpty());
        }
      }
    }
  }
}

TEST_F(CapacityTest, NoRequestMayAskForTheLongestPromptAndTheLongestAnswer) {
  Trace trace;
  trace.requests = {{.prompt_tokens = 900, .answer_tokens = 2},
                    {.prompt_tokens = 40, .answer_tokens = 1260}};
  const ChosenMethod snapkv = ChooseFor("snapkv", "50%");
  const Result<CapacityResult> small = Measure(snapkv, "fcfs", trace, 2, 1000);
  ASSERT_TRUE(small.ok()) << small.error().message;
  CapacityCase of;
  of.chosen = &snapkv;
  of.policy = PolicyOf("fcfs");
  of.max_batch = 2;
  of.memory_bytes = EnoughForAll(*small);
  const Result<CapacityResult> each = MeasureCapacity(of, trace, *tiny_.model);
  ASSERT_TRUE(each.ok()) << each.error().message;
  ExpectServed(*each);
  // For the two lengths together, a request that there is not, it would not be enough.
  trace.requests.push_back({.prompt_tokens = 900, .answer_tokens = 400});
  const Result<CapacityResult> both = MeasureCapacity(of, trace, *tiny_.model);
  ASSERT_TRUE(both.ok()) << both.error().message;
  EXPECT_EQ(both->metrics.served, 2);
  EXPECT_THAT(both->outcome.requests[2].failure, HasSubstr(" for its cache; the memory leaves "));
  EXPECT_EQ(both->answers[0], each->answers[0]);
  EXPECT_EQ(both->answers[1], each->answers[1]);
  // And what it says is enough for one of them is.
  of.memory_bytes = EnoughForOne(*small);
  const Result<CapacityResult> one = MeasureCapacity(of, trace, *tiny_.model);
  ASSERT_TRUE(one.ok()) << one.error().message;
  EXPECT_EQ(one->metrics.served, 1);
  EXPECT_EQ(one->metrics.failed, 2);
  ExpectWithin(*one);
}

// The plan says that there is room, and there is none.
TEST_F(CapacityTest, WhatADeviceHasNoMoreOfIsTheRequestsOwn) {
  const Trace trace = GenerateTrace(MixOf(9));
  const ChosenMethod full = ChooseFor("full", "none");
  const auto alone = AnswersAlone(*tiny_.model, full, trace, 3);
  ServeBytes nothing;
  nothing.prefill = nothing.full = [](int64_t) { return int64_t{0}; };
  nothing.held = [](int64_t, int64_t) { return int64_t{0}; };
  nothing.unchanged = true;
  ServeModelOptions options;
  options.method = &full.method;
  options.seed = 3;
  for (const std::string policy : {"fcfs", "swap", "radix", "keep_host"}) {
    SCOPED_TRACE(policy);
    options.shares = policy == "radix";
    CachePools::Limits limits;
    limits.device_bytes = 1000000;
    CachePools pools(*tiny_.ops, limits);
    ServeModel worker(*tiny_.model, trace, options, pools);
    ServeLoop loop(trace, PolicyOf(policy), {.max_batch = 9}, nothing, worker);
    const Result<ServeOutcome> outcome = loop.Run();
    ASSERT_TRUE(outcome.ok()) << outcome.error().message;
    const ServeMetrics metrics = MeasureServed(*outcome);
    EXPECT_GT(metrics.served, 0);
    EXPECT_GT(metrics.failed, 0);
    for (size_t r = 0; r < trace.requests.size(); ++r) {
      if (outcome->requests[r].served) {
        EXPECT_EQ(worker.answers()[r], alone[r]);
      } else {
        EXPECT_THAT(outcome->requests[r].failure, HasSubstr("more were asked for"));
      }
    }
  }
}

TEST_F(CapacityTest, ADiskThatTakesNothingEndsTheCaseAlone) {
  GeneratedTrace mix = MixOf(4);
  mix.turns = 2;
  const Trace trace = GenerateTrace(mix);
  const ChosenMethod full = ChooseFor("full", "none");
  CapacityCase of;
  of.chosen = &full;
  of.policy = PolicyOf("keep_disk");
  of.max_batch = 2;
  of.host_bytes = 1;
  of.directory = "/nowhere/at/all";
  const Result<CapacityResult> result = MeasureCapacity(of, trace, *tiny_.model);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_THAT(result->refused, HasSubstr("full: /nowhere/at/all/"));
}

TEST_F(CapacityTest, WhatCannotBeServedIsSaid) {
  Trace trace = GenerateTrace(MixOf(3));
  trace.requests[1].prompt_tokens = 4000;  // the model has 2048 positions
  const ChosenMethod full = ChooseFor("full", "none");
  const Result<CapacityResult> result = Measure(full, "fcfs", trace, 2, 0);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->metrics.served, 2);
  EXPECT_THAT(result->outcome.requests[1].failure,
              HasSubstr("tokens; the model has positions for 2048"));
  const Result<CapacityResult> small = Measure(full, "fcfs", trace, 2, 1000);
  ASSERT_TRUE(small.ok());
  EXPECT_THAT(small->refused, HasSubstr("expected at least"));
  // What it asks for is enough, to the last digit that it says.
  CapacityCase of;
  of.chosen = &full;
  of.policy = PolicyOf("fcfs");
  of.max_batch = 2;
  of.memory_bytes = EnoughForAll(*small);
  const Result<CapacityResult> enough = MeasureCapacity(of, trace, *tiny_.model);
  ASSERT_TRUE(enough.ok()) << enough.error().message;
  EXPECT_EQ(enough->refused, "");
  EXPECT_EQ(enough->metrics.served, 2);
  of.memory_bytes = 1000;
  const Result<CapacityResult> none = MeasureCapacity(of, trace, *tiny_.model);
  ASSERT_TRUE(none.ok());
  EXPECT_THAT(none->refused, HasSubstr("expected more than the weights"));
  const Result<CapacityResult> common =
      Measure(ChooseFor("block_attention", "none"), "fcfs", trace, 2, 0);
  ASSERT_TRUE(common.ok());
  EXPECT_THAT(common->refused, HasSubstr("acts on texts that prompts have in common"));
}

}  // namespace
}  // namespace kvgauge
