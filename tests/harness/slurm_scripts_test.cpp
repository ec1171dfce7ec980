// SPDX-License-Identifier: Apache-2.0
#include "src/cluster/slurm_scripts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/files.h"
#include "core/strings.h"
#include "src/cluster/subprocess.h"
#include "src/run/shared_work.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

SlurmJob PlainJob() {
  SlurmJob job;
  job.name = "quickstart";
  job.program = "/opt/kvgauge/bin/kvgauge";
  job.working_directory = "/home/user/results";
  job.config = "quickstart";
  job.database = "/home/user/results/results/quick.db";
  job.directory = "/home/user/results/results/quick.db.shards";
  job.shards = 4;
  return job;
}

SlurmJob FullJob() {
  SlurmJob job = PlainJob();
  job.config = "/home/user/my runs/all.json";
  job.name = "all of it";
  job.arguments = {"--limit", "100", "--only", "it's $HOME"};
  job.array_limit = 2;
  job.cpus = 8;
  job.partition = "gpu,long";
  job.time = "1-12:00:00";
  job.memory = "16G";
  return job;
}

// Approved outputs: scripts/approve rewrites them; the change is reviewed like code.
void ExpectApproved(const std::string& name, const std::string& got) {
  const std::string path = StrCat(KVG_TEST_DATA, "/harness/slurm/", name);
  if (std::getenv("KVG_APPROVE") != nullptr) {
    std::ofstream(path, std::ios::binary) << got;
    return;
  }
  const Result<std::string> want = ReadFile(path);
  ASSERT_TRUE(want.ok()) << want.error().message << "; run scripts/approve";
  EXPECT_EQ(got, *want) << path << " changed; run scripts/approve if it should";
}

TEST(SlurmScripts, AreAsApproved) {
  ExpectApproved("plain_shard.sh", ShardScript(PlainJob()));
  ExpectApproved("plain_merge.sh", MergeScript(PlainJob()));
  ExpectApproved("full_shard.sh", ShardScript(FullJob()));
  ExpectApproved("full_merge.sh", MergeScript(FullJob()));
}

// Slurm hands each task its devices; the run takes all that it is shown.
TEST(SlurmScripts, DevicesAreThoseOfTheScheduler) {
  SlurmJob job = PlainJob();
  job.gpus = 4;
  EXPECT_TRUE(CheckSlurmJob(job).ok());
  const std::string shard = ShardScript(job);
  EXPECT_THAT(shard, HasSubstr("#SBATCH --gres=gpu:4\n"));
  EXPECT_THAT(shard, HasSubstr(" --backend cuda --devices all\n"));
  EXPECT_THAT(MergeScript(job), ::testing::Not(HasSubstr("gpu")));
}

// A run on several devices has a worker for each, and these share what the shard has.
TEST(SlurmScripts, ProcessorsAreDividedAmongDevices) {
  SlurmJob job = PlainJob();
  const auto threads = [&job](int64_t cpus, int64_t gpus) {
    job.cpus = cpus;
    job.gpus = gpus;
    return ShardScript(job);
  };
  EXPECT_THAT(threads(8, 0), HasSubstr(" --threads 8\n"));
  EXPECT_THAT(threads(8, 1), HasSubstr(" --threads 8 --backend cuda"));
  EXPECT_THAT(threads(8, 3), HasSubstr(" --processors 8 --backend cuda --devices all"));
  EXPECT_THAT(threads(8, 3), HasSubstr("--cpus-per-task=8\n"));
  threads(2, 4);
  EXPECT_EQ(CheckSlurmJob(job).error().message,
            "--cpus: 2, expected 4 or more: one for each device of --gpus");
  threads(4, 4);
  EXPECT_TRUE(CheckSlurmJob(job).ok());
}

// None is idle and none is asked twice, as long as there is one for each.
TEST(SlurmScripts, WorkersShareProcessors) {
  EXPECT_EQ(ProcessorsOf(0, 2, 5), 3);
  EXPECT_EQ(ProcessorsOf(1, 2, 5), 2);
  for (int64_t workers = 1; workers <= 5; ++workers) {
    for (int processors = 1; processors <= 9; ++processors) {
      int sum = 0;
      for (int64_t w = 0; w < workers; ++w) {
        EXPECT_GE(ProcessorsOf(w, workers, processors), 1);
        sum += ProcessorsOf(w, workers, processors);
      }
      EXPECT_EQ(sum, std::max(processors, static_cast<int>(workers)));
    }
  }
}

TEST(SlurmScripts, WordsArriveAsTheyWere) {
  std::string directory = ::testing::TempDir() + "kvg $slurm 'x\"_XXXXXX";
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  // A program that shows its words.
  SlurmJob job = FullJob();
  job.program = directory + "/show words";
  std::ofstream(job.program) << "#!/bin/bash\npwd\nprintf '<%s>\\n' \"$@\"\n";
  std::filesystem::permissions(job.program, std::filesystem::perms::owner_all);
  job.working_directory = directory;
  job.directory = directory + "/a;b&c.shards";
  job.database = directory + "/`d`.db";
  job.arguments = {"--only", "*", "", "a\\nb", "-x=\"'"};
  ASSERT_TRUE(CheckSlurmJob(job).ok());
  const std::string shard = directory + "/shard.sh", merge = directory + "/merge.sh";
  std::ofstream(shard) << ShardScript(job);
  std::ofstream(merge) << MergeScript(job);
  const Result<ProgramOutput> ran = RunProgram({"env", "SLURM_ARRAY_TASK_ID=3", "bash", shard});
  ASSERT_TRUE(ran.ok()) << ran.error().message;
  EXPECT_EQ(ran->exit_code, 0);
  EXPECT_EQ(ran->out, StrCat(directory, "\n<run>\n<", job.config, ">\n<--shard>\n<3/4>\n<--db>\n<",
                             job.directory, "/shard-3-of-4.db>\n<--threads>\n<8>\n<--only>\n<*>\n",
                             "<>\n<a\\nb>\n<-x=\"'>\n"));
  const Result<ProgramOutput> merged = RunProgram({"bash", merge});
  ASSERT_TRUE(merged.ok()) << merged.error().message;
  EXPECT_THAT(merged->out, HasSubstr(StrCat("<merge>\n<", job.database, ">\n<", job.directory,
                                            "/shard-1-of-4.db>\n")));
  EXPECT_THAT(merged->out, HasSubstr("/shard-4-of-4.db>\n"));
  std::filesystem::remove_all(directory);
}

TEST(SlurmScripts, RefuseWhatSlurmWouldNotUnderstand) {
  const auto refused = [](auto change) {
    SlurmJob job = FullJob();
    change(job);
    const Status status = CheckSlurmJob(job);
    return status.ok() ? std::string("accepted") : status.error().message;
  };
  EXPECT_TRUE(CheckSlurmJob(FullJob()).ok());
  EXPECT_TRUE(CheckSlurmJob(PlainJob()).ok());
  EXPECT_THAT(refused([](SlurmJob& j) { j.shards = 0; }), HasSubstr("--shards: 0, expected"));
  EXPECT_THAT(refused([](SlurmJob& j) { j.shards = -3; }), HasSubstr("--shards: -3"));
  EXPECT_THAT(refused([](SlurmJob& j) { j.array_limit = -1; }), HasSubstr("--array-limit"));
  EXPECT_THAT(refused([](SlurmJob& j) { j.cpus = -1; }), HasSubstr("--cpus"));
  EXPECT_THAT(refused([](SlurmJob& j) { j.gpus = -1; }), HasSubstr("--gpus: -1, expected"));
  EXPECT_THAT(refused([](SlurmJob& j) {
                j.gpus = 2;
                j.arguments = {"--devices=0"};
              }),
              HasSubstr("--devices cannot be given to shards with --gpus"));
  EXPECT_THAT(refused([](SlurmJob& j) { j.arguments = {"--worker=3:0"}; }),
              HasSubstr("--worker cannot be given"));
  EXPECT_THAT(refused([](SlurmJob& j) { j.arguments = {"--processors=2"}; }),
              HasSubstr("--processors cannot be given"));
  EXPECT_THAT(refused([](SlurmJob& j) { j.partition = "a b"; }), HasSubstr("--partition: 'a b'"));
  EXPECT_THAT(refused([](SlurmJob& j) { j.memory = "16GB"; }), HasSubstr("--mem: '16GB'"));
  EXPECT_THAT(refused([](SlurmJob& j) { j.name = "a\nb"; }), HasSubstr("control characters"));
  EXPECT_THAT(refused([](SlurmJob& j) { j.directory = "/a\\b"; }), HasSubstr("backslash"));
  EXPECT_THAT(refused([](SlurmJob& j) {
                j.arguments = {"--shard", "1/2"};
              }),
              HasSubstr("--shard cannot be given"));
  EXPECT_THAT(refused([](SlurmJob& j) { j.arguments = {"--db=x"}; }), HasSubstr("--db cannot"));
  for (const char* time : {"2 hours", "1:2:3:4", "-5", "1-", "x-10", "1:", ""}) {
    const std::string message = refused([&](SlurmJob& j) { j.time = time; });
    if (*time == '\0') {
      EXPECT_EQ(message, "accepted");
    } else {
      EXPECT_THAT(message, HasSubstr("--time: "));
    }
  }
  for (const char* time : {"90", "90:30", "2:00:00", "1-12", "1-12:30", "1-12:30:15"}) {
    EXPECT_EQ(refused([&](SlurmJob& j) { j.time = time; }), "accepted") << time;
  }
}

TEST(Subprocess, TellsHowItEnded) {
  EXPECT_EQ(RunProgram({"bash", "-c", "echo out; exit 7"})->out, "out\n");
  EXPECT_EQ(RunProgram({"bash", "-c", "echo out; exit 7"})->exit_code, 7);
  EXPECT_EQ(RunProgram({"bash", "-c", "kill -9 $$"})->exit_code, 137);
  const StartedProgram started = *StartProgram({"bash", "-c", "echo out; echo err >&2"}, true);
  EXPECT_EQ(WaitForProgram(started), 0);
  char text[8] = {};
  EXPECT_EQ(read(started.out, text, sizeof(text)), 4);
  EXPECT_STREQ(text, "out\n");
  EXPECT_EQ(read(started.err, text, sizeof(text)), 4);
  EXPECT_STREQ(text, "err\n");
  close(started.out);
  close(started.err);
  const Result<ProgramOutput> none = RunProgram({"no-such-program-anywhere"});
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.error().message, HasSubstr("cannot be started"));
  EXPECT_THAT(FindProgram("bash"), HasSubstr("/bash"));
  EXPECT_EQ(FindProgram("no-such-program-anywhere"), "");
}

}  // namespace
}  // namespace kvgauge
