// SPDX-License-Identifier: Apache-2.0
// Finished rows of pictures on a device: who shares them, how long they stay, what they count as,
// and that runs have the bits that they have with rows on the host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "core/sha256.h"
#include "core/strings.h"
#include "cuda/emulated/device_memory.h"
#include "harness/cli.h"
#include "images/encode.h"
#include "kernels/devices.h"
#include "reports/store.h"
#include "runner/config.h"
#include "src/model/visual_input.h"
#include "src/run/picture_features.h"
#include "src/run/sample_visuals.h"
#include "support/compare.h"
#include "support/in_pairs.h"
#include "support/scratch_directory.h"
#include "support/test_ops.h"
#include "support/tiny_eyes.h"
#include "support/tiny_models.h"
#include "support/visual_rows.h"

namespace kvgauge {
namespace {

using cuda::emulated::AllocatedBytes;
using cuda::emulated::Traffic;
using cuda::emulated::TrafficSoFar;

// A picture of one colour; `shade` tells pictures apart.
Picture Shade(int shade) {
  Image image = Image::OfSize(64, 64);
  std::ranges::fill(image.rgb, static_cast<uint8_t>(20 * shade));
  const std::string bytes = *EncodePng(image);
  return {.name = StrCat("shade ", shade), .hash = Sha256Hex(bytes), .load = [=] {
            return Result<std::string>(bytes);
          }};
}

class DevicePictures : public ::testing::Test {
 protected:
  void SetUp() override {
    WriteTinyEyes(eyes_);
    ops_ = MakeTestDevice();
    tower_ = LoadOn(*ops_);
    preprocessor_ = *ReadPicturePreprocessor(eyes_);
    // Working memory grows to what it is going to be.
    PictureFeatures warm(preprocessor_, 0);
    const Picture any = Shade(11), other = Shade(12);
    ASSERT_TRUE(warm.Get({{{&any, 1}, {&other, 1}}}, *tower_)[0].ok());
  }
  void TearDown() override { cuda::emulated::SetCapacity(int64_t{4} << 30); }
  std::unique_ptr<VisionTower> LoadOn(Ops& ops) const {
    return *VisionTower::Load(eyes_, {.dtype = DType::kF32, .random_seed = 5}, ops);
  }
  int64_t BytesOfRows(int64_t pictures) const {
    return VisualRowBytes(tower_->spec(), pictures * kRows);
  }

  static constexpr int64_t kRows = 16;  // of a picture
  const ScratchDirectory scratch_;
  const std::string eyes_ = scratch_.File("eyes");
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<VisionTower> tower_;
  Preprocessor preprocessor_;
};

// Neither the tower nor those who show a picture again bring anything to the host, and each picture
// has its rows once, however many samples show it.
TEST_F(DevicePictures, SamplesShareRowsThatStayThere) {
  const Picture red = Shade(1), blue = Shade(2);
  PictureFeatures features(preprocessor_, int64_t{1} << 30);
  const int64_t before = AllocatedBytes();
  const Traffic start = TrafficSoFar();
  const std::vector<FeatureResult> got = features.Get({{{&red, 1}, {&blue, 1}}}, *tower_);
  ASSERT_TRUE(got[0].ok() && got[1].ok());
  EXPECT_EQ((TrafficSoFar() - start).downloads, 0);
  EXPECT_EQ(AllocatedBytes() - before, BytesOfRows(2));

  const Traffic seen = TrafficSoFar();
  std::vector<std::shared_ptr<const SampleVisuals>> samples;
  for (const bool both : {true, false, true}) {
    std::vector<PictureRequest> requests = {{&red, 1}};
    if (both) requests.push_back({&blue, 1});
    std::vector<std::shared_ptr<const PictureFeature>> own;
    for (FeatureResult& feature : features.Get(requests, *tower_)) own.push_back(*feature);
    samples.push_back(
        JoinRows(*FeaturesLeft(nullptr, {}, own, *tower_), tower_->spec().hidden_size));
  }
  const Traffic shared = TrafficSoFar() - seen;
  EXPECT_EQ(shared.uploads + shared.downloads + shared.allocations, 0);
  EXPECT_EQ(samples[2]->count(), 2 * kRows);
  HeldRows held;
  for (const auto& sample : samples) held.Add(sample.get());
  EXPECT_EQ(held.bytes(), BytesOfRows(2));
  EXPECT_EQ(features.BytesBeside(held), 0);
  HeldRows first;
  first.Add(samples[1].get());
  EXPECT_EQ(features.BytesBeside(first), BytesOfRows(1));
}

// As long as a sample shows them or they are kept, and no longer.
TEST_F(DevicePictures, RowsThatAreGivenUpLeaveTheDevice) {
  const int64_t before = AllocatedBytes();
  {
    int64_t one = 0;
    PictureFeatures measure(preprocessor_, int64_t{1} << 30);
    const Picture first = Shade(1);
    one = (*measure.Get({{{&first, 1}}}, *tower_)[0])->bytes() + 100;
    PictureFeatures features(preprocessor_, 2 * one);
    std::shared_ptr<const PictureFeature> shown;
    for (int shade = 1; shade <= 5; ++shade) {
      const Picture picture = Shade(shade);
      const FeatureResult got = features.Get({{{&picture, 1}}}, *tower_)[0];
      ASSERT_TRUE(got.ok());
      if (shade == 1) shown = *got;
    }
    // What `measure` keeps, two of five, and the first.
    EXPECT_EQ(AllocatedBytes() - before, BytesOfRows(4));
    shown = nullptr;
    EXPECT_EQ(AllocatedBytes() - before, BytesOfRows(3));
  }
  EXPECT_EQ(AllocatedBytes(), before);
}

// Bytes of the device: what the plan expects of a batch and what was not expected before, a tower's
// weights alone. When pictures are shown they are free again.
TEST_F(DevicePictures, WorkingMemoryOfTheTowerIsPlannedAndGivenBack) {
  const int64_t before = AllocatedBytes();
  EXPECT_GT(tower_->scratch_bytes(), 0);
  tower_->DropScratch();
  const int64_t freed = before - AllocatedBytes();
  const int64_t of_picture = 17;  // with the class token
  const int64_t planned = VisionScratchBytes(tower_->spec(), DType::kF32, 2 * of_picture, false);
  EXPECT_GT(freed, 0);
  EXPECT_LE(freed, planned);
  EXPECT_GE(5 * freed, 4 * planned);
  PictureFeatures again(preprocessor_, 0);
  const Picture any = Shade(11), other = Shade(12);
  ASSERT_TRUE(again.Get({{{&any, 1}, {&other, 1}}}, *tower_)[0].ok());
  EXPECT_EQ(AllocatedBytes(), before);
}

// A device holds no more than a share of what it has free, a host what it always did.
TEST_F(DevicePictures, BoundsAreSharesOfTheDevice) {
  const std::unique_ptr<Ops> host = MakeHostOps("cpu", 1);
  EXPECT_EQ(KeptFeatureBytes(0, *host), int64_t{1} << 28);
  EXPECT_EQ(WindowVisualBytes(0, *host), int64_t{1} << 29);
  EXPECT_EQ(WindowVisualBytes(int64_t{1} << 20, *host), int64_t{1} << 29);
  EXPECT_EQ(KeptFeatureBytes(int64_t{1} << 20, *host), int64_t{1} << 17);
  EXPECT_EQ(KeptFeatureBytes(0, *ops_), int64_t{1} << 28);
  EXPECT_EQ(WindowVisualBytes(int64_t{1} << 20, *ops_), int64_t{1} << 17);
  constexpr int64_t kRoom = int64_t{16} << 20;
  cuda::emulated::SetCapacity(AllocatedBytes() + kRoom);
  EXPECT_EQ(KeptFeatureBytes(0, *ops_), kRoom / 8);
  EXPECT_EQ(WindowVisualBytes(0, *ops_), kRoom / 8);
  cuda::emulated::SetCapacity(AllocatedBytes());
  EXPECT_EQ(WindowVisualBytes(0, *ops_), 1) << "no sample would ever be read";
  cuda::emulated::SetCapacity(int64_t{4} << 30);
}

// Frames that are joined are compared on the host, each fetched once; what becomes of them lies on
// the device again, with the bits of the host's.
TEST_F(DevicePictures, JoinedFramesGoBack) {
  const InPairs pairs;
  const auto left_on = [&](VisionTower& tower, MemoryOps& memory) {
    PictureFeatures features(preprocessor_, int64_t{1} << 30);
    std::vector<Picture> frames;
    for (int i = 0; i < 4; ++i) frames.push_back(Shade(1 + i));
    std::vector<PictureRequest> requests;
    for (int i = 0; i < 4; ++i) {
      frames[static_cast<size_t>(i)].frame = i;
      requests.push_back({&frames[static_cast<size_t>(i)], 4});
    }
    std::vector<std::shared_ptr<const PictureFeature>> own;
    for (FeatureResult& feature : features.Get(requests, tower)) own.push_back(*feature);
    const Traffic before = TrafficSoFar();
    const auto left = *FeaturesLeft(&pairs, frames, own, tower);
    EXPECT_EQ((TrafficSoFar() - before).downloads, &memory == ops_->memory.get() ? 4 : 0);
    std::vector<std::vector<float>> numbers;
    std::vector<std::vector<float>> whole;
    for (size_t i = 0; i < left.size(); ++i) {
      EXPECT_EQ(left[i]->gone, i % 2 == 1);
      if (left[i]->gone) continue;
      EXPECT_EQ(left[i]->rows.on_host(), &memory != ops_->memory.get());
      numbers.push_back(NumbersOf(left[i]->rows, 0, memory));
      const std::vector<float> a = NumbersOf(own[i]->features.rows, 0, memory),
                               b = NumbersOf(own[i + 1]->features.rows, 0, memory);
      std::vector<float> mean;
      for (size_t n = 0; n < a.size(); ++n) {
        mean.push_back(static_cast<float>((double{a[n]} + double{b[n]}) / 2));
      }
      EXPECT_EQ(numbers.back(), mean) << i;
    }
    return numbers.size();
  };
  EXPECT_EQ(left_on(*tower_, *ops_->memory), 2u);
  const std::unique_ptr<Ops> host = MakeHostOps("cpu", 1);
  const std::unique_ptr<VisionTower> other = LoadOn(*host);
  EXPECT_EQ(left_on(*other, *host->memory), 2u);
}

// What is kept makes room for what is shown. Rows that find none are an error of their pictures,
// and the tower sees others later.
TEST_F(DevicePictures, ADeviceWithoutRoomFailsItsPictures) {
  const Picture red = Shade(1), blue = Shade(2), grey = Shade(3);
  PictureFeatures features(preprocessor_, int64_t{1} << 30);
  const auto sees = [&](const Picture& picture) {
    return features.Get({{{&picture, 1}}}, *tower_)[0];
  };
  const int64_t before = AllocatedBytes();
  ASSERT_TRUE(sees(grey).ok());
  cuda::emulated::RefuseAllocations(0, 1);
  EXPECT_TRUE(sees(blue).ok());
  EXPECT_EQ(AllocatedBytes() - before, BytesOfRows(1)) << "in the place of the other";
  cuda::emulated::RefuseAllocations(0, 1000);
  const FeatureResult failed = sees(red);
  cuda::emulated::RefuseAllocations(0, 0);
  ASSERT_FALSE(failed.ok());
  EXPECT_THAT(failed.error().message, ::testing::HasSubstr("out of device memory"));
  EXPECT_EQ(AllocatedBytes(), before);
  EXPECT_TRUE(sees(red).ok());
}

// The plan counts the bytes that the device has allocated for rows, once for all samples that show
// them; what is held already is not needed from what is free.
TEST_F(DevicePictures, ThePlanCountsTheBytesThatAreAllocated) {
  const TinyModel tiny = MakeTinyModel("gqa");
  const int64_t width = tiny.model->config().hidden_size;
  const auto method = LoadMethod("full", KVG_SOURCE_DIR "/configs/methods", {});
  ASSERT_TRUE(method.ok());
  const Engine engine({{.method = &*method, .budget = {}, .model = tiny.model.get()}}, {});
  const auto sample_of = [](uint64_t seed) {
    EngineSample sample;
    sample.id = StrCat("s", seed);
    sample.turns = {{.ids = RandomIds(60, seed), .max_new_tokens = 4}};
    return sample;
  };
  std::vector<EngineSample> samples = {sample_of(1), sample_of(2)};
  const Result<MemoryPlan> without = engine.PlanMemory(samples);
  ASSERT_TRUE(without.ok()) << without.error().message;

  const int64_t before = AllocatedBytes();
  const auto visuals = VisualsOf(RandomValues(kRows * width, 3), width, *tiny.model->ops().memory);
  const int64_t allocated = AllocatedBytes() - before;
  EXPECT_EQ(allocated, kRows * width * 4);
  for (EngineSample& sample : samples) {
    sample.visuals = visuals;
    sample.turns[0].spans = {{.first = 8, .count = kRows, .grid = {1, 4, 4}}};
  }
  const Result<MemoryPlan> with = engine.PlanMemory(samples);
  ASSERT_TRUE(with.ok()) << with.error().message;
  EXPECT_EQ(with->working_bytes - without->working_bytes, allocated);
  const Result<MemoryPlan> one = engine.PlanMemory({samples.data(), 1});
  ASSERT_TRUE(one.ok());
  EXPECT_EQ(one->working_bytes, with->working_bytes);
  // Caches have that much less.
  EXPECT_EQ(with->cache_limit_bytes, without->cache_limit_bytes - allocated);
}

// Runs as they are given, on the device and on the cpu.
class DevicePictureRuns : public ::testing::Test {
 protected:
  void SetUp() override {
    WriteTinyEyes(scratch_.File("eyes"));
    std::ofstream(scratch_.File("mine.json"))
        << StrCat(R"({"models": [{"path": ")", scratch_.File("eyes/config.json"), R"(",
      "name": "eyes", "weights": "random:5"}],
      "tasks": [{"task": "visual/needle", "samples": 3,
                 "source": {"pictures": "3", "samples": 1}, "max_new_tokens": 3}],
      "budgets": ["60%"], "fidelity_steps": 2,
      "methods": ["snapkv", {"method": "fastv", "overrides": {"thin.layer": 1}}, "uniform_visual",
                  "random_see", {"method": "visionzip", "overrides": {"see.dominant": 6, "see.contextual": 3}}]})");
  }
  std::unique_ptr<ResultStore> RunOn(const std::string& backend, const std::string& database,
                                     std::vector<std::string> more = {}) {
    std::vector<std::string> words = {"kvgauge",
                                      "run",
                                      scratch_.File("mine.json"),
                                      "--db",
                                      scratch_.File(database),
                                      "--backend",
                                      backend,
                                      "--quiet",
                                      "--threads",
                                      "1"};
    words.insert(words.end(), more.begin(), more.end());
    std::vector<const char*> argv;
    for (const std::string& word : words) argv.push_back(word.c_str());
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const int code = RunCommandLine(static_cast<int>(argv.size()), argv.data(), {"test", ""});
    ::testing::internal::GetCapturedStdout();
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(code, 0) << said;
    return *ResultStore::Open(scratch_.File(database), StoreMode::kReadOnly);
  }
  // What each cell answered, and what it kept.
  static std::vector<std::string> AnswersOf(ResultStore& store) {
    std::vector<std::string> answers;
    const std::vector<StoredCell> cells = *store.Cells();
    for (const StoredCell& cell : cells) {
      const std::vector<ScoreRow> scores = *store.Scores(cell.id);
      for (const ScoreRow& score : scores) {
        const SampleRow row = **store.Read(cell.id, score.sample_id);
        EXPECT_EQ(row.status, SampleStatus::kOk) << row.reason;
        std::string text = StrCat(cell.cell.method.name, " ", score.sample_id, ": ",
                                  row.visual_tokens, " ", row.patches);
        for (const AnswerRow& answer : row.answers) text += StrCat(" ", Quoted(answer.prediction));
        answers.push_back(text);
      }
    }
    return answers;
  }

  const ScratchDirectory scratch_;
};

TEST_F(DevicePictureRuns, AnswersAndPatchesAreThoseOfTheCpu) {
  const int64_t before = AllocatedBytes();
  const auto there = RunOn("cuda", "cuda.db"), here = RunOn("cpu", "cpu.db");
  const std::vector<std::string> answers = AnswersOf(*there);
  EXPECT_EQ(answers.size(), 6u * 3);
  EXPECT_EQ(answers, AnswersOf(*here));
  EXPECT_EQ(AllocatedBytes(), before) << "nothing stays when a run has ended";
}

// A tower with a wide MLP: the plan of a run grows by more than its weights do.
TEST_F(DevicePictureRuns, ThePlanCountsWorkingMemoryOfTheTower) {
  const auto planned = [&](int64_t width) {
    Json eyes = *ParseJson(kTinyEyes, "eyes");
    eyes["vision_config"]["intermediate_size"] = width;
    std::ofstream(scratch_.File("eyes/config.json")) << eyes.dump();
    const std::string run = scratch_.File("mine.json"), database = scratch_.File("plan.db");
    const char* const argv[] = {"kvgauge", "plan", run.c_str(), "--db", database.c_str(), "--json"};
    ::testing::internal::CaptureStdout();
    EXPECT_EQ(RunCommandLine(6, argv, {"test", ""}), 0);
    const Json plan = *ParseJson(::testing::internal::GetCapturedStdout(), "plan");
    return plan["groups"][0]["memory_bytes"].get<int64_t>();
  };
  constexpr int64_t kWide = 48'000, kBlocks = 3, kWidth = 32;
  EXPECT_GT(planned(kWide) - planned(48), kBlocks * 2 * kWidth * (kWide - 48) * 4 + (8 << 20));
}

// The tower and what it makes lie with the first layer.
TEST_F(DevicePictureRuns, LayersOnTwoDevicesHaveTheBitsOfOne) {
  const std::vector<std::string> only = {"--only", "snapkv"};
  const std::string one = *RunOn("cuda", "one.db", only)->ResultDigest();
  cuda::emulated::SetDevices(2);
  const int64_t launches = cuda::emulated::LaunchesOf(1);
  const std::string two = *RunOn("cuda:0+1", "two.db", only)->ResultDigest();
  EXPECT_GT(cuda::emulated::LaunchesOf(1), launches);
  cuda::emulated::SetDevices(1);
  EXPECT_EQ(two, one);
}

// A tower that takes most of the first device leaves it few layers, wherever these are divided.
TEST_F(DevicePictureRuns, TheDivisionLeavesRoomForTheTower) {
  constexpr int64_t kLayers = 4, kDevice = int64_t{32} << 20;
  Json eyes = *ParseJson(kTinyEyes, "eyes");
  eyes["text_config"]["num_hidden_layers"] = kLayers;
  eyes["vision_config"]["intermediate_size"] = 40'000;
  const std::string model = scratch_.File("eyes/config.json");
  std::ofstream(model) << eyes.dump();
  const int64_t tower = VisionWeightBytes(**ReadVisionConfig(model), DType::kF32);
  ASSERT_GT(tower, kDevice / 2);
  cuda::emulated::SetDevices(2);
  for (const int device : {0, 1}) {
    cuda::emulated::SetCapacity(cuda::emulated::AllocatedBytes(device) + kDevice, device);
  }
  const char* const argv[] = {"kvgauge",  "inspect",   model.c_str(), "--weights",
                              "random:5", "--backend", "cuda:0+1",    "--json"};
  ::testing::internal::CaptureStdout();
  const int code = RunCommandLine(std::size(argv), argv, {"test", ""});
  const std::string out = ::testing::internal::GetCapturedStdout();
  {
    const std::unique_ptr<Ops> ops = *MakeLayeredOps("cuda:0+1", {});
    ModelOptions options;
    options.random_seed = 5;
    const auto loaded = Model::Load(model, options, *ops);
    EXPECT_TRUE(loaded.ok()) << loaded.error().message;
    EXPECT_EQ((*loaded)->shares()[0].end, 1);
    EXPECT_EQ((*loaded)->shares()[0].tower_bytes, tower);
  }
  for (const int device : {0, 1}) cuda::emulated::SetCapacity(int64_t{4} << 30, device);
  cuda::emulated::SetDevices(1);
  ASSERT_EQ(code, 0);
  const Json devices = ParseJson(out, "out")->at("devices");
  EXPECT_EQ(devices[0]["end_layer"], 1);
  EXPECT_EQ(devices[0]["tower_bytes"], tower);
  EXPECT_EQ(devices[1]["tower_bytes"], 0);
  // What is left of the first device is its one layer's.
  const int64_t of_token = devices[1]["full_cache_tokens"].get<int64_t>();
  EXPECT_GT(devices[0]["full_cache_tokens"], 0);
  EXPECT_LT(devices[0]["full_cache_tokens"].get<int64_t>(), 2 * of_token);
}

// In one go, or stopped behind the first sample and behind the first methods.
TEST_F(DevicePictureRuns, ARunThatGoesOnHasTheSameBits) {
  const std::string whole = *RunOn("cuda", "whole.db")->ResultDigest();
  RunOn("cuda", "parts.db", {"--only", "snapkv", "--limit", "2"});
  RunOn("cuda", "parts.db", {"--limit", "1"});
  EXPECT_EQ(*RunOn("cuda", "parts.db")->ResultDigest(), whole);
}

}  // namespace
}  // namespace kvgauge
