// SPDX-License-Identifier: Apache-2.0
// `kvgauge bench` and `kvgauge submit` as their users meet them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "cli/program.h"
#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"

namespace kvgauge {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class BenchCliTest : public ProgramTest {};

TEST_F(BenchCliTest, BenchLatencyComparesWithTheFullCache) {
  const std::string command =
      StrCat("bench latency ", KVG_SOURCE_DIR,
             "/models/ref-gqa/config.json --weights random:1 --methods snapkv,kivi_4bit "
             "--budgets 20%,40% --contexts 256 --decode-steps 4 --repetitions 2 --max-others 1 ");
  const Outcome table = Run(command);
  ASSERT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("x full"));
  EXPECT_THAT(table.out, HasSubstr("quantise"));
  EXPECT_THAT(table.err, HasSubstr("(8 of 8)"));

  const Outcome outcome = Run(command + "--pin --json");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = Json::parse(outcome.out);
  EXPECT_TRUE(json["settings"]["pin_threads"].get<bool>());
  EXPECT_GT(json["machine"]["processors"], 0);
  ASSERT_EQ(json["cells"].size(), 4u);
  for (const Json& cell : json["cells"]) {
    EXPECT_EQ(cell["repetitions"].size(), 2u);
    EXPECT_GT(cell["ttft_s"], 0);
    if (cell["full_cache"].get<bool>()) continue;
    EXPECT_LT(cell["resident_times_full"]["value"], 1) << cell["method"];
    EXPECT_EQ(cell["ttft_times_full"]["pairs"], 2);
  }
  EXPECT_GT(json["weight_bytes"], 0);
  EXPECT_TRUE(json["published"].empty());
  const Outcome wrong = Run("bench latency models/ref-gqa --budgets 20% --methods snapvk");
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("did you mean 'snapkv'"));
}

TEST_F(BenchCliTest, BenchLatencyTakesModelsInTurn) {
  const std::string models = StrCat(KVG_SOURCE_DIR, "/tests/golden/models/");
  const std::string command =
      StrCat("bench latency ", models,
             "llama3/config.json --weights random:1 --methods full "
             "--contexts 32 --decode-steps 2 --repetitions 2 "
             "--max-others 1 --beside ",
             models, "mamba/config.json,", models, "deepseek_v2/config.json:mla_latent ");
  const Outcome table = Run(command);
  ASSERT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("model"));
  const Outcome outcome = Run(command + "--json");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json cells = Json::parse(outcome.out)["cells"];
  ASSERT_EQ(cells.size(), 3u);
  EXPECT_TRUE(cells[0]["full_cache"].get<bool>());
  EXPECT_EQ(cells[1]["model"], models + "mamba/config.json");
  EXPECT_EQ(cells[1]["method"], "full");
  EXPECT_EQ(cells[2]["method"], "mla_latent");
  for (const Json& cell : cells) EXPECT_EQ(cell["repetitions"].size(), 2u);
  const Outcome budget =
      Run(StrCat("bench latency ", models, "llama3/config.json --beside bench-s:snapkv"));
  EXPECT_EQ(budget.exit_code, 2);
  EXPECT_THAT(budget.err, HasSubstr("takes a budget"));
  const Outcome wrong =
      Run(StrCat("bench latency ", models, "llama3/config.json --beside bench-mhb"));
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("did you mean 'bench-mha'"));
}

TEST_F(BenchCliTest, BenchLatencySetsPublishedNumbersBesideItsOwn) {
  const std::string command =
      StrCat("bench latency ", KVG_SOURCE_DIR,
             "/models/ref-gqa/config.json --backend cpu --weights random:1 --methods kivi_2bit "
             "--contexts 256,512 --decode-steps 2 --repetitions 1 --max-others 1 ");
  const Outcome table = Run(command);
  ASSERT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("arXiv:2402.02750"));
  EXPECT_THAT(table.out, HasSubstr("beside which the caches lie"));
  const Outcome outcome = Run(command + "--json");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json published = Json::parse(outcome.out)["published"];
  ASSERT_EQ(published.size(), 2u);
  for (const Json& claim : published) {
    EXPECT_EQ(claim["context_tokens"], 512);
    // Weights are most of this small model's memory, and codes most of a cache's saving.
    const bool peak = claim["published"] == 2.6;
    EXPECT_GT(claim["measured"], peak ? 0.9 : 1.2) << claim.dump();
    EXPECT_LT(claim["measured"], peak ? 1.1 : 6.0) << claim.dump();
  }
  const Outcome wrong = Run("bench latency llama-3.1-8c --weights random:1");
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("did you mean 'llama-3.1-8b'"));
}

TEST_F(BenchCliTest, BenchKernelsNamesItsAims) {
  const Outcome outcome = Run("bench kernels --backend cpu --entries 1024 --threads 1 --json");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json lengths = Json::parse(outcome.out)["lengths"];
  ASSERT_EQ(lengths.size(), 1u);
  EXPECT_EQ(lengths[0]["entries"], 1024);
  EXPECT_GT(lengths[0]["copy_gb_per_s"], 0);
  for (const Json& rate : lengths[0]["rates"]) {
    EXPECT_GT(rate["share"], 0) << rate.dump();
    // That of decode attention is for long caches.
    EXPECT_EQ(rate["aim"].is_null(), rate["operation"] != "prefill attention bf16");
  }
  EXPECT_EQ(Run("bench kernels --entries 100").exit_code, 2);
}

// Every command that measures shapes finds them by name, and says which there are.
TEST_F(BenchCliTest, ShapesHaveNames) {
  const std::pair<const char*, const char*> commands[] = {
      {"bench runner --prefill 0 --depth -1 --dtype bf16 --threads 1 --model ", ""},
      {"bench capacity ", " --estimate --batches 1 --requests 1"},
  };
  for (const auto& [before, after] : commands) {
    const Outcome wrong = Run(StrCat(before, "smolvlm-256n", after));
    EXPECT_EQ(wrong.exit_code, 2) << before;
    EXPECT_THAT(wrong.err, HasSubstr("model 'smolvlm-256n' is neither a path nor a shipped shape"));
    EXPECT_THAT(wrong.err, HasSubstr("did you mean 'smolvlm-256m'"));
    const Outcome outcome = Run(StrCat(before, "smolvlm-256m", after));
    EXPECT_EQ(outcome.exit_code, 0) << before << outcome.err;
  }
  for (const char* command : {"bench lockstep --model ", "bench vision --model "}) {
    const Outcome wrong = Run(StrCat(command, "bench-ss"));
    EXPECT_EQ(wrong.exit_code, 2) << command;
    EXPECT_THAT(wrong.err, HasSubstr("did you mean 'bench-s'")) << command;
  }
  const Outcome named = Run("bench capacity bench-s --estimate --batches 1 --requests 1 --json");
  ASSERT_EQ(named.exit_code, 0) << named.err;
  EXPECT_EQ(Json::parse(named.out)["model"], "bench-s");
  // What lies there goes before what is shipped.
  Write("bench-s", "{}");
  const Outcome own = Run("bench capacity bench-s --estimate --batches 1 --requests 1");
  EXPECT_EQ(own.exit_code, 2);
}

// A measurement of which no repetition is clean has no speed, least of all 0 tokens/s.
TEST_F(BenchCliTest, BenchRunnerSaysThatAMeasurementIsContended) {
  std::atomic<bool> done = false;
  std::thread other([&done] {
    while (!done) continue;
  });
  const std::string command =
      StrCat("bench runner --model ", KVG_SOURCE_DIR,
             "/models/ref-gqa --dtype f32 --prefill 1024 --depth -1 --repetitions 1 --threads 1 "
             "--max-others 0 ");
  const Outcome table = Run(command);
  const Outcome json = Run(command + "--json");
  done = true;
  other.join();
  ASSERT_EQ(table.exit_code, 0) << table.err;
  EXPECT_EQ(table.err, "ref-gqa f32 pp1024: contended\n");
  EXPECT_THAT(table.out, ContainsRegex("pp1024 +- +contended +0 +10\n"));
  ASSERT_EQ(json.exit_code, 0) << json.err;
  const Json cell = Json::parse(json.out)["cells"][0];
  EXPECT_EQ(cell["tokens_per_s"], Json::array());
  EXPECT_TRUE(cell["median_tokens_per_s"].is_null()) << cell.dump();
  EXPECT_EQ(cell["dropped"], 10);
}

TEST_F(BenchCliTest, BenchVisionMeasuresATower) {
  const std::string model = StrCat(KVG_SOURCE_DIR, "/tests/golden/vision/llava/config.json");
  const std::string command =
      StrCat("bench vision --repetitions 1 --threads 1 --json --model ", model);
  const Outcome outcome = Run(StrCat(command, " --pictures 2"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json cells = Json::parse(outcome.out)["cells"];
  ASSERT_EQ(cells.size(), 1u);
  EXPECT_EQ(cells[0]["rows_per_picture"], 16);
  EXPECT_EQ(cells[0]["pictures"], 2);
  for (const char* key : {"tower_ms", "tflop_per_s", "product_tflop_per_s", "share", "jpeg_ms"}) {
    EXPECT_GT(cells[0][key], 0) << key;
  }
  const Outcome wrong = Run(StrCat(command, " --dtype i8"));
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("--dtype i8: expected f32, f16 or bf16"));
}

TEST_F(BenchCliTest, SubmitWritesScriptsAndQueuesThem) {
  const std::string config = Write(
      "my run.json", StrCat(R"({"methods": ["full"], "tasks": ["reference/needle"], "models": [")",
                            KVG_SOURCE_DIR, R"(/models/ref-gqa"]})"));
  const std::string flags =
      StrCat("submit --slurm '", config, "' --shards 3 --db '", Path("out dir/all.db"), "' ");
  const std::string shards = Path("out dir/all.db.shards");
  Outcome outcome = Run(flags + "--dry-run --json -- --limit 5");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_TRUE(Json::parse(outcome.out)["array_job"].is_null());
  EXPECT_THAT(*ReadFile(shards + "/shard.sh"), HasSubstr("--limit 5"));
  EXPECT_TRUE(DirectoryExists(shards + "/log"));

  // An sbatch that numbers jobs and remembers how it was called.
  const auto run_with_sbatch = [&](const std::string& body, const std::string& arguments) {
    std::filesystem::create_directories(Path("bin"));
    const std::string sbatch = Write("bin/sbatch", "#!/bin/sh\n" + body);
    std::filesystem::permissions(sbatch, std::filesystem::perms::owner_all);
    const std::string before = std::getenv("PATH");
    setenv("PATH", StrCat(Path("bin"), ":", before).c_str(), 1);
    Outcome ran = Run(arguments);
    setenv("PATH", before.c_str(), 1);
    return ran;
  };
  const std::string counting = StrCat("printf '%s\\n' \"$*\" >>'", Path("calls"),
                                      "'\necho \"$(wc -l <'", Path("calls"), "');cluster\"\n");
  outcome = run_with_sbatch(counting, flags);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(*ReadFile(Path("calls")),
            StrCat("--parsable ", shards, "/shard.sh\n--parsable --dependency=afterok:1 ", shards,
                   "/merge.sh\n"));
  EXPECT_THAT(outcome.out, HasSubstr("scancel 1 2"));
  EXPECT_THAT(outcome.out, HasSubstr("squeue -j 1,2"));

  outcome = run_with_sbatch("exit 3\n", flags);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("exit code 3"));
  outcome = run_with_sbatch("case \"$*\" in *depend*) exit 1;; esac; echo 8\n", flags);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("scancel 8"));

  Write("out dir/all.db.shards/shard-1-of-3.db", "");
  outcome = Run(StrCat("submit --slurm '", config, "' --shards 4 --dry-run --db '",
                       Path("out dir/all.db"), "'"));
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("another number of shards"));
  outcome = Run(StrCat("submit --slurm '", config, "' --shards 4 --dry-run --db /proc/x.db"));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("/proc/x.db.shards"));
  // What the shards would refuse.
  for (const auto& [arguments, says] :
       {std::pair("--limitt 5", "no flag of 'kvgauge run' (did you mean '--limit'?)"),
        {"--limit 5 more", "after --: "},
        {"--limit x", "--limit"},
        {"--only snapkw", "the run has no method 'snapkw'"},
        {"--samples 3-1", "0-9,17"},
        {"--limit 5 --plugin missing.so", "missing.so: "},
        {"--max-memory 8GB", "8GiB"}}) {
    outcome =
        Run(StrCat("submit --slurm '", config, "' --shards 4 --dry-run --db x.db -- ", arguments));
    EXPECT_EQ(outcome.exit_code, 2) << arguments;
    EXPECT_THAT(outcome.err, HasSubstr(says));
    EXPECT_FALSE(FileExists(Path("x.db.shards/shard.sh")));
  }
  outcome = Run("submit --slurm quickstar --shards 4 --dry-run --db x.db");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("quickstart"));
  outcome = Run(StrCat("submit '", config, "' --shards 4 --dry-run --db x.db"));
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("--slurm"));
  const std::string path = std::getenv("PATH");
  setenv("PATH", Path("nowhere").c_str(), 1);
  outcome = Run(flags);
  setenv("PATH", path.c_str(), 1);
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("sbatch is not on PATH"));
}

}  // namespace
}  // namespace kvgauge
