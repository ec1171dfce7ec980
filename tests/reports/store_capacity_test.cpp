// SPDX-License-Identifier: Apache-2.0
// Capacity in the store, summarised, and beside scores in the report.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "reports/capacity.h"
#include "reports/html_check.h"
#include "reports/report.h"
#include "reports/report_tables.h"
#include "reports/store_fixture.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// The model and the method are those of TestCell(c); it holds 4 (c + 1) requests.
CapacityRow TestCapacity(int64_t c, int64_t batch, int64_t repetition) {
  const CellRow cell = TestCell(c);
  CapacityRow row;
  row.identity = StrCat(R"({"capacity":1,"budget":)", c, R"(,"batch":)", batch, "}");
  row.model = cell.model;
  row.method = cell.method;
  row.budget = cell.budget;
  row.budget_kind = cell.budget_kind;
  row.budget_value = cell.budget_value;
  row.workload = R"({"answer_tokens":"16","arrivals":"together","prompt_tokens":"64..512",)"
                 R"("requests":32,"seed":1})";
  row.policy = "fcfs";
  row.batch = batch;
  row.memory_bytes = 400 << 20;
  row.repetition = repetition;
  row.max_batch = batch == 0 ? 4 * (c + 1) : batch;
  row.requests = row.served = 32;
  row.held = row.max_batch;
  row.fit = 4 * (c + 1);
  row.decoding = row.max_batch;
  row.tokens_in = 8000;
  row.tokens_out = 512;
  row.seconds = 2.5;
  row.busy_s = 2.25;
  row.tokens_per_s = 100.0 * static_cast<double>(row.max_batch) + static_cast<double>(repetition);
  row.ttft_p50_s = 0.5;
  row.ttft_p90_s = 0.75;
  row.ttft_p99_s = 1;
  row.tpot_p50_s = 0.0625;
  row.e2e_p50_s = 1.5;
  row.passes = 70;
  row.peak_bytes = 123456;
  row.sequence_bytes = 4096;
  row.answers_key = "abc";
  row.others_share = 0.125;
  return row;
}

TEST(StoreCapacity, RowsReadBackAsTheyWereWritten) {
  const ScratchDirectory scratch;
  const auto store = MustOpen(scratch.File("r.db"));
  const int64_t run = Must(store->AddRun(TestRun("r1")));
  CapacityRow row = TestCapacity(1, 0, 2);
  row.failed = 1;
  row.failure = "needs 9 tokens";
  row.not_engaged = 3;
  row.not_engaged_because = "short";
  MustOk(store->WriteCapacity(run, row));
  const std::string digest = Must(store->ResultDigest());
  MustOk(store->WriteCapacity(run, row));  // once is enough
  CapacityRow refused = TestCapacity(2, 4, 0);
  refused.memory_bytes = 0;
  refused.fit.reset();
  refused.refused = "expected more than the weights";
  MustOk(store->WriteCapacity(run, refused));
  const std::vector<CapacityRow> rows = Must(store->Capacities());
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].identity, row.identity);
  EXPECT_EQ(rows[0].run_key, "r1");
  EXPECT_EQ(rows[0].machine_facts, R"({"cores":2})");
  EXPECT_EQ(rows[0].model.fingerprint, "f00d");
  EXPECT_EQ(rows[0].method.name, "snapkv");
  EXPECT_EQ(rows[0].budget, "10%");
  EXPECT_EQ(rows[0].budget_value, 0.1);
  EXPECT_EQ(rows[0].workload, row.workload);
  EXPECT_EQ(rows[0].memory_bytes, 400 << 20);
  EXPECT_EQ(rows[0].host_memory_bytes, 0);
  EXPECT_EQ(rows[0].repetition, 2);
  EXPECT_EQ(rows[0].fit, 8);
  EXPECT_EQ(rows[0].held, 8);
  EXPECT_EQ(rows[0].tokens_out, 512);
  EXPECT_EQ(rows[0].tokens_per_s, 802);
  EXPECT_EQ(rows[0].tpot_p50_s, 0.0625);
  EXPECT_EQ(rows[0].others_share, 0.125);
  EXPECT_EQ(rows[0].peak_bytes, 123456);
  EXPECT_EQ(rows[0].failure, "needs 9 tokens");
  EXPECT_EQ(rows[0].not_engaged_because, "short");
  EXPECT_EQ(rows[0].answers_key, "abc");
  EXPECT_EQ(rows[1].refused, "expected more than the weights");
  EXPECT_FALSE(rows[1].fit);
  EXPECT_EQ(rows[1].memory_bytes, 0);
  EXPECT_EQ(Must(store->ResultDigest()), digest) << "times are no results";
  row.repetition = 3;
  row.seconds = std::nan("");
  const Status bad = store->WriteCapacity(run, row);
  ASSERT_FALSE(bad.ok());
  EXPECT_THAT(bad.error().message, HasSubstr("seconds is not a finite number"));
  MustOk(store->Check());
}

TEST(StoreCapacity, MergesOnce) {
  const ScratchDirectory scratch;
  const auto joined = MustOpen(scratch.File("joined.db"));
  for (const char* name : {"a", "b"}) {
    const auto store = MustOpen(scratch.File(StrCat(name, ".db")));
    const int64_t run = Must(store->AddRun(TestRun(name)));
    MustOk(store->WriteCapacity(run, TestCapacity(1, 4, 0)));
    MustOk(store->WriteCapacity(run, TestCapacity(0, 4, 0)));
    EXPECT_EQ(Must(joined->Merge(*store)).capacity, 2);
    EXPECT_EQ(Must(joined->Merge(*store)).capacity, 0);
  }
  const std::vector<CapacityRow> rows = Must(joined->Capacities());
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[3].run_key, "b");
  EXPECT_EQ(rows[3].method.name, "full");
}

TEST(CapacitySummary, RepetitionsAreOneEntry) {
  std::vector<CapacityRow> rows;
  for (int64_t repetition = 0; repetition < 4; ++repetition) {
    rows.push_back(TestCapacity(1, 4, repetition));
  }
  rows[1].others_share = 0.9;
  rows.push_back(TestCapacity(1, 0, 0));
  rows.push_back(TestCapacity(0, 0, 0));
  rows.back().others_share = 0.5;
  rows.push_back(TestCapacity(2, 0, 0));
  rows.back().refused = "too large";
  rows.push_back(TestCapacity(0, 0, 0));
  rows.back().policy = "radix";
  const std::vector<CapacityBoard> boards = SummariseCapacity(rows);
  ASSERT_EQ(boards.size(), 2u);
  EXPECT_EQ(boards[0].Title(),
            "400.0 MiB, fcfs: 32 requests, prompts of 64..512 tokens, answers of 16");
  ASSERT_EQ(boards[0].entries.size(), 4u);
  const CapacityEntry& entry = boards[0].entries[0];
  EXPECT_EQ(entry.repetitions, 3);
  EXPECT_EQ(entry.left_out, 1);
  EXPECT_FALSE(entry.disturbed);
  EXPECT_EQ(entry.row.repetition, 2);  // of 0, 2 and 3
  EXPECT_EQ(entry.tokens_per_s.low, 400);
  EXPECT_EQ(entry.tokens_per_s.high, 403);
  EXPECT_TRUE(boards[0].entries[2].disturbed);
  const auto fastest = boards[0].Fastest();
  ASSERT_EQ(fastest.size(), 2u);
  EXPECT_EQ(fastest[0]->row.batch, 0);  // 8 sequences serve more than 4
  EXPECT_EQ(boards[0].Unbounded().size(), 2u);
}

TEST(CapacitySummary, WhoServesAllComesFirst) {
  std::vector<CapacityRow> rows = {TestCapacity(1, 4, 0), TestCapacity(1, 16, 0)};
  rows[1].served = 30;
  rows[1].failed = 2;
  const auto boards = SummariseCapacity(rows);
  ASSERT_EQ(boards[0].Fastest().size(), 1u);
  EXPECT_EQ(boards[0].Fastest()[0]->row.batch, 4) << "the faster one left out the long requests";
  // What was refused is measured once more, and then it may run.
  rows = {TestCapacity(1, 4, 0), TestCapacity(1, 4, 0)};
  rows[0].refused = "--max-memory is 400 MiB";
  rows[0].tokens_per_s = 0;
  const auto later = SummariseCapacity(rows);
  ASSERT_EQ(later[0].entries.size(), 1u);
  EXPECT_TRUE(later[0].entries[0].ran());
  EXPECT_EQ(later[0].entries[0].repetitions, 1);
}

// A store with scores of `cells` and capacities of others.
std::string PageOf(const std::vector<int64_t>& cells, const std::vector<CapacityRow>& capacities,
                   std::vector<ReportTable>* tables = nullptr) {
  const ScratchDirectory scratch;
  const auto store = MustOpen(scratch.File("r.db"));
  const int64_t run = Must(store->AddRun(TestRun("r1")));
  for (const int64_t c : cells) {
    const int64_t cell = Must(store->AddCell(TestCell(c)));
    for (int64_t i = 0; i < 12; ++i) Must(store->Write(TestSample(cell, run, c, i)));
  }
  for (const CapacityRow& row : capacities) MustOk(store->WriteCapacity(run, row));
  if (tables != nullptr) *tables = Must(MakeReportTables(*store));
  return Must(RenderReport(*store));
}

std::string SectionOf(const std::string& html) {
  const size_t begin = html.find("<section id=\"capacity\"");
  if (begin == std::string::npos) return "";
  return html.substr(begin, html.find("</section>", begin) - begin);
}

TEST(CapacityReport, SetsScoresAgainstWhatAMemoryHolds) {
  std::vector<CapacityRow> rows;
  for (const int64_t c : {0, 1, 3}) {
    rows.push_back(TestCapacity(c, 0, 0));
    if (c == 1) rows.back().held = 3;  // there were no more requests
    rows.push_back(TestCapacity(c, 2, 0));
  }
  rows.push_back(TestCapacity(1, 8, 0));
  rows.back().refused = "--max-memory is 400 MiB";
  rows[0].served = 29;
  rows[0].failed = 3;
  rows[0].failure = "needs 9 GiB";
  std::vector<ReportTable> tables;
  const std::string html = PageOf({0, 1, 2}, rows, &tables);
  EXPECT_THAT(CheckHtml(html).faults, IsEmpty());
  const std::string section = SectionOf(html);
  ASSERT_NE(section, "");
  EXPECT_THAT(section, HasSubstr("against requests held at once</figcaption>"));
  EXPECT_THAT(section, HasSubstr("against tokens a second</figcaption>"));
  // A mark for each row with both, named; intervals of scores in the table.
  EXPECT_THAT(section, HasSubstr(">snapkv 10%</text>"));
  EXPECT_THAT(section, HasSubstr(">full</text>"));
  EXPECT_THAT(section, HasSubstr("3 requests held at once, room for 8, batch 8"));
  EXPECT_THAT(section, Not(HasSubstr(">snapkv 20%</text>")));
  EXPECT_THAT(section, HasSubstr("Without a score here: snapkv 30%."));
  EXPECT_THAT(section, HasSubstr("not measured or refused here: snapkv 20%."));
  EXPECT_THAT(section, HasSubstr("refused: --max-memory is 400 MiB"));
  EXPECT_THAT(section, HasSubstr("<td>32 of 32</td>"));
  EXPECT_THAT(section, HasSubstr("<td>29 of 32 ⚠ the figures are theirs</td>"));
  EXPECT_THAT(section, HasSubstr("batch 4, served 29 of 32 requests"));
  const auto table = std::find_if(tables.begin(), tables.end(),
                                  [](const ReportTable& t) { return t.id == "capacity"; });
  ASSERT_NE(table, tables.end());
  EXPECT_EQ(table->rows.size(), 7u);
  for (const auto& row : table->rows) EXPECT_EQ(row.size(), table->columns.size());
}

TEST(CapacityReport, SaysWhatIsNotThere) {
  const std::string none = PageOf({0, 1}, {});
  EXPECT_EQ(SectionOf(none), "");
  EXPECT_THAT(none, HasSubstr("Nobody was served in a memory"));
  const std::string alone = PageOf({}, {TestCapacity(1, 4, 0)});
  EXPECT_THAT(CheckHtml(alone).faults, IsEmpty());
  EXPECT_THAT(SectionOf(alone), HasSubstr("There are no scores of this model here"));
  EXPECT_THAT(SectionOf(alone), HasSubstr("<code>--batches max</code>"));
  EXPECT_THAT(SectionOf(alone), Not(HasSubstr("<figure>")));
}

}  // namespace
}  // namespace kvgauge
