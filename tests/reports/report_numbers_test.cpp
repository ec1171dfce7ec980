// SPDX-License-Identifier: Apache-2.0
// Whose numbers the page shows: means over every task of a row, times that nothing disturbed, and
// what is known in one group of tasks only.
#include <gtest/gtest.h>

#include "core/strings.h"
#include "reports/html_check.h"
#include "reports/report.h"
#include "reports/store_fixture.h"

namespace kvgauge {
namespace {

bool Holds(const std::string& html, const std::string& part) {
  return html.find(part) != std::string::npos;
}

// From `begin` to the next `end`; "" where there is none.
std::string Part(const std::string& html, const std::string& begin, const std::string& end) {
  const size_t at = html.find(begin);
  if (at == std::string::npos) return "";
  return html.substr(at, html.find(end, at) - at);
}

// The row of the leaderboard that holds `name`.
std::string RowOf(const std::string& html, const std::string& name) {
  const size_t at = html.find(StrCat("title=\"T\">", name, "</span>"));
  if (at == std::string::npos) return "";
  const size_t begin = html.rfind("<tr ", at);
  return html.substr(begin, html.find("</tr>", at) - begin);
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
  EXPECT_TRUE(Holds(CellOf(row, "resident"), ">2.00 B<")) << row;
  EXPECT_TRUE(Holds(CellOf(row, "resident"), "Means over 2 of 2 tasks.")) << row;
  EXPECT_TRUE(Holds(CellOf(row, "kl"), ">0.250")) << row;
  // In the methods' own section, too, which says that they are means over tasks.
  const std::string inside = Part(html, "<section id=\"anatomy\"", "</section>");
  EXPECT_TRUE(Holds(inside, "<td class=\"n\">0.250</td>"));
  EXPECT_FALSE(Holds(inside, "<td class=\"n\">0.125</td>"));
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

}  // namespace
}  // namespace kvgauge
