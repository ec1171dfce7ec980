// SPDX-License-Identifier: Apache-2.0
// Entries that a method places on the host lie in memory of the host, and attention fetches them:
// with the bits that it has where all lie on the device.
#include <gtest/gtest.h>

#include "conformance/scene.h"
#include "cuda/device/mapped.h"
#include "cuda/emulated/device_memory.h"
#include "runner/kv_cache.h"

namespace kvgauge {
namespace {

using cuda::MappedBytesTaken;
using cuda::emulated::AllocatedBytes;
using cuda::emulated::RefusalsLeft;
using cuda::emulated::RefuseAllocations;
using cuda::emulated::SetMappedCapacity;
using cuda::emulated::Traffic;
using cuda::emulated::TrafficSoFar;

constexpr int64_t kAllMapped = int64_t{4} << 30;

std::vector<std::string> MethodsThatPlace() {
  std::vector<std::string> ids;
  for (const std::string& id : AllMethods()) {
    if (LoadShipped(id).place.any()) ids.push_back(id);
  }
  return ids;
}

std::unique_ptr<Subject> SubjectOf(const std::string& id,
                                   const std::vector<std::string>& overrides) {
  for (const char* kind : {"gqa", "mha", "mqa", "mla"}) {
    auto subject = MakeSubject(id, kind, {.overrides = overrides});
    if (subject != nullptr) return subject;
  }
  return nullptr;
}

struct Placed {
  Outcome outcome;
  int64_t most_mapped_bytes = 0;
  Traffic traffic;
};

Placed RunPlaced(const Subject& subject, const EngineSample& sample) {
  Placed placed;
  EngineOptions options;
  options.on_token = [&](const EngineToken&) {
    placed.most_mapped_bytes = std::max(placed.most_mapped_bytes, MappedBytesTaken());
    return true;
  };
  const Traffic before = TrafficSoFar();
  placed.outcome = RunContenders({subject.contender()}, {sample}, options).at({0, 0});
  placed.traffic = TrafficSoFar() - before;
  EXPECT_EQ(MappedBytesTaken(), 0);
  return placed;
}

class DeviceTiers : public ::testing::TestWithParam<std::string> {
 protected:
  ~DeviceTiers() override { SetMappedCapacity(kAllMapped); }
};

TEST_P(DeviceTiers, HaveTheBitsOfTheDevice) {
  const auto subject = SubjectOf(GetParam(), {});
  const auto on_device = SubjectOf(GetParam(), {"place.share=0"});
  ASSERT_NE(subject, nullptr);
  ASSERT_NE(on_device, nullptr);
  const EngineSample sample = Sample(kPromptTokens, 31, 8);
  const Placed placed = RunPlaced(*subject, sample), all_there = RunPlaced(*on_device, sample);
  ExpectSame(placed.outcome, all_there.outcome);
  EXPECT_EQ(all_there.most_mapped_bytes, 0);
  EXPECT_EQ(all_there.traffic.overlapped, 0);
  // Attention that is computed on the host fetches nothing: then entries do not move.
  EXPECT_EQ(placed.most_mapped_bytes > 0, !subject->method.place.attends);
  EXPECT_EQ(placed.traffic.overlapped > 0, !subject->method.place.attends);
  EXPECT_GT(placed.outcome.cell.record.host_bytes, 0);
}

INSTANTIATE_TEST_SUITE_P(Methods, DeviceTiers, ::testing::ValuesIn(MethodsThatPlace()),
                         [](const auto& method) { return method.param; });

// Codes, plans in each step, a share, one side, layers that stay, and what is coded later.
TEST(DeviceTiersOf, OtherMethodsHaveThemToo) {
  const std::vector<std::vector<std::string>> places = {
      {"kivi_2bit", "place.share=1"},
      {"gear", "place.share=0.7", "place.sinks=3"},
      {"h2o", "place.share=1", "place.recent=8"},
      {"snapkv", "place.share=0.5", "place.first_layer=1"},
      {"quest", "place.share=1", "place.sides=values"},
      {"streaming_llm", "place.share=1"}};
  const EngineSample sample = Sample(300, 7, 12);
  for (const std::vector<std::string>& place : places) {
    const std::vector<std::string> overrides(place.begin() + 1, place.end());
    const auto subject = SubjectOf(place[0], overrides), on_device = SubjectOf(place[0], {});
    ASSERT_NE(subject, nullptr) << place[0];
    SCOPED_TRACE(place[0]);
    const Placed placed = RunPlaced(*subject, sample);
    ExpectSame(placed.outcome, RunPlaced(*on_device, sample).outcome);
    EXPECT_GT(placed.most_mapped_bytes, 0);
    EXPECT_GT(placed.traffic.overlapped, 0);
  }
}

// In the company of rows whose steps are graphs, and of forks of the same prompt.
TEST(DeviceTiersOf, CompanyChangesNothing) {
  const TinyModel tiny = MakeTinyModel("gqa");
  const Method full = LoadShipped("full"), offload = LoadShipped("flexgen_offload"),
               quest = LoadShipped("quest", {"place.share=0.8"});
  const Contender here = {&full, {}, tiny.model.get()}, there = {&offload, {}, tiny.model.get()},
                  chooses = {&quest, {}, tiny.model.get()};
  const std::vector<EngineSample> samples = {Sample(200, 8, 12), Sample(150, 9, 6)};
  const Outcomes together = RunContenders({here, there, chooses, there}, samples);
  for (const int64_t sample : {0, 1}) {
    const Outcomes plain = RunContenders({here}, {samples[static_cast<size_t>(sample)]});
    ExpectSame(together.at({sample, 0}), plain.at({0, 0}));
    EXPECT_EQ(together.at({sample, 1}).digest, plain.at({0, 0}).digest);
    EXPECT_EQ(together.at({sample, 3}).digest, plain.at({0, 0}).digest);
    const Outcomes alone = RunContenders({chooses}, {samples[static_cast<size_t>(sample)]});
    ExpectSame(together.at({sample, 2}), alone.at({0, 0}));
  }
}

// Every turn of a conversation reads what the turns before placed.
TEST(DeviceTiersOf, LaterTurnsReadWhatWasPlaced) {
  EngineSample sample = Sample(150, 8, 6);
  sample.turns.push_back({.ids = RandomIds(90, 3), .max_new_tokens = 6});
  const auto subject = SubjectOf("flexgen_offload", {});
  const auto on_device = SubjectOf("flexgen_offload", {"place.share=0"});
  ExpectSame(RunPlaced(*subject, sample).outcome, RunPlaced(*on_device, sample).outcome);
}

// No room to lock pages: the result of the cells that ask for some.
TEST(DeviceTiersOf, WhatTheHostLacksIsTheResultOfItsCell) {
  const TinyModel tiny = MakeTinyModel("gqa");
  const Method full = LoadShipped("full"), offload = LoadShipped("flexgen_offload");
  const Contender here = {&full, {}, tiny.model.get()}, there = {&offload, {}, tiny.model.get()};
  const std::vector<EngineSample> samples = {Sample(200, 8, 6)};
  const Outcomes roomy = RunContenders({here, there}, samples);
  cuda::DropSpareMapped();
  SetMappedCapacity(20'000);
  const Outcomes outcomes = RunContenders({here, there}, samples);
  SetMappedCapacity(kAllMapped);
  ExpectSame(outcomes.at({0, 0}), roomy.at({0, 0}));
  const Status& status = outcomes.at({0, 1}).cell.status;
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kResource);
  for (const char* part : {"page-locked host memory", "place.share", "layer "}) {
    EXPECT_NE(status.error().message.find(part), std::string::npos) << status.error().message;
  }
  EXPECT_EQ(MappedBytesTaken(), 0);
}

// Wherever the device has no room for a ring, a list or what is moved: the answer that there is
// with room, or the lack of memory.
TEST(DeviceTiersOf, AnyAllocationMayFail) {
  const Method offload = LoadShipped("flexgen_offload"),
               quest = LoadShipped("quest", {"place.share=1"});
  const std::vector<EngineSample> samples = {Sample(130, 8, 3)};
  constexpr int64_t kRefused = 4;
  const auto run = [&](int64_t granted) {
    const TinyModel tiny = MakeTinyModel("gqa");  // with scratch of its own
    const std::vector<Contender> contenders = {{&offload, {}, tiny.model.get()},
                                               {&quest, {}, tiny.model.get()}};
    if (granted >= 0) RefuseAllocations(granted, kRefused);
    return RunContenders(contenders, samples);
  };
  const Outcomes roomy = run(-1);
  int failed = 0;
  for (int64_t granted = 0;; granted += 1 + granted / 6) {
    const Outcomes outcomes = run(granted);
    const bool over = RefusalsLeft() == kRefused;  // the run was done before
    RefuseAllocations(0, 0);
    ASSERT_EQ(outcomes.size(), roomy.size()) << granted;
    for (const auto& [at, outcome] : outcomes) {
      const Status& status = outcome.cell.status;
      if (status.ok()) {
        ExpectSame(outcome, roomy.at(at));
        continue;
      }
      ++failed;
      EXPECT_EQ(status.error().code, ErrorCode::kResource) << status.error().message;
    }
    EXPECT_EQ(MappedBytesTaken(), 0);
    if (over) break;
  }
  EXPECT_GT(failed, 5);
}

// A plan counts what stays on the device, and the room that fetches take there.
TEST(DeviceTiersOf, PlansCountWhatStays) {
  const TinyModel tiny = MakeTinyModel("gqa");
  const std::vector<EngineSample> samples = {Sample(4096, 8)};
  const auto planned = [&](const Method& method) {
    const Budget budget = HalfBudget(method);
    const Result<MemoryPlan> plan =
        Engine({{&method, budget, tiny.model.get()}}, {}).PlanMemory(samples);
    EXPECT_TRUE(plan.ok()) << plan.error().message;
    return *plan;
  };
  const MemoryPlan full = planned(LoadShipped("full"));
  const MemoryPlan all = planned(LoadShipped("flexgen_offload"));
  const MemoryPlan half = planned(LoadShipped("flexgen_offload", {"place.share=0.5"}));
  const MemoryPlan values = planned(LoadShipped("flexgen_offload", {"place.sides=values"}));
  const ModelShape& shape = tiny.model->shape();
  const int64_t whole = shape.layers * shape.kv_heads * 4096 * shape.EntryBytes();
  EXPECT_EQ(full.lane_bytes - all.lane_bytes, whole);
  EXPECT_EQ(full.lane_bytes - half.lane_bytes, whole / 2);
  EXPECT_EQ(full.lane_bytes - values.lane_bytes, whole / 2);
  EXPECT_GT(all.working_bytes, full.working_bytes);
  // What is evicted is made anew on the device first.
  const MemoryPlan snapkv = planned(LoadShipped("snapkv"));
  const MemoryPlan placed = planned(LoadShipped("snapkv", {"place.share=1"}));
  EXPECT_EQ(placed.lane_bytes, snapkv.lane_bytes);
}

class TieredCache : public ::testing::Test {
 protected:
  static constexpr int64_t kEntries = 8 * 1024;

  static Status Feed(KvCache& cache, int64_t rows) {
    KVG_TRY(cache.Append(rows));
    const KvFormat& format = cache.format();
    for (int64_t layer = 0; layer < cache.layer_count(); ++layer) {
      const auto numbers = [&](int64_t dim) {
        return std::vector<float>(static_cast<size_t>(rows * cache.kv_heads() * dim),
                                  static_cast<float>(layer + 1));
      };
      const std::vector<float> keys = numbers(format.key_dim), values = numbers(format.value_dim);
      Buffer memory[2];
      const auto there = [&](const std::vector<float>& from, int64_t dim, Buffer* to) {
        *to = cache.ops().memory->Allocate(std::ssize(from) * 4);
        const Tensor rows_there = to->As(DType::kF32, {rows, cache.kv_heads(), dim});
        cache.ops().memory->Copy(View(from, {rows, cache.kv_heads(), dim}), rows_there);
        return rows_there;
      };
      cache.Write(layer, there(keys, format.key_dim, &memory[0]),
                  there(values, format.value_dim, &memory[1]));
    }
    return {};
  }
  static Placement PlaceOf(double share) {
    Placement place;
    place.share = share;
    return place;
  }
};

TEST_F(TieredCache, BytesLeaveTheDeviceAndComeBack) {
  const TinyModel tiny = MakeTinyModel("gqa");
  CachePools pools(tiny.model->ops());
  const BlockPool& pool = pools.of(Tier::kDevice);
  KvCache cache = tiny.model->NewCache(kEntries + 100, pools);
  ASSERT_TRUE(Feed(cache, kEntries).ok());
  const std::string digest = Digest(cache);
  const int64_t used = pool.used_bytes(), resident = pool.resident_bytes();
  const int64_t there = AllocatedBytes();
  ASSERT_TRUE(cache.Place(PlaceOf(1)).ok());
  EXPECT_EQ(pool.used_bytes(), 0);
  EXPECT_EQ(pool.resident_bytes(), 0);
  EXPECT_EQ(pool.placed_used_bytes(), used);
  EXPECT_GE(pool.placed_bytes(), used);
  EXPECT_EQ(MappedBytesTaken(), pool.placed_bytes());
  EXPECT_GE(there - AllocatedBytes(), resident - (int64_t{1} << 20));  // but for lists
  EXPECT_EQ(Digest(cache), digest);
  EXPECT_EQ(cache.Bytes().resident(), used);

  // Half of it; whole pages only.
  ASSERT_TRUE(cache.Place(PlaceOf(0.5)).ok());
  EXPECT_EQ(pool.placed_used_bytes(), used / 2);
  EXPECT_EQ(pool.used_bytes(), used / 2);
  EXPECT_EQ(Digest(cache), digest);

  // New entries have pages on the device, until these lie in the share.
  ASSERT_TRUE(Feed(cache, 1).ok());
  ASSERT_TRUE(cache.Place(PlaceOf(1)).ok());
  EXPECT_EQ(pool.placed_used_bytes(), used);
  EXPECT_EQ(pool.used_bytes(), used / (kEntries / kKvPageEntries));
}

// A fork has blocks of its own there; what stays is shared.
TEST_F(TieredCache, AForkIsPlacedAlone) {
  const TinyModel tiny = MakeTinyModel("gqa");
  CachePools pools(tiny.model->ops());
  const BlockPool& pool = pools.of(Tier::kDevice);
  KvCache cache = tiny.model->NewCache(1024, pools);
  ASSERT_TRUE(Feed(cache, 512).ok());
  const std::string digest = Digest(cache);
  const int64_t used = pool.used_bytes();
  {
    KvCache fork = cache.Fork();
    ASSERT_TRUE(fork.Place(PlaceOf(0.5)).ok());
    EXPECT_EQ(pool.used_bytes(), used);
    EXPECT_EQ(pool.placed_used_bytes(), used / 2);
    KvCache second = fork.Fork();
    ASSERT_TRUE(second.Place(PlaceOf(0.5)).ok());
    EXPECT_EQ(pool.placed_used_bytes(), used / 2);
    ASSERT_TRUE(second.Truncate(100).ok());
    ASSERT_TRUE(Feed(second, 30).ok());  // writes into a page that is placed, its own
    EXPECT_EQ(Digest(fork), digest);
  }
  EXPECT_EQ(pool.placed_used_bytes(), 0);
  EXPECT_EQ(pool.placed_bytes(), 0);
  EXPECT_EQ(Digest(cache), digest);
}

}  // namespace
}  // namespace kvgauge
