// SPDX-License-Identifier: Apache-2.0
// The order of requests, on a worker that only counts.
#include "src/serve/serve_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "core/clock.h"
#include "core/strings.h"
#include "src/serve/serve_estimate.h"
#include "src/serve/serve_metrics.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

// A token takes 100 bytes, a pass a second and no time for its rows.
class ServeLoopTest : public ::testing::Test {
 protected:
  static constexpr int64_t kMostPasses = 3'000'000;  // more is going on for ever

  ServeOutcome Serve(const std::string& policy, ServeLimits limits = {.max_batch = 4},
                     int64_t most_passes = kMostPasses) {
    ServeBytes bytes;
    bytes.prefill = bytes.full = [](int64_t tokens) { return tokens * 100; };
    bytes.held = [](int64_t, int64_t total) { return total * 100; };
    bytes.unchanged = unchanged_;
    PassCost cost;
    cost.weight_bytes = pass_bytes_;
    cost.held_bytes = [this](int64_t, int64_t total) { return total * held_bytes_; };
    cost.full_bytes = [](int64_t) { return int64_t{0}; };
    ServeEstimate worker(cost, {.bytes_per_s = pass_bytes_, .operations_per_s = 1});
    const ServePolicy chosen = *FindServePolicy(policy);
    ServeLoop loop(trace_, chosen, limits, bytes, worker);
    int64_t asked = 0;
    Result<ServeOutcome> outcome = loop.Run([&] { return ++asked > most_passes; });
    EXPECT_TRUE(outcome.ok()) << outcome.error().message;
    return std::move(outcome).value();
  }

  void Add(double at_s, int64_t prompt, int64_t answer, int64_t conversation = -1) {
    trace_.requests.push_back({.id = StrCat(trace_.requests.size()),
                               .at_s = at_s,
                               .prompt_tokens = prompt,
                               .answer_tokens = answer,
                               .conversation = conversation});
  }

  Trace trace_;
  double pass_bytes_ = 1;   // read in a pass
  int64_t held_bytes_ = 0;  // of a token, and what moves to the host
  bool unchanged_ = true;   // entries, by what is kept of them
};

TEST_F(ServeLoopTest, PassesAreSharedAndIdleTimeIsSkipped) {
  Add(10, 100, 3);
  Add(10, 600, 2);
  Add(1000, 5, 1);
  const ServeOutcome outcome = Serve("fcfs");
  // The first: a pass of its prompt, two of tokens. Beside those the second's prompt, then a token.
  EXPECT_EQ(outcome.requests[0].first_s, 11);
  EXPECT_EQ(outcome.requests[0].last_s, 13);
  EXPECT_EQ(outcome.requests[1].first_s, 13);
  EXPECT_EQ(outcome.requests[1].last_s, 14);
  EXPECT_EQ(outcome.requests[2].first_s, 1001);
  EXPECT_EQ(outcome.passes, 5);
  EXPECT_EQ(outcome.served_s, 5);
  EXPECT_EQ(outcome.seconds, 991);
  EXPECT_EQ(outcome.most_held, 2);
  EXPECT_EQ(outcome.prompt_rows, 705);
}

TEST_F(ServeLoopTest, WhoWaitsAtAnInterruptionWasNotServed) {
  Add(0, 10, 2);
  Add(0, 10, 50);
  Add(0, 10, 3);
  const ServeMetrics metrics = MeasureServed(Serve("fcfs", {.max_batch = 2}, 4));
  EXPECT_EQ(metrics.served, 1);
  EXPECT_EQ(metrics.failed, 0);
  EXPECT_EQ(metrics.tokens_out, 2);
  EXPECT_GE(metrics.e2e_s.p50, 2);
}

TEST_F(ServeLoopTest, DecodingWaitsForWholePrompts) {
  Add(0, 10, 3);
  Add(0, 1500, 1);
  EXPECT_EQ(Serve("whole_prompts").requests[0].last_s, 6);
  EXPECT_EQ(Serve("fcfs").requests[0].last_s, 3);
}

TEST_F(ServeLoopTest, TheShortestGoesFirst) {
  Add(0, 10, 50);
  Add(0, 10, 40);
  Add(0, 10, 2);
  const ServeOutcome first = Serve("fcfs", {.max_batch = 1}),
                     shortest = Serve("shortest", {.max_batch = 1});
  EXPECT_EQ(first.requests[2].first_s, 91);
  EXPECT_EQ(shortest.requests[2].first_s, 1);
  EXPECT_EQ(shortest.requests[1].first_s, 3);
  EXPECT_EQ(shortest.requests[0].last_s, 92);
}

TEST_F(ServeLoopTest, QueuesPreemptLongAnswers) {
  Add(0, 10, 500);
  Add(20, 10, 5);
  const ServeOutcome queues = Serve("queues", {.max_batch = 1});
  EXPECT_LE(queues.requests[1].last_s, 30);
  EXPECT_EQ(queues.requests[0].last_s, 505);
  EXPECT_EQ(Serve("fcfs", {.max_batch = 1}).requests[1].first_s, 501);
  // Both caches stay where there is room, else one waits on the host.
  EXPECT_EQ(queues.requests[0].preemptions, 0);
  const ServeOutcome tight = Serve("queues", {.cache_bytes = 51500, .max_batch = 1});
  EXPECT_LE(tight.requests[1].last_s, 60);
}

// All that wait are lifted again and again, and push aside those that read.
TEST_F(ServeLoopTest, QueuesGetOnWhereManyWait) {
  for (int64_t i = 0; i < 2000; ++i) Add(0, 4000, 100);
  const ServeOutcome outcome = Serve("queues", {.cache_bytes = 1'700'000, .max_batch = 8});
  EXPECT_LT(outcome.passes, kMostPasses);
  EXPECT_EQ(outcome.prompt_rows, 2000 * 4000) << "what was read is not read again";
  EXPECT_LE(outcome.planned_peak_bytes, 1'700'000);
}

// Counts what is held: 100 bytes of a token while its cache is here, and what its reader knows of a
// prompt that was read, which stays when the cache moves to the host.
class LeavingWorker final : public ServeWorker {
 public:
  static constexpr int64_t kLeft = 20'000;

  explicit LeavingWorker(const Trace& trace) : trace_(trace) {}

  double now_s() override { return static_cast<double>(passes_); }
  Status Start(int64_t request, std::span<const TokenRun>, const Payload&, int64_t, bool) override {
    held_[request] = {};
    return {};
  }
  std::vector<Status> Pass(std::span<const ServeStep> steps) override {
    ++passes_;
    for (const ServeStep& step : steps) held_.at(step.request).tokens += step.rows;
    int64_t bytes = 0;
    for (const auto& [request, of] : held_) {
      const bool read = of.tokens >= trace_.requests[static_cast<size_t>(request)].prompt_tokens;
      bytes += (of.saved ? 0 : of.tokens * 100) + (read ? kLeft : 0);
    }
    most_ = std::max(most_, bytes);
    return std::vector<Status>(steps.size());
  }
  Payload TakePrompt(int64_t) override { return nullptr; }
  Payload TakeWhole(int64_t) override { return nullptr; }
  Result<Payload> Cut(const Payload& payload, int64_t) override { return payload; }
  void Drop(int64_t request) override {
    dropped_saved_ += held_.at(request).saved ? 1 : 0;
    held_.erase(request);
  }
  Result<int64_t> Save(int64_t request) override {
    ++saves_;
    held_.at(request).saved = true;
    return held_.at(request).tokens * 100;
  }
  Status Restore(int64_t request) override {
    held_.at(request).saved = false;
    return {};
  }
  Result<int64_t> Finish(int64_t request, bool) override {
    held_.erase(request);
    return int64_t{0};
  }
  Status MoveKeptToDisk(int64_t) override { return {}; }
  void DropKept(int64_t) override {}

  int64_t most() const { return most_; }
  int64_t saves() const { return saves_; }
  int64_t dropped_saved() const { return dropped_saved_; }

 private:
  struct Held {
    int64_t tokens = 0;
    bool saved = false;
  };
  const Trace& trace_;
  std::map<int64_t, Held> held_;
  int64_t passes_ = 0, most_ = 0, saves_ = 0, dropped_saved_ = 0;
};

// Where too many have left something behind for the first to go on, some are read again.
TEST_F(ServeLoopTest, WhatMovedCachesLeaveBehindHasItsRoom) {
  constexpr int64_t kLeft = LeavingWorker::kLeft;
  for (int64_t i = 0; i < 6; ++i) Add(0, 100, 700);
  ServeBytes bytes;
  bytes.prefill = bytes.full = [](int64_t tokens) { return tokens * 100; };
  bytes.held = [](int64_t, int64_t total) { return total * 100 + kLeft; };
  bytes.left = [](int64_t, int64_t) { return kLeft; };
  for (const std::string policy : {"swap", "queues"}) {
    SCOPED_TRACE(policy);
    constexpr int64_t kMemory = 130'000;
    LeavingWorker worker(trace_);
    const ServePolicy chosen = *FindServePolicy(policy);
    ServeLoop loop(trace_, chosen, {.cache_bytes = kMemory, .max_batch = 4}, bytes, worker);
    int64_t asked = 0;
    const Result<ServeOutcome> outcome = loop.Run([&] { return ++asked > kMostPasses; });
    ASSERT_TRUE(outcome.ok()) << outcome.error().message;
    for (const ServedRequest& request : outcome->requests) EXPECT_TRUE(request.served);
    EXPECT_LE(outcome->planned_peak_bytes, kMemory);
    EXPECT_LE(worker.most(), kMemory);
    EXPECT_GT(worker.saves(), 0);
    EXPECT_GT(worker.dropped_saved(), 0);
    EXPECT_GE(outcome->host_peak_bytes, 0);
  }
}

// What has no room on the host is dropped and made again, and yet all end.
TEST_F(ServeLoopTest, QueuesKeepToTheHost) {
  constexpr int64_t kLengths[] = {50, 1500, 4000};
  for (int64_t i = 0; i < 999; ++i) {
    Add(2 * static_cast<double>(i), kLengths[i % 3], 20 + i * 37 % 280);
  }
  const ServeLimits limits = {.cache_bytes = 1'000'000, .max_batch = 8};
  for (const bool unchanged : {true, false}) {
    unchanged_ = unchanged;
    pass_bytes_ = 1e12;  // so that what is held takes no time
    held_bytes_ = 100;
    const ServeOutcome all = Serve("queues", limits);
    EXPECT_GT(all.host_peak_bytes, 10'000'000);
    for (const int64_t host_bytes : {int64_t{1}, int64_t{1'000'000}, int64_t{5'000'000}}) {
      SCOPED_TRACE(StrCat(unchanged, " ", host_bytes));
      ServeLimits small = limits;
      small.host_bytes = host_bytes;
      const ServeOutcome outcome = Serve("queues", small);
      EXPECT_EQ(MeasureServed(outcome).served, 999);
      EXPECT_LE(outcome.host_peak_bytes, host_bytes);
      EXPECT_LE(outcome.planned_peak_bytes, limits.cache_bytes);
      EXPECT_GT(outcome.prompt_rows, all.prompt_rows);
      EXPECT_EQ(outcome.replayed_tokens > 0, !unchanged);
      EXPECT_LT(outcome.passes, 5 * all.passes);
    }
  }
}

// To make a cache again takes passes, and nothing of a turn.
TEST_F(ServeLoopTest, WhoQueuesDroppedKeepsItsTurn) {
  Add(0, 900, 95);
  Add(1, 10, 200);   // in the same queue, and later
  Add(120, 900, 2);  // does not fit beside both
  const ServeLimits limits = {.cache_bytes = 150'000, .max_batch = 1};
  ServeLimits none = limits;
  none.host_bytes = 1;
  held_bytes_ = 100;
  pass_bytes_ = 1e12;
  const ServeOutcome moved = Serve("queues", limits), dropped = Serve("queues", none);
  EXPECT_EQ(moved.prompt_rows, 900 + 10 + 900);
  EXPECT_GT(dropped.prompt_rows, moved.prompt_rows + 900);
  constexpr double kPasses = 2;  // of those rows
  EXPECT_NEAR(dropped.requests[0].last_s, moved.requests[0].last_s + kPasses, 0.01);
  EXPECT_NEAR(dropped.requests[1].last_s, moved.requests[1].last_s + kPasses, 0.01);
}

TEST_F(ServeLoopTest, TheNewestMakesRoom) {
  Add(0, 64, 200);
  Add(0, 64, 200);
  // Both prompts fit, both answers do not.
  const ServeLimits limits = {.cache_bytes = 40000, .max_batch = 4};
  const ServeOutcome wait = Serve("fcfs", limits);
  EXPECT_EQ(wait.most_held, 1);
  const ServeOutcome recompute = Serve("recompute", limits), swap = Serve("swap", limits);
  for (const ServeOutcome* outcome : {&recompute, &swap}) {
    EXPECT_EQ(outcome->most_held, 2);
    EXPECT_EQ(outcome->requests[0].preemptions, 0);
    EXPECT_EQ(outcome->requests[0].last_s, 200);
    EXPECT_GE(outcome->requests[1].preemptions, 1);
    EXPECT_LT(outcome->requests[1].last_s, wait.requests[1].last_s);
    EXPECT_LE(outcome->planned_peak_bytes, 40000);
  }
  EXPECT_GT(recompute.prompt_rows, 128);
  EXPECT_EQ(swap.prompt_rows, 128);
  // What has no room on the host is made again.
  ServeLimits small_host = limits;
  small_host.host_bytes = 100;
  EXPECT_EQ(Serve("swap", small_host).prompt_rows, recompute.prompt_rows);
}

TEST_F(ServeLoopTest, FailuresAreTheRequestsOwn) {
  Add(0, 64, 64, 0);
  Add(0, 64, 4000, 0);
  Add(0, 64, 64, 0);
  Add(0, 64, 64);
  const ServeOutcome outcome = Serve("fcfs", {.cache_bytes = 50000, .max_tokens = 1000});
  EXPECT_EQ(outcome.requests[0].failure, "");
  EXPECT_THAT(outcome.requests[1].failure,
              HasSubstr("needs 4192 tokens; the model has positions for 1000"));
  EXPECT_THAT(outcome.requests[2].failure, HasSubstr("an earlier turn"));
  EXPECT_EQ(outcome.requests[3].failure, "");
  const ServeOutcome small = Serve("fcfs", {.cache_bytes = 5000});
  EXPECT_THAT(small.requests[3].failure, HasSubstr("the memory leaves 4.9 KiB"));
}

// Its cache alone would fit.
TEST_F(ServeLoopTest, WhatPassesHaveNoWorkingMemoryForDoesNotEnter) {
  Add(0, 64, 64);
  Add(0, 250, 51);
  Add(0, 250, 50);
  const ServeOutcome outcome =
      Serve("fcfs", {.cache_bytes = 102400, .pass_tokens = 300, .working = [](int64_t tokens) {
                       return tokens * 1024;
                     }});
  EXPECT_EQ(MeasureServed(outcome).served, 2);
  EXPECT_EQ(outcome.requests[1].failure,
            "needs 29.4 KiB for its cache and 301.0 KiB of working memory; the memory leaves "
            "400.0 KiB for both");
}

TEST_F(ServeLoopTest, TurnsArriveAfterOneAnother) {
  Add(0, 100, 10, 0);
  Add(1, 20, 10, 0);
  const ServeOutcome outcome = Serve("fcfs");
  EXPECT_EQ(outcome.requests[0].last_s, 10);
  EXPECT_EQ(outcome.requests[1].arrived_s, 10);
  EXPECT_EQ(outcome.requests[1].prompt_tokens, 130);
  const ServeOutcome kept = Serve("keep_host");
  EXPECT_EQ(kept.requests[1].shared_tokens, 109);
  EXPECT_EQ(kept.prompt_rows, 121);
}

// However many wait, and whichever fails.
TEST_F(ServeLoopTest, AFailureEndsAllTurnsThatWait) {
  Add(0, 10, 50, 0);
  Add(0, 4000, 1, 0);
  for (int turn = 0; turn < 200'000; ++turn) Add(0, 1, 1, 0);
  Add(0, 10, 1);
  const ServeOutcome outcome = Serve("fcfs", {.max_tokens = 1000});
  EXPECT_EQ(outcome.requests[0].failure, "");
  EXPECT_THAT(outcome.requests[1].failure, HasSubstr("positions for 1000"));
  EXPECT_THAT(outcome.requests[200'001].failure, HasSubstr("an earlier turn"));
  EXPECT_EQ(outcome.requests.back().failure, "");
  EXPECT_EQ(MeasureServed(outcome).failed, 200'001);
}

TEST_F(ServeLoopTest, AHundredThousandRequestsArePlannedInSeconds) {
  GeneratedTrace options;
  options.arrivals = Arrivals::kBursts;
  options.per_second = 0.2;
  options.prompts = *LengthMix::Parse("16..2048", "--prompt-tokens");
  options.answers = *LengthMix::Parse("8..96", "--answer-tokens");
  options.shared_tokens = 128;
  options.shared_groups = 50;
  for (const std::string policy : {"fcfs", "queues", "radix", "recompute"}) {
    options.requests = policy == "fcfs" ? 100'000 : 5'000;
    trace_ = GenerateTrace(options);
    const double start_s = ThreadCpuSeconds();
    const ServeOutcome outcome = Serve(policy, {.cache_bytes = 10'000'000, .max_batch = 64});
    const double took_s = ThreadCpuSeconds() - start_s;
    EXPECT_EQ(MeasureServed(outcome).served, options.requests);
    EXPECT_LE(outcome.planned_peak_bytes, 10'000'000);
    EXPECT_LT(took_s, 60) << policy;  // without optimisation, on any machine
    RecordProperty(policy, std::to_string(took_s));
  }
}

}  // namespace
}  // namespace kvgauge
