// SPDX-License-Identifier: Apache-2.0
// Every shipped method on the device and on the host. They round differently, so numbers are near
// each other; what was chosen, and what it came to, is the same.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "conformance/scene.h"
#include "core/files.h"
#include "cuda/suite_device.h"
#include "methods/gate_scorer.h"
#include "methods/layouts/latent.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

struct Held {
  std::vector<std::vector<int32_t>> positions;  // by layer, then head
  std::vector<float> numbers;                   // keys and values, decoded
};

struct Ran {
  CellResult cell;
  Held held;
  int64_t step_copies = 0;  // the most copies to the host between two tokens, without the token's
};

Held HeldBy(const KvCache& cache) {
  Held held;
  for (int64_t layer = 0; layer < cache.layer_count(); ++layer) {
    for (int64_t head = 0; head < cache.kv_heads(); ++head) {
      held.positions.push_back(cache.Positions(layer, head));
      const auto length = std::ssize(held.positions.back());
      for (const bool keys : {true, false}) {
        const int64_t dim = keys ? cache.format().key_dim : cache.format().value_dim;
        std::vector<float> rows(static_cast<size_t>(length * dim));
        if (rows.empty()) continue;
        const Tensor out = View(rows, {length, dim});
        keys ? cache.ReadKeys(layer, head, 0, out) : cache.ReadValues(layer, head, 0, out);
        held.numbers.insert(held.numbers.end(), rows.begin(), rows.end());
      }
    }
  }
  return held;
}

Ran RunAlone(const Subject& subject) {
  Ran ran;
  EngineOptions options;
  options.inspect = [&](const CellResult&, const KvCache& cache, Compressor&) {
    ran.held = HeldBy(cache);
  };
  int64_t copies = 0;
  options.on_token = [&](const EngineToken& token) {
    const int64_t before = std::exchange(copies, CopiesToHost());
    if (token.answer.size() > 1) ran.step_copies = std::max(ran.step_copies, copies - before - 1);
    return true;
  };
  Engine engine({subject.contender()}, options);
  const EngineSample sample = Sample(kPromptTokens, 31);
  const Status done = engine.Run({&sample, 1}, [&](CellResult cell) -> Status {
    ran.cell = std::move(cell);
    return {};
  });
  EXPECT_TRUE(done.ok()) << done.error().message;
  return ran;
}

// Root of the mean square of the differences, of the numbers' own.
double Apart(const std::vector<float>& a, const std::vector<float>& b) {
  double off = 0, all = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    off += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    all += double{b[i]} * b[i];
  }
  return std::sqrt(off / all);
}

// Those copies of each method that has any, as the table of docs/cuda.md lists them.
std::map<std::string, int64_t> ListedCopies() {
  std::map<std::string, int64_t> listed;
  const Result<std::string> page = ReadFile(StrCat(KVG_SOURCE_DIR, "/docs/cuda.md"));
  if (!page.ok()) return listed;
  bool inside = false;  // of the table of decode steps; others count copies of other things
  for (const std::string& line : Split(*page, '\n')) {
    inside = line.starts_with("| methods | copies |") || (inside && line.starts_with("|"));
    const std::vector<std::string> cells = Split(line, '|');
    if (!inside || cells.size() != 5 || !cells[1].starts_with(" `")) continue;
    const std::vector<std::string> names = Split(cells[1], '`');
    for (size_t i = 1; i < names.size(); i += 2) listed[names[i]] = std::stoll(cells[2]);
  }
  return listed;
}

class DeviceMethods : public ::testing::TestWithParam<std::string> {};

TEST_P(DeviceMethods, DoOnADeviceWhatTheyDoOnTheHost) {
  std::unique_ptr<Subject> there, here;
  for (const char* kind : {"gqa", "mha", "mqa", "mla", "cepe"}) {
    if ((there = MakeSubject(GetParam(), kind)) == nullptr) continue;
    here = MakeSubject(GetParam(), kind, {.on_host = true});
    break;
  }
  ASSERT_NE(here, nullptr) << "legal on no model";
  const Ran device = RunAlone(*there), host = RunAlone(*here);
  ASSERT_TRUE(host.cell.status.ok()) << host.cell.status.error().message;
  ASSERT_TRUE(device.cell.status.ok()) << device.cell.status.error().message;
  EXPECT_EQ(device.cell.turns[0].ids, host.cell.turns[0].ids);
  EXPECT_EQ(device.held.positions, host.held.positions);
  const CompressionRecord &got = device.cell.record, &want = host.cell.record;
  EXPECT_EQ(got.entries_after, want.entries_after);
  EXPECT_EQ(got.engagement, want.engagement) << got.reason;
  EXPECT_EQ(got.bytes.logical(), want.bytes.logical());
  EXPECT_EQ(got.reads_per_step, want.reads_per_step);
  ASSERT_EQ(device.held.numbers.size(), host.held.numbers.size());
  const Result<StorePlan> plan = MakePipeline(here->method).store->Plan(here->shape(), 0);
  ASSERT_TRUE(plan.ok());
  const bool coded = plan->layout->traits().seals || plan->Get<Latent>() != nullptr;
  // A number between two codes may fall to either.
  const double apart = Apart(device.held.numbers, host.held.numbers);
  EXPECT_LE(apart, coded ? 1e-2 : 1e-5);
  RecordProperty("apart", StrCat(apart));
  if (CopiesToHost() < 0) return;  // nobody counts
  const auto listed = ListedCopies();
  const auto copies = listed.find(GetParam());
  EXPECT_EQ(device.step_copies, copies == listed.end() ? 0 : copies->second)
      << "the table of docs/cuda.md has another number, or none";
}

// A device hides what is behind a window in another way than the host does.
TEST(DeviceMethods, ReadersSeeTheSameBehindWindows) {
  const std::vector<std::string> few = {"read.tokens=32", "read.sinks=4", "read.local=16"};
  std::vector<std::string> scaled = few;
  scaled.emplace_back("read.scaled=true");
  const std::pair<const char*, std::vector<std::string>> readers[] = {
      {"quest", {}},
      {"rocketkv", {"read.tokens=24"}},
      {"retrieval_attention", few},
      {"tokenselect", scaled},
      {"sparq", {"read.tokens=32", "read.rank=8", "read.local=8"}}};
  for (const auto& reader : readers) {
    SCOPED_TRACE(reader.first);
    const auto run = [&](bool on_host) {
      const SubjectOptions asked = {.overrides = reader.second, .on_host = on_host};
      return RunAlone(*MakeSubject(reader.first, "gemma", asked));
    };
    const Ran device = run(false), host = run(true);
    ASSERT_TRUE(device.cell.status.ok()) << device.cell.status.error().message;
    EXPECT_EQ(device.cell.record.reads_per_step, host.cell.record.reads_per_step);
    EXPECT_LE(Apart(device.held.numbers, host.held.numbers), 1e-5);
  }
}

// Layers that share directions store each key's norm beside them.
TEST(DeviceMethods, ReadersSeeKeysWithTheirNorms) {
  for (const char* const reader : {"quest", "retrieval_attention"}) {
    SCOPED_TRACE(reader);
    const auto run = [&](bool on_host) {
      const SubjectOptions asked = {.overrides = {"store.id=minicache", "read.tokens=16"},
                                    .on_host = on_host};
      return RunAlone(*MakeSubject(reader, "gqa", asked));
    };
    const Ran device = run(false), host = run(true);
    ASSERT_TRUE(device.cell.status.ok()) << device.cell.status.error().message;
    EXPECT_EQ(device.cell.record.reads_per_step, host.cell.record.reads_per_step);
    EXPECT_LE(Apart(device.held.numbers, host.held.numbers), 1e-5);
  }
}

TEST(DeviceMethods, ListedCopiesAreThoseOfMethods) {
  const std::vector<std::string> methods = AllMethods();
  const auto listed = ListedCopies();
  EXPECT_FALSE(listed.empty());
  for (const auto& [id, copies] : listed) {
    EXPECT_TRUE(std::ranges::find(methods, id) != methods.end()) << id;
    EXPECT_GT(copies, 0) << id;
  }
}

// Top-k, but that a plan of a decode step names an entry twice.
class TwiceNamed final : public Reducer {
 public:
  explicit TwiceNamed(const Params&) {}
  std::vector<HeadPlan> Reduce(LayerView& view, const ReduceInput& input, State*) const override {
    std::vector<HeadPlan> plans;
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t length = view.lengths()[h], kept = std::min(length, input.allocated[h]);
      HeadPlan plan;
      plan.keep = Best(view, input.scores.Slice(h, h + 1).Reshape({1, length}), kept);
      if (input.step == 2) view.ops().memory->Copy(plan.keep.Slice(0, 1), plan.keep.Slice(1, 2));
      plans.push_back(plan);
    }
    return plans;
  }
};
KVG_REGISTER_STAGE({
    .kind = StageKind::kReduce,
    .id = "test_twice",
    .summary = "names an entry twice",
    .make = Make<TwiceNamed>(),
});

// The host learns of it at the end, and nobody else at all.
TEST(DeviceMethods, APlanThatIsNoneIsTheResultOfItsCell) {
  const Json json = {{"id", "twice"},
                     {"title", "names an entry twice"},
                     {"family", "baseline"},
                     {"version", 1},
                     {"stages",
                      {{"score", {{"id", "recency"}}},
                       {"reduce", {{"id", "test_twice"}}},
                       {"trigger", {{"id", "every_step"}}}}}};
  const Result<Method> twice = ParseMethod(json, "test");
  ASSERT_TRUE(twice.ok()) << twice.error().message;
  const Method h2o = LoadShipped("h2o");
  const TinyModel tiny = MakeTinyModel("gqa");
  const Budget some = {Budget::Kind::kEntries, 50};
  const Contender good = {&h2o, some, tiny.model.get()}, bad = {&*twice, some, tiny.model.get()};
  const std::vector<EngineSample> samples = {Sample(100, 8)};
  const Outcomes outcomes = RunContenders({good, bad, good}, samples);
  const Outcomes alone = RunContenders({good}, samples);
  ExpectSame(outcomes.at({0, 0}), alone.at({0, 0}));
  ExpectSame(outcomes.at({0, 2}), alone.at({0, 0}));
  const Status& status = outcomes.at({0, 1}).cell.status;
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kBadInput);
  const std::string& message = status.error().message;
  for (const char* part : {"layer 0", "plan for KV head 0", "entry 1 after entry 1 of 51"}) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
}

// A gate of ones, and of no number for a head of layer 1 in steps.
class StepsOfNoNumbers final : public Gate {
 public:
  std::string key() const override { return "steps of no numbers"; }
  int64_t PlannedBytes(const ModelShape&) const override { return 0; }
  std::unique_ptr<LoadedGate> Load(const ModelShape&, Ops& ops) const override {
    return std::make_unique<Loaded>(ops);
  }

 private:
  class Loaded final : public LoadedGate {
   public:
    explicit Loaded(Ops& ops) : ops_(ops) {}
    void Fold(int64_t layer, const Tensor& x, Tensor out) override {
      ops_.rows->Fill(1.0f, out);
      if (layer != 1 || x.shape[0] > 1) return;
      ops_.rows->Fill(std::numeric_limits<float>::quiet_NaN(), Columns(out, 0, 1));
    }
    int64_t bytes() const override { return 0; }

   private:
    Ops& ops_;
  };
};
class ScoreOfNoNumbers final : public GateScorer {
 public:
  explicit ScoreOfNoNumbers(const Params&) { Set(std::make_shared<StepsOfNoNumbers>()); }
};
KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "test_no_numbers",
    .summary = "gives no numbers in steps",
    .make = Make<ScoreOfNoNumbers>(),
});

// It asks for no gate in a step, and says at the end what a host says at once.
TEST(DeviceMethods, AGateWithoutNumbersIsTheResultOfItsCell) {
  const Json json = {{"id", "bad"},
                     {"title", "a gate without numbers"},
                     {"family", "selection"},
                     {"version", 1},
                     {"stages",
                      {{"score", {{"id", "test_no_numbers"}}},
                       {"reduce", {{"id", "top_k"}}},
                       {"trigger", {{"id", "every_step"}}}}}};
  const Result<Method> bad = ParseMethod(json, "test");
  ASSERT_TRUE(bad.ok()) << bad.error().message;
  const Method h2o = LoadShipped("h2o");
  const TinyModel tiny = MakeTinyModel("gqa");
  const Budget some = {Budget::Kind::kEntries, 50};
  const Contender good = {&h2o, some, tiny.model.get()}, other = {&*bad, some, tiny.model.get()};
  const Outcomes outcomes = RunContenders({other, good}, {Sample(100, 8)});
  EXPECT_TRUE(outcomes.at({0, 1}).cell.status.ok()) << "the other row goes on";
  const Status& status = outcomes.at({0, 0}).cell.status;
  ASSERT_FALSE(status.ok());
  for (const char* part : {"score.test_no_numbers gave layer 1 ", "no finite numbers"}) {
    EXPECT_NE(status.error().message.find(part), std::string::npos) << status.error().message;
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, DeviceMethods, ::testing::ValuesIn(AllMethods()),
                         [](const auto& method) { return method.param; });

}  // namespace
}  // namespace kvgauge
