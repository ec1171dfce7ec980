// SPDX-License-Identifier: Apache-2.0
// A device that has no more memory in the middle of a run.
#include "cuda/emulated/device_memory.h"

#include <gtest/gtest.h>

#include "conformance/scene.h"

namespace kvgauge {
namespace {

using cuda::emulated::AllocatedBytes;
using cuda::emulated::RefusalsLeft;
using cuda::emulated::RefuseAllocations;
using cuda::emulated::SetCapacity;

// All the device has is given back when the test ends.
class DeviceMemory : public ::testing::Test {
 protected:
  ~DeviceMemory() override {
    SetCapacity(kAll);
    RefuseAllocations(0, 0);
  }
  static constexpr int64_t kAll = int64_t{4} << 30;
};

// Captures, plain pages, codes with side-cars, scores that age, a reader's index: each wants memory
// of its own at some step. Whatever is left, a cell has the answer it has with room for all, or the
// lack of memory as its result.
TEST_F(DeviceMemory, WhatIsLackingIsTheResultOfTheCellsThatLackIt) {
  const TinyModel tiny = MakeTinyModel("gqa");
  const Budget half = {Budget::Kind::kFraction, 0.5};
  const Method full = LoadShipped("full"), snapkv = LoadShipped("snapkv"), h2o = LoadShipped("h2o"),
               kivi = LoadShipped("kivi_2bit"), gear = LoadShipped("gear"),
               quest = LoadShipped("quest");
  std::vector<Contender> contenders;
  for (const Method* method : {&full, &snapkv, &h2o, &kivi, &gear, &quest}) {
    contenders.push_back({method, method->takes_budget ? half : Budget(), tiny.model.get()});
  }
  const std::vector<EngineSample> samples = {Sample(150, 8, 20), Sample(90, 9, 4)};
  const Outcomes roomy = RunContenders(contenders, samples);
  ASSERT_EQ(roomy.size(), 12u);

  std::vector<int> failed;
  for (const int64_t left : {0, 4'000, 8'000, 100'000'000}) {
    EngineOptions options;
    options.on_token = [&](const EngineToken& token) {
      const bool first = token.sample == 0 && token.contender == 0;
      if (first && token.answer.size() == 3) SetCapacity(AllocatedBytes() + left);
      if (token.answer.size() == 20) SetCapacity(kAll);  // what is left can be looked at
      return true;
    };
    const Outcomes outcomes = RunContenders(contenders, samples, options);
    SetCapacity(kAll);
    ASSERT_EQ(outcomes.size(), roomy.size());
    failed.push_back(0);
    for (const auto& [at, outcome] : outcomes) {
      const Status& status = outcome.cell.status;
      if (status.ok()) {
        ExpectSame(outcome, roomy.at(at));
      } else {
        ++failed.back();
        EXPECT_EQ(status.error().code, ErrorCode::kResource) << status.error().message;
        EXPECT_NE(status.error().message.find("memory"), std::string::npos);
      }
    }
  }
  EXPECT_GT(failed.front(), 0);
  EXPECT_EQ(failed.back(), 0);
  // In between some find room and some do not.
  EXPECT_TRUE(std::any_of(failed.begin(), failed.end(), [](int n) { return n > 0 && n < 6; }));
}

// Wherever in a run it is that a few allocations in a row find no room: the run goes on, and a cell
// has the answer it has otherwise, or the lack of memory as its result.
void ExpectAnyAllocationMayFail(const std::vector<const Method*>& methods,
                                const std::vector<EngineSample>& samples,
                                const std::string& kind = "gqa") {
  constexpr int64_t kRefused = 4;
  const auto run = [&](int64_t granted) {
    const TinyModel tiny = MakeTinyModel(kind);  // with scratch of its own
    std::vector<Contender> contenders;
    for (const Method* method : methods) {
      contenders.push_back({method, HalfBudget(*method), tiny.model.get()});
    }
    if (granted >= 0) RefuseAllocations(granted, kRefused);
    return RunContenders(contenders, samples);
  };
  const Outcomes roomy = run(-1);
  int failed = 0, mixed = 0;
  for (int64_t granted = 0;; granted += 1 + granted / 6) {
    const Outcomes outcomes = run(granted);
    const bool over = RefusalsLeft() == kRefused;  // the run was done before
    RefuseAllocations(0, 0);
    ASSERT_EQ(outcomes.size(), roomy.size()) << granted;
    int lacking = 0;
    for (const auto& [at, outcome] : outcomes) {
      const Status& status = outcome.cell.status;
      if (status.ok()) {
        ExpectSame(outcome, roomy.at(at));
      } else {
        ++lacking;
        EXPECT_EQ(status.error().code, ErrorCode::kResource) << status.error().message;
      }
    }
    failed += lacking > 0;
    mixed += lacking > 0 && lacking < std::ssize(outcomes);
    if (over) break;
  }
  EXPECT_GT(failed, 5);
  EXPECT_GT(mixed, 0);
}

TEST_F(DeviceMemory, AnyAllocationMayFail) {
  const Method h2o = LoadShipped("h2o"), kivi = LoadShipped("kivi_2bit"),
               quest = LoadShipped("quest");
  ExpectAnyAllocationMayFail({&h2o, &kivi, &quest}, {Sample(96, 8, 4)});
}

// Steps that found no memory choose as they would have; sequences join those that have begun.
TEST_F(DeviceMemory, AnyAllocationMayFailWhereReadersHoldChoices) {
  const Method loopserve = LoadShipped("loopserve", {"read.tokens=16", "read.steps=1"}),
               recycled = LoadShipped("recycled_attention", {"read.tokens=16", "read.stride=2"}),
               a2ats = LoadShipped("a2ats", {"read.share=0.1"});
  ExpectAnyAllocationMayFail({&loopserve, &recycled, &a2ats}, {Sample(90, 8, 8), Sample(60, 9, 3)});
}

// States that have seen a pass's rows do not see them again.
TEST_F(DeviceMemory, AnyAllocationMayFailBetweenLayersOfStates) {
  const Method full = LoadShipped("full"),
               recycled = LoadShipped("recycled_attention", {"read.tokens=16", "read.stride=2"});
  ExpectAnyAllocationMayFail({&full, &recycled}, {Sample(60, 8, 4), Sample(40, 9, 3)}, "hybrid");
}

TEST_F(DeviceMemory, WeightsThatFindNoRoomAreAnError) {
  const std::unique_ptr<Ops> ops = MakeTestOps("cpu", 1);
  ASSERT_TRUE(LoadTinyModel(*ops, "gqa").ok());
  for (const int64_t left : {0, 20'000, 100'000}) {
    SetCapacity(AllocatedBytes() + left);
    const auto model = LoadTinyModel(*ops, "gqa");
    ASSERT_FALSE(model.ok()) << left;
    EXPECT_EQ(model.error().code, ErrorCode::kResource);
    EXPECT_NE(model.error().message.find("weights: out of device memory"), std::string::npos);
    SetCapacity(kAll);
  }
}

// Working memory for all contenders at once is not there: fewer go through the weights at a time.
TEST_F(DeviceMemory, CompanyIsSmallerWhereWorkingMemoryIsShort) {
  const Method full = LoadShipped("full");
  const std::vector<EngineSample> samples = {Sample(20, 8, 3)};
  constexpr int64_t kLeft = 2000;
  int64_t before = 0, after = 0;
  const auto run = [&](size_t count, bool short_of_memory) {
    const TinyModel tiny = MakeTinyModel("gqa");  // with scratch of its own
    const std::vector<Contender> contenders(count, {&full, {}, tiny.model.get()});
    EngineOptions options;
    options.on_token = [&](const EngineToken& token) {
      const bool begins = token.contender + 1 == std::ssize(contenders) && token.answer.size() == 1;
      if (begins) before = AllocatedBytes();
      if (begins && short_of_memory) SetCapacity(before + kLeft);
      if (token.answer.size() == 2) after = std::max(after, AllocatedBytes());
      if (token.answer.size() == 3) SetCapacity(kAll);
      return true;
    };
    return RunContenders(contenders, samples, options);
  };
  const Outcome alone = run(1, false).at({0, 0});
  after = 0;
  run(12, false);
  ASSERT_GT(after - before, kLeft);  // what the first step of all takes
  const Outcomes outcomes = run(12, true);
  ASSERT_EQ(outcomes.size(), 12u);
  for (const auto& [at, outcome] : outcomes) ExpectSame(outcome, alone);
}

// A reader's steps keep their working memory on a device from one to the next, for each sequence. A
// plan counts it with the caches; what the reader knows of entries is no part of that.
TEST_F(DeviceMemory, APlanCountsWhatReadersKeepFromStepToStep) {
  for (const char* id : {"less", "loopserve", "omnikv", "quest"}) {
    SCOPED_TRACE(id);
    const auto subject = MakeSubject(id, "gqa");
    ASSERT_NE(subject, nullptr);
    Method bare = subject->method;
    bare.read.reset();
    const std::vector<EngineSample> samples = {Sample(400, 8, 5)};
    const auto most = [&](const Method& method, size_t count) {
      const std::vector<Contender> contenders(count, {&method, subject->budget, &subject->model()});
      int64_t bytes = 0;
      EngineOptions options;
      options.on_token = [&](const EngineToken& token) {
        // All of them have taken steps.
        if (token.contender + 1 == std::ssize(contenders) && token.answer.size() >= 3) {
          bytes = std::max(bytes, AllocatedBytes());
        }
        return true;
      };
      const CellResult cell = RunContenders(contenders, samples, options).at({0, 0}).cell;
      EXPECT_TRUE(cell.status.ok()) << cell.status.error().message;
      return bytes - std::ssize(contenders) * cell.record.reader_bytes;
    };
    // What one more sequence takes. The model's own working memory has grown before.
    const auto kept = [&](const Method& method) {
      const int64_t three = most(method, 3);
      return (three - most(method, 1)) / 2;
    };
    const auto planned = [&](const Method& method) {
      const Engine engine({{&method, subject->budget, &subject->model()}}, {});
      const Result<MemoryPlan> plan = engine.PlanMemory(samples);
      EXPECT_TRUE(plan.ok()) << plan.error().message;
      return plan.ok() ? plan->lane_bytes : 0;
    };
    const int64_t kept_by_steps = kept(subject->method) - kept(bare);
    EXPECT_GT(kept_by_steps, 0);
    EXPECT_LE(kept_by_steps, planned(subject->method) - planned(bare));
  }
}

TEST_F(DeviceMemory, APlanIsHeldAgainstWhatTheDeviceHas) {
  const TinyModel tiny = MakeTinyModel("gqa");
  const Method full = LoadShipped("full");
  const std::vector<EngineSample> samples = {Sample(2000, 8)};
  const Engine engine({{&full, {}, tiny.model.get()}}, {});
  ASSERT_TRUE(engine.PlanMemory(samples).ok());
  SetCapacity(AllocatedBytes() + 100'000);
  const Result<MemoryPlan> plan = engine.PlanMemory(samples);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, ErrorCode::kResource);
  EXPECT_NE(plan.error().message.find("the device has"), std::string::npos);
}

}  // namespace
}  // namespace kvgauge
