// SPDX-License-Identifier: Apache-2.0
// Drafts in the store, summarised, and in the report.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "reports/html_check.h"
#include "reports/report.h"
#include "reports/report_tables.h"
#include "reports/speculation.h"
#include "reports/store_fixture.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(StoreSpeculation, RowsReadBackAsTheyWereWritten) {
  const ScratchDirectory scratch;
  const auto store = MustOpen(scratch.File("r.db"));
  const int64_t run = Must(store->AddRun(TestRun("r1")));
  SpeculationRow row = TestSpeculation(1, 3, 1, 2);
  row.form = "magicdec";
  row.not_engaged = true;
  row.not_engaged_because = "short";
  row.accepted_at = {4, 3, 2};
  const std::string digest = Must(store->ResultDigest());
  MustOk(store->WriteSpeculation(run, row));
  MustOk(store->WriteSpeculation(run, row));  // once is enough
  SpeculationRow other = row;
  other.prompt = 0;
  MustOk(store->WriteSpeculation(run, other));
  const std::vector<SpeculationRow> rows = Must(store->Speculations());
  ASSERT_EQ(rows.size(), 2u);
  const SpeculationRow& read = rows[0];
  EXPECT_EQ(read.identity, row.identity);
  EXPECT_EQ(read.run_key, "r1");
  EXPECT_EQ(read.machine_facts, R"({"cores":2})");
  EXPECT_EQ(read.model.fingerprint, "f00d");
  EXPECT_EQ(read.method.name, "snapkv");
  EXPECT_EQ(read.budget, "10%");
  EXPECT_EQ(read.budget_kind, "fraction");
  EXPECT_EQ(read.budget_value, 0.1);
  EXPECT_EQ(read.form, "magicdec");
  EXPECT_EQ(read.workload, row.workload);
  EXPECT_EQ(read.gamma, 3);
  EXPECT_EQ(read.prompt, 1);
  EXPECT_EQ(read.repetition, 2);
  EXPECT_EQ(read.prompt_tokens, 812);
  EXPECT_EQ(read.answer_tokens, 17);
  EXPECT_EQ(read.checks, 4);
  EXPECT_EQ(read.draft_steps, 12);
  EXPECT_EQ(read.drafted, 12);
  EXPECT_EQ(read.accepted, 9);
  EXPECT_THAT(read.drafted_at, ElementsAre(4, 4, 4));
  EXPECT_THAT(read.accepted_at, ElementsAre(4, 3, 2));
  EXPECT_EQ(read.seconds(), 1);
  EXPECT_EQ(read.tokens_per_s(), 16);
  EXPECT_EQ(read.full_tokens_per_s(), 12.8);
  EXPECT_EQ(read.draft_bytes, 1000);
  EXPECT_EQ(read.judge_bytes, 9000);
  EXPECT_EQ(read.held_bytes, 9500);
  EXPECT_TRUE(read.not_engaged);
  EXPECT_EQ(read.not_engaged_because, "short");
  EXPECT_EQ(read.answer_key, "abc");
  EXPECT_EQ(read.others_share, 0.125);
  EXPECT_EQ(rows[1].prompt, 0);
  EXPECT_EQ(Must(store->ResultDigest()), digest) << "times are no results";
  row.repetition = 3;
  row.full_s = std::nan("");
  const Status bad = store->WriteSpeculation(run, row);
  ASSERT_FALSE(bad.ok());
  EXPECT_THAT(bad.error().message, HasSubstr("full_s is not a finite number"));
  row.full_s = 1;
  row.accepted = 13;
  EXPECT_FALSE(store->WriteSpeculation(run, row).ok()) << "more accepted than drafted";
  MustOk(store->Check());
}

TEST(StoreSpeculation, MergesOnce) {
  const ScratchDirectory scratch;
  const auto joined = MustOpen(scratch.File("joined.db"));
  for (const char* name : {"a", "b"}) {
    const auto store = MustOpen(scratch.File(StrCat(name, ".db")));
    const int64_t run = Must(store->AddRun(TestRun(name)));
    MustOk(store->WriteSpeculation(run, TestSpeculation(1, 4, 0, 0)));
    MustOk(store->WriteSpeculation(run, TestSpeculation(1, 4, 1, 0)));
    EXPECT_EQ(Must(joined->Merge(*store)).speculation, 2);
    EXPECT_EQ(Must(joined->Merge(*store)).speculation, 0);
  }
  EXPECT_EQ(Must(joined->Speculations()).size(), 4u);
  EXPECT_EQ(Must(joined->Speculations())[3].run_key, "b");
}

TEST(SpeculationSummary, PromptsAndRepetitionsAreOneEntry) {
  std::vector<SpeculationRow> rows;
  for (int64_t repetition = 0; repetition < 3; ++repetition) {
    for (const int64_t prompt : {0, 1}) {
      rows.push_back(TestSpeculation(1, 4, prompt, repetition));
      rows.back().full_s += 0.25 * static_cast<double>(repetition);  // 1.25, 1.5, 1.75
    }
  }
  rows[1].others_share = 0.9;  // prompt 1, repetition 0
  rows.push_back(TestSpeculation(3, 4, 0, 0));
  rows.back().others_share = 0.5;
  rows.push_back(TestSpeculation(3, 2, 0, 0));
  rows.back().workload = R"({"answer_tokens":8,"prompt_tokens":"64","prompts":1,"seed":1})";
  rows.push_back(TestSpeculation(1, 4, 0, 0));
  rows.back().method.spec = R"({"version":2})";
  const std::vector<SpeculationBoard> boards = SummariseSpeculation(rows);
  ASSERT_EQ(boards.size(), 2u);
  EXPECT_EQ(boards[0].Title(), "2 prompts of 300..812 tokens (long.txt, b.txt), answers of 17");
  EXPECT_FALSE(boards[0].random_prompts());
  EXPECT_EQ(boards[0].prompts(), 2);
  EXPECT_EQ(boards[1].Title(), "1 prompt of 64 random tokens, answers of 8");
  EXPECT_TRUE(boards[1].random_prompts());
  ASSERT_EQ(boards[0].entries.size(), 3u) << "another version is another draft";
  const SpeculationEntry& fast = boards[0].entries[0];  // 1.75 times
  EXPECT_EQ(fast.Name(), "snapkv 30%");
  EXPECT_TRUE(fast.disturbed);
  EXPECT_EQ(fast.prompts, 1);
  const SpeculationEntry& entry = boards[0].entries[1];
  EXPECT_EQ(entry.Name(), "snapkv 10%");
  EXPECT_EQ(entry.prompts, 2);
  EXPECT_EQ(entry.timed, 5);
  EXPECT_EQ(entry.left_out, 1);
  EXPECT_FALSE(entry.disturbed);
  EXPECT_EQ(entry.drafted, 32);
  EXPECT_EQ(entry.accepted, 25);  // 12 and 13, each once
  EXPECT_EQ(entry.checks, 8);
  EXPECT_EQ(entry.tokens_per_check(), 4);
  EXPECT_EQ(entry.acceptance_range.low, 0.75);
  EXPECT_EQ(entry.acceptance_range.high, 13.0 / 16);
  EXPECT_EQ(entry.speedup.median, 1.5);
  EXPECT_EQ(entry.speedup.range.low, 1.25);
  EXPECT_EQ(entry.speedup.range.high, 1.75);
  EXPECT_EQ(entry.tokens_per_s.median, 16);
}

std::string SpeculationPage(const std::vector<SpeculationRow>& rows,
                            std::vector<ReportTable>* tables = nullptr) {
  const ScratchDirectory scratch;
  const auto store = MustOpen(scratch.File("r.db"));
  const int64_t run = Must(store->AddRun(TestRun("r1")));
  for (const SpeculationRow& row : rows) MustOk(store->WriteSpeculation(run, row));
  if (tables != nullptr) *tables = Must(MakeReportTables(*store));
  return Must(RenderReport(*store));
}

TEST(SpeculationReport, DrawsSpeedAndAcceptance) {
  std::vector<SpeculationRow> rows;
  for (const int64_t c : {1, 2}) {
    for (const int64_t gamma : {2, 4, 8}) {
      for (const int64_t prompt : {0, 1}) rows.push_back(TestSpeculation(c, gamma, prompt, 0));
    }
  }
  rows.push_back(TestSpeculation(3, 6, 0, 0));
  rows.back().form = "tri<force";
  std::vector<ReportTable> tables;
  const std::string html = SpeculationPage(rows, &tables);
  EXPECT_THAT(CheckHtml(html).faults, IsEmpty());
  const size_t begin = html.find("<section id=\"speculation\"");
  ASSERT_NE(begin, std::string::npos);
  const std::string section = html.substr(begin, html.find("</section>", begin) - begin);
  EXPECT_THAT(section, HasSubstr("<b>Speed</b> over drafted tokens"));
  EXPECT_THAT(section, HasSubstr("<b>Acceptance</b> over drafted tokens"));
  EXPECT_THAT(section, HasSubstr("full cache alone"));
  // Lines have names, in both figures.
  for (const char* name : {">snapkv 10%</text>", ">snapkv 20%</text>"}) {
    const size_t at = section.find(name);
    ASSERT_NE(at, std::string::npos) << name;
    EXPECT_NE(section.find(name, at + 1), std::string::npos) << name;
  }
  EXPECT_THAT(section, HasSubstr("tri&lt;force: snapkv 30%"));
  EXPECT_THAT(section, HasSubstr("1, 1 of 2 prompts"));
  const auto table = std::find_if(tables.begin(), tables.end(),
                                  [](const ReportTable& t) { return t.id == "speculation"; });
  ASSERT_NE(table, tables.end());
  EXPECT_EQ(table->rows.size(), 7u);
  for (const auto& row : table->rows) EXPECT_EQ(row.size(), table->columns.size());
}

}  // namespace
}  // namespace kvgauge
