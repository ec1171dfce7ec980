// SPDX-License-Identifier: Apache-2.0
// Groups of codes that do not divide an entry: a shipped method's are told of, a user's refused.
#include "cli/run_fixture.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class GroupsTest : public RunTest {
 protected:
  void SetUp() override {
    RunTest::SetUp();
    std::string odd = kTinyModel;
    odd.replace(odd.find("\"head_dim\": 32"), 14, "\"head_dim\": 80");
    Write("config.json", odd);
    Write("ids.json", "[3, 4, 5]");
  }
  Outcome Answer(const std::string& method) const {
    return RunProgram(
        directory_,
        StrCat("generate config.json --weights random:5 --ids-file ids.json --ignore-stop "
               "--max-new-tokens 2 --method ",
               method));
  }
  Outcome Plan(const std::string& methods) const {
    Write("mine.json",
          StrCat(R"({"models": [{"path": ")", Path("config.json"),
                 R"(", "name": "tiny", "weights": "random:5"}], "tasks": [{"task": "passkey",
        "samples": 1, "source": {"lengths": "320"}, "max_new_tokens": 6}], "budgets": ["none"],
        "methods": [)",
                 methods, "]}"));
    return RunProgram(directory_, StrCat("plan ", Path("mine.json")));
  }
  const std::string note_ =
      "method flexgen: groups of 64 do not divide the 80 dims of keys; the last one of an entry "
      "has 16 and a scale of its own";
};

TEST_F(GroupsTest, AnAnswerSaysWhatAShippedMethodDoes) {
  const Outcome shipped = Answer("flexgen");
  EXPECT_EQ(shipped.exit_code, 0) << shipped.err;
  EXPECT_THAT(shipped.err, HasSubstr(note_));
  EXPECT_EQ(shipped.err.find(note_), shipped.err.rfind(note_));
  EXPECT_THAT(Answer("'" KVG_SOURCE_DIR "/configs/methods/flexgen.json'").err, HasSubstr(note_));
  const Outcome whole = Answer("flexgen --set store.key_group=40 --set store.value_group=80");
  EXPECT_EQ(whole.exit_code, 0) << whole.err;
  EXPECT_THAT(whole.err, Not(HasSubstr("do not divide")));
  const Outcome chosen = Answer("flexgen --set store.key_group=48");
  EXPECT_EQ(chosen.exit_code, 2);
  EXPECT_THAT(chosen.err,
              HasSubstr("override 'store.key_group=48': store.key_group 48 does not divide the 80 "
                        "dims of keys; expected 1, 2, 4, 5, 8, 10, 16, 20, 40 or 80"));
}

TEST_F(GroupsTest, SoDoesAPlan) {
  const Outcome plan =
      Plan(R"("flexgen", {"method": "int8", "overrides": {"store.key_group": 48}})");
  EXPECT_THAT(plan.err, HasSubstr(StrCat("tiny: ", note_)));
  EXPECT_THAT(plan.out, HasSubstr("store.key_group 48 does not divide the 80 dims of keys"));
}

TEST_F(GroupsTest, RowsOfAMethodAreToldOnce) {
  const Outcome plan =
      Plan(R"("flexgen", {"method": "flexgen", "overrides": {"store.key_bits": 2}})");
  EXPECT_THAT(plan.err, HasSubstr(note_)) << plan.out;
  EXPECT_EQ(plan.err.find(note_), plan.err.rfind(note_));
}

}  // namespace
}  // namespace kvgauge
