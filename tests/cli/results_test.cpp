// SPDX-License-Identifier: Apache-2.0
// The commands that read what was run, as processes over small stores.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>

#include "cli/program.h"
#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "reports/store_fixture.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

struct Given {
  double score = 1;
  int64_t bytes = 1000;
  EngagementMark engagement = EngagementMark::kEngaged;
  int64_t host = 0;  // of the bytes; a step fetches a tenth of them
};

class ResultsTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) const { return scratch_.File(name); }

  Outcome Run(const std::string& arguments) const { return RunProgram(scratch_.path(), arguments); }
  // Exit code 2 and a message with all of `parts`.
  void ExpectBad(const std::string& arguments, const std::vector<std::string>& parts) const {
    const Outcome outcome = Run(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments << "\n" << outcome.err;
    EXPECT_EQ(outcome.out, "") << arguments;
    for (const std::string& part : parts) EXPECT_THAT(outcome.err, HasSubstr(part)) << arguments;
  }

  // What makes a cell the cell it is.
  static std::string IdentityOf(const std::string& method, const std::string& budget,
                                const std::string& task, const std::string& model) {
    return StrCat(R"({"cell":")", method, budget, task, model, R"("})");
  }

  // Adds a cell with `count` samples to the store `name`.
  void Add(const std::string& name, const std::string& method, const std::string& budget, int count,
           const std::function<Given(int)>& give, const std::string& task = "needle/single",
           const std::string& model = "ref-gqa") const {
    const auto store = MustOpen(Path(name));
    const int64_t run = Must(store->AddRun(TestRun(name)));
    CellRow cell;
    cell.identity = IdentityOf(method, budget, task, model);
    cell.signature = StrCat(R"({"task":")", task, R"("})");
    cell.model = {StrCat("f00d", model), model, "{}"};
    cell.method.name = method;
    cell.method.family = method == "full" ? "baseline" : "selection";
    cell.method.spec = "{}";
    cell.method.full_cache = method == "full";
    cell.method.experimental = method == "untried";
    cell.task = {task, 1, R"({"group":"needle","metric":"partial_match","report":{"scale":100}})"};
    cell.budget = budget;
    const int64_t id = Must(store->AddCell(cell));
    for (int i = 0; i < count; ++i) {
      const Given g = give(i);
      SampleRow s;
      s.cell = id;
      s.run = run;
      s.sample_id = StrCat("n", i);
      s.hash = StrCat("h", i);
      s.group = StrCat("g", i);
      s.position = i;
      s.engagement = g.engagement;
      s.score = g.score;
      s.tokens_in = 100;
      s.answer_depth = 0.25;
      MemoryRow memory;
      memory.nominal_bytes = g.bytes;
      memory.payload_bytes = g.bytes;
      memory.resident_bytes = g.bytes;
      memory.full_bytes = 4000;
      memory.host_bytes = g.host;
      if (g.host > 0) s.fetched_per_step = 0.1 * static_cast<double>(g.host);
      s.memory.push_back(memory);
      LayerStatRow head;
      head.entries_before = 100;
      head.entries_after = 20;
      s.layers.push_back(head);
      LayerStatRow layer;
      layer.head = LayerStatRow::kWholeLayer;
      layer.kept_by_depth.assign(static_cast<size_t>(LayerStatRow::kDepths), 0.0);
      layer.kept_by_depth.back() = 1;
      layer.answer_kept = 0.5;
      s.layers.push_back(layer);
      AnswerRow answer;
      answer.prediction = StrCat("answer ", g.score);
      answer.references = {"the right one"};
      answer.score = s.score;
      answer.question = "What was hidden?";
      answer.excerpt = "It was hidden here.";
      s.answers.push_back(std::move(answer));
      Must(store->Write(s));
    }
  }
  // Full, snapkv and h2o, of 400 samples; h2o loses 20, idle does nothing.
  void Fill(const std::string& name) const {
    Add(name, "full", "none", 400, [](int) { return Given{.bytes = 4000}; });
    Add(name, "snapkv", "20%", 400, [](int) { return Given{.bytes = 800}; });
    Add(name, "h2o", "20%", 400, [](int i) { return Given{.score = i < 20 ? 0.0 : 1.0}; });
    Add(name, "idle", "20%", 400,
        [](int) { return Given{.engagement = EngagementMark::kNotEngaged}; });
  }

 private:
  ScratchDirectory scratch_{"/dev/shm"};
};

TEST_F(ResultsTest, LeaderboardForPeople) {
  Fill("a.db");
  Outcome outcome = Run("leaderboard a.db");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out,
              StartsWith("ref-gqa, needle/single | compressed at prompt | partial_match | "
                         "400 samples\n"));
  EXPECT_THAT(outcome.out, HasSubstr("method  budget   score"));
  EXPECT_THAT(outcome.out, HasSubstr("95.00"));
  EXPECT_THAT(outcome.out, HasSubstr("-5.00"));
  EXPECT_THAT(outcome.out, HasSubstr("WORSE"));
  EXPECT_THAT(outcome.out, HasSubstr("SAME"));
  EXPECT_THAT(outcome.out, HasSubstr("reference"));
  EXPECT_THAT(outcome.out, HasSubstr("note: 1 row has no rank"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("idle")));
  EXPECT_THAT(outcome.out, Not(HasSubstr("\x1b")));
  outcome = Run("leaderboard a.db --all");
  EXPECT_THAT(outcome.out, HasSubstr("not engaged on 400 of 400 samples"));
  outcome = Run("leaderboard a.db --format markdown --columns method,score,verdict");
  EXPECT_THAT(outcome.out, HasSubstr("| h2o | 95.00 | WORSE |"));
}

TEST_F(ResultsTest, ReportTellsWhatItWroteAndPrintsItsTables) {
  Fill("a.db");
  const Outcome written = Run("report a.db -o a.html --max-answers 5 --json");
  EXPECT_EQ(written.exit_code, 0) << written.err;
  const auto json = ParseJson(written.out, "report --json");
  ASSERT_TRUE(json.ok()) << written.out;
  EXPECT_EQ((*json)["out"], "a.html");
  EXPECT_EQ((*json)["answers"], 5);
  EXPECT_GT((*json)["answers_left_out"].get<int64_t>(), 100);
  EXPECT_EQ((*json)["bytes"].get<size_t>(), Must(ReadFile(Path("a.html"))).size());

  EXPECT_EQ(Run("report a.db -o - --max-answers 5").out, *ReadFile(Path("a.html")));
  EXPECT_THAT(Run("report a.db -o - --json").err,
              HasSubstr("--out - and --json both print; name a file"));

  const Outcome table = Run("report a.db --format table");
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out, StartsWith("Scores of groups of tasks\n\nmethod  budget  group"));
  EXPECT_THAT(table.out, HasSubstr("\nBytes a token of context, by kind\n"));
  EXPECT_THAT(table.out, HasSubstr("95.0"));
  const Outcome markdown = Run("report a.db --format markdown -o tables.md");
  EXPECT_EQ(markdown.exit_code, 0) << markdown.err;
  EXPECT_EQ(markdown.out, "");
  const std::string text = Must(ReadFile(Path("tables.md")));
  EXPECT_THAT(text, StartsWith("## Scores of groups of tasks\n\n| method | budget | group |"));
  EXPECT_THAT(text, HasSubstr("| h2o | 20% | needle/single | partial_match | 95.00 |"));
}

// Bytes of both memories are shown where some row has entries on the host, and nowhere else.
TEST_F(ResultsTest, TiersOfMemory) {
  Fill("a.db");
  EXPECT_THAT(Run("leaderboard a.db --format markdown").out, Not(HasSubstr("fetched")));
  EXPECT_THAT(Run("report a.db -o a.html").err, "");
  EXPECT_THAT(Must(ReadFile(Path("a.html"))), Not(HasSubstr("on the device")));
  Add("a.db", "placed", "none", 400, [](int) { return Given{.bytes = 4000, .host = 3000}; });
  const Outcome board =
      Run("leaderboard a.db --format markdown --columns method,resident,device,fetched");
  EXPECT_THAT(board.out, HasSubstr("| placed | 100.0% | 25.0% | 300 B |"));
  EXPECT_THAT(board.out, HasSubstr("| snapkv | 20.0% |  |  |"));
  const Outcome shown = Run("show a.db placed n1");
  EXPECT_THAT(shown.out, HasSubstr("on the host 2.9 KiB (75.0%), on the device 1000 B (25.0%)"));
  EXPECT_THAT(shown.out, HasSubstr("fetched a step"));
  Run("report a.db -o a.html");
  EXPECT_THAT(Must(ReadFile(Path("a.html"))),
              AllOf(HasSubstr("on the device"), HasSubstr(R"(class="c-fetched n" data-v="300")")));
}

TEST_F(ResultsTest, LeaderboardAcrossModels) {
  Fill("a.db");
  const auto add = [&](const std::string& method, const std::string& budget, int wrong, int bytes,
                       const std::string& task) {
    Add(
        "a.db", method, budget, 400,
        [&](int i) { return Given{.score = i < wrong ? 0.0 : 1.0, .bytes = bytes}; }, task,
        "ref-mqa");
  };
  add("full", "none", 0, 2000, "needle/single");
  add("h2o", "20%", 100, 500, "needle/single");
  add("full", "none", 8, 2000, "needle/other");
  Outcome outcome =
      Run("leaderboard a.db --across-models --format markdown "
          "--columns rank,method,score,token_bytes");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  // By score, then bytes; the one model's own task has a table as well; no ranks.
  EXPECT_THAT(outcome.out, HasSubstr("### needle/single, 2 models | compressed at prompt"));
  EXPECT_THAT(
      outcome.out,
      HasSubstr("| ref-gqa | snapkv | 100.00 | 8.00 |\n| ref-mqa | full | 100.00 | 20.00 |\n"
                "| ref-gqa | full | 100.00 | 40.00 |\n| ref-gqa | h2o | 95.00 | 10.00 |\n"
                "| ref-mqa | h2o | 75.00 | 5.00 |\n"));
  EXPECT_THAT(outcome.out, HasSubstr("each model's own full cache"));
  EXPECT_THAT(outcome.out, HasSubstr("1 row has no rank"));
  EXPECT_THAT(outcome.out, HasSubstr("### ref-mqa, needle/other | compressed at prompt"));
  outcome =
      Run("leaderboard a.db --across-models --sort -token_bytes --format markdown "
          "--columns method,token_bytes");
  EXPECT_THAT(outcome.out, HasSubstr("| ref-gqa | full | 40.00 |\n| ref-mqa | full | 20.00 |\n"));
  ExpectBad("leaderboard a.db --across-models --json", {"--across-models", "csv or json"});
  ExpectBad("leaderboard a.db --across-models --split depth", {"--across-models", "--split"});
}

TEST_F(ResultsTest, LeaderboardForPrograms) {
  Fill("a.db");
  Outcome outcome =
      Run("leaderboard a.db --format csv --columns method,score,logical_ratio,verdict"
          " --sort -logical_ratio --filter method!=idle");
  EXPECT_EQ(outcome.out,
            "method,score,logical_ratio,verdict\r\nfull,1.0,1.0,\r\nh2o,0.95,0.25,WORSE\r\n"
            "snapkv,1.0,0.2,SAME\r\n");
  outcome = Run("leaderboard a.db --json --by group");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = Must(ParseJson(outcome.out, "out"));
  EXPECT_EQ(json["samples"], 1600);
  ASSERT_EQ(json["tables"].size(), 1u);
  EXPECT_EQ(json["tables"][0]["task"], "needle");
  EXPECT_EQ(json["tables"][0]["rows"].size(), 4u);
  EXPECT_EQ(json["tables"][0]["rows"][0]["method"], "snapkv");
  EXPECT_EQ(json["tables"][0]["rows"][0]["verdict"], "SAME");
  EXPECT_EQ(json["tables"][0]["rows"][3]["not_ranked"], "not engaged on 400 of 400 samples");
  outcome =
      Run("leaderboard a.db --format csv --columns method --filter 'logical_ratio<0.3'"
          " --filter 'method=snap*,h2o'");
  EXPECT_EQ(outcome.out, "method\r\nsnapkv\r\nh2o\r\n");
}

// One set of names for columns, filters and sorting, for people and programs.
TEST_F(ResultsTest, NamesMeanTheSameEverywhere) {
  Fill("a.db");
  Add("a.db", "snapkv", "40%", 400, [](int) { return Given{.bytes = 1600}; });
  Outcome outcome =
      Run("leaderboard a.db --format csv --columns method,bytes,p,interval --filter 'bytes<0.3' "
          "--filter 'p<0.01' --sort bytes");
  EXPECT_THAT(outcome.out, AllOf(StartsWith("method,bytes,p,score_low,score_high\r\nh2o,0.25,"),
                                 Not(HasSubstr("snapkv"))))
      << outcome.err;
  outcome = Run("leaderboard a.db --columns method,logical_ratio,scored --filter resident=0.2");
  EXPECT_THAT(outcome.out, HasSubstr("method  logical_ratio    n\nsnapkv         0.2000  400\n"));
  outcome =
      Run("leaderboard a.db --format csv --columns method,budget,area,area_samples "
          "--filter method=snapkv,h2o --sort bytes");
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("\r\nsnapkv,20%,1.0,400\r\n"),
                    HasSubstr("\r\nsnapkv,40%,1.0,400\r\n"), HasSubstr("\r\nh2o,20%,,\r\n")));
  ExpectBad("leaderboard a.db --filter 'interval<1'", {"expected score_low or score_high"});
}

TEST_F(ResultsTest, WhatWasNotCountedIsNotShown) {
  const Outcome outcome = Run(StrCat("leaderboard ", KVG_SOURCE_DIR, "/tests/baseline/ci.db"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("B/token"), Not(HasSubstr("0.00%"))));
  EXPECT_THAT(outcome.out, Not(HasSubstr("  resident  ")));
}

TEST_F(ResultsTest, ShardsCountAsOne) {
  Add("a.db", "full", "none", 10, [](int) { return Given{}; });
  Add("b.db", "full", "none", 30, [](int) { return Given{}; });
  const Outcome outcome = Run("leaderboard a.db b.db a.db --format csv --columns samples");
  EXPECT_EQ(outcome.out, "samples\r\n30\r\n");
}

TEST_F(ResultsTest, WrongFilesAreNamed) {
  Fill("mine.db");
  { MustOpen(Path("empty.db")); }
  std::ofstream(Path("text.db")) << "not a database, but long enough to be looked into";
  { std::ofstream(Path("zero.db")); }
  std::filesystem::copy(Path("empty.db"), Path("newer.db"));
  // SQLite keeps user_version as four bytes, the largest first, at 60.
  std::fstream(Path("newer.db"), std::ios::in | std::ios::out | std::ios::binary).seekp(60)
      << '\0' << '\0' << '\0' << '\x63';
  for (const char* command : {"leaderboard ", "merge out.sqlite "}) {
    ExpectBad(StrCat(command, "mnie.db"),
              {"mnie.db: no such file", "did you mean 'mine.db'?", "there is: empty.db, mine.db"});
    ExpectBad(StrCat(command, "text.db"), {"text.db: is not a result store"});
    ExpectBad(StrCat(command, "zero.db"), {"zero.db: is empty"});
    ExpectBad(StrCat(command, "newer.db"), {"newer.db: has schema version 99"});
    ExpectBad(StrCat(command, "."), {".: is a directory"});
  }
  EXPECT_FALSE(FileExists(Path("out.sqlite")));
  ExpectBad("leaderboard empty.db", {"empty.db: holds no samples yet"});
  ExpectBad("show empty.db snapkv", {"empty.db: holds no cells yet"});
  ExpectBad("gate --baseline mine.db --candidate mnie.db", {"did you mean 'mine.db'?"});
  ExpectBad("gate --baseline text.db --candidate mine.db", {"text.db: is not a result store"});
  ExpectBad("compare mine.db mnie.db", {"did you mean 'mine.db'?"});
  ExpectBad("show mnie.db snapkv", {"did you mean 'mine.db'?"});
}

TEST_F(ResultsTest, WrongNamesAreAnswered) {
  Fill("a.db");
  ExpectBad("leaderboard a.db --sort scor", {"--sort: there is no column 'scor'", "'score'?"});
  ExpectBad("leaderboard a.db --columns method,verdit", {"--columns", "did you mean 'verdict'?"});
  ExpectBad("leaderboard a.db --filter methd=x", {"--filter", "did you mean 'method'?"});
  ExpectBad("leaderboard a.db --filter method", {"--filter: 'method', expected NAME=VALUE"});
  ExpectBad("leaderboard a.db --filter 'score<x'", {"expected a number after <"});
  ExpectBad("leaderboard a.db --filter 'method<3'", {"method is a text, expected = or !="});
  ExpectBad("leaderboard a.db --filter method=snapk",
            {"no row passes 'method=snapk'; method holds full, h2o, idle, snapkv"});
  ExpectBad("leaderboard a.db --format markdwon", {"did you mean 'markdown'?"});
  ExpectBad("leaderboard a.db --by groups", {"did you mean 'group'?"});
  ExpectBad("compare snapkv@20% h20@20% --db a.db", {"no row 'h20@20%'", "did you mean 'h2o'?"});
  ExpectBad("compare snapkv h2o", {"name their database with --db FILE"});
  ExpectBad("show a.db snapkv@30% n1", {"no cell 'snapkv@30%'; there is: full, h2o@20%"});
  ExpectBad("show a.db snapk n1", {"did you mean 'snapkv'?"});
  ExpectBad("show a.db snapkv@20% n999",
            {"holds no sample 'n999'", "there is: n0, n1", "and 388 more"});
  ExpectBad("show a.db snapkv --task needle/singel", {"did you mean 'needle/single'?"});
}

TEST_F(ResultsTest, CompareEndsInASentence) {
  Fill("a.db");
  Outcome outcome = Run("compare snapkv@20% h2o@20% --db a.db");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(
      outcome.out,
      AllOf(HasSubstr("On ref-gqa, needle/single: h2o@20% is WORSE than snapkv@20% by 5.00"),
            HasSubstr("p < 0.001, 400 paired samples"), HasSubstr("25.0% larger.\n")));
  outcome = Run("compare full snapkv --db a.db");
  EXPECT_THAT(outcome.out, HasSubstr("snapkv@20% does the SAME as full within 1.00"));
  // A p-value has one form in the table, in the sentence and on the leaderboard.
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("]  1  SAME"), HasSubstr("p = 1, 400 paired")));
  const Json json = Must(ParseJson(Run("compare full h2o --db a.db --json").out, "out"));
  EXPECT_EQ(json["tasks"][0]["verdict"], "WORSE");
  EXPECT_EQ(json["tasks"][0]["score"]["change"], -0.05);
}

TEST_F(ResultsTest, ExperimentalMethodsAreMarked) {
  const auto give = [](int i) { return Given{i % 2 == 0 ? 1.0 : 0.0, 100}; };
  Add("a.db", "full", "none", 20, give);
  Add("a.db", "snapkv", "20%", 20, give);
  EXPECT_THAT(Run("leaderboard a.db").out, Not(HasSubstr("*")));
  Add("a.db", "untried", "20%", 20, give);
  const Outcome outcome = Run("leaderboard a.db");
  EXPECT_THAT(outcome.out, AllOf(HasSubstr(" untried* "), HasSubstr(" snapkv "),
                                 HasSubstr("*: experimental; no")));
  EXPECT_THAT(Run("leaderboard a.db --format csv --columns method,experimental").out,
              AllOf(HasSubstr("untried,true"), HasSubstr("snapkv,false")));
}

TEST_F(ResultsTest, TimesSayHowFarToTrustThem) {
  Fill("a.db");
  const auto store = MustOpen(Path("a.db"));
  const int64_t run = Must(store->AddRun(TestRun("times")));
  for (const StoredCell& cell : Must(store->Cells())) {
    std::vector<LatencyRow> rows(3);
    for (int i = 0; i < 3; ++i) {
      LatencyRow& row = rows[static_cast<size_t>(i)];
      row.repetition = i;
      row.context_tokens = 1024;
      row.tpot_p50_s = cell.cell.method.full_cache ? 0.020 : 0.010 + 0.0001 * i;
      if (cell.cell.method.name == "h2o") row.others_share = 0.5;
    }
    MustOk(store->WriteLatency(cell.id, run, rows));
  }
  Outcome outcome = Run("leaderboard a.db --columns method,tpot");
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("10.10 ms (0.51x)\n"), HasSubstr("10.10 ms!\n"),
                                 HasSubstr("not the ratio of the medians"),
                                 HasSubstr("!: other programs ran beside every repetition")));
  outcome = Run("compare full snapkv --db a.db");
  EXPECT_THAT(outcome.out,
              HasSubstr("Its TPOT at 1,024 tokens is 0.50x of full's: BETTER (95% interval [0.49, "
                        "0.52], 3 repetitions)"));
  outcome = Run("compare full h2o --db a.db");
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("3 repetitions left out: other programs ran beside"),
                                 Not(HasSubstr("TPOT at"))));
}

TEST_F(ResultsTest, CompareSaysHowManySamplesItIsOf) {
  Add("a.db", "full", "none", 44, [](int) { return Given{.bytes = 4000}; });
  Add("a.db", "snapkv", "5%", 22, [](int) { return Given{}; });
  const Outcome outcome = Run("compare full snapkv@5% --db a.db");
  EXPECT_THAT(outcome.out, HasSubstr("22 paired samples of 44 (snapkv@5%: 22 not run)"));
  EXPECT_THAT(outcome.out, HasSubstr("22 of 44"));
  ExpectBad("compare full snapkv@5 --db a.db", {"did you mean 'snapkv@5%'?"});
  ExpectBad("show a.db snapkv@5", {"did you mean 'snapkv@5%'?"});
  ExpectBad("compare full snapkv --db a.db --margins m.json",
            {"--margins applies to two databases"});
}

// Flags of a comparison mean the same of two databases, or are refused.
TEST_F(ResultsTest, CompareOfDatabasesHeedsItsFlags) {
  const auto give = [](int lost) {
    return [lost](int i) { return Given{.score = i < lost ? 0.0 : 1.0}; };
  };
  for (const char* task : {"needle/single", "needle/multi"}) {
    Add("a.db", "full", "none", 400, give(0), task);
    Add("b.db", "full", "none", 400, give(12), task);
  }
  const std::string margins = StrCat(" --margins ", KVG_SOURCE_DIR, "/configs/gate/default.json");
  const auto compare = [&](const std::string& flags) {
    return Run(StrCat("compare a.db b.db", margins, flags)).out;
  };
  EXPECT_THAT(compare(""), HasSubstr("2 of 6 comparisons got worse"));
  EXPECT_THAT(compare(" --task needle/multi"),
              AllOf(HasSubstr("1 of 3 comparisons"), Not(HasSubstr("needle/single"))));
  EXPECT_THAT(compare(" --margin 0.06"), HasSubstr("nothing got worse"));
  EXPECT_THAT(compare(" --alpha 0.0001"), HasSubstr("2 undecided"));
  EXPECT_THAT(compare(" --seed 3 --resamples 100"), Not(testing::Eq(compare(""))));
  ExpectBad("compare a.db b.db --db a.db", {"--db a.db applies to two methods"});
  ExpectBad(StrCat("compare a.db b.db --model no", margins),
            {"a.db: holds nothing of model 'no'; there is: models ref-gqa"});
  ExpectBad("compare full full --db a.db --at turn",
            {"there are no results of compressed at 'turn'; there is: compressed at prompt"});
}

TEST_F(ResultsTest, GateExitsAsItsVerdict) {
  Fill("a.db");
  Fill("same.db");
  Add("worse.db", "full", "none", 400, [](int i) { return Given{.score = i < 12 ? 0.0 : 1.0}; });
  Add("few.db", "full", "none", 20, [](int) { return Given{}; });
  Add("few2.db", "full", "none", 20, [](int i) { return Given{.score = i < 1 ? 0.0 : 1.0}; });
  std::ofstream(Path("margins.json")) << R"({"complete": false})";
  const std::string margins = StrCat("--margins ", KVG_SOURCE_DIR, "/configs/gate/default.json ");
  Outcome outcome = Run("gate --baseline a.db --candidate same.db " + margins);
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out, "PASS: nothing got worse in 12 comparisons\n");
  outcome =
      Run("gate --baseline a.db --candidate worse.db --margins margins.json"
          " --junit j.xml --markdown m.md");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("WORSE"), HasSubstr("-3.00"),
                                 HasSubstr("FAIL: 1 of 3 comparisons got worse")));
  EXPECT_THAT(*ReadFile(Path("j.xml")), HasSubstr("<failure"));
  EXPECT_THAT(*ReadFile(Path("m.md")), HasSubstr("| WORSE |"));
  // What the candidate lacks cannot be compared.
  outcome = Run("gate --baseline a.db --candidate few.db --json " + margins);
  EXPECT_EQ(outcome.exit_code, 2);
  const Json missing = Must(ParseJson(outcome.out, "out"))["lines"][0];
  EXPECT_EQ(missing["comparable"], false);
  for (const char* number :
       {"baseline", "candidate", "change", "low", "high", "p", "p_adjusted", "detectable"}) {
    EXPECT_TRUE(missing[number].is_null()) << number;
  }
  outcome = Run("gate --baseline few.db --candidate few2.db --strict " + margins);
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_THAT(outcome.out, HasSubstr("UNDECIDED: 1 of 3"));
  outcome = Run("gate --baseline few.db --candidate few2.db " + margins);
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("1 undecided: 1 needs more samples or a wider margin"));
  const Json json =
      Must(ParseJson(Run("gate --baseline a.db --candidate same.db --json " + margins).out, "out"));
  EXPECT_EQ(json["same"], 12);
  EXPECT_EQ(json["lines"][0]["unit"], "score");
  EXPECT_EQ(json["exit_code"], 0);
  // 1 means worse and nothing else.
  ExpectBad("gate --baseline a.db --candidate same.db --junit no/such/j.xml " + margins,
            {"no/such"});
  ExpectBad("gate --baseline a.db --candidate same.db --margins none.json", {"none.json"});
}

// /dev/full: every write fails as on a full disk.
TEST_F(ResultsTest, OutputThatIsLostIsAnError) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  Fill("a.db");
  const auto lose = [&](const std::string& arguments) {
    const int status = std::system(
        StrCat("cd '", Path(""), "' && '", KVG_PROGRAM, "' ", arguments, " >/dev/full 2>lost")
            .c_str());
    EXPECT_THAT(*ReadFile(Path("lost")), HasSubstr("standard output cannot be written"));
    return WEXITSTATUS(status);
  };
  EXPECT_EQ(lose("leaderboard a.db --format csv"), 1);
  EXPECT_EQ(lose("compare full snapkv@20% --db a.db"), 1);
  EXPECT_EQ(lose("methods"), 1);
  // 1 means worse and nothing else.
  EXPECT_EQ(lose("gate --baseline a.db --candidate a.db"), 2);
}

TEST_F(ResultsTest, MergeIsIdempotentAndRefusesConflicts) {
  Add("a.db", "full", "none", 10, [](int) { return Given{}; });
  Add("b.db", "full", "none", 30, [](int) { return Given{}; });
  Add("liar.db", "full", "none", 3, [](int) { return Given{.score = 0}; });
  Outcome outcome = Run("merge out.db a.db b.db --json");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  Json json = Must(ParseJson(outcome.out, "out"));
  EXPECT_EQ(json["merged"][0]["added"], 10);
  EXPECT_EQ(json["merged"][1]["added"], 20);
  const std::string digest = Must(MustOpen(Path("out.db"))->ResultDigest());
  json = Must(ParseJson(Run("merge out.db b.db a.db --json").out, "out"));
  EXPECT_EQ(json["merged"][0]["added"], 0);
  EXPECT_EQ(json["merged"][0]["kept"], 30);
  // A conflict in the last input: what came before it is not taken over either.
  Add("c.db", "h2o", "20%", 5, [](int) { return Given{}; });
  Add("d.db", "knorm", "20%", 5, [](int) { return Given{}; });
  const std::string bytes = *ReadFile(Path("out.db"));
  ExpectBad("merge out.db c.db d.db liar.db", {"liar.db"});
  EXPECT_EQ(*ReadFile(Path("out.db")), bytes);
  EXPECT_FALSE(FileExists(Path("out.db-wal")));
  EXPECT_EQ(Must(MustOpen(Path("out.db"))->ResultDigest()), digest);
  ExpectBad("merge new.db a.db liar.db", {"liar.db"});
  EXPECT_FALSE(FileExists(Path("new.db")));
  ExpectBad("merge a.db a.db", {"a.db: is an input and the output"});

  // What could not be opened stays: here a directory, as well as a file that another process
  // writes.
  std::filesystem::create_directory(Path("folder"));
  ExpectBad("merge folder a.db", {"folder: is a directory"});
  EXPECT_TRUE(std::filesystem::is_directory(Path("folder")));
}

TEST_F(ResultsTest, ShowPutsBothAnswersSideBySide) {
  Fill("a.db");
  Outcome outcome = Run("show a.db h2o@20% n3");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("score              0.000, full cache 1.000"),
                    HasSubstr("the prompt could not be made again"), HasSubstr("What was hidden?"),
                    HasSubstr("It was hidden here."), HasSubstr("'the right one'"),
                    HasSubstr("--- full cache, score 1.000\nanswer 1\n"),
                    HasSubstr("--- h2o@20%, score 0.000, cut at the limit\nanswer 0\n"),
                    HasSubstr("logical 1000 B (25.0%)")));
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("20  20.0%   50.0%"), HasSubstr("█")));
  outcome = Run("show a.db h2o");
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("n19"), HasSubstr("lost")));
  // By the beginning of the cell's key.
  const std::string key = outcome.out.substr(0, 8);
  outcome = Run(StrCat("show a.db ", key, " n3 --json"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = Must(ParseJson(outcome.out, "out"));
  EXPECT_EQ(json["answers"][0]["prediction"], "answer 0");
  EXPECT_EQ(json["full_answers"][0]["prediction"], "answer 1");
  EXPECT_EQ(json["layers"].size(), 2u);
}

TEST_F(ResultsTest, ShowNamesTheFlagThatFitsNothing) {
  Fill("a.db");
  ExpectBad("show a.db h2o --task needle/singel",
            {"a.db: holds no cell of task 'needle/singel' (did you mean 'needle/single'?)"});
  ExpectBad("show a.db h2o --model ref-gqx",
            {"holds no cell of model 'ref-gqx' (did you mean 'ref-gqa'?); there is: ref-gqa"});
  ExpectBad("show a.db h2o --at turn", {"no cell of compress_at 'turn'; there is: prompt"});
  ExpectBad("show a.db h2o --seed 4", {"no cell of seed '4'; there is: 0"});
  Add(
      "a.db", "h2o", "20%", 2, [](int) { return Given{}; }, "needle/single", "other");
  Add(
      "a.db", "h2o", "20%", 2, [](int) { return Given{}; }, "needle/multi", "third");
  ExpectBad("show a.db h2o --task needle/multi --model other",
            {"holds no cell of task 'needle/multi' and model 'other', expected some that were run"
             " together"});
}

// What fits several cells is answered with all of them, and what tells them apart.
TEST_F(ResultsTest, ShowListsWhatAnAmbiguousNameFits) {
  Add("a.db", "h2o", "20%", 2, [](int) { return Given{}; });
  Add("a.db", "h2o", "40%", 2, [](int) { return Given{}; });
  Outcome outcome = Run("show a.db h2o n1");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("'h2o' is 2 cells"), HasSubstr("h2o@20%"),
                                 HasSubstr("h2o@40%"), HasSubstr("method[variant]@budget")));
  // So with the beginning of two keys.
  std::map<std::string, std::string> known;
  std::string shared;
  for (int budget = 100; shared.empty(); ++budget) {
    const std::string name = StrCat(budget);
    CellRow cell;
    cell.identity = IdentityOf("snapkv", name, "needle/single", "ref-gqa");
    const std::string head = cell.Key().substr(0, 4);
    const auto [at, added] = known.emplace(head, name);
    if (added) continue;
    shared = head;
    Add("a.db", "snapkv", at->second, 1, [](int) { return Given{}; });
    Add("a.db", "snapkv", name, 1, [](int) { return Given{}; });
  }
  outcome = Run(StrCat("show a.db ", shared, " n0"));
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr(StrCat("'", shared, "' is 2 cells")),
                                 HasSubstr(StrCat("\n  ", shared)), HasSubstr("more of the key")));
}

// Scores by what the data says of its samples, as the task's authors print them or as asked for.
TEST_F(ResultsTest, LeaderboardSplitsByFacts) {
  const auto store = MustOpen(Path("a.db"));
  const int64_t run = Must(store->AddRun(TestRun("r")));
  for (const std::string method : {"full", "h2o"}) {
    CellRow cell = TestCell(method == "full" ? 1 : 2);
    cell.method.name = method;
    cell.method.full_cache = method == "full";
    cell.task = {"longbench_e/x", 1, R"({"group":"longbench_e","metric":"qa_f1",
        "report":{"scale":100,"digits":2,"by":["length_bucket"]}})"};
    cell.budget = method == "full" ? "none" : "20%";
    const int64_t id = Must(store->AddCell(cell));
    for (int i = 0; i < 12; ++i) {
      SampleRow s;
      s.cell = id;
      s.run = run;
      s.sample_id = s.group = s.hash = StrCat(i);
      s.position = i;
      s.score = method == "full" ? 1.0 : (i % 3) / 2.0;
      const char* const buckets[] = {"0-4k", "4-8k", "8k+"};
      s.facts = StrCat(R"({"depth":")", i % 2 == 0 ? "0" : "50", R"(","length":")",
                       i < 6 ? "512" : "1024", R"(","length_bucket":")", buckets[i % 3], "\"}");
      s.answers.push_back({.prediction = "x", .references = {"1"}, .score = s.score});
      Must(store->Write(s));
    }
  }
  Outcome outcome = Run("leaderboard a.db");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("Scores by length_bucket"), HasSubstr("4-8k"), HasSubstr("50.00")));
  const Json json = Must(ParseJson(Run("leaderboard a.db --split depth,length --json").out, "out"));
  const Json& split = json["tables"][0]["split"];
  EXPECT_EQ(split["values"], Json::parse(R"([["0","50"],["512","1024"]])"));
  EXPECT_EQ(split["rows"][0]["samples"], Json::parse("[3,3,3,3]"));
  EXPECT_EQ(split["rows"][0]["scores"], Json::parse("[1.0,1.0,1.0,1.0]"));
  EXPECT_EQ(split["rows"][1]["scores"][0], 0.5);
  outcome = Run("leaderboard a.db --split depth,length");
  EXPECT_THAT(outcome.out, HasSubstr("depth (down) and length (across)"));
  outcome = Run("leaderboard a.db --split depht");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("did you mean 'depth'"));
}

// The prompt is made again from the task that the store holds, and checked against what was run.
TEST_F(ResultsTest, ShowMakesThePromptAgain) {
  std::ofstream(Path("tiny.json")) << R"({"name": "tiny", "version": 1, "group": "tiny",
    "description": "d", "citation": "c", "metric": "partial_match", "max_new_tokens": 5,
    "system": "Answer in one word.", "source": {"name": "key_value", "lengths": "3000"}})";
  const Outcome sample = Run("sample tiny.json --json --model '" KVG_SOURCE_DIR "/models/ref-gqa'");
  ASSERT_EQ(sample.exit_code, 0) << sample.err;
  const Json made = Must(ParseJson(sample.out.substr(0, sample.out.find('\n')), "out"));
  {
    const auto store = MustOpen(Path("a.db"));
    RunRow run = TestRun("r");
    run.config = StrCat(R"({"models":[{"name":"ref-gqa","path":")", KVG_SOURCE_DIR,
                        R"(/models/ref-gqa"}]})");
    SampleRow row;
    row.run = Must(store->AddRun(run));
    CellRow cell = TestCell(1);
    cell.task = {"tiny", 1, *ReadFile(Path("tiny.json"))};
    row.cell = Must(store->AddCell(cell));
    row.sample_id = made["id"].get<std::string>();
    row.hash = made["hash"].get<std::string>();
    row.group = "g";
    row.score = 1;
    row.answers.push_back({.prediction = "x", .references = {"y"}, .score = 1.0});
    Must(store->Write(row));
  }
  const std::string show = StrCat("show a.db snapkv '", made["id"].get<std::string>(), "' ");
  const Json json = Must(ParseJson(Run(show + "--json").out, "out"));
  EXPECT_EQ(json["context"], made["context"]);
  EXPECT_EQ(json["system"], "Answer in one word.");
  EXPECT_THAT(Run(show).out, HasSubstr("--- system\nAnswer in one word.\n--- context\n"));
  EXPECT_THAT(Run(show + "--prompt").out, HasSubstr(made["context"].get<std::string>()));
  // Another tokenizer gives another text, which is not passed off as the one that was run.
  const Json other = Must(ParseJson(
      Run(show + "--json --tokenizer '" KVG_TEST_DATA "/golden/tokenizers/bbpe_deepseek_llm'").out,
      "out"));
  EXPECT_FALSE(other.contains("context"));
  EXPECT_THAT(other["prompt_missing"].get<std::string>(), HasSubstr("another sample"));
}

}  // namespace
}  // namespace kvgauge
