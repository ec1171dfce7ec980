// SPDX-License-Identifier: Apache-2.0
// The layers of a model on several emulated devices. Work of one device faults where it touches the
// memory of another, so whatever runs here keeps to its device but for copies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <fstream>

#include "conformance/scene.h"
#include "cuda/backend_parts.h"
#include "cuda/device/mapped.h"
#include "cuda/emulated/device_memory.h"
#include "kernels/devices.h"
#include "runner/layer_division.h"
#include "support/compare.h"
#include "support/scratch_directory.h"
#include "support/visual_rows.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kWholeDevice = int64_t{4} << 30;

std::unique_ptr<Ops> OnDevices(std::span<const int> devices) {
  cuda::emulated::SetDevices(3);
  std::string why;
  std::unique_ptr<Ops> ops = cuda::MakeDeviceOps(devices, &why);
  EXPECT_NE(ops, nullptr) << why;
  return ops;
}
std::unique_ptr<Ops> OnFirst(int count) {
  const std::array<int, 3> all = {0, 1, 2};
  return OnDevices(std::span(all).first(static_cast<size_t>(count)));
}

class DeviceLayers : public ::testing::Test {
 protected:
  ~DeviceLayers() override {
    for (int device = 0; device < 3; ++device) {
      cuda::emulated::SetCapacity(kWholeDevice, device);
      cuda::emulated::RefuseAllocations(0, 0, device);
    }
    cuda::emulated::SetPeers(true);
    cuda::emulated::SetDevices(1);
  }
};

// The logits of every row of a prompt in chunks, and of decode steps behind it.
std::vector<float> LogitRowsOf(Model& model, const std::vector<int32_t>& ids, int64_t prompt) {
  const Prompt tokens = Prompt::FromTokens(ids);
  KvCache cache = model.NewCache(tokens.size());
  std::vector<float> all;
  while (cache.tokens() < tokens.size()) {
    const int64_t begin = cache.tokens();
    const int64_t end = begin < prompt ? std::min(begin + 17, prompt) : begin + 1;
    EXPECT_TRUE(cache.Append(end - begin).ok());
    const SequenceStep step = {
        .cache = &cache, .prompt = &tokens, .begin = begin, .end = end, .logits = LogitRows::kAll};
    const Tensor logits = model.Forward({&step, 1});
    const std::vector<float> rows = HostFloats(model.ops(), logits);
    all.insert(all.end(), rows.begin(), rows.end());
    EXPECT_TRUE(cache.Seal().ok());
  }
  return all;
}

TEST_F(DeviceLayers, LogitsHaveTheBitsOfOneDevice) {
  const std::vector<int32_t> ids = RandomIds(30, 3);
  for (const char* kind : {"gqa", "mla", "mqa"}) {
    SCOPED_TRACE(kind);
    const TinyModel one = MakeTinyModelOn(OnFirst(1), kind, {}, 3);
    const std::vector<float> want = LogitRowsOf(*one.model, ids, 20);
    for (const int devices : {2, 3}) {
      const TinyModel several = MakeTinyModelOn(OnFirst(devices), kind, {}, 3);
      ASSERT_EQ(several.model->shares().size(), static_cast<size_t>(devices));
      EXPECT_EQ(LogitRowsOf(*several.model, ids, 20), want) << devices;
      // Steps are graphs on each device.
      EXPECT_GT(several.model->decode_counts().replayed, devices);
    }
  }
}

// The trained model, whose tokens mean something; and where devices cannot reach each other, so
// that rows go by the host.
TEST_F(DeviceLayers, TheReferenceModelAnswersAsOnOneDevice) {
  const std::string directory = StrCat(KVG_SOURCE_DIR, "/models/ref-gqa");
  const auto logits = [&](int devices) {
    const std::unique_ptr<Ops> ops = OnFirst(devices);
    Result<std::unique_ptr<Model>> model = Model::Load(directory, {}, *ops);
    EXPECT_TRUE(model.ok()) << model.error().message;
    return LogitRowsOf(**model, RandomIds(12, 5, (*model)->config().vocab_size), 8);
  };
  const std::vector<float> want = logits(1);
  const auto before = cuda::emulated::TrafficSoFar();
  EXPECT_EQ(logits(2), want);
  EXPECT_GT((cuda::emulated::TrafficSoFar() - before).peer_copies, 0);
  cuda::emulated::SetPeers(false);
  const auto apart = cuda::emulated::TrafficSoFar();
  EXPECT_EQ(logits(3), want);
  EXPECT_EQ((cuda::emulated::TrafficSoFar() - apart).peer_copies, 0);
}

// Two samples, methods of every kind, and their company.
TEST_F(DeviceLayers, RowsInLockstepHaveTheBitsOfOneDevice) {
  std::vector<Method> methods;
  for (const char* id : {"full", "snapkv", "h2o", "adakv", "kivi_2bit", "gear", "quest", "tova",
                         "streaming_llm", "flexgen_offload"}) {
    methods.push_back(LoadShipped(id));
  }
  methods.push_back(LoadShipped("quest", {"place.share=0.8"}));
  const std::vector<EngineSample> samples = {Sample(100, 8, 6), Sample(70, 9, 4)};
  const auto run = [&](const TinyModel& tiny) {
    std::vector<Contender> contenders;
    for (const Method& method : methods) {
      contenders.push_back({&method, HalfBudget(method), tiny.model.get()});
    }
    return RunContenders(contenders, samples);
  };
  const Outcomes want = run(MakeTinyModelOn(OnFirst(1), "gqa", {}, 3));
  for (const int devices : {2, 3}) {
    std::vector<int64_t> launches;
    for (int d = 0; d < devices; ++d) launches.push_back(cuda::emulated::LaunchesOf(d));
    const Outcomes got = run(MakeTinyModelOn(OnFirst(devices), "gqa", {}, 3));
    ASSERT_EQ(got.size(), want.size());
    for (const auto& [at, outcome] : got) {
      SCOPED_TRACE(methods[static_cast<size_t>(at.second)].id);
      ExpectSame(outcome, want.at(at));
    }
    for (int d = 0; d < devices; ++d) {
      EXPECT_GT(cuda::emulated::LaunchesOf(d), launches[static_cast<size_t>(d)]) << d;
    }
  }
  EXPECT_EQ(cuda::MappedBytesTaken(), 0);
}

// Two passes, from one snapshot, and questions behind a compressed context.
TEST_F(DeviceLayers, FidelityAndQuestionsAreThoseOfOneDevice) {
  const Method snapkv = LoadShipped("snapkv"), h2o = LoadShipped("h2o");
  EngineSample sample = Sample(100, 8, 4);
  sample.context = sample.turns[0].ids;
  sample.turns[0].ids = RandomIds(7, 1);
  sample.turns.push_back({.ids = RandomIds(5, 2), .max_new_tokens = 3});
  EngineOptions options;
  options.compress_at = CompressAt::kContext;
  options.fidelity_steps = 4;
  const auto run = [&](int devices) {
    const TinyModel tiny = MakeTinyModelOn(OnFirst(devices), "gqa");
    return RunContenders({{&snapkv, HalfBudget(snapkv), tiny.model.get()},
                          {&h2o, HalfBudget(h2o), tiny.model.get()}},
                         {sample}, options);
  };
  const Outcomes want = run(1), got = run(2);
  for (const auto& [at, outcome] : got) {
    ExpectSame(outcome, want.at(at));
    ASSERT_TRUE(outcome.cell.fidelity && want.at(at).cell.fidelity);
    const Fidelity &a = *outcome.cell.fidelity, &b = *want.at(at).cell.fidelity;
    EXPECT_GT(a.steps, 0);
    EXPECT_EQ(a.steps, b.steps);
    EXPECT_EQ(a.kl_divergence, b.kl_divergence);
    EXPECT_EQ(a.attention_error, b.attention_error);
  }
}

// Weights, pages and captures lie with their layers: the device with more room has more of them.
TEST_F(DeviceLayers, WhatALayerHasLiesOnItsDevice) {
  const int64_t before[2] = {cuda::emulated::AllocatedBytes(0), cuda::emulated::AllocatedBytes(1)};
  const std::unique_ptr<Ops> measured = OnFirst(2);
  const int64_t weights = [&] {
    const TinyModel one = MakeTinyModelOn(OnFirst(1), "gqa", {}, 4);
    return one.model->weight_bytes();
  }();
  cuda::emulated::SetCapacity(cuda::emulated::AllocatedBytes(0) + weights, 0);
  const TinyModel tiny = MakeTinyModelOn(OnFirst(2), "gqa", {}, 4);
  cuda::emulated::SetCapacity(kWholeDevice, 0);
  const std::vector<LayerShare>& shares = tiny.model->shares();
  EXPECT_EQ(shares[0].end, 1);  // whatever it has is little
  EXPECT_EQ(shares[1].first, 1);
  EXPECT_EQ(shares[1].end, 4);
  EXPECT_EQ(shares[0].weight_bytes + shares[1].weight_bytes, tiny.model->weight_bytes());
  for (const int device : {0, 1}) {
    const int64_t held = cuda::emulated::AllocatedBytes(device) - before[device];
    EXPECT_GE(held, shares[static_cast<size_t>(device)].weight_bytes) << device;
  }
  KvCache cache = tiny.model->NewCache(512);
  ASSERT_TRUE(cache.Append(512).ok());
  CachePools& pools = tiny.model->pools();
  const int64_t first = pools.on(0).of(Tier::kDevice).used_bytes(),
                second = pools.on(1).of(Tier::kDevice).used_bytes();
  EXPECT_GT(first, 0);
  EXPECT_EQ(second, 3 * first);
  EXPECT_EQ(first + second, cache.Bytes().resident());
}

// Rows of pictures lie on the first device, which needs them once.
TEST_F(DeviceLayers, RowsOfPicturesCountOnce) {
  const TinyModel tiny = MakeTinyModelOn(OnFirst(2), "gqa");
  const Method full = LoadShipped("full");
  const Engine engine({{&full, {}, tiny.model.get()}}, {});
  EngineSample sample = Sample(60, 4);
  const Result<MemoryPlan> without = engine.PlanMemory({&sample, 1});
  ASSERT_TRUE(without.ok()) << without.error().message;
  const int64_t width = tiny.model->config().hidden_size, before = cuda::emulated::AllocatedBytes();
  sample.visuals = VisualsOf(RandomValues(16 * width, 3), width, *tiny.model->ops().memory);
  const int64_t rows = cuda::emulated::AllocatedBytes() - before;
  EXPECT_EQ(rows, 16 * width * 4);
  const Result<MemoryPlan> with = engine.PlanMemory({&sample, 1});
  ASSERT_TRUE(with.ok()) << with.error().message;
  EXPECT_EQ(with->device_limits[0], without->device_limits[0] - rows);
}

// What earlier layers of a tower saw is added behind text layers on several devices: Qwen3-VL's
// form, with two such layers of three.
TEST_F(DeviceLayers, RowsForLaterLayersGoWhereTheseLie) {
  constexpr int64_t kRows = 16;
  Json eyes = *ReadJsonFile(StrCat(KVG_SOURCE_DIR, "/tests/golden/vision/qwen3_vl/config.json"));
  eyes["text_config"]["num_hidden_layers"] = 3;
  const ScratchDirectory scratch;
  std::ofstream(scratch.File("config.json")) << eyes.dump();
  std::vector<Method> methods;
  for (const char* id : {"full", "snapkv", "h2o", "quest", "look_m"}) {
    methods.push_back(LoadShipped(id));
  }
  const auto run = [&](int devices, uint64_t seed_of_last) {
    const std::unique_ptr<Ops> ops = OnFirst(devices);
    ModelOptions options;
    options.random_seed = 5;
    const auto model = Model::Load(scratch.path(), options, *ops);
    EXPECT_TRUE(model.ok()) << model.error().message;
    EXPECT_EQ((*model)->shares().size(), static_cast<size_t>(devices));
    const ModelConfig& config = (*model)->config();
    const int64_t width = config.hidden_size;
    auto visuals = std::make_shared<SampleVisuals>();
    visuals->hidden_size = width;
    const auto values = [&](uint64_t seed) { return RandomValues(kRows * width, seed); };
    const std::vector<std::vector<float>> deepstack = {values(4), values(seed_of_last)};
    visuals->Append(std::make_shared<const VisualRows>(*ops->memory, values(3), width, deepstack),
                    0, kRows);
    EngineSample sample;
    sample.id = "shown";
    sample.visuals = visuals;
    sample.turns = {{.ids = RandomIds(70, 8, config.vocab_size),
                     .spans = {{.first = 8, .count = kRows, .grid = {1, 4, 4}}},
                     .max_new_tokens = 6}};
    std::vector<Contender> contenders;
    for (const Method& method : methods) {
      contenders.push_back({&method, HalfBudget(method), model->get()});
    }
    return RunContenders(contenders, {sample});
  };
  const Outcomes want = run(1, 5);
  EXPECT_NE(run(1, 6).at({0, 0}).digest, want.at({0, 0}).digest) << "the last rows change nothing";
  for (const int devices : {2, 3}) {
    const Outcomes got = run(devices, 5);
    ASSERT_EQ(got.size(), methods.size());
    for (const auto& [at, outcome] : got) {
      SCOPED_TRACE(methods[static_cast<size_t>(at.second)].id);
      ExpectSame(outcome, want.at(at));
    }
  }
}

TEST_F(DeviceLayers, ADeviceThatIsTooSmallIsSaidBeforeTheRun) {
  const std::unique_ptr<Ops> ops = OnFirst(2);
  for (const int device : {0, 1}) {
    cuda::emulated::SetCapacity(cuda::emulated::AllocatedBytes(device) + 20'000, device);
    const auto model = LoadTinyModel(*ops, "gqa");
    cuda::emulated::SetCapacity(kWholeDevice, device);
    ASSERT_FALSE(model.ok()) << device;
    EXPECT_EQ(model.error().code, ErrorCode::kResource);
    EXPECT_THAT(model.error().message,
                HasSubstr("the weights fit on these devices in no division"));
  }
  // Weights fit, and no prompt does.
  const TinyModel tiny = MakeTinyModelOn(OnFirst(2), "gqa");
  const Method full = LoadShipped("full");
  const std::vector<EngineSample> samples = {Sample(2000, 8)};
  const Engine engine({{&full, {}, tiny.model.get()}}, {});
  const Result<MemoryPlan> roomy = engine.PlanMemory(samples);
  ASSERT_TRUE(roomy.ok()) << roomy.error().message;
  EXPECT_EQ(roomy->device_limits.size(), 2u);
  cuda::emulated::SetCapacity(cuda::emulated::AllocatedBytes(1) + 100'000, 1);
  const Result<MemoryPlan> plan = engine.PlanMemory(samples);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, ErrorCode::kResource);
  EXPECT_THAT(plan.error().message, HasSubstr("device 2 of 2, which has layers 1 to 1, needs"));
}

// A plan decides the division, and a load may come when other memory is free.
TEST_F(DeviceLayers, ALoadFollowsThePlansDivision) {
  const std::unique_ptr<Ops> ops = OnFirst(2);
  const auto load = [&](std::vector<LayerShare> planned) {
    ModelOptions options;
    options.shares = std::move(planned);
    auto model = LoadTinyModel(*ops, "gqa", options, 6);
    EXPECT_TRUE(model.ok()) << model.error().message;
    return std::vector<int64_t>{(*model)->shares()[0].end, (*model)->shares()[1].end};
  };
  EXPECT_EQ(load({}), (std::vector<int64_t>{3, 6}));
  // As if the first device had been fuller when the plan was made.
  EXPECT_EQ(load({{.first = 0, .end = 2}, {.first = 2, .end = 6}}), (std::vector<int64_t>{2, 6}));
  // The second device has room for one or two layers now.
  cuda::emulated::SetCapacity(cuda::emulated::AllocatedBytes(1) + 600'000, 1);
  const std::vector<int64_t> divided = load({});
  EXPECT_NE(divided[0], 1);
  EXPECT_EQ(load({{.first = 0, .end = 1}, {.first = 1, .end = 6}}), divided);
}

// A device that has no more memory in the middle: that is the result of the cells that lack it, and
// the others' answers are what they are.
void ExpectAnyAllocationOfTheSecondDeviceMayFail(const std::vector<const Method*>& methods,
                                                 const EngineSample& sample) {
  const std::vector<EngineSample> samples = {sample};
  constexpr int64_t kRefused = 4;
  const auto run = [&](int64_t granted) {
    const TinyModel tiny = MakeTinyModelOn(OnFirst(2), "gqa");  // with scratch of its own
    std::vector<Contender> contenders;
    for (const Method* method : methods) {
      contenders.push_back({method, HalfBudget(*method), tiny.model.get()});
    }
    if (granted >= 0) cuda::emulated::RefuseAllocations(granted, kRefused, 1);
    return RunContenders(contenders, samples);
  };
  const Outcomes roomy = run(-1);
  int failed = 0;
  for (int64_t granted = 0;; granted += 1 + granted / 2) {
    const Outcomes outcomes = run(granted);
    const bool over = cuda::emulated::RefusalsLeft(1) == kRefused;  // the run was done before
    cuda::emulated::RefuseAllocations(0, 0, 1);
    ASSERT_EQ(outcomes.size(), roomy.size()) << granted;
    for (const auto& [at, outcome] : outcomes) {
      if (outcome.cell.status.ok()) {
        ExpectSame(outcome, roomy.at(at));
        continue;
      }
      ++failed;
      EXPECT_EQ(outcome.cell.status.error().code, ErrorCode::kResource)
          << outcome.cell.status.error().message;
    }
    if (over) break;
  }
  EXPECT_GT(failed, 5);
}

TEST_F(DeviceLayers, AnyAllocationOfTheSecondDeviceMayFail) {
  const Method h2o = LoadShipped("h2o"), kivi = LoadShipped("kivi_2bit"),
               quest = LoadShipped("quest");
  ExpectAnyAllocationOfTheSecondDeviceMayFail({&h2o, &kivi, &quest}, Sample(96, 8, 4));
}

// The first device's readers have then chosen in the step that is begun again.
TEST_F(DeviceLayers, AnyAllocationOfTheSecondDeviceMayFailWhereReadersHoldChoices) {
  const Method loopserve =
                   LoadShipped("full", {"read.id=loopserve", "read.tokens=16", "read.steps=1"}),
               recycled = LoadShipped("recycled_attention", {"read.tokens=16", "read.stride=2"}),
               a2ats = LoadShipped("a2ats", {"read.share=0.1"});
  ExpectAnyAllocationOfTheSecondDeviceMayFail({&loopserve, &recycled, &a2ats}, Sample(90, 8, 8));
}

TEST_F(DeviceLayers, WhatCannotBeDividedIsRefused) {
  const std::unique_ptr<Ops> ops = OnFirst(3);
  const auto few = LoadTinyModel(*ops, "gqa", {}, 2);
  ASSERT_FALSE(few.ok());
  EXPECT_THAT(few.error().message, HasSubstr("3 devices for a model of 2 layers"));
  const auto states = LoadTinyModel(*ops, "hybrid", {}, 2);
  ASSERT_FALSE(states.ok());
  EXPECT_THAT(states.error().message, HasSubstr("cannot have its layers on several devices"));
  // Devices of other kinds.
  cuda::emulated::SetCapability(2, 8, 0);
  std::string why;
  EXPECT_EQ(cuda::MakeDeviceOps(std::array{0, 2}, &why), nullptr);
  EXPECT_THAT(why, HasSubstr("devices 0 and 2 are of different kinds (sm_90 and sm_80)"));
  cuda::emulated::SetCapability(2, 9, 0);
}

class DeviceLayersMethods : public ::testing::TestWithParam<std::string> {
 protected:
  ~DeviceLayersMethods() override { cuda::emulated::SetDevices(1); }
};

// A method whose stages look at one layer at a time has the bits of one device; any other is
// refused before a prompt is read.
TEST_P(DeviceLayersMethods, HaveTheBitsOfOneDeviceOrAreRefused) {
  const Method method = LoadShipped(GetParam());
  const Budget budget = HalfBudget(method);
  const char* kind = nullptr;
  for (const char* candidate : {"gqa", "mha", "mqa", "mla", "cepe"}) {
    if (!CheckMethod(method, TinyShape(candidate), budget, kPromptTokens).ok()) continue;
    kind = candidate;
    break;
  }
  ASSERT_NE(kind, nullptr) << "legal on no model";
  const Pipeline pipeline = MakePipeline(method);
  ModelOptions options;
  options.prepare = pipeline.prepare.get();
  options.mla_latent = KeepsModelLatents(method, TinyShape(kind));
  const std::vector<EngineSample> samples = {Sample(kPromptTokens, 31, 4)};
  const std::unique_ptr<Ops> ops = OnFirst(2);
  const Status divides = CheckLayered(method, 2, TinyShape(kind));
  if (!divides.ok()) {
    EXPECT_THAT(divides.error().message, HasSubstr("not been taken over several devices"));
    const TinyModel plain = MakeTinyModelOn(OnFirst(2), kind);
    const Engine engine({{&method, budget, plain.model.get()}}, {});
    const Result<MemoryPlan> plan = engine.PlanMemory(samples);
    ASSERT_FALSE(plan.ok());
    EXPECT_EQ(plan.error().message, divides.error().message);
    return;
  }
  const Result<std::unique_ptr<Model>> divided = LoadTinyModel(*ops, kind, options);
  if (!divided.ok()) {  // prepared for caches that layers share
    EXPECT_THAT(divided.error().message, HasSubstr("cannot have its layers on several devices"));
    return;
  }
  const TinyModel one = MakeTinyModelOn(OnFirst(1), kind, options);
  const Outcome want = RunContenders({{&method, budget, one.model.get()}}, samples).at({0, 0});
  const Outcome got = RunContenders({{&method, budget, divided->get()}}, samples).at({0, 0});
  ExpectSame(got, want);
  EXPECT_EQ(got.cell.record.merged, want.cell.record.merged);
  EXPECT_EQ(got.cell.record.engagement, want.cell.record.engagement);
  EXPECT_EQ(got.cell.record.fetched_bytes_per_step, want.cell.record.fetched_bytes_per_step);
}

INSTANTIATE_TEST_SUITE_P(Methods, DeviceLayersMethods, ::testing::ValuesIn(AllMethods()),
                         [](const auto& method) { return method.param; });

}  // namespace
}  // namespace kvgauge
