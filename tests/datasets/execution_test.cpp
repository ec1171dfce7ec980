// SPDX-License-Identifier: Apache-2.0
// Programs here are shell scripts: a shell is everywhere.
#include "datasets/execution.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/clock.h"
#include "core/strings.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

SandboxRun RunShell(const std::string& script, const SandboxLimits& limits = {}) {
  Result<SandboxRun> run = RunSandboxed({"sh"}, script, limits);
  EXPECT_TRUE(run.ok()) << (run.ok() ? "" : run.error().message);
  return run.ok() ? *run : SandboxRun{};
}

TEST(Sandbox, ReportsExitAndOutput) {
  const SandboxRun run = RunShell("echo out; echo err >&2; exit 3");
  EXPECT_EQ(run.exit_code, 3);
  EXPECT_EQ(run.output, "out\nerr\n");
  EXPECT_FALSE(run.timed_out);
  EXPECT_EQ(RunShell("exit 0").exit_code, 0);
  EXPECT_EQ(RunShell("exit 126").exit_code, 126);
  EXPECT_EQ(RunShell("kill -9 $$").exit_code, 137);
}

TEST(Sandbox, EndsWhatTakesTooLong) {
  const double begin_s = NowSeconds();
  SandboxLimits limits;
  limits.wall_s = 0.5;
  EXPECT_TRUE(RunShell("sleep 30", limits).timed_out);
  EXPECT_TRUE(RunShell("exec >/dev/null 2>&1; sleep 30", limits).timed_out);
  EXPECT_TRUE(RunShell("sleep 30 & exit 0", limits).exit_code <= 0);
  EXPECT_TRUE(RunShell("while :; do echo much; done", limits).timed_out);
  EXPECT_LT(NowSeconds() - begin_s, 20);
}

TEST(Sandbox, KeepsLittleOutputAndSmallFiles) {
  SandboxLimits limits;
  limits.output_bytes = 10;
  EXPECT_EQ(RunShell("echo 0123456789abcdef", limits).output, "0123456789");
  limits.file_bytes = 1000;
  EXPECT_NE(RunShell("head -c 5000 /dev/zero > big", limits).exit_code, 0);
}

TEST(Sandbox, HasAnEnvironmentAndADirectoryOfItsOwn) {
  setenv("KVG_SECRET", "x", 1);
  const SandboxRun run = RunShell("echo [$KVG_SECRET]; ls; echo written > mine && cat mine");
  unsetenv("KVG_SECRET");
  EXPECT_EQ(run.output, "[]\nprogram\nwritten\n");
}

TEST(Sandbox, HasNoNetworkAndWritesNowhereElse) {
  if (!RunShell("exit 0").isolated) GTEST_SKIP() << "this kernel lets the user have no namespaces";
  // The header, and the loop-back device that is down.
  EXPECT_EQ(RunShell("grep -c : /proc/self/net/dev").output, "1\n");
  const std::string outside = StrCat(::testing::TempDir(), "kvg_outside");
  EXPECT_NE(RunShell(StrCat("echo x > '", outside, "'")).exit_code, 0);
  EXPECT_FALSE(std::filesystem::exists(outside));
}

TEST(Sandbox, MissingInterpreterIsAnError) {
  const Result<SandboxRun> run = RunSandboxed({"no-such-interpreter"}, "", {});
  ASSERT_FALSE(run.ok());
  EXPECT_THAT(run.error().message, HasSubstr("'no-such-interpreter' cannot be run"));
  EXPECT_FALSE(RunSandboxed({}, "", {}).ok());
}

class PassAtKTest : public ::testing::Test {
 protected:
  ~PassAtKTest() override { std::filesystem::remove(path_); }
  Result<ExecutionScores> Score(const std::string& lines, std::vector<int64_t> ks,
                                bool skip_bad = false) {
    std::ofstream(path_, std::ios::binary) << lines;
    ExecutionOptions options;
    options.command = {"sh"};
    options.ks = std::move(ks);
    options.skip_bad = skip_bad;
    return ScoreByExecution(path_, options);
  }
  std::string path_ =
      StrCat(::testing::TempDir(), "pass_",
             ::testing::UnitTest::GetInstance()->current_test_info()->name(), ".jsonl");
};

TEST_F(PassAtKTest, CountsSamplesOfAProblem) {
  const std::string good =
      R"({"id": "a", "prompt": "x=", "prediction": "2", "answers": ["[ $x = 2 ]"]})";
  const std::string bad =
      R"({"id": "a", "prompt": "x=", "prediction": "3", "answers": ["[ $x = 2 ]"]})";
  const std::string other =
      R"({"id": "b", "prediction": "check() { [ $1 = 1 ]; }", "answers": [""]})";
  const Result<ExecutionScores> scores =
      Score(StrCat(good, "\n\n", bad, "\n", bad, "\n", bad, "\n", other, "\n"), {1, 2});
  ASSERT_TRUE(scores.ok()) << scores.error().message;
  EXPECT_THAT(scores->lines, ElementsAre(1, 3, 4, 5, 6));
  EXPECT_THAT(scores->passed, ElementsAre(true, false, false, false, true));
  ASSERT_EQ(scores->pass.size(), 2u);
  EXPECT_NEAR(scores->pass[0].score, (0.25 + 1) / 2, 1e-12);
  EXPECT_EQ(scores->pass[1].problems, 1);  // b has one sample
  EXPECT_NEAR(scores->pass[1].score, 0.5, 1e-12);
  EXPECT_THAT(Score(good, {2}).error().message, HasSubstr("no problem has 2 samples"));
}

TEST_F(PassAtKTest, BadLinesAreNamedOrSkipped) {
  const std::string good = R"({"prediction": "true", "answers": [""]})";
  const std::string two = R"({"prediction": "true", "answers": ["", ""]})";
  EXPECT_THAT(Score(StrCat(good, "\n", two), {1}).error().message,
              HasSubstr(":2: \"answers\" must hold one text"));
  const Result<ExecutionScores> scores = Score(StrCat("{\n", good, "\n", two), {1}, true);
  ASSERT_TRUE(scores.ok()) << scores.error().message;
  EXPECT_EQ(scores->bad_lines.size(), 2u);
  EXPECT_EQ(scores->pass[0].score, 1);
  EXPECT_THAT(Score("\n", {1}).error().message, HasSubstr("no program to run"));
}

}  // namespace
}  // namespace kvgauge
