// SPDX-License-Identifier: Apache-2.0
// Runs over several devices of one machine, each worker a process of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <thread>

#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "harness/cli.h"
#include "reports/store.h"
#include "src/cluster/subprocess.h"
#include "src/run/shared_work.h"
#include "support/tiny_eyes.h"
#include "support/tiny_models.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kSamples = 5;
constexpr int64_t kRows = 3;  // the full cache is always among them

class SeveralDevices : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "kvg_devices_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    Json config = *ParseJson(TinyConfig("gqa"), "config");
    config["vocab_size"] = 1792;  // of the tokenizer
    Write("config.json", config.dump());
    for (const char* file : {"tokenizer.model", "tokenizer_config.json"}) {
      std::filesystem::copy_file(StrCat(KVG_SOURCE_DIR, "/models/ref-gqa/", file), Path(file));
    }
    Write("run.json", Config(""));
    setenv("KVG_EMULATED_DEVICES", "3", 1);
  }
  ~SeveralDevices() override {
    for (const char* name : {"DEVICES", "CAPACITY", "LOST", "CAPABILITY"}) {
      unsetenv(StrCat("KVG_EMULATED_", name).c_str());
    }
    std::filesystem::remove_all(directory_);
  }

  std::string Config(const std::string& more) const {
    return StrCat(R"({"models": [{"path": ")", Path("config.json"),
                  R"(", "name": "tiny", "weights": "random:5"}],
      "tasks": [{"task": "passkey", "samples": )",
                  kSamples, R"(, "source": {"lengths": "128"},
                 "max_new_tokens": 4}],
      "methods": ["snapkv", "kivi_2bit"], "budgets": ["50%"], "backend": "cuda")",
                  more, "}");
  }

  struct Ended {
    int exit_code;
    std::string out, err;
  };
  // The run, with more arguments, into a database.
  std::vector<std::string> Words(const std::string& database,
                                 const std::vector<std::string>& more) const {
    std::vector<std::string> words = {"/proc/self/exe", "run", Path("run.json"), "--db",
                                      Path(database)};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  Ended Run(const std::string& database, const std::vector<std::string>& more) const {
    return Finish(*StartProgram(Words(database, more), true));
  }
  static Ended Finish(const StartedProgram& program) {
    Ended ended;
    ended.out = ReadAll(program.out);
    ended.err = ReadAll(program.err);
    ended.exit_code = WaitForProgram(program);
    return ended;
  }
  // The process of a worker, by its place among the devices; 0: there is none.
  static pid_t WorkerOf(pid_t leader, int index) {
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const pid_t process = std::atoi(entry.path().filename().c_str());
      if (process <= 0) continue;
      const std::string path = entry.path().string();
      const Result<std::string> stat = ReadFile(path + "/stat"), line = ReadFile(path + "/cmdline");
      if (!stat.ok() || !line.ok()) continue;  // it has ended
      // "PID (NAME) STATE PARENT ..."
      const std::string parent = StrCat(" ", leader, " ");
      const size_t state = stat->rfind(')') + 3;
      if (stat->compare(state, parent.size(), parent) != 0) continue;
      if (line->find("--worker=") == std::string::npos) continue;
      if (line->ends_with(StrCat(":", index, std::string(1, '\0')))) return process;
    }
    return 0;
  }
  // The same once it is there: the first cells may come before the last worker has begun.
  static pid_t WaitForWorker(pid_t leader, int index) {
    pid_t worker = 0;
    for (int i = 0; worker == 0 && i < 1000; ++i) {
      worker = WorkerOf(leader, index);
      if (worker == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return worker;
  }
  static std::string ReadAll(int from) {
    std::string text;
    char buffer[4096];
    for (ssize_t count; (count = read(from, buffer, sizeof(buffer))) > 0;) {
      text.append(buffer, static_cast<size_t>(count));
    }
    close(from);
    return text;
  }

  std::unique_ptr<ResultStore> Open(const std::string& database) const {
    Result<std::unique_ptr<ResultStore>> store =
        ResultStore::Open(Path(database), StoreMode::kReadOnly);
    EXPECT_TRUE(store.ok()) << store.error().message;
    return store.ok() ? std::move(store).value() : nullptr;
  }
  std::string Digest(const std::string& database) const { return *Open(database)->ResultDigest(); }
  int64_t Recorded(const std::string& database) const {
    if (!FileExists(Path(database))) return 0;
    const auto store = ResultStore::Open(Path(database), StoreMode::kReadOnly);
    if (!store.ok()) return 0;  // not yet
    int64_t count = 0;
    const auto cells = (*store)->Cells();
    for (const StoredCell& cell : cells.ok() ? *cells : std::vector<StoredCell>()) {
      const auto scores = (*store)->Scores(cell.id);
      if (scores.ok()) count += std::ssize(*scores);
    }
    return count;
  }
  bool HasEvent(const std::string& database, int64_t run, const std::string& kind) const {
    const std::vector<EventRow> events = *Open(database)->Events(run);
    return std::ranges::any_of(events, [&](const EventRow& event) { return event.kind == kind; });
  }
  // Waits until so many cells are recorded.
  bool WaitForCells(const std::string& database, int64_t cells) const {
    for (int i = 0; i < 3000; ++i) {
      if (Recorded(database) >= cells) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(Path(name)) << text;
  }
  std::string Path(const std::string& name) const { return directory_ + "/" + name; }

 private:
  std::string directory_;
};

TEST_F(SeveralDevices, GiveTheBitsOfOne) {
  const Ended one = Run("one.db", {"--quiet"});
  ASSERT_EQ(one.exit_code, kExitOk) << one.err;
  const Ended two = Run("two.db", {"--devices", "2,0", "--json"});
  ASSERT_EQ(two.exit_code, kExitOk) << two.err;
  EXPECT_EQ(Recorded("two.db"), kSamples * kRows);
  EXPECT_EQ(Digest("two.db"), Digest("one.db"));

  const Json json = *ParseJson(two.out, "output");
  EXPECT_EQ(json["cells"], kSamples * kRows);
  EXPECT_EQ(json["succeeded"], kSamples * kRows);
  EXPECT_EQ(json["prefills"], kSamples);  // no sample was run twice
  ASSERT_EQ(json["workers"].size(), 2u);
  int64_t cells = 0;
  for (const Json& worker : json["workers"]) {
    EXPECT_EQ(worker["exit_code"], 0);
    EXPECT_GT(worker["cells"], 0) << "a device that had nothing to do";
    cells += worker["cells"].get<int64_t>();
  }
  EXPECT_EQ(json["workers"][0]["device"], 2);
  EXPECT_EQ(cells, kSamples * kRows);

  // One line of progress for all.
  EXPECT_THAT(two.err, HasSubstr("run on devices 2, 0: 5/5 samples, 15 cells"));
  EXPECT_THAT(two.err, Not(HasSubstr("[1/1]")));
  // Each worker is a run on record, with the command that was given.
  const auto runs = *Open("two.db")->Runs();
  ASSERT_EQ(runs.size(), 2u);
  for (const StoredRun& run : runs) {
    EXPECT_THAT(run.run.command, HasSubstr("--devices 2,0"));
    EXPECT_THAT(run.run.command, Not(HasSubstr("--worker")));
    EXPECT_FALSE(run.run.finished_at.empty());
    EXPECT_TRUE(HasEvent("two.db", run.id, "started"));
  }

  // Once more: nothing is left, whoever asks.
  const Ended again = Run("two.db", {"--devices", "all", "--json"});
  ASSERT_EQ(again.exit_code, kExitOk) << again.err;
  EXPECT_EQ((*ParseJson(again.out, "output"))["cells"], 0);
  EXPECT_EQ((*ParseJson(again.out, "output"))["had"], kSamples);
}

// What is switched off moves times, so it is on record.
TEST_F(SeveralDevices, SwitchesAreOnRecord) {
  setenv("KVGAUGE_CUDA_GRAPHS", "off", 1);
  const Ended ended = Run("r.db", {"--quiet", "--samples", "0"});
  unsetenv("KVGAUGE_CUDA_GRAPHS");
  ASSERT_EQ(ended.exit_code, kExitOk) << ended.err;
  const std::vector<EventRow> events = *Open("r.db")->Events((*Open("r.db")->Runs())[0].id);
  const auto found = std::ranges::find(events, "environment", &EventRow::kind);
  ASSERT_NE(found, events.end());
  EXPECT_THAT(found->message, HasSubstr(R"("KVGAUGE_CUDA_GRAPHS":"off")"));
}

// Five processors are three of one worker and two of the other.
TEST_F(SeveralDevices, DivideProcessors) {
  ASSERT_EQ(Run("r.db", {"--quiet", "--devices", "0,1", "--processors", "5"}).exit_code, kExitOk);
  std::vector<int64_t> threads;
  const std::vector<StoredRun> runs = *Open("r.db")->Runs();
  for (const StoredRun& run : runs) {
    threads.push_back(ParseJson(run.run.machine.facts, "facts")->at("threads").get<int64_t>());
  }
  EXPECT_THAT(threads, ::testing::UnorderedElementsAre(3, 2));
}

// One process, and the layers of the model on two devices.
TEST_F(SeveralDevices, HaveTheLayersOfAModel) {
  ASSERT_EQ(Run("one.db", {"--quiet"}).exit_code, kExitOk);
  const Ended two = Run("layers.db", {"--backend", "cuda:2+0", "--json"});
  ASSERT_EQ(two.exit_code, kExitOk) << two.err;
  EXPECT_EQ(Recorded("layers.db"), kSamples * kRows);
  EXPECT_EQ(Digest("layers.db"), Digest("one.db"));
  EXPECT_THAT(two.err, HasSubstr("tiny: emulated device 1 of 2: layers 0 to 0, "));
  EXPECT_THAT(two.err, HasSubstr("; emulated device 2 of 2: layers 1 to 1, "));
  const auto runs = *Open("layers.db")->Runs();
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_TRUE(HasEvent("layers.db", runs[0].id, "layers"));
  EXPECT_THAT(runs[0].run.machine.facts,
              HasSubstr(R"("devices":["emulated device","emulated device"])"));
  // The cells are those of one device: nothing is left to do.
  const Ended again = Run("one.db", {"--backend", "cuda:0+1", "--json"});
  ASSERT_EQ(again.exit_code, kExitOk) << again.err;
  EXPECT_EQ((*ParseJson(again.out, "output"))["cells"], 0);

  // A device that is too small is said before anything runs.
  setenv("KVG_EMULATED_CAPACITY", "1:200000", 1);
  const Ended small = Run("small.db", {"--backend", "cuda:0+1"});
  EXPECT_NE(small.exit_code, kExitOk);
  EXPECT_THAT(small.err, HasSubstr("the weights fit on these devices in no division"));
  EXPECT_EQ(Recorded("small.db"), 0);
  unsetenv("KVG_EMULATED_CAPACITY");

  // A method that looks across layers is refused with its reason; the others run.
  std::string text = Config("");
  text.replace(text.find("kivi_2bit"), 9, "minicache");
  Write("run.json", text);
  const Ended mixed = Run("mixed.db", {"--backend", "cuda:0+1"});
  EXPECT_THAT(mixed.out + mixed.err, HasSubstr("method minicache stores several layers together"));
  EXPECT_EQ(Recorded("mixed.db"), kSamples * 2);
}

TEST_F(SeveralDevices, ShareShardsAndChosenSamples) {
  ASSERT_EQ(Run("a.db", {"--quiet", "--shard", "2/3"}).exit_code, kExitOk);
  ASSERT_EQ(Run("b.db", {"--quiet", "--shard", "2/3", "--devices", "0,1"}).exit_code, kExitOk);
  EXPECT_EQ(Recorded("a.db"), 2 * kRows);
  EXPECT_EQ(Digest("a.db"), Digest("b.db"));
  ASSERT_EQ(Run("b.db", {"--quiet", "--samples", "0,2-3", "--devices", "0,1"}).exit_code, kExitOk);
  ASSERT_EQ(Run("a.db", {"--quiet", "--samples", "0,2-3"}).exit_code, kExitOk);
  EXPECT_EQ(Digest("a.db"), Digest("b.db"));
}

// A device is lost in the middle: the others go on, and the same command does the rest.
TEST_F(SeveralDevices, GoOnWithoutOneThatIsLost) {
  setenv("KVG_EMULATED_LOST", "1:200", 1);
  const Ended lost = Run("r.db", {"--devices", "0,1"});
  EXPECT_EQ(lost.exit_code, kExitFailure) << lost.err;
  EXPECT_THAT(lost.err, HasSubstr("cuda: device 1 is lost"));
  EXPECT_THAT(lost.err, HasSubstr("device 1: its worker was ended by signal 6"));
  EXPECT_THAT(lost.err, HasSubstr("the worker of device 1 did not go to the end"));
  const int64_t recorded = Recorded("r.db");
  EXPECT_GT(recorded, 0);
  EXPECT_LT(recorded, kSamples * kRows);
  EXPECT_EQ((*ParseJson(Run("r.db", {"--devices", "0,2", "--json"}).out, "output"))["cells"],
            kSamples * kRows - recorded);
  EXPECT_EQ(Recorded("r.db"), kSamples * kRows);
  const auto runs = *Open("r.db")->Runs();
  EXPECT_TRUE(HasEvent("r.db", runs.back().id, "resumed"));
}

// A worker is killed: the run says so, and the same command does what it left.
TEST_F(SeveralDevices, GoOnWithoutAWorkerThatIsKilled) {
  ASSERT_EQ(Run("one.db", {"--quiet"}).exit_code, kExitOk);
  const StartedProgram led = *StartProgram(Words("r.db", {"--devices", "0,1"}), true);
  ASSERT_TRUE(WaitForCells("r.db", 1));
  const pid_t worker = WaitForWorker(led.process, 1);
  ASSERT_GT(worker, 0);
  kill(worker, SIGKILL);
  const Ended ended = Finish(led);
  EXPECT_EQ(ended.exit_code, kExitFailure) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("device 1: its worker was ended by signal 9"));
  EXPECT_THAT(ended.err, HasSubstr("what it left open is run by the same command:\n"));
  const Ended rest = Run("r.db", {"--devices", "0,1", "--quiet"});
  ASSERT_EQ(rest.exit_code, kExitOk) << rest.err;
  EXPECT_EQ(Digest("r.db"), Digest("one.db"));
}

// The process that leads the run may be killed: no worker is left, and nothing is lost.
TEST_F(SeveralDevices, EndWithTheProcessThatLeads) {
  ASSERT_EQ(Run("one.db", {"--quiet"}).exit_code, kExitOk);
  const StartedProgram led = *StartProgram(Words("r.db", {"--devices", "0,1"}), true);
  ASSERT_TRUE(WaitForCells("r.db", 1));
  kill(led.process, SIGKILL);
  const Ended killed = Finish(led);  // its pipes are closed when the last worker has ended, too
  EXPECT_EQ(killed.exit_code, 128 + SIGKILL);
  const Ended rest = Run("r.db", {"--devices", "0,1", "--quiet"});
  ASSERT_EQ(rest.exit_code, kExitOk) << rest.err;
  EXPECT_EQ(Digest("r.db"), Digest("one.db"));
}

TEST_F(SeveralDevices, FinishWhatRunsWhenInterrupted) {
  const StartedProgram led = *StartProgram(Words("r.db", {"--devices", "0,1"}), true);
  ASSERT_TRUE(WaitForCells("r.db", 1));
  kill(led.process, SIGTERM);
  const Ended stopped = Finish(led);
  EXPECT_EQ(stopped.exit_code, 128 + SIGTERM) << stopped.err;
  EXPECT_THAT(stopped.err, HasSubstr("stopping: samples that are running are finished first"));
  EXPECT_THAT(stopped.err, HasSubstr("interrupted; nothing that was recorded is lost"));
  EXPECT_EQ(Recorded("r.db") % kRows, 0);  // whole samples
  ASSERT_EQ(Run("r.db", {"--devices", "0,1", "--quiet"}).exit_code, kExitOk);
  EXPECT_EQ(Recorded("r.db"), kSamples * kRows);
}

// Another run cannot write beside it.
TEST_F(SeveralDevices, HoldTheDatabaseForTheirs) {
  const StartedProgram led = *StartProgram(Words("r.db", {"--devices", "0,1", "--quiet"}), true);
  ASSERT_TRUE(WaitForCells("r.db", 1));
  const Ended other = Run("r.db", {"--quiet"});
  EXPECT_EQ(other.exit_code, kExitFailure);
  EXPECT_THAT(other.err, HasSubstr(StrCat("process ", led.process, " writes to it")));
  EXPECT_EQ(Finish(led).exit_code, kExitOk);
}

// The weights do not fit on it: others run everything, also what it had claimed.
TEST_F(SeveralDevices, OneThatIsTooSmallIsSaid) {
  setenv("KVG_EMULATED_CAPACITY", "1:200000", 1);
  const Ended small = Run("r.db", {"--devices", "0,1"});
  EXPECT_THAT(small.err, HasSubstr("device 1 has 195.3 KiB free, another has "));
  EXPECT_EQ(small.exit_code, kExitOk) << small.err;
  EXPECT_THAT(small.err, HasSubstr("device 0 runs what did not fit on others"));
  EXPECT_EQ(Recorded("r.db"), kSamples * kRows);
}

// Where no other is left to run them, that is an error.
TEST_F(SeveralDevices, WhereTheWeightsFitOnNoneTheRunEnds) {
  setenv("KVG_EMULATED_CAPACITY", "0:200000", 1);
  const Ended small = Run("r.db", {"--devices", "0"});
  unsetenv("KVG_EMULATED_CAPACITY");
  EXPECT_EQ(small.exit_code, kExitFailure);
  EXPECT_THAT(small.err, HasSubstr("weights"));
  EXPECT_EQ(Recorded("r.db"), 0);
}

// A device on which the weights fit and no prompt does would fail all samples in no time: others
// run them.
TEST_F(SeveralDevices, OneThatIsTooSmallTakesNothingFromOthers) {
  ASSERT_EQ(Run("one.db", {"--quiet"}).exit_code, kExitOk);
  setenv("KVG_EMULATED_CAPACITY", "1:2500000", 1);
  const Ended ended = Run("r.db", {"--devices", "0,1", "--json"});
  ASSERT_EQ(ended.exit_code, kExitOk) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("samples that do not fit there are left to others"));
  EXPECT_THAT(ended.err, HasSubstr("device 0 runs what did not fit on others"));
  const Json json = *ParseJson(ended.out, "output");
  EXPECT_EQ(json["cells"], kSamples * kRows);
  EXPECT_EQ(json["failed"], 0);
  EXPECT_EQ(json["workers"][1]["cells"], 0);
  EXPECT_EQ(Digest("r.db"), Digest("one.db"));
}

// The same where the tower and the weights fit, and what the tower makes does not.
TEST_F(SeveralDevices, PicturesThatDoNotFitAreLeftToOthers) {
  WriteTinyEyes(Path("eyes"));
  Write("run.json", StrCat(R"({"models": [{"path": ")", Path("eyes/config.json"),
                           R"(", "name": "eyes", "weights": "random:5"}],
      "tasks": [{"task": "visual/needle", "samples": )",
                           kSamples, R"(,
                 "source": {"pictures": "3", "samples": 1}, "max_new_tokens": 3}],
      "methods": ["snapkv", "kivi_2bit"], "budgets": ["50%"], "backend": "cuda"})"));
  ASSERT_EQ(Run("one.db", {"--quiet"}).exit_code, kExitOk);
  setenv("KVG_EMULATED_CAPACITY", "1:1500000", 1);
  const Ended ended = Run("r.db", {"--devices", "0,1", "--json"});
  ASSERT_EQ(ended.exit_code, kExitOk) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("device 0 runs what did not fit on others"));
  const Json json = *ParseJson(ended.out, "output");
  EXPECT_EQ(json["cells"], kSamples * kRows);
  EXPECT_EQ(json["failed"], 0);
  EXPECT_EQ(Digest("r.db"), Digest("one.db"));
}

// A limit that is the same for all leaves nothing to others: what does not fit fails, and once
// only, also where latency is measured behind it.
TEST_F(SeveralDevices, WhatFitsOnNoneFailsOnce) {
  std::string text = Config(R"(, "latency": {"contexts": [64], "decode_steps": 2,
                                             "repetitions": 1, "most_retries": 0})");
  const std::string lengths = R"("lengths": "128")";
  text.replace(text.find(lengths), lengths.size(), R"("lengths": "128,1500", "samples": 1)");
  Write("run.json", text);
  setenv("KVG_EMULATED_CAPACITY", "1:20000000", 1);
  const Ended ended =
      Run("r.db", {"--devices", "0,1", "--json", "--retry", "--max-memory", "6500KiB"});
  ASSERT_EQ(ended.exit_code, kExitOk) << ended.err;
  const Json json = *ParseJson(ended.out, "output");
  EXPECT_EQ(json["succeeded"], kRows);
  EXPECT_EQ(json["failed"], kRows);
  EXPECT_GT(json["latencies"], 0);
  EXPECT_THAT(ended.err, Not(HasSubstr("did not fit on others")));
}

// What is measured alone comes when the workers have ended.
TEST_F(SeveralDevices, MeasureTimesAlone) {
  Write("run.json", Config(R"(, "latency": {"contexts": [64], "decode_steps": 2,
                                            "repetitions": 1, "most_retries": 0})"));
  const Ended ended = Run("r.db", {"--devices", "1,2", "--json", "--samples", "0-1"});
  ASSERT_EQ(ended.exit_code, kExitOk) << ended.err;
  const Json json = *ParseJson(ended.out, "output");
  EXPECT_EQ(json["cells"], 2 * kRows);
  EXPECT_GT(json["latencies"], 0);
  EXPECT_EQ(json["had"], 2);  // by the process that measured
}

TEST_F(SeveralDevices, WrongChoicesAreRefused) {
  struct Case {
    std::vector<std::string> arguments;
    const char* said;
  };
  const Case cases[] = {
      {{"--devices", "0,3"}, "--devices: device 3 does not exist: there are 3, devices 0 to 2"},
      {{"--devices", "1,1"}, "--devices: '1,1' names device 1 twice"},
      {{"--devices", "0,x"}, "--devices: '0,x', expected numbers of devices from 0, such as 0,1"},
      {{"--devices", "0,"}, "--devices: '0,', expected numbers"},
      {{"--devices", ""}, "--devices: '', expected numbers of devices from 0, such as 0,1, or all"},
      {{"--devices", "0,1", "--backend", "cpu"},
       "--devices: backend cpu has no devices to choose from, expected --backend cuda"},
      {{"--devices", "0,1", "--backend", "cuda:1"},
       "--devices: backend cuda:1 is one device already, expected --backend cuda"},
      {{"--devices", "0,1", "--backend", "cuda:0+1"},
       "--devices: backend cuda:0+1 is one model on several devices, expected --backend cuda"},
      {{"--devices", "0,1,2", "--processors", "2"},
       "--processors: 2 for 3 devices; expected one for each at least"},
      {{"--devices", "0,1", "--processors", "2", "--threads", "2"},
       "--processors, --threads: one is of all workers and one is of each"},
      {{"--processors", "2"}, "--processors: no workers share them; expected --devices, too"},
      {{"--backend", "cuda:0+0"}, "backend 'cuda:0+0': device 0 is named twice"},
      {{"--backend", "cuda:0+"}, "or several for the layers of one model, such as cuda:0+1"},
      {{"--backend", "cuda:0+7"}, "device 7 does not exist: there are 3, devices 0 to 2"},
      {{"--devices", "0,1", "--only", "snapkvv"}, "snapkvv"},
      {{"--worker", "3:0"}, "--worker: '3:0' names no run"},
      {{"--worker", "x"}, "--worker: 'x' names no run"}};
  for (const Case& c : cases) {
    const Ended ended = Run("r.db", c.arguments);
    EXPECT_EQ(ended.exit_code, kExitBadInput) << c.said;
    EXPECT_THAT(ended.err, HasSubstr(c.said));
  }
  setenv("KVG_EMULATED_CAPABILITY", "2:80", 1);
  const Ended mixed = Run("r.db", {"--devices", "0,2"});
  EXPECT_EQ(mixed.exit_code, kExitBadInput);
  EXPECT_THAT(mixed.err, HasSubstr("--devices: device 0 (emulated device, sm_90) and device 2 "
                                   "(emulated device, sm_80) may give other bits"));
  setenv("KVG_EMULATED_CAPABILITY", "2:75", 1);
  EXPECT_THAT(Run("r.db", {"--devices", "all"}).err,
              HasSubstr("--devices: device 2 (emulated device) has compute capability 7.5"));
  EXPECT_FALSE(FileExists(Path("r.db")));
}

// What every worker refuses is said once, with the exit code that one of them would have.
TEST_F(SeveralDevices, WhatAllRefuseIsSaidOnce) {
  const Ended ended = Run("r.db", {"--devices", "0,1", "--samples", "90-99"});
  EXPECT_EQ(ended.exit_code, kExitBadInput);
  const size_t said = ended.err.find("error: --samples: no task has a sample at these positions");
  ASSERT_NE(said, std::string::npos) << ended.err;
  EXPECT_EQ(ended.err.find("error", said + 1), std::string::npos) << ended.err;
  EXPECT_THAT(ended.err, Not(HasSubstr("recorded in")));
}

TEST(SharedWork, GivesEachSampleOnce) {
  const auto work = *SharedWork::Create({0, 1, 2, 3}, false);
  std::mutex mutex;
  std::map<int64_t, int> given;
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const auto mine = *SharedWork::Join(work->Word(i));
      EXPECT_EQ(mine->device(), i);
      int64_t last = -1;
      for (int n = 0; n < 500; ++n) {
        const int64_t position = mine->Claim(2);
        EXPECT_GT(position, last);
        last = position;
        const std::lock_guard lock(mutex);
        ++given[position];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(given.size(), 2000u);
  EXPECT_EQ(given.rbegin()->first, 1999);
  EXPECT_EQ(work->Claim(3), 0);
}

TEST(SharedWork, TakesFewerTogetherTowardsTheEnd) {
  const auto work = *SharedWork::Create({0, 1}, true);
  EXPECT_TRUE(work->resumed());
  EXPECT_EQ(work->Together(0, 1000), 64);
  EXPECT_EQ(work->Together(0, 40), 10);
  EXPECT_EQ(work->Together(32, 40), 2);
  EXPECT_EQ(work->Together(39, 40), 1);
  EXPECT_EQ(work->Together(40, 40), 1);
  EXPECT_GT(work->Together(0, -1), 0);
  EXPECT_EQ(work->known().began, 0);
  const auto second = *SharedWork::Join(work->Word(1));
  work->Begin(10, 30, 500);
  EXPECT_EQ(work->known().began, 1);
  second->Begin(11, 31, 400);
  EXPECT_EQ(work->known().began, 2);
  EXPECT_EQ(work->known().cells, 30);
  EXPECT_EQ(work->known().free_bytes, (std::vector<int64_t>{500, 400}));
  EXPECT_FALSE(SharedWork::Join(work->Word(2)).ok());
  EXPECT_FALSE(second->EndWithLeader().ok());  // this process is its own
}

}  // namespace
}  // namespace kvgauge
