// SPDX-License-Identifier: Apache-2.0
// A run that is ended anyhow goes on; places that cannot be written; two writers.
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "cli/run_fixture.h"
#include "core/clock.h"
#include "core/rng.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

class RunFaults : public RunTest {};

// KVG_RUN_KILLS: how many kills; the default takes seconds.
TEST_F(RunFaults, KilledAnywhereItGoesOn) {
  // The shorter of two: kills that come after the end would be waited for in vain.
  double whole_s = 1e9;
  for (const char* name : {"whole.db", "again.db"}) {
    const double start_s = NowSeconds();
    RunInto(name);
    whole_s = std::min(whole_s, NowSeconds() - start_s);
  }
  const std::string want = Digest("whole.db");
  const char* given = std::getenv("KVG_RUN_KILLS");
  const int kills = given != nullptr ? std::atoi(given) : 20;
  Rng rng(1, 0);
  int killed = 0, round = 0;
  while (killed < kills) {
    const std::string database = StrCat("killed", round++, ".db");
    for (int attempt = 0; attempt < 1000; ++attempt) {
      const pid_t child = Start({"run", Path("mine.json"), "--db", Path(database)});
      if (killed < kills) {
        std::this_thread::sleep_for(std::chrono::duration<double>(whole_s * rng.NextDouble()));
        kill(child, SIGKILL);
      }
      const Outcome outcome = Wait(child);
      if (outcome.exit_code == 0) break;
      ASSERT_EQ(outcome.exit_code, 128 + SIGKILL) << outcome.err;
      ++killed;
    }
    const auto store = Open(database, StoreMode::kReadWrite);
    EXPECT_TRUE(store->Check().ok());
    EXPECT_EQ(Digest(database), want);
  }
  EXPECT_GE(killed, kills);
}

TEST_F(RunFaults, CtrlCFinishesTheSample) {
  Write("mine.json", Config(R"("samples": 400, )", R"("random", "snapkv", "h2o")"));
  std::string text = *ReadFile(Path("mine.json"));
  text.replace(text.find("\"samples\": 8"), 12, "\"samples\": 400");
  Write("mine.json", text);
  const std::vector<std::string> command = {
      "run", Path("mine.json"), "--db", Path("r d.db"), "--seed", "3", "--limit", "300"};
  const pid_t child = Start(command);
  ASSERT_TRUE(WaitUntil(child, [&] { return HasSamples("r d.db"); }));
  kill(child, SIGINT);
  const Outcome outcome = Wait(child);
  EXPECT_EQ(outcome.exit_code, 130);
  EXPECT_THAT(outcome.err, HasSubstr(StrCat("\n  kvgauge run ", Path("mine.json"), " --db '",
                                            Path("r d.db"), "' --seed 3 --limit 300\n")));
  const auto store = Open("r d.db");
  const std::vector<EventRow> events = *store->Events((*store->Runs())[0].id);
  EXPECT_EQ(events.back().kind, "interrupted");
  EXPECT_EQ((*store->Runs())[0].run.finished_at, "");
  // Every sample that was begun is there for every row.
  std::vector<size_t> counts;
  for (const StoredCell& cell : CellsOf(*store)) counts.push_back(ScoresOf(*store, cell).size());
  ASSERT_FALSE(counts.empty());
  for (const size_t count : counts) EXPECT_EQ(count, counts[0]);
  EXPECT_GT(counts[0], 0u);
  EXPECT_LT(counts[0], 400u);
}

TEST_F(RunFaults, ASecondCtrlCLeavesAtOnce) {
  Write("mine.json", Config(R"("samples": 400, )", R"("random", "snapkv", "h2o")"));
  std::string text = *ReadFile(Path("mine.json"));
  text.replace(text.find("\"max_new_tokens\": 6"), 19, "\"max_new_tokens\": 3000");
  Write("mine.json", text);
  const pid_t child = Start({"run", Path("mine.json"), "--db", Path("r.db"), "--limit", "2"});
  const auto started = [&] {
    const Result<std::string> said = ReadFile(Path("err"));
    return said.ok() && said->find("[1/") != std::string::npos;
  };
  ASSERT_TRUE(WaitUntil(child, started));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  kill(child, SIGINT);
  // Said at once, while the sample goes on for long.
  const auto acknowledged = [&] {
    return ReadFile(Path("err"))->find("once more leaves at once\n") != std::string::npos;
  };
  const double first_s = NowSeconds();
  while (!acknowledged() && NowSeconds() - first_s < 2) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(acknowledged());
  const double asked_s = NowSeconds();
  kill(child, SIGINT);
  EXPECT_EQ(Wait(child).exit_code, 130);
  EXPECT_LT(NowSeconds() - asked_s, 2.0);
  EXPECT_TRUE(Open("r.db", StoreMode::kReadWrite)->Check().ok());
}

TEST_F(RunFaults, TwoWritersAtOnce) {
  RunInto("r.db", {"--limit", "1"});
  const auto holder = Open("r.db", StoreMode::kReadWrite);
  const Outcome outcome = Run({"run", Path("mine.json"), "--db", Path("r.db")});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr(Path("r.db")));
  EXPECT_EQ(Samples("r.db"), 24);
}

TEST_F(RunFaults, DevicesAreOfABackendThatHasThem) {
  const Outcome cpu = Run({"run", Path("mine.json"), "--db", Path("r.db"), "--devices", "0,1"});
  EXPECT_EQ(cpu.exit_code, 2);
  EXPECT_THAT(cpu.err, HasSubstr("--devices: backend cpu has no devices to choose from, expected "
                                 "--backend cuda"));
  const Outcome none = Run({"run", Path("mine.json"), "--db", Path("r.db"), "--devices", ""});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("--devices: '', expected numbers of devices from 0"));
  EXPECT_FALSE(FileExists(Path("r.db")));
}

TEST_F(RunFaults, PlacesThatCannotBeWritten) {
  Write("file", "x");
  for (const std::string& database : {Path("file/r.db"), directory_, Path("file")}) {
    const Outcome outcome = Run({"run", Path("mine.json"), "--db", database});
    EXPECT_TRUE(outcome.exit_code == 1 || outcome.exit_code == 2) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(database.substr(0, database.rfind("/r.db"))));
  }
  EXPECT_EQ(*ReadFile(Path("file")), "x");
}

// Permissions say nothing to root, so the program runs as nobody.
TEST_F(RunFaults, AReadOnlyDirectory) {
  RunInto("r.db", {"--limit", "1"});
  const std::string digest = Digest("r.db");
  for (const auto& file : std::filesystem::directory_iterator(directory_)) {
    ASSERT_EQ(chmod(file.path().c_str(), 0444), 0);
  }
  ASSERT_EQ(chmod(directory_.c_str(), 0555), 0);
  const auto as_nobody = [&](const std::vector<std::string>& arguments) {
    const std::string out = StrCat(::testing::TempDir(), "kvg_nobody_", getpid());
    std::string command = geteuid() == 0 ? "setpriv --reuid=65534 --clear-groups " : "";
    command += StrCat("'", KVG_PROGRAM, "'");
    for (const std::string& word : arguments) command += StrCat(" '", word, "'");
    const int status = std::system(StrCat(command, " >", out, " 2>&1").c_str());
    Outcome outcome = {.exit_code = WEXITSTATUS(status), .out = *ReadFile(out), .err = {}};
    std::filesystem::remove(out);
    return outcome;
  };
  const Outcome known = as_nobody({"--version"});
  if (known.exit_code != 0) GTEST_SKIP() << "cannot run as nobody: " << known.out;
  for (const char* database : {"r.db", "new.db"}) {
    const Outcome outcome = as_nobody({"run", Path("mine.json"), "--db", Path(database)});
    EXPECT_EQ(outcome.exit_code, 1) << outcome.out;
    EXPECT_THAT(outcome.out, HasSubstr(Path(database)));
  }
  EXPECT_FALSE(FileExists(Path("new.db")));
  // What is there can still be read.
  const Outcome board = as_nobody({"leaderboard", Path("r.db")});
  EXPECT_EQ(board.exit_code, 0) << board.out;
  ASSERT_EQ(chmod(directory_.c_str(), 0755), 0);
  EXPECT_EQ(Digest("r.db"), digest);
}

// A limit on the size of files stands for a full disk.
TEST_F(RunFaults, ADiskThatIsFull) {
  RunInto("whole.db");
  const auto whole_bytes = std::filesystem::file_size(Path("whole.db"));
  const std::string command =
      StrCat("trap '' XFSZ; ulimit -f ", whole_bytes / 512 / 2, "; exec '", KVG_PROGRAM, "' run '",
             Path("mine.json"), "' --db '", Path("r.db"), "' 2>'", Path("err"), "'");
  const int status = std::system(command.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 1) << *ReadFile(Path("err"));
  EXPECT_THAT(*ReadFile(Path("err")), HasSubstr(Path("r.db")));
  const int64_t before = Samples("r.db");
  EXPECT_LT(before, Samples("whole.db"));
  RunInto("r.db");
  EXPECT_EQ(Digest("r.db"), Digest("whole.db"));
}

}  // namespace
}  // namespace kvgauge
