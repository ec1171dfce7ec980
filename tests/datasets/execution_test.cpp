// SPDX-License-Identifier: Apache-2.0
// Programs here are shell scripts: a shell is everywhere.
#include "datasets/execution.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/clock.h"
#include "core/strings.h"
#include "src/program_end.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Isolated where the kernel can; the tests' own scripts may run anyway.
SandboxRun RunShell(const std::string& script, SandboxLimits limits = {}) {
  limits.unisolated = true;
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
  const Result<SandboxRun> run = RunSandboxed({"no-such-interpreter"}, "", {.unisolated = true});
  ASSERT_FALSE(run.ok());
  EXPECT_THAT(run.error().message, HasSubstr("'no-such-interpreter' cannot be run"));
  EXPECT_FALSE(RunSandboxed({}, "", {}).ok());
}

// A kernel that gives no namespaces, as a filter of system calls makes it look.
void RefuseNamespaces() {
  std::array<sock_filter, 4> code = {{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_unshare, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog filter = {static_cast<uint16_t>(code.size()), code.data()};
  ASSERT_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter), 0) << std::strerror(errno);
}

TEST(SandboxDeathTest, RunsNothingWithoutNamespacesUnasked) {
  const std::string trace = StrCat(::testing::TempDir(), "kvg_ran_", getpid());
  const auto in_child = [&] {
    RefuseNamespaces();
    const std::string script = StrCat("echo x > '", trace, "'");
    const Result<SandboxRun> refused = RunSandboxed({"sh"}, script, {});
    if (refused.ok() || refused.error().code != ErrorCode::kUnsupported) _exit(1);
    if (refused.error().message.find("--unisolated") == std::string::npos) _exit(2);
    if (std::filesystem::exists(trace)) _exit(3);
    SandboxLimits limits;
    limits.unisolated = true;
    const Result<SandboxRun> asked = RunSandboxed({"sh"}, script, limits);
    if (!asked.ok() || asked->isolated || asked->exit_code != 0) _exit(4);
    _exit(std::filesystem::exists(trace) ? 0 : 5);
  };
  EXPECT_EXIT(in_child(), ::testing::ExitedWithCode(0), "");
  std::filesystem::remove(trace);
}

class ProgramEnd : public ::testing::Test {
 protected:
  // For a program in this language: did it end with 0, and did it run to its end?
  static std::pair<bool, bool> Ended(const std::string& command, const std::string& program) {
    const EndedProgram ended = WithToldEnd({command}, program);
    EXPECT_TRUE(ended.tells);
    SandboxLimits limits;
    limits.unisolated = true;
    limits.wall_s = 60;  // other tests may hold the processors
    const Result<SandboxRun> run = RunSandboxed(ended.command, ended.program, limits);
    EXPECT_TRUE(run.ok()) << (run.ok() ? "" : run.error().message);
    if (!run.ok()) return {};
    if (run->exit_code != 0) last_output_ = run->output;
    return {run->exit_code == 0, run->end_told};
  }
  inline static std::string last_output_;
};

constexpr std::pair<bool, bool> kRight = {true, true}, kLeftEarly = {true, false},
                                kWrong = {false, false};

TEST_F(ProgramEnd, OfPythonIsToldFromAnExit) {
  if (std::system("python3 -c 0") != 0) GTEST_SKIP() << "there is no python3";
  const std::string test = "\ndef check(f):\n    assert f(2) == 4\ncheck(double)\n";
  const std::string right = "def double(x):\n    return 2 * x\n";
  EXPECT_EQ(Ended("python3", right + test), kRight) << last_output_;
  EXPECT_EQ(Ended("python3", "def double(x):\n    return x\n" + test), kWrong);
  for (const char* early :
       {"import sys\nsys.exit(0)\n", "import os\nos._exit(0)\n", "exit()\n", "raise SystemExit\n",
        "def double(x):\n    raise SystemExit(0)\n", "def double(x):\n    quit()\n",
        "import os\nif os.fork() == 0:\n    double = lambda x: 4\nelse:\n    os._exit(0)\n",
        "import os, sys\nos.execvp('true', ['true'])\n"}) {
    EXPECT_EQ(Ended("python3", early + test), kLeftEarly) << early;
  }
  // What a program can read of itself and writes where the end is told.
  for (const char* source :
       {"open(__file__, 'rb').read()", "' '.join(sys.argv).encode()", "sys.stdin.buffer.read()",
        "repr(os.environ).encode()", "open('/proc/self/cmdline', 'rb').read()",
        "b''.join(open(f, 'rb').read() for f in os.listdir('.'))"}) {
    EXPECT_EQ(Ended("python3", StrCat("import os, re, sys\nfor x in re.findall(rb'[0-9a-f]{32}', ",
                                      source, "):\n    os.write(9, x)\nos._exit(0)\n")),
              kLeftEarly)
        << source;
  }
}

// What programs may count on: they are the main module, with a file and arguments.
TEST_F(ProgramEnd, PythonRunsAsItAlwaysDoes) {
  if (std::system("python3 -c 0") != 0) GTEST_SKIP() << "there is no python3";
  EXPECT_EQ(Ended("python3",
                  "from __future__ import annotations\n"
                  "import dataclasses, inspect, os, pickle, sys\n"
                  "@dataclasses.dataclass\nclass P:\n    x: int\n"
                  "assert __name__ == '__main__' and sys.modules['__main__'].P is P\n"
                  "assert pickle.loads(pickle.dumps(P(3))) == P(3)\n"
                  "assert sys.argv == [__file__] and os.path.exists(__file__)\n"
                  "assert 'x: int' in inspect.getsource(P)\n"
                  "if os.fork() == 0:\n    sys.exit(0)\n"
                  "assert os.wait()[1] == 0\n"),
            kRight)
      << last_output_;
  EXPECT_EQ(Ended("python3", "# -*- coding: latin-1 -*-\nassert len('\xe9') == 1\n"), kRight);
  EXPECT_EQ(Ended("python3", "def broken(:\n"), kWrong);
}

TEST_F(ProgramEnd, OfShellsIsToldFromAnExit) {
  EXPECT_EQ(Ended("sh", "x=2\n[ $x = 2 ]\n"), kRight);
  EXPECT_EQ(Ended("sh", "x=2 # no newline"), kRight);
  EXPECT_EQ(Ended("sh", "exit 0\n[ 1 = 2 ]\n"), kLeftEarly);
  EXPECT_EQ(Ended("sh", "exec true\n"), kLeftEarly);
  EXPECT_EQ(Ended("sh", "[ 1 = 2 ]\n").first, false);
}

TEST(WithToldEnd, KnowsInterpretersByName) {
  const auto tells = [](const std::vector<std::string>& command) {
    return WithToldEnd(command, "").tells;
  };
  EXPECT_TRUE(tells({"/usr/bin/python3.11", "-I", "-W", "ignore"}));
  EXPECT_TRUE(tells({"env", "A=1", "pypy3"}));
  EXPECT_TRUE(tells({"bash", "-e"}));
  EXPECT_FALSE(tells({"node"}));
  EXPECT_FALSE(tells({"bash", "wrapper"}));
  EXPECT_FALSE(tells({"python3", "-m", "pytest"}));
  EXPECT_FALSE(tells({"pythonic"}));
  EXPECT_FALSE(tells({}));
  EXPECT_EQ(WithToldEnd({"node"}, "x").program, "x");
}

class PassAtKTest : public ::testing::Test {
 protected:
  ~PassAtKTest() override { std::filesystem::remove(path_); }
  Result<ExecutionScores> Score(const std::string& lines, std::vector<int64_t> ks,
                                bool skip_bad = false, const std::string& command = "sh") {
    std::ofstream(path_, std::ios::binary) << lines;
    ExecutionOptions options;
    options.command = {command};
    options.limits.unisolated = true;
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
  EXPECT_EQ(scores->pass[0].left_out, 0);
  EXPECT_EQ(scores->pass[1].problems, 1);  // b has one sample
  EXPECT_EQ(scores->pass[1].left_out, 1);
  EXPECT_NEAR(scores->pass[1].score, 0.5, 1e-12);
  EXPECT_THAT(Score(good, {2}).error().message, HasSubstr("no problem has 2 samples"));
}

TEST_F(PassAtKTest, AnEarlyExitFails) {
  const std::string early = R"({"prediction": "exit 0", "answers": ["[ 1 = 1 ]"]})";
  const Result<ExecutionScores> scores = Score(early, {1});
  ASSERT_TRUE(scores.ok()) << scores.error().message;
  EXPECT_THAT(scores->passed, ElementsAre(false));
  EXPECT_TRUE(scores->end_checked);
  // An interpreter of which nothing is known: its exit code has to do.
  const std::string wrapper = StrCat(path_, "_run");
  std::ofstream(wrapper) << "#!/bin/sh\nexec sh \"$1\"\n";
  std::filesystem::permissions(wrapper, std::filesystem::perms::owner_all);
  const Result<ExecutionScores> unknown = Score(early, {1}, false, wrapper);
  std::filesystem::remove(wrapper);
  ASSERT_TRUE(unknown.ok()) << unknown.error().message;
  EXPECT_THAT(unknown->passed, ElementsAre(true));
  EXPECT_FALSE(unknown->end_checked);
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
