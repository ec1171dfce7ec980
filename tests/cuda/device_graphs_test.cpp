// SPDX-License-Identifier: Apache-2.0
// Decode steps as graphs: the same bits as kernel by kernel.
#include <gtest/gtest.h>

#include <cstdlib>

#include "conformance/visual_scene.h"
#include "core/strings.h"
#include "cuda/device/graph_recorder.h"
#include "cuda/half_bases.h"

namespace kvgauge {
namespace {

class DeviceGraphs : public ::testing::Test {
 protected:
  void SetUp() override { unsetenv("KVGAUGE_CUDA_GRAPHS"); }
  void TearDown() override { unsetenv("KVGAUGE_CUDA_GRAPHS"); }

  // With graphs and without, on models of their own; how steps went with them.
  static RepeatedWork::Counts ExpectSameBits(const std::string& kind,
                                             const std::vector<std::string>& ids,
                                             const std::vector<EngineSample>& samples,
                                             const Prepare* prepare = nullptr,
                                             const std::vector<std::string>& settings = {},
                                             bool places = true) {
    RepeatedWork::Counts counts;
    Outcomes with, without;
    ModelOptions options;
    options.prepare = prepare;
    for (const bool graphs : {true, false}) {
      graphs ? unsetenv("KVGAUGE_CUDA_GRAPHS") : setenv("KVGAUGE_CUDA_GRAPHS", "off", 1);
      const TinyModel tiny = MakeTinyModel(kind, 1, options);
      std::vector<Method> methods;
      methods.reserve(ids.size());
      std::vector<Contender> contenders;
      for (const std::string& id : ids) {
        methods.push_back(LoadShipped(id, settings));
        if (!places) methods.back().place = {};
        contenders.push_back({&methods.back(), HalfBudget(methods.back()), tiny.model.get()});
      }
      (graphs ? with : without) = RunContenders(contenders, samples);
      const RepeatedWork::Counts used = tiny.model->decode_counts();
      if (graphs) counts = used;
      EXPECT_TRUE(graphs || used.recorded + used.replayed == 0);
    }
    EXPECT_EQ(with.size(), ids.size() * samples.size());
    for (const auto& [at, outcome] : with) ExpectSame(outcome, without.at(at));
    return counts;
  }
};

// The first steps of a run take memory; then one is recorded, also over the end of a page.
TEST_F(DeviceGraphs, StepsOfOneSequenceAreReplayed) {
  const RepeatedWork::Counts counts = ExpectSameBits("gqa", {"full"}, {Sample(55, 8, 16)});
  if (!cuda::kComparesMembers) return;
  EXPECT_GE(counts.replayed, 10);
  EXPECT_EQ(counts.recorded, 1);
}

// A sequence that leaves changes the size of the batch; samples follow each other.
TEST_F(DeviceGraphs, CompanyComesAndGoes) {
  std::vector<EngineSample> samples = {Sample(60, 8, 12), Sample(30, 9, 8), Sample(90, 10, 12)};
  const RepeatedWork::Counts counts =
      ExpectSameBits("mqa", {"full", "snapkv", "kivi_2bit"}, samples);
  EXPECT_GT(counts.recorded, 1);
  EXPECT_TRUE(!cuda::kComparesMembers || counts.replayed > counts.recorded);
}

// Pages fill and begin; an index has room for more of them, and words for more entries.
TEST_F(DeviceGraphs, StepsOfReadersOfPagesAreReplayed) {
  const auto check = [](const char* kind, const char* heads, int64_t steps) {
    const RepeatedWork::Counts counts =
        ExpectSameBits(kind, {"quest"}, {Sample(100, 8, steps)}, nullptr, {heads});
    EXPECT_GE(counts.recorded, 1) << kind << heads;
    if (!cuda::kComparesMembers) return;
    EXPECT_LE(counts.recorded, 3) << kind << heads;
    EXPECT_GE(counts.replayed, steps - 8) << kind << heads;
  };
  check("gqa", "read.heads=query", 60);
  check("gqa", "read.heads=kv", 32);
  check("mla", "read.heads=query", 20);
}

// An index that has no more room takes some in the midst of a step, which is then done as it comes.
TEST_F(DeviceGraphs, AnIndexGrowsBetweenReplays) {
  const RepeatedWork::Counts counts =
      ExpectSameBits("gqa", {"quest", "quest"}, {Sample(30, 8, 50), Sample(60, 9, 4)}, nullptr,
                     {"read.page=2", "read.tokens=20"});
  EXPECT_TRUE(!cuda::kComparesMembers || counts.replayed > 25) << counts.replayed;
}

// Readers of all keys, which grow in each step.
TEST_F(DeviceGraphs, StepsOfReadersOfKeysAreReplayed) {
  const auto check = [](const char* kind, const char* id, const std::vector<std::string>& settings,
                        int64_t steps) {
    const RepeatedWork::Counts counts =
        ExpectSameBits(kind, {id}, {Sample(100, 8, steps)}, nullptr, settings);
    EXPECT_GE(counts.recorded, 1) << kind << id;
    if (!cuda::kComparesMembers) return;
    EXPECT_LE(counts.recorded, 3) << kind << id;
    EXPECT_GE(counts.replayed, steps - 8) << kind << id;
  };
  const std::vector<std::string> few = {"read.tokens=32", "read.sinks=4", "read.local=16"};
  const std::vector<std::string> scaled = {"read.tokens=32", "read.sinks=4", "read.local=16",
                                           "read.scaled=true"};
  check("gqa", "tokenselect", few, 40);
  check("mha", "tokenselect", scaled, 40);
  check("mla", "tokenselect", few, 20);
  const std::vector<std::string> ranked = {"read.tokens=32", "read.rank=8", "read.local=8"};
  check("gqa", "sparq", ranked, 40);
  check("mqa", "sparq", ranked, 40);
  check("gqa", "retrieval_attention", few, 40);
  check("gqa", "rocketkv", {"read.tokens=24"}, 40);
}

// Keys that are coded many at a time, one at a time, behind entries of the prompt that stay floats,
// and with what codes leave out beside them.
TEST_F(DeviceGraphs, StepsOfReadersOfCodedKeysAreReplayed) {
  const auto check = [](const char* kind, const char* id, const std::vector<std::string>& store,
                        std::vector<std::string> settings) {
    settings.insert(settings.end(), store.begin(), store.end());
    const RepeatedWork::Counts counts =
        ExpectSameBits(kind, {id}, {Sample(100, 8, 40)}, nullptr, settings);
    EXPECT_GE(counts.recorded, 1) << id << store[0];
    if (!cuda::kComparesMembers) return;
    EXPECT_EQ(counts.plain, 1) << id << store[0];
    EXPECT_LE(counts.recorded, 3) << id << store[0];
    EXPECT_GE(counts.replayed, 35) << id << store[0];
  };
  const std::vector<std::string> kivi = {"store.id=kivi", "store.group=16", "store.residual=32"};
  const std::vector<std::string> affine = {"store.id=affine", "store.key_bits=4",
                                           "store.value_bits=4"};
  std::vector<std::string> behind_some = affine, but_recent = affine;
  behind_some.emplace_back("store.sinks=20");
  but_recent.emplace_back("store.keep_recent=24");
  const std::vector<std::string> few = {"read.tokens=32", "read.sinks=4", "read.local=16"};
  const std::vector<std::string> ranked = {"read.tokens=32", "read.rank=8", "read.local=8"};
  check("gqa", "quest", kivi, {});
  check("gqa", "quest", affine, {});
  check("gqa", "quest", behind_some, {});
  check("gqa", "retrieval_attention", but_recent, few);
  check("mqa", "tokenselect", {"store.id=gear"}, few);
  check("gqa", "sparq", affine, ranked);
}

// Each in the company of others, whose keys are coded at other times.
TEST_F(DeviceGraphs, ReadersOfCodedKeysHaveCompany) {
  const RepeatedWork::Counts counts =
      ExpectSameBits("gqa", {"quest", "full"}, {Sample(120, 8, 30), Sample(70, 9, 20)}, nullptr,
                     {"store.id=kivi", "store.group=16", "store.residual=16"});
  EXPECT_TRUE(!cuda::kComparesMembers || counts.replayed > counts.recorded);
}

// Where a layer's window hides entries, more of them in each step.
TEST_F(DeviceGraphs, StepsOfReadersBehindWindowsAreReplayed) {
  const auto check = [](const char* id, const std::vector<std::string>& settings) {
    const RepeatedWork::Counts counts =
        ExpectSameBits("gemma", {id}, {Sample(140, 8, 40)}, nullptr, settings);
    EXPECT_GE(counts.recorded, 1) << id;
    if (!cuda::kComparesMembers) return;
    EXPECT_EQ(counts.plain, 1) << id;
    EXPECT_LE(counts.recorded, 2) << id;
    EXPECT_GE(counts.replayed, 36) << id;
  };
  check("quest", {});
  check("retrieval_attention", {"read.tokens=32", "read.sinks=4", "read.local=16"});
  check("tokenselect", {"read.tokens=32", "read.sinks=4", "read.local=16", "read.scaled=true"});
  check("sparq", {"read.tokens=32", "read.rank=8", "read.local=8"});
}

// The same where a head has lost entries, so that the window hides others than its first.
TEST_F(DeviceGraphs, StepsOfReadersOfWhatIsLeftBehindWindowsAreReplayed) {
  const RepeatedWork::Counts counts =
      ExpectSameBits("gemma", {"rocketkv"}, {Sample(200, 8, 40)}, nullptr, {"read.tokens=24"});
  EXPECT_GE(counts.recorded, 1);
  if (!cuda::kComparesMembers) return;
  EXPECT_LE(counts.recorded, 3);
  EXPECT_GE(counts.replayed, 34);
}

// A choice is held for some steps: there are steps of two kinds, and of more where the page of some
// heads begins between two choices.
TEST_F(DeviceGraphs, StepsThatHoldAChoiceAreReplayed) {
  for (const char* kind : {"gqa", "mha"}) {
    const RepeatedWork::Counts counts =
        ExpectSameBits(kind, {"lserve"}, {Sample(300, 8, 60)}, nullptr, {"read.tokens=192"});
    EXPECT_GE(counts.recorded, 2) << kind;
    if (!cuda::kComparesMembers) continue;
    EXPECT_LE(counts.recorded, 15) << kind;
    EXPECT_GE(counts.replayed, 40) << kind;
  }
}

// What is chosen from was made of the prompt, or one code or key joins it in each step.
TEST_F(DeviceGraphs, StepsOfReadersOfClustersChunksAndCodesAreReplayed) {
  const auto check = [](const char* kind, const char* id, const std::vector<std::string>& settings,
                        int64_t steps) {
    SCOPED_TRACE(StrCat(kind, " ", id));
    const RepeatedWork::Counts counts =
        ExpectSameBits(kind, {id}, {Sample(100, 8, steps)}, nullptr, settings, false);
    EXPECT_GE(counts.recorded, 1);
    if (!cuda::kComparesMembers) return;
    EXPECT_LE(counts.recorded, 4);
    EXPECT_GE(counts.replayed, steps - 8);
  };
  const std::vector<std::string> clusters = {"read.tokens=40", "read.sinks=4", "read.span=8",
                                             "read.dense_layers=0"};
  const std::vector<std::string> chunks = {"read.tokens=24", "read.outliers=2", "read.local=2"};
  const std::vector<std::string> codes = {"read.tokens=40", "read.sinks=4", "read.bits=3"};
  for (const char* kind : {"gqa", "gemma"}) {
    check(kind, "clusterkv", clusters, 40);
    check(kind, "shadowkv", chunks, 40);
    check(kind, "pqcache", codes, 40);
    check(kind, "loki", {"read.tokens=40", "read.rank=4"}, 40);
    check(kind, "a2ats", {"read.share=0.2"}, 40);
  }
}

// A layer chooses for those behind it.
TEST_F(DeviceGraphs, StepsOfLeadingLayersAreReplayed) {
  for (const char* id : {"tidaldecode", "omnikv"}) {
    const RepeatedWork::Counts counts = ExpectSameBits("gqa", {id}, {Sample(100, 8, 40)}, nullptr,
                                                       {"read.tokens=40", "read.layers=\"0\""});
    EXPECT_GE(counts.recorded, 1) << id;
    if (!cuda::kComparesMembers) continue;
    EXPECT_LE(counts.recorded, 3) << id;
    EXPECT_GE(counts.replayed, 32) << id;
  }
}

// Steps that read everything and choose from it, and those between, which read that and what came
// since.
TEST_F(DeviceGraphs, StepsThatReadWhatAnotherChoseAreReplayed) {
  const auto check = [](const char* kind, const char* id,
                        const std::vector<std::string>& settings) {
    SCOPED_TRACE(StrCat(kind, " ", id));
    const RepeatedWork::Counts counts =
        ExpectSameBits(kind, {id}, {Sample(100, 8, 40)}, nullptr, settings, false);
    EXPECT_GE(counts.recorded, 1);
    if (!cuda::kComparesMembers) return;
    EXPECT_LE(counts.recorded, 8);
    EXPECT_GE(counts.replayed, 25);
  };
  for (const char* kind : {"gqa", "gemma", "hybrid"}) {
    check(kind, "recycled_attention", {"read.tokens=40", "read.stride=4"});
    check(kind, "livevlm", {});
  }
  for (const char* kind : {"gqa", "gemma"}) {
    check(kind, "rekv", {});
    check(kind, "loopserve", {"read.tokens=40", "read.steps=4"});
  }
  // Their prefills go through layers one by one, which such a model's cannot.
  check("hybrid", "full", {"read.id=loopserve", "read.tokens=40", "read.steps=4"});
  check("hybrid", "full",
        {"read.id=rekv", "read.picks=2", "read.question=16", "read.block=16", "read.sinks=4",
         "read.local=16", "store.position=read"});
}

// Sequences of other lengths, which choose at other times and end earlier.
TEST_F(DeviceGraphs, StepsThatReadWhatAnotherChoseHaveCompany) {
  const auto check = [](const char* kind, const char* id,
                        const std::vector<std::string>& settings) {
    SCOPED_TRACE(StrCat(kind, " ", id));
    const RepeatedWork::Counts counts = ExpectSameBits(
        kind, {id, id}, {Sample(120, 8, 30), Sample(70, 9, 20)}, nullptr, settings, false);
    EXPECT_GT(counts.recorded, 0);
  };
  const std::vector<std::string> kivi = {"store.id=kivi", "store.group=16", "store.residual=16"};
  const auto coded = [&](std::vector<std::string> settings) {
    settings.insert(settings.end(), kivi.begin(), kivi.end());
    return settings;
  };
  check("gqa", "recycled_attention", coded({"read.tokens=40", "read.stride=4"}));
  check("gqa", "loopserve", coded({"read.tokens=40", "read.steps=4"}));
  check("gqa", "a2ats", coded({"read.share=0.2"}));
  check("gemma", "loopserve", {"read.tokens=40", "read.steps=5"});
  check("gemma", "a2ats", {"read.share=0.2"});
  check("gqa", "rekv", {});
}

// Pictures join what is read of a text.
TEST_F(DeviceGraphs, StepsThatPicturesJoinAreReplayed) {
  for (const char* kind : {"gqa", "three_axes", "gemma"}) {
    const RepeatedWork::Counts counts = ExpectSameBits(kind, {"calibquant"}, {VisualSample(8, 30)});
    EXPECT_GE(counts.recorded, 1) << kind;
    if (!cuda::kComparesMembers) continue;
    EXPECT_LE(counts.recorded, 4) << kind;
    EXPECT_GE(counts.replayed, 22) << kind;
  }
}

// Frames of a video that a question chose, where they stand and side by side.
TEST_F(DeviceGraphs, StepsThatReadChosenFramesAreReplayed) {
  for (const char* id : {"livevlm", "rekv"}) {
    for (const char* kind : {"gqa", "three_axes"}) {
      const RepeatedWork::Counts counts =
          ExpectSameBits(kind, {id}, {VisualSample(8, 16)}, nullptr, {}, false);
      EXPECT_GE(counts.recorded, 1) << id << kind;
      EXPECT_TRUE(!cuda::kComparesMembers || counts.replayed >= 8) << id << kind;
    }
  }
}

// A state of constant size joins attention; what leaves the cache comes into it behind a step.
TEST_F(DeviceGraphs, StepsThatAStateJoinsAreReplayed) {
  const RepeatedWork::Counts alone = ExpectSameBits("gqa", {"less"}, {Sample(100, 8, 24)});
  EXPECT_GE(alone.recorded, 1);
  EXPECT_TRUE(!cuda::kComparesMembers || alone.replayed >= 20) << alone.replayed;
  const RepeatedWork::Counts counts =
      ExpectSameBits("gqa", {"less", "h2o"}, {Sample(70, 8, 16), Sample(40, 9, 8)});
  EXPECT_TRUE(!cuda::kComparesMembers || counts.replayed > counts.recorded);
}

// Codes of coded keys; and a prompt without a key to learn codes from.
TEST_F(DeviceGraphs, StepsOfReadersOfCodesHaveCompany) {
  const RepeatedWork::Counts counts = ExpectSameBits(
      "gqa", {"pqcache", "pqcache"}, {Sample(120, 8, 30), Sample(70, 9, 20)}, nullptr,
      {"store.id=kivi", "store.group=16", "store.residual=16", "read.tokens=40", "read.sinks=4",
       "read.bits=3"},
      false);
  EXPECT_TRUE(!cuda::kComparesMembers || counts.replayed > counts.recorded);
  ExpectSameBits("gqa", {"pqcache"}, {Sample(50, 8, 40)}, nullptr,
                 {"read.tokens=8", "read.sinks=64"}, false);
}

// Entries on the host are fetched by a second stream; others wait for numbers.
TEST_F(DeviceGraphs, StepsOfOtherReadersAreDoneAsTheyCome) {
  for (const char* id : {"shadowkv", "infllm"}) {
    const RepeatedWork::Counts counts = ExpectSameBits("gqa", {id, "h2o"}, {Sample(100, 8, 6)});
    EXPECT_EQ(counts.recorded + counts.replayed, 0) << id;
  }
}

// What scores age by is left in the same place by each step.
TEST_F(DeviceGraphs, StepsThatAreLookedAtAreReplayed) {
  for (const char* kind : {"gqa", "mla"}) {
    const RepeatedWork::Counts counts =
        ExpectSameBits(kind, {"h2o", "tova", "cam"}, {Sample(100, 8, 20), Sample(60, 9, 12)});
    EXPECT_TRUE(!cuda::kComparesMembers || counts.replayed > counts.recorded) << kind;
  }
}

// The graph is the same, whichever experts a step takes.
TEST_F(DeviceGraphs, ExpertsAreChosenInGraphs) {
  ASSERT_TRUE(MakeTinyModel("mla").model->config().moe);
  const RepeatedWork::Counts counts =
      ExpectSameBits("mla", {"full", "snapkv"}, {Sample(50, 8, 12), Sample(30, 9, 8)});
  EXPECT_TRUE(!cuda::kComparesMembers || counts.replayed > counts.recorded);
}

TEST_F(DeviceGraphs, KeysAreProjectedInGraphs) {
  const HalfBases bases;
  const RepeatedWork::Counts counts = ExpectSameBits("gqa", {"palu"}, {Sample(50, 8, 12)}, &bases);
  EXPECT_TRUE(!cuda::kComparesMembers || counts.replayed > counts.recorded);
}

TEST_F(DeviceGraphs, KeysThatTurnByTheirSlotAreTurnedInGraphsToo) {
  const RepeatedWork::Counts counts = ExpectSameBits("gqa", {"streaming_llm"}, {Sample(60, 8, 12)});
  EXPECT_GT(counts.recorded + counts.replayed, 0);
}

}  // namespace
}  // namespace kvgauge
