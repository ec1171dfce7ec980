// SPDX-License-Identifier: Apache-2.0
// Gates whose weights are no good: what they give is the result of their cell.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>

#include "core/json.h"
#include "methods/gate_scorer.h"
#include "methods/registry.h"
#include "methods/tensors.h"
#include "runner/engine_fixture.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Gives ones, and no number for one KV head of one layer: of the prompt's rows, or of a step's.
class BadGate final : public Gate {
 public:
  static constexpr int64_t kLayer = 1, kHead = 1;

  explicit BadGate(bool in_steps) : in_steps_(in_steps) {}
  std::string key() const override { return StrCat("bad.", in_steps_); }
  int64_t PlannedBytes(const ModelShape&) const override { return 0; }
  std::unique_ptr<LoadedGate> Load(const ModelShape&, Ops& ops) const override {
    return std::make_unique<Loaded>(in_steps_, ops);
  }

 private:
  class Loaded final : public LoadedGate {
   public:
    Loaded(bool in_steps, Ops& ops) : in_steps_(in_steps), ops_(ops) {}
    void Fold(int64_t layer, const Tensor& x, Tensor out) override {
      ops_.rows->Fill(1.0f, out);
      if (layer != kLayer || in_steps_ != (x.shape[0] == 1)) return;
      ops_.rows->Fill(std::numeric_limits<float>::quiet_NaN(), Columns(out, kHead, kHead + 1));
    }
    int64_t bytes() const override { return 0; }

   private:
    const bool in_steps_;
    Ops& ops_;
  };
  const bool in_steps_;
};

class BadGateScore final : public GateScorer {
 public:
  explicit BadGateScore(const Params& params) {
    Set(std::make_shared<BadGate>(params.Text("when") == "step"));
  }
};
KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "test_bad_gate",
    .summary = "no numbers",
    .params = {ChoiceParam("when", "prompt", {"prompt", "step"}, "where")},
    .make = Make<BadGateScore>(),
});

class GateErrorsTest : public EngineTest {
 protected:
  Status Outcome(const std::string& when) {
    const Json json = {{"id", "bad"},
                       {"title", "a gate without numbers"},
                       {"family", "selection"},
                       {"version", 1},
                       {"stages",
                        {{"score", {{"id", "test_bad_gate"}, {"when", when}}},
                         {"reduce", {{"id", "top_k"}}},
                         {"trigger", {{"id", "every_step"}}}}}};
    const Result<Method> bad = ParseMethod(json, "test");
    EXPECT_TRUE(bad.ok()) << bad.error().message;
    Cells cells = RunEngine({At(*bad, 0.5), At(snapkv_, 0.5)}, {}, {Sample(60, 4)});
    EXPECT_TRUE((cells.at({0, 1}).status.ok())) << "the other row goes on";
    return cells.at({0, 0}).status;
  }
};

TEST_F(GateErrorsTest, WhatIsNoNumberOfThePromptIsTheResultOfTheCell) {
  const Status status = Outcome("prompt");
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message,
              AllOf(HasSubstr("score.test_bad_gate"), HasSubstr("gave layer 1 "),
                    HasSubstr("no finite numbers")));
}

TEST_F(GateErrorsTest, NorIsItTakenFromTheFirstStepOn) {
  const Status status = Outcome("step");
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message,
              AllOf(HasSubstr("score.test_bad_gate"), HasSubstr("gave layer 1 ")));
}

}  // namespace
}  // namespace kvgauge
