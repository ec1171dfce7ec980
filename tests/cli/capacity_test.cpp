// SPDX-License-Identifier: Apache-2.0
// bench capacity as a process: what it records, goes on from, and shows beside scores.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "cli/run_fixture.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class CapacityRunTest : public RunTest {
 protected:
  Outcome Do(const std::string& arguments) const { return ProgramTest::Run(arguments); }
  std::string Bench(const std::string& more) const {
    return StrCat(
        "bench capacity config.json --weights random:5 --threads 1 --methods full,snapkv "
        "--budgets 25% --requests 5 --prompt-tokens 64..160 --answer-tokens 3..6 ",
        more);
  }
};

TEST_F(CapacityRunTest, RecordsAndGoesOn) {
  const std::string bench = Bench("--max-memory 32MiB --batches 2,max --db r.db");
  const Outcome first = Do(StrCat(bench, " --json"));
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const Json measured = *ParseJson(first.out, "out");
  ASSERT_EQ(measured["cases"].size(), 4u);
  for (const Json& of : measured["cases"]) {
    EXPECT_FALSE(of.contains("recorded"));
    EXPECT_EQ(of["served"], 5);
  }
  // Lost: one case, as where the first call was stopped before it.
  Json again = *ParseJson(Do(StrCat(bench, " --json")).out, "out");
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(again["cases"][i]["recorded"], true);
    EXPECT_EQ(again["cases"][i]["tokens_per_s"], measured["cases"][i]["tokens_per_s"]);
    EXPECT_EQ(again["cases"][i]["held"], measured["cases"][i]["held"]);
  }
  again = *ParseJson(Do(StrCat(bench, " --repetitions 2 --json")).out, "out");
  ASSERT_EQ(again["cases"].size(), 8u);
  EXPECT_EQ(again["cases"][0]["recorded"], true);
  EXPECT_FALSE(again["cases"][1].contains("recorded"));
  // Nothing has been scored: what was measured is shown all the same.
  const Outcome board = Do("leaderboard r.db");
  EXPECT_EQ(board.exit_code, 0) << board.err;
  EXPECT_THAT(board.out, AllOf(HasSubstr("no scores here"), HasSubstr("snapkv"),
                               HasSubstr("first token p50/90"), Not(HasSubstr("interval"))));
  EXPECT_EQ(Do("leaderboard r.db --format csv").exit_code, 2);
  const Outcome table = Do(StrCat(bench, " --again"));
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.err, Not(HasSubstr("recorded before")));
  EXPECT_THAT(table.out, HasSubstr("5 of 5"));
  const auto store = *ResultStore::Open(Path("r.db"), StoreMode::kReadOnly);
  EXPECT_EQ(store->Capacities()->size(), 12u);
  EXPECT_EQ(store->Runs()->size(), 4u);
  for (const CapacityRow& row : *store->Capacities()) EXPECT_EQ(row.answers_key.size(), 64u);
}

// Where more decode together than fit whole, some make place: answers are the same, and what
// happened is told.
TEST_F(CapacityRunTest, TellsOfCachesThatHadToGo) {
  const std::string bench =
      StrCat("bench capacity ", KVG_SOURCE_DIR,
             "/models/ref-gqa --threads 1 --methods full --policies fcfs,recompute,swap,queues "
             "--batches 6 --requests 6 --prompt-tokens 64 --answer-tokens 140 "
             "--max-memory 18.5MiB");
  const Outcome json = Do(StrCat(bench, " --json"));
  ASSERT_EQ(json.exit_code, 0) << json.err;  // or answers differ
  const Json cases = (*ParseJson(json.out, "out"))["cases"];
  ASSERT_EQ(cases.size(), 4u);
  for (const Json& of : cases) {
    const bool first = of["policy"] == "fcfs", drops = of["policy"] == "recompute";
    EXPECT_EQ(of["preemptions"] == 0, first) << of["policy"];
    EXPECT_EQ(of["host_bytes"] == 0, first || drops) << of["policy"];
  }
  const Outcome table = Do(bench);
  ASSERT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out,
              AllOf(HasSubstr("full none, swap, batch 6: a running cache had to go "),
                    HasSubstr(" lay on the host\n"),
                    HasSubstr("full none, recompute, batch 6: a running cache had to go "),
                    Not(HasSubstr("fcfs, batch 6: a running"))));
  const Outcome planned = Do(bench + " --estimate");
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  EXPECT_THAT(planned.out,
              AllOf(HasSubstr(" are planned for the host\n"), Not(HasSubstr("lay on the host"))));
}

// Tokens of other numbers are other tokens: they are no fault, and stand on boards of their own.
TEST_F(CapacityRunTest, NumbersOfOtherTypesStandApart) {
  const std::string model = StrCat(KVG_SOURCE_DIR, "/models/ref-gqa");  // of one fingerprint
  const auto bench = [&](const std::string& dtype) {
    const Outcome outcome =
        Do(StrCat("bench capacity ", model,
                  " --threads 1 --methods full --requests 2 --prompt-tokens 64 --answer-tokens 24 "
                  "--max-memory 64MiB --batches 2 --again --db r.db --dtype ",
                  dtype));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  };
  for (const char* dtype : {"f32", "bf16", "f32"}) bench(dtype);
  const Json boards = ParseJson(Do("leaderboard r.db --json").out, "out")->at("capacity");
  ASSERT_EQ(boards.size(), 2u);
  EXPECT_EQ(boards[0]["entries"][0]["repetitions"].get<int64_t>() +
                boards[0]["entries"][0]["left_out"].get<int64_t>(),
            2);
  EXPECT_THAT(boards[0]["title"].get<std::string>(), ::testing::EndsWith(", f32"));
  EXPECT_THAT(boards[1]["title"].get<std::string>(), ::testing::EndsWith(", bf16"));
  const auto draft = [&](const std::string& dtype) {
    const Outcome outcome =
        Do(StrCat("bench speculate ", model,
                  " --threads 1 --drafts snapkv --budgets 60% "
                  "--gammas 2 --prompt-tokens 80 --answer-tokens 24 --repetitions 1 --prompts 1 "
                  "--again --db s.db --dtype ",
                  dtype));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  };
  for (const char* dtype : {"f32", "bf16", "f32"}) draft(dtype);
  EXPECT_THAT(Do("leaderboard s.db").out, AllOf(HasSubstr(", f32"), HasSubstr(", bf16")));
}

TEST_F(CapacityRunTest, StandsBesideScores) {
  Write("mine.json", StrCat(R"({"models": [{"path": ")", Path("config.json"),
                            R"(", "name": "tiny", "weights": "random:5"}],
      "tasks": [{"task": "passkey", "samples": 4, "source": {"lengths": "320"},
                 "max_new_tokens": 3}],
      "budgets": ["25%", "50%"], "methods": ["snapkv"]})"));
  const Outcome run = Do("run mine.json --db r.db --threads 1");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Outcome bench = Do(Bench("--max-memory 32MiB --batches max --db r.db"));
  ASSERT_EQ(bench.exit_code, 0) << bench.err;
  const Outcome board = Do("leaderboard r.db --all");
  ASSERT_EQ(board.exit_code, 0) << board.err;
  EXPECT_THAT(board.out, AllOf(HasSubstr("Capacity in 32.0 MiB, fcfs: 5 requests"),
                               HasSubstr("tokens/s"), HasSubstr("without capacity: snapkv 50%")));
  const Json json = *ParseJson(Do("leaderboard r.db --json").out, "out");
  EXPECT_EQ(json["capacity"][0]["entries"].size(), 2u);
  const Outcome report = Do("report r.db -o r.html");
  ASSERT_EQ(report.exit_code, 0) << report.err;
  EXPECT_THAT(*ReadFile(Path("r.html")), HasSubstr("against requests held at once"));
  EXPECT_EQ(Do("merge both.db r.db").exit_code, 0);
  EXPECT_EQ(Do("run mine.json --db r.db --threads 1").exit_code, 0) << "resumed beside it";
}

// One that the memory cannot hold is a failure with numbers, wherever the figures are shown.
TEST_F(CapacityRunTest, CountsWhoDoesNotFit) {
  Write("mix.jsonl",
        "{\"id\": \"a\", \"at_s\": 0, \"prompt_tokens\": 60, \"answer_tokens\": 3}\n"
        "{\"id\": \"long\", \"at_s\": 0, \"prompt_tokens\": 4000, \"answer_tokens\": 9}\n"
        "{\"id\": \"b\", \"at_s\": 0, \"prompt_tokens\": 70, \"answer_tokens\": 1}\n");
  const Outcome none = Do(Bench("--trace mix.jsonl --batches 1 --max-memory 1200KiB"));
  EXPECT_THAT(none.out, AllOf(HasSubstr("expected at least "), HasSubstr(" for all requests")))
      << none.err;
  const std::string bench = Bench("--trace mix.jsonl --batches 1 --max-memory 3MiB --db r.db");
  const Outcome table = Do(bench);
  ASSERT_EQ(table.exit_code, 0) << table.err;
  const char* why = "full none, fcfs, batch 1: 1 of 3 requests failed, and no figure counts them";
  EXPECT_THAT(table.out,
              AllOf(HasSubstr("2 of 3"), HasSubstr(" sequence "),
                    HasSubstr(StrCat(why, "; long: needs ")), HasSubstr("; the memory leaves ")));
  EXPECT_THAT(table.err, HasSubstr("tokens/s, 1 of 3 requests failed"));
  const Outcome again = Do(bench);
  EXPECT_THAT(again.out, HasSubstr(StrCat(why, "; needs ")));
  const Json json = ParseJson(Do(StrCat(bench, " --json")).out, "out")->at("cases")[0];
  EXPECT_EQ(json["served"], 2);
  EXPECT_EQ(json["failed"], 1);
  EXPECT_THAT(json["failures"][0]["reason"].get<std::string>(), HasSubstr("the memory leaves"));
  EXPECT_THAT(Do("leaderboard r.db").out, HasSubstr("served 2 of 3"));
  ASSERT_EQ(Do("report r.db -o r.html").exit_code, 0);
  EXPECT_THAT(*ReadFile(Path("r.html")), HasSubstr("<td>2 of 3 ⚠ the figures are theirs</td>"));
  // Who is served by a first token alone has no time between tokens, and nobody has none at all.
  Write("one.jsonl", "{\"at_s\": 0, \"prompt_tokens\": 60, \"answer_tokens\": 1}\n");
  const Json one =
      ParseJson(Do(Bench("--trace one.jsonl --batches 1 --json")).out, "out")->at("cases")[0];
  EXPECT_TRUE(one["tpot_s"].is_null());
  EXPECT_GT(one["ttft_s"]["p50"], 0);
  Write("none.jsonl", "{\"at_s\": 0, \"prompt_tokens\": 6000, \"answer_tokens\": 1}\n");
  const Json nobody =
      ParseJson(Do(Bench("--trace none.jsonl --batches 1 --json")).out, "out")->at("cases")[0];
  EXPECT_TRUE(nobody["ttft_s"].is_null());
}

// What was refused is asked once more, as another version may serve it.
TEST_F(CapacityRunTest, ARefusalIsNotRecordedForEver) {
  const std::string bench = Bench("--policies keep_host --max-memory 32MiB --batches 2 --db r.db");
  ASSERT_EQ(Do(bench).exit_code, 0);
  ASSERT_EQ(Do(bench).exit_code, 0);
  {
    const auto store = *ResultStore::Open(Path("r.db"), StoreMode::kReadOnly);
    EXPECT_EQ(store->Capacities()->size(), 2u) << "the same refusal is written once";
  }
}

TEST_F(CapacityRunTest, RefusesWhatCannotBe) {
  const auto bad = [&](const std::string& more, const std::string& part) {
    const Outcome outcome = Do(Bench(more));
    EXPECT_EQ(outcome.exit_code, 2) << more;
    EXPECT_THAT(outcome.err, HasSubstr(part));
  };
  bad("--max-memory 100KiB", "--max-memory is 100.0 KiB; expected more than the weights");
  bad("--estimate --db r.db", "--db: with --estimate nothing is measured");
  bad("--again", "expected --db, too");
  bad("--first 3", "--first, --length-scale, --time-scale: change a file; expected --trace, too");
  bad("--time-scale 0.5", "expected --trace, too");
  bad("--bytes-per-s 1e9", "expected --estimate, too");
  bad("--batches max", "\"max\" needs --max-memory");
  bad("--batches 0", "expected 1 .. 4096, or max");
  bad("--max-memory -3GiB", "--max-memory");
  bad("--policies fcfs,radix,fcfs", "--policies: 'fcfs' is named twice; expected it once");
  bad("--batches 2,2", "--batches: '2' is named twice");
  const Outcome refused = Do(Bench("--policies keep_host --max-memory 32MiB --batches 2,max"));
  EXPECT_EQ(refused.exit_code, 0) << refused.err;
  EXPECT_THAT(refused.err,
              AllOf(HasSubstr("keep_host, batch max: refused"), Not(HasSubstr("batch 0"))));
  const size_t why = refused.out.find("keep_host: refused: snapkv");
  EXPECT_NE(why, std::string::npos);
  EXPECT_EQ(refused.out.find("keep_host: refused: snapkv", why + 1), std::string::npos);
  bad("--max-memory 0", "--max-memory: '0' holds nothing");
  bad("--host-memory 0MiB", "--host-memory: '0MiB' holds nothing");
  bad("--per-second 5", "expected --arrivals poisson or --arrivals bursts, too");
  bad("--arrivals poisson --burstiness 9", "expected --arrivals bursts");
  bad("--pause 3", "--pause: there is one turn; expected --turns, too");
  bad("--shared-groups 3", "--shared-groups: nothing is shared; expected --shared-tokens, too");
  bad("--host-memory 1MiB", "--host-memory: nothing waits there; expected swap, queues");
  bad("--disk .", "--disk: nothing waits there; expected keep_disk");
  bad("--policies fcfs,keep_disk --disk nowhere",
      "--disk: nowhere is no folder that can be written to");
  for (const char* flag : {"--per-second", "--burstiness", "--pause", "--time-scale",
                           "--length-scale", "--bytes-per-s", "--operations-per-s"}) {
    bad(StrCat("--turns 2 ", flag, " nan"), StrCat(flag, ": Value nan is not finite"));
  }
  bad("--pause inf", "--pause: Value inf is not finite");
  const std::string range = " is not in the range 0 .. 18446744073709551615";
  bad("--seed -1", StrCat("--seed: Value -1", range));
  const Outcome run = Do("run quickstart --seed -1");
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, HasSubstr("--seed: Value -1, expected a whole number from 0\n"));
  bad("--seed 18446744073709551616", StrCat("--seed: Value 18446744073709551616", range));
  bad("--requests 9223372036854775808",
      "--requests: Value 9223372036854775808 is not in the range");
  const Outcome weights = Do("bench capacity config.json --weights random:18446744073709551616");
  EXPECT_EQ(weights.exit_code, 2);
  EXPECT_THAT(weights.err, HasSubstr("has a seed past the range; expected 0 .. 18446744073709551"));
  Write("late.jsonl", "{\"at_s\": -1, \"prompt_tokens\": 4, \"answer_tokens\": 2}\n");
  bad("--trace late.jsonl", "late.jsonl: line 1: 'at_s' is -1 s; expected 0 or more");
  Write("good.jsonl",
        "{\"id\": \"a\", \"at_s\": 9, \"prompt_tokens\": 20, \"answer_tokens\": 2}\n");
  bad("--trace good.jsonl --estimate --length-scale 1e6",
      "--length-scale: 1e+06 makes request 'a' 20000000 tokens long; expected at most 10000000");
  Write("good.jsonl", "{\"at_s\": 1e9, \"prompt_tokens\": 20, \"answer_tokens\": 2}\n");
  bad("--trace good.jsonl --estimate --time-scale 100",
      "--time-scale: 100 makes request 'line 1' arrive at 1e+11 s; expected at most 1e+10");
  Write("long.jsonl",
        "{\"at_s\": 0, \"prompt_tokens\": 5000, \"answer_tokens\": 2}\n"
        "{\"at_s\": 0, \"prompt_tokens\": 50, \"answer_tokens\": 2}\n");
  const Outcome partly = Do(Bench("--trace long.jsonl --batches 1 --db partly.db"));
  EXPECT_EQ(partly.exit_code, 0) << partly.err;
  EXPECT_THAT(partly.out, AllOf(HasSubstr("1 of 2"), HasSubstr("positions for 4096")));
  EXPECT_THAT(Do("leaderboard partly.db").out, HasSubstr("served 1 of 2"));
}

TEST_F(CapacityRunTest, AnInterruptionIsNoSuccess) {
  const pid_t child = Start({"bench", "capacity", Path("config.json"), "--weights", "random:5",
                             "--methods", "full", "--batches", "2", "--repetitions", "100000"});
  const auto measured = [&] {
    const Result<std::string> err = ReadFile(Path("err"));
    return err.ok() && err->find("tokens/s") != std::string::npos;
  };
  ASSERT_TRUE(WaitUntil(child, measured));
  kill(child, SIGINT);
  const Outcome outcome = Wait(child);
  EXPECT_EQ(outcome.exit_code, 130);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("stopping: what is being measured is given up"),
                                 HasSubstr(" of 100000 cases\n")));
  EXPECT_THAT(outcome.out, HasSubstr("32 of 32")) << "what was measured is shown";
}

TEST_F(CapacityRunTest, DraftsAreJudged) {
  const std::string model = "bench speculate . --weights random:5 --threads 1 ";
  const Outcome outcome = Do(StrCat(model,
                                    "--drafts snapkv,kivi_2bit --forms magicdec --budgets 30% "
                                    "--gammas 1,3 --prompt-tokens 300 --answer-tokens 12 "
                                    "--prompts 1 --repetitions 1 --json"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = *ParseJson(outcome.out, "out");
  ASSERT_EQ(json["rows"].size(), 5u);
  EXPECT_EQ(json["rows"][0]["form"], "magicdec");
  EXPECT_EQ(json["rows"][0]["gamma"], 3);
  EXPECT_EQ(json["rows"][0]["budget"], "256");
  for (const Json& row : json["rows"]) {
    EXPECT_EQ(row["checks"].get<int64_t>() + row["accepted"].get<int64_t>(), 11);
    EXPECT_GT(row["speedup"].get<double>(), 0);
  }
  Write("prompt.txt", "The plum is 17. The belt is 9. What is the plum?");
  const Outcome table = Do(StrCat(
      model, "--drafts full --gammas 2 --text prompt.txt --answer-tokens 7 --repetitions 1"));
  ASSERT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out, AllOf(HasSubstr("accepted %"), HasSubstr("100.0"), HasSubstr("3.00")));
  const auto bad = [&](const std::string& more, const std::string& part) {
    const Outcome refused = Do(model + more);
    EXPECT_EQ(refused.exit_code, 2) << more;
    EXPECT_THAT(refused.err, HasSubstr(part));
  };
  const Outcome apart = Do(StrCat(model,
                                  "--forms rapid --retrieve-tokens 64 --retrieve-chunk 32 "
                                  "--prompt-tokens 292 --answer-tokens 12 --prompts 1 "
                                  "--repetitions 1 --json"));
  ASSERT_EQ(apart.exit_code, 0) << apart.err;
  const Json read = ParseJson(apart.out, "out")->at("rows")[0];
  EXPECT_EQ(read["gamma"], 10);
  EXPECT_EQ(read["judge_read_tokens"], 292);
  // Two of seven chunks, and both ends.
  EXPECT_EQ(read["draft_read_tokens"], 4 + 64 + 64);
  EXPECT_GT(read["draft_read_s"].get<double>(), 0);
  bad("--drafts snapkv --draft-model .", "expected a form that does, such as --forms rapid");
  bad("--forms magicdek", "form 'magicdek' is not known (did you mean 'magicdec'?)");
  bad("--drafts minference", "minference: cannot draft for the full cache");
  bad("--prompt-tokens 4090 --answer-tokens 64", "expected at most the model's 4096 positions");
  bad("--text nothing.txt", "nothing.txt");
  bad("--gammas 0", "--gammas");
}

TEST_F(CapacityRunTest, DraftsAreRecorded) {
  const std::string bench =
      "bench speculate . --weights random:5 --threads 1 --drafts snapkv --forms magicdec "
      "--budgets 60% --gammas 2 --prompt-tokens 80 --answer-tokens 6 --db r.db";
  const Outcome first = Do(StrCat(bench, " --repetitions 1 --json"));
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const Json measured = ParseJson(first.out, "out")->at("rows");
  ASSERT_EQ(measured.size(), 2u);
  // Only the second repetition is measured; both count.
  const Json again = ParseJson(Do(StrCat(bench, " --repetitions 2 --json")).out, "out")->at("rows");
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(measured[i]["recorded"], 0);
    EXPECT_EQ(again[i]["recorded"], 2);
    EXPECT_EQ(again[i]["speedups"].size(), 4u);
    EXPECT_EQ(again[i]["speedups"][0], measured[i]["speedups"][0]);
    for (const char* key : {"accepted", "drafted", "checks", "accepted_at", "draft_bytes"}) {
      EXPECT_EQ(again[i][key], measured[i][key]) << key;
    }
  }
  {
    const auto store = *ResultStore::Open(Path("r.db"), StoreMode::kReadOnly);
    const std::vector<SpeculationRow> rows = *store->Speculations();
    ASSERT_EQ(rows.size(), 8u);
    EXPECT_EQ(rows[0].form, "magicdec");
    EXPECT_EQ(rows[0].method.variant, "score.window=32");
    for (const SpeculationRow& row : rows) EXPECT_EQ(row.prompt_tokens, 80);
    EXPECT_EQ(store->Runs()->size(), 2u);
    // The parts of a token's time are medians as the whole is, of both prompts and repetitions.
    for (size_t i = 0; i < 2; ++i) {
      std::vector<double> draft_s;
      for (const SpeculationRow& row : rows) {
        if (row.form == again[i]["form"]) draft_s.push_back(row.draft_s / 5);
      }
      ASSERT_EQ(draft_s.size(), 4u);
      std::sort(draft_s.begin(), draft_s.end());
      EXPECT_DOUBLE_EQ(again[i]["draft_token_s"].get<double>(), (draft_s[1] + draft_s[2]) / 2);
    }
  }
  const Outcome board = Do("leaderboard r.db");
  ASSERT_EQ(board.exit_code, 0) << board.err;
  EXPECT_THAT(board.out, AllOf(HasSubstr("2 prompts of 80 random tokens, answers of 6"),
                               HasSubstr("magicdec: snapkv 256"), HasSubstr("snapkv 60%"),
                               HasSubstr("acceptance says little")));
  const Json json = *ParseJson(Do("leaderboard r.db --format json").out, "out");
  EXPECT_EQ(json["speculation"][0]["entries"].size(), 2u);
  ASSERT_EQ(Do("report r.db -o r.html").exit_code, 0);
  EXPECT_THAT(*ReadFile(Path("r.html")), HasSubstr("<b>Speed</b> over drafted tokens"));
  const Outcome alone = Do("bench speculate . --weights random:5 --again");
  EXPECT_EQ(alone.exit_code, 2);
  EXPECT_THAT(alone.err, HasSubstr("expected --db, too"));
}

}  // namespace
}  // namespace kvgauge
