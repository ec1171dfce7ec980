// SPDX-License-Identifier: Apache-2.0
// The numbers of the page: means over every task of a row, times that nothing disturbed, and what
// is known in one group of tasks only.
#include <gtest/gtest.h>

#include <set>

#include "core/json.h"
#include "core/strings.h"
#include "reports/html_check.h"
#include "reports/report.h"
#include "reports/report_scene.h"
#include "reports/report_tables.h"
#include "reports/store_fixture.h"
#include "src/html/format.h"
#include "src/sqlite.h"

namespace kvgauge {
namespace {

// From `begin` to the next `end`; "" where there is none.
std::string Part(const std::string& html, const std::string& begin, const std::string& end) {
  const size_t at = html.find(begin);
  if (at == std::string::npos) return "";
  return html.substr(at, html.find(end, at) - at);
}

// The row of the leaderboard that holds the method `name`, and `budget` where that is given.
std::string RowOf(const std::string& html, const std::string& name,
                  const std::string& budget = "") {
  const std::string wanted = StrCat("\">", name, "</span>");
  for (size_t at = html.find(wanted); at != std::string::npos; at = html.find(wanted, at + 1)) {
    const size_t begin = html.rfind("<tr ", at);
    const std::string row = html.substr(begin, html.find("</tr>", at) - begin);
    if (Holds(row, "c-budget") && Holds(row, StrCat(">", budget, "</small>"))) return row;
    if (Holds(row, "c-budget") && budget.empty()) return row;
  }
  return "";
}

std::string CellOf(const std::string& row, const std::string& column) {
  return Part(row, StrCat("<td class=\"c-", column, " "), "</td>");
}

class ReportNumbers : public ::testing::Test {
 protected:
  void SetUp() override {
    store_ = MustOpen(scratch_.File("numbers.db"));
    run_ = Must(store_->AddRun(TestRun("r")));
  }

  // Method `c` (0: the full cache) on one task of a group of its own.
  int64_t AddCell(int64_t c, const std::string& task) {
    CellRow cell = TestCell(c);
    cell.identity = StrCat(task, c);
    cell.method.name = StrCat("method", c);
    cell.signature = StrCat(R"({"task":")", task, R"("})");
    cell.task = {task, 1, StrCat(R"({"group":")", task, R"("})")};
    return Must(store_->AddCell(cell));
  }

  void AddSamples(int64_t cell, int64_t c, double bytes_factor, double kl, EngagementMark mark) {
    for (int64_t i = 0; i < 4; ++i) {
      SampleRow sample = TestSample(cell, run_, c, i);
      sample.tokens_in = 1000;
      sample.engagement = mark;
      if (c > 0) sample.kl_divergence = kl;
      for (MemoryRow& memory : sample.memory) {
        memory.payload_bytes = static_cast<int64_t>(1000 * bytes_factor);
        memory.scales_bytes = 0;
        memory.resident_bytes = memory.payload_bytes;
      }
      Must(store_->Write(sample));
    }
  }

  void AddTimes(int64_t cell, const std::vector<std::pair<double, double>>& ttft_and_company) {
    std::vector<LatencyRow> rows;
    for (const auto& [seconds, share] : ttft_and_company) {
      LatencyRow row;
      row.context_tokens = 4096;
      row.repetition = static_cast<int64_t>(rows.size());
      row.prefill_s = row.ttft_s = seconds;
      row.tpot_p50_s = row.tpot_p90_s = row.tpot_p99_s = seconds / 100;
      row.steps = 8;
      row.score_s = 1e-6;
      row.others_share = share;
      rows.push_back(row);
    }
    MustOk(store_->WriteLatency(cell, run_, rows));
  }

  std::string Page() {
    const std::string html = Must(RenderReport(*store_));
    EXPECT_TRUE(CheckHtml(html).faults.empty()) << CheckHtml(html).faults.front();
    return html;
  }

  ScratchDirectory scratch_;
  std::unique_ptr<ResultStore> store_;
  int64_t run_ = 0;
};

TEST_F(ReportNumbers, BytesAndFidelityAreMeansOverAllTasks) {
  for (const char* task : {"a", "b"}) {
    const bool first = std::string(task) == "a";
    AddSamples(AddCell(0, task), 0, 8, 0, EngagementMark::kIdentity);
    AddSamples(AddCell(1, task), 1, first ? 1 : 3, first ? 0.125 : 0.375, EngagementMark::kEngaged);
  }
  const std::string html = Page();
  const std::string row = RowOf(html, "method1");
  EXPECT_TRUE(Holds(CellOf(row, "resident"), ">2 B<")) << row;
  EXPECT_TRUE(Holds(CellOf(row, "resident"), "Means over 2 of 2 tasks.")) << row;
  EXPECT_TRUE(Holds(CellOf(row, "kl"), ">0.250")) << row;
  // In the methods' own section, too, which says that they are means over tasks.
  const std::string inside = Part(html, "<section id=\"anatomy\"", "</section>");
  EXPECT_TRUE(Holds(inside, "<td class=\"n\">0.250</td>"));
  EXPECT_FALSE(Holds(inside, "<td class=\"n\">0.125</td>"));
}

TEST_F(ReportNumbers, ExperimentalMethodsAreMarkedAndTheMarkIsExplained) {
  AddSamples(AddCell(0, "a"), 0, 8, 0, EngagementMark::kIdentity);
  AddSamples(AddCell(1, "a"), 1, 1, 0, EngagementMark::kEngaged);
  constexpr char kMark[] = "data-tip=\"Experimental: no independent implementation";
  EXPECT_FALSE(Holds(Page(), "Experimental: no independent"));
  CellRow cell = TestCell(2);
  cell.identity = "untried";
  cell.method.name = "untried";
  cell.method.experimental = true;
  cell.signature = R"({"task":"a"})";
  cell.task = {"a", 1, R"({"group":"a"})"};
  AddSamples(Must(store_->AddCell(cell)), 2, 1, 0, EngagementMark::kEngaged);
  const std::string html = Page();
  EXPECT_TRUE(Holds(RowOf(html, "untried"), kMark));
  EXPECT_FALSE(Holds(RowOf(html, "method1"), kMark));
  EXPECT_TRUE(Holds(html, " * marks an experimental method: no independent implementation"));
  EXPECT_TRUE(Holds(html, "<dt>*</dt><dd>Experimental: no independent implementation"));
}

TEST_F(ReportNumbers, EngagementIsToldOfEachGroup) {
  for (const char* task : {"a", "b"}) {
    const bool first = std::string(task) == "a";
    AddSamples(AddCell(0, task), 0, 8, 0, EngagementMark::kIdentity);
    AddSamples(AddCell(1, task), 1, 1, 0,
               first ? EngagementMark::kEngaged : EngagementMark::kNotEngaged);
    AddSamples(AddCell(2, task), 2, 1, 0, EngagementMark::kNotEngaged);
    AddSamples(AddCell(3, task), 3, 1, 0, EngagementMark::kEngaged);
  }
  const std::string html = Page();
  const auto engaged = [&](const char* name) {
    return Part(RowOf(html, name), "<td class=\"c-engaged", "</td>");
  };
  EXPECT_TRUE(Holds(engaged("method1"), "✕ not on b")) << engaged("method1");
  EXPECT_TRUE(Holds(engaged("method1"), "b: 4 of 4 samples. The row is not ranked there."));
  EXPECT_TRUE(Holds(engaged("method1"), "data-csv=\"not on b\""));
  EXPECT_TRUE(Holds(engaged("method2"), "✕ no<")) << engaged("method2");
  EXPECT_TRUE(Holds(engaged("method3"), "✓ yes")) << engaged("method3");
  EXPECT_TRUE(Holds(RowOf(html, "method1"), "<td class=\"c-rank0 n\" data-v=\""));
  EXPECT_TRUE(Holds(RowOf(html, "method1"), "<td class=\"c-rank1 n nil opt\""));
}

TEST_F(ReportNumbers, DisturbedTimesAreLeftOutOrMarked) {
  const int64_t full = AddCell(0, "a"), one = AddCell(1, "a"), two = AddCell(2, "a");
  AddSamples(full, 0, 8, 0, EngagementMark::kIdentity);
  AddSamples(one, 1, 1, 0, EngagementMark::kEngaged);
  AddSamples(two, 2, 1, 0, EngagementMark::kEngaged);
  AddTimes(full, {{0.010, 0}, {0.010, 0}, {0.010, 0}});
  AddTimes(one, {{0.020, 0}, {0.090, 0.7}, {0.022, 0.1}});
  AddTimes(two, {{0.040, 0.5}, {0.044, 0.3}, {0.048, 0.4}});
  const std::string html = Page();
  const std::string calm = CellOf(RowOf(html, "method1"), "ttft");
  EXPECT_TRUE(Holds(calm, ">21.0 ms<small>2.10× </small>")) << calm;
  EXPECT_TRUE(Holds(calm, "data-low=\"0.02\" data-high=\"0.022\"")) << calm;
  EXPECT_TRUE(Holds(calm, "median of 2 repetitions, 20.0 ms to 22.0 ms; 1 disturbed one left out"))
      << calm;
  EXPECT_FALSE(Holds(calm, "⚠")) << calm;
  const std::string loud = CellOf(RowOf(html, "method2"), "ttft");
  EXPECT_TRUE(Holds(loud, "⚠ disturbed")) << loud;
  EXPECT_TRUE(Holds(loud, "data-note=\"disturbed\"")) << loud;
  EXPECT_TRUE(Holds(loud, "other programs had up to 50.0% of the processors")) << loud;
  // A disturbed time is on no front.
  const std::string front = Part(html, "aria-label=\"a: score against time\"", "</desc>");
  EXPECT_FALSE(Holds(front, "method2")) << front;
}

TEST_F(ReportNumbers, TheFullCacheCompressesNothing) {
  const int64_t full = AddCell(0, "a"), one = AddCell(1, "a");
  AddSamples(full, 0, 8, 0, EngagementMark::kIdentity);
  AddSamples(one, 1, 1, 0, EngagementMark::kEngaged);
  AddTimes(full, {{0.010, 0}});
  AddTimes(one, {{0.020, 0}});
  const std::string html = Page();
  EXPECT_TRUE(Holds(CellOf(RowOf(html, "method0"), "compress"), "–"));
  EXPECT_TRUE(Holds(CellOf(RowOf(html, "method1"), "compress"), "1.00 µs"));
}

AnswerRow Turn(const std::string& question, const std::string& prediction,
               const std::vector<std::string>& references, std::optional<double> score) {
  AnswerRow row;
  row.question = question;
  row.prediction = prediction;
  row.references = references;
  row.score = score;
  return row;
}

// A conversation shows what was asked, right and answered in every turn, with its own score.
TEST_F(ReportNumbers, EveryTurnOfAConversationIsShown) {
  for (int64_t c = 0; c < 2; ++c) {
    const int64_t cell = AddCell(c, "a");
    SampleRow sample = TestSample(cell, run_, c, 0);
    sample.score = c == 0 ? 1 : 0.5;
    sample.answers = {Turn("First?", "one", {"one"}, 1.0),
                      Turn("Second?", c == 0 ? "two" : "", {"two"}, c == 0 ? 1.0 : 0.0)};
    Must(store_->Write(sample));
  }
  const std::string html = Page();
  const std::string written = Part(html, "<article class=\"sample\">", "</article>");
  EXPECT_TRUE(Holds(written, "<b>Turn 1:</b> <bdi>First?</bdi>")) << written;
  EXPECT_TRUE(Holds(written, "<b>Turn 2:</b> <bdi>Second?</bdi></p><p><b>Right:</b> <bdi>two"));
  EXPECT_TRUE(Holds(written, "Turn 2, score 100.0</span><bdi>two</bdi>")) << written;
  EXPECT_TRUE(Holds(written, "Turn 2, score 0.0</span><span class=\"soft\">no text</span>"));
  const std::string data = Part(html, "id=\"samples-data\">", "</script>");
  EXPECT_TRUE(Holds(data, R"([["Turn 1","First?","","one"],["Turn 2","Second?","","two"]])"));
  EXPECT_TRUE(Holds(data, R"([["Turn 1","one","100.0"],["Turn 2","","0.0"]])"));
}

// What only leads to the answer is called so, and has neither a right answer nor a score.
TEST_F(ReportNumbers, ReasoningIsToldFromTheAnswer) {
  for (int64_t c = 0; c < 2; ++c) {
    const int64_t cell = AddCell(c, "a");
    SampleRow sample = TestSample(cell, run_, c, 0);
    sample.score = c == 0 ? 1 : 0;
    sample.answers = {Turn("Think of it.", "Since B follows A", {}, std::nullopt),
                      Turn("So which?", c == 0 ? "B" : "C", {"B"}, c == 0 ? 1.0 : 0.0)};
    Must(store_->Write(sample));
  }
  const std::string html = Page();
  const std::string written = Part(html, "<article class=\"sample\">", "</article>");
  EXPECT_TRUE(Holds(written, "<span class=\"turn\">Reasoning</span><bdi>Since B follows A"));
  EXPECT_TRUE(Holds(written, "<span class=\"turn\">Answer, score 100.0</span><bdi>B</bdi>"));
  EXPECT_TRUE(Holds(written, "<b>Reasoning:</b> <bdi>Think of it.</bdi></p><p class=\"q\">"));
}

// What is drawn can be taken away: the page holds the tables for its buttons.
TEST_F(ReportNumbers, TablesGiveThePagesNumbers) {
  for (const char* task : {"a", "b"}) {
    const bool first = std::string(task) == "a";
    AddSamples(AddCell(0, task), 0, 8, 0, EngagementMark::kIdentity);
    AddSamples(AddCell(1, task), 1, first ? 1 : 3, 0.5, EngagementMark::kEngaged);
  }
  AddTimes(AddCell(0, "a"), {{0.010, 0}, {0.012, 0}});
  AddTimes(AddCell(1, "a"), {{0.020, 0.9}});
  const std::vector<ReportTable> tables = Must(MakeReportTables(*store_));
  ASSERT_EQ(tables.size(), 4u);
  const auto cell = [](const ReportTable& table, size_t row, const std::string& name) {
    for (size_t c = 0; c < table.columns.size(); ++c) {
      if (table.columns[c].name == name) return table.rows[row][c];
    }
    ADD_FAILURE() << "no column " << name;
    return ReportCell();
  };
  EXPECT_EQ(tables[1].id, "tasks");
  ASSERT_EQ(tables[1].rows.size(), 4u);
  EXPECT_EQ(cell(tables[1], 0, "task").text, "a");
  EXPECT_EQ(cell(tables[1], 0, "score").number, 75.0);
  EXPECT_TRUE(cell(tables[1], 0, "low").number.has_value());
  EXPECT_EQ(tables[2].id, "bytes");
  for (size_t r = 0; r < tables[2].rows.size(); ++r) {
    const bool full = cell(tables[2], r, "method").text == "method0";
    EXPECT_EQ(cell(tables[2], r, "payload").text, full ? "8 B" : "2 B");
  }
  EXPECT_EQ(tables[3].id, "times");
  for (size_t r = 0; r < tables[3].rows.size(); ++r) {
    const bool full = cell(tables[3], r, "method").text == "method0";
    EXPECT_EQ(cell(tables[3], r, "ttft").number, full ? 0.011 : 0.020);
    EXPECT_EQ(cell(tables[3], r, "note").text, full ? "" : "disturbed");
    EXPECT_EQ(cell(tables[3], r, "scoring").number.has_value(), !full);
  }
  const std::string html = Page();
  EXPECT_TRUE(Holds(html, "data-table=\"tasks\">Download CSV: Scores of tasks"));
  const std::string data = Part(html, "id=\"tables-data\">", "</script>");
  const auto json = ParseJson(data.substr(data.find('>') + 1), "tables");
  ASSERT_TRUE(json.ok()) << json.error().message;
  EXPECT_EQ((*json)["tasks"]["rows"].size(), 4u);
  EXPECT_EQ((*json)["times"]["rows"].size(), 2u);
}

// A section without content says what would give it some.
TEST_F(ReportNumbers, WhatWasNotMeasuredIsNamedWithItsCure) {
  const int64_t full = AddCell(0, "a"), one = AddCell(1, "a");
  for (const auto& [cell, c] : {std::pair(full, 0), std::pair(one, 1)}) {
    SampleRow sample = TestSample(cell, run_, c, 0);
    sample.kl_divergence = {};
    Must(store_->Write(sample));
  }
  const std::string missing = Part(Page(), "<section id=\"missing\"", "</section>");
  for (const char* part :
       {"fidelity_steps", "latency", "sweep", "ablation-*.json", "Scaling with the context"}) {
    EXPECT_TRUE(Holds(missing, part)) << part << " in " << missing;
  }
  EXPECT_FALSE(Holds(missing, "Needles")) << missing;  // there are some
}

// The same method answers the same question on two models.
TEST_F(ReportNumbers, SamplesSayWhoseModelAnswered) {
  for (const auto& [name, offset] : {std::pair("small", 0), std::pair("large", 2)}) {
    for (int64_t c = 0; c < 2; ++c) {
      CellRow cell = TestCell(c);
      cell.identity = StrCat(name, c);
      cell.model = {StrCat("print", offset), name, "{}"};
      AddSamples(Must(store_->AddCell(cell)), c, 1, 0.1, EngagementMark::kEngaged);
    }
  }
  const std::string html = Page();
  const std::string samples = Part(html, "<section id=\"samples\"", "</section>");
  EXPECT_TRUE(Holds(samples, "needle/single, small</span>"));
  EXPECT_TRUE(Holds(samples, "needle/single, large</span>"));
  const std::string data = Part(html, "id=\"samples-data\">", "</script>");
  const auto json = ParseJson(data.substr(data.find('>') + 1), "samples");
  ASSERT_TRUE(json.ok()) << json.error().message;
  std::set<std::string> models;
  for (const auto& question : (*json)["questions"]) {
    models.insert((*json)["boards"][question[8].get<size_t>()].get<std::string>());
  }
  EXPECT_EQ(models, (std::set<std::string>{"small", "large"}));
  EXPECT_FALSE(Holds(html, ", compressed at prompt</h3>"));  // no two differ in it
}

// A method that was run in several settings only is left out of figures of methods, which say so;
// and where settings are alike, none is the best.
TEST_F(ReportNumbers, SettingsOfASweepStandInItsSectionAlone) {
  AddSamples(AddCell(0, "a"), 0, 1, 0, EngagementMark::kNone);
  AddSamples(AddCell(1, "a"), 1, 0.5, 0.1, EngagementMark::kEngaged);
  for (const auto& [variant, later] :
       {std::pair("score.window=8", 1.0), {"score.window=16", 0.0}}) {
    for (const char* task : {"a", "b"}) {
      CellRow cell = TestCell(1);
      cell.identity = StrCat(task, variant);
      cell.method.name = "swept";
      cell.method.variant = variant;
      cell.signature = StrCat(R"({"task":")", task, R"("})");
      cell.task = {task, 1, R"({"group":"a"})"};
      const int64_t id = Must(store_->AddCell(cell));
      for (int64_t i = 0; i < 4; ++i) {
        SampleRow sample = TestSample(id, run_, 1, i);
        sample.score = *task == 'a' ? 1 : later;
        Must(store_->Write(sample));
      }
    }
  }
  const std::string html = Page();
  const std::string curves = Part(html, "<section id=\"curves\"", "</section>");
  EXPECT_TRUE(Holds(curves, "under <a href=\"#ablation\">Sweeps</a>: swept.")) << curves;
  EXPECT_TRUE(Holds(Part(curves, "class=\"legend\"", "</div>"), "method1"));
  EXPECT_FALSE(Holds(Part(curves, "class=\"legend\"", "</div>"), "swept"));
  const std::string sweeps = Part(html, "<section id=\"ablation\"", "</section>");
  const size_t b = sweeps.find("on b</figcaption>");
  ASSERT_NE(b, std::string::npos) << sweeps;
  EXPECT_TRUE(Holds(sweeps.substr(0, b), "All settings alike")) << sweeps;
  EXPECT_FALSE(Holds(sweeps.substr(0, b), "Best")) << sweeps;
  EXPECT_TRUE(Holds(sweeps.substr(b), ">score.window=8</a>")) << sweeps;
}

// Every group of tasks once, beside what they cost, where one table would be wider than paper.
TEST_F(ReportNumbers, AWideBoardHasTablesForPaper) {
  for (const char* task : {"a", "b", "c", "d"}) {
    for (int64_t c = 0; c < 2; ++c)
      AddSamples(AddCell(c, task), c, 1, 0.1, EngagementMark::kEngaged);
  }
  const auto captions = [&] {
    const std::string html = Page();
    std::vector<std::string> found;
    for (size_t at = html.find("data-of=\"board0\"><caption>"); at != std::string::npos;
         at = html.find("data-of=\"board0\"><caption>", at + 1)) {
      found.push_back(html.substr(at + 26, html.find('<', at + 26) - at - 26));
    }
    return found;
  };
  // Four groups and KL are nine columns.
  EXPECT_EQ(captions(),
            (std::vector<std::string>{"Scores on a, b, c, d", "Bytes, fidelity and times"}));
  for (int64_t c = 0; c < 2; ++c) AddSamples(AddCell(c, "e"), c, 1, 0.1, EngagementMark::kEngaged);
  EXPECT_EQ(captions(), (std::vector<std::string>{"Scores on a, b", "Scores on c, d, e",
                                                  "Bytes, fidelity and times"}));
}

std::string Unescaped(std::string text) {
  for (const auto& [from, to] :
       {std::pair("&lt;", "<"), std::pair("&gt;", ">"), std::pair("&quot;", "\""),
        std::pair("&#39;", "'"), std::pair("&amp;", "&")}) {
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + 1)) {
      text.replace(at, std::string(from).size(), to);
    }
  }
  return text;
}

// Every statement, taken from the page as a reader would, runs as it stands and finds something.
TEST(ReportSql, RunsAsItIsShownAndGivesTheNumbersOfThePage) {
  const ScratchDirectory scratch;
  const std::string path = scratch.File("scene.db");
  SceneOptions scene;
  scene.repeats = 1;
  scene.lengths = 2;
  scene.layers = 2;
  scene.kv_heads = 2;
  scene.pictures = 1;
  std::string html;
  {
    auto store = MustOpen(path);
    MustOk(WriteScene(*store, scene));
    html = Must(RenderReport(*store));
  }
  const std::string shown = Part(html, "<summary>The SQL of each table and figure", "</details>");
  auto opened = Database::Open(path, SQLITE_OPEN_READONLY, path);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  Database& db = *opened;
  int64_t statements = 0, compared = 0;
  for (size_t at = shown.find("<h4>"); at != std::string::npos; at = shown.find("<h4>", at + 1)) {
    const std::string name = shown.substr(at + 4, shown.find("</h4>", at) - at - 4);
    const size_t begin = shown.find("<pre class=\"code\">", at) + 18;
    const std::string sql = Unescaped(shown.substr(begin, shown.find("</pre>", begin) - begin));
    auto prepared = db.Prepare(sql);
    ASSERT_TRUE(prepared.ok()) << name << ": " << prepared.error().message;
    Statement& statement = *prepared;
    int64_t rows = 0;
    while (Must(statement.Step())) {
      ++rows;
      if (name.starts_with("Leaderboard: bytes") && statement.Text(2) == "h2o" &&
          statement.Text(4) == "20%") {
        ++compared;
        const std::string row = RowOf(html, "h2o", "20%");
        EXPECT_TRUE(Holds(
            row, StrCat(">", report::Format(statement.Real(8), report::Unit::kDecimals), "</td>")))
            << row;
        EXPECT_TRUE(Holds(
            row, StrCat(report::Format(statement.Real(6), report::Unit::kPercent), " of full")))
            << row;
      }
      if (name.starts_with("Leaderboard, fronts") && statement.Text(3) == "h2o" &&
          statement.Text(5) == "20%") {
        ++compared;
        const std::string score = report::FormatDecimals(100 * statement.Real(6), 1);
        EXPECT_TRUE(Holds(RowOf(html, "h2o", "20%"), StrCat("<b>", score, "</b>"))) << score;
      }
      if (name.starts_with("Scaling") && statement.Text(0) == "h2o" && statement.Text(2) == "20%" &&
          statement.Int(4) == 16384) {
        ++compared;
        const std::string ttft = report::Format(statement.Real(6), report::Unit::kSeconds);
        EXPECT_TRUE(Holds(RowOf(html, "h2o", "20%"), StrCat(">", ttft))) << ttft;
      }
    }
    EXPECT_GT(rows, 0) << name;
    ++statements;
  }
  EXPECT_GE(statements, 13);
  EXPECT_GE(compared, 4);
}

}  // namespace
}  // namespace kvgauge
