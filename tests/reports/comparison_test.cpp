// SPDX-License-Identifier: Apache-2.0
#include "reports/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "reports/store_fixture.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Compare : public ::testing::Test {
 protected:
  Compare() : scratch_("/dev/shm"), store_(MustOpen(scratch_.File("a.db"))) {
    run_ = Must(store_->AddRun(TestRun("r")));
  }
  // The first `lost` samples score 0, the others 1.
  int64_t Add(const std::string& method, const std::string& budget, const std::string& task,
              int count, int lost, int64_t bytes, const std::string& variant = "",
              const std::string& signature = "1") {
    CellRow cell;
    cell.identity = StrCat(method, "|", variant, "|", budget, "|", task, "|", signature);
    cell.signature = StrCat(R"({"task":")", task, R"(","template":)", signature, "}");
    cell.model = {"f00d", "ref-gqa", "{}"};
    cell.method.name = method;
    cell.method.variant = variant;
    cell.method.spec = "{}";
    cell.method.full_cache = method == "full";
    cell.task = {task, 1, "{}"};
    cell.budget = budget;
    const int64_t id = Must(store_->AddCell(cell));
    for (int i = 0; i < count; ++i) {
      SampleRow s;
      s.cell = id;
      s.run = run_;
      s.sample_id = s.hash = s.group = StrCat(i);
      s.position = i;
      s.engagement = EngagementMark::kEngaged;
      s.score = i < lost ? 0.0 : 1.0;
      s.tokens_in = 100;
      MemoryRow memory;
      memory.payload_bytes = bytes;
      memory.full_bytes = 4000;
      s.memory.push_back(memory);
      s.answers.push_back({.prediction = "x", .references = {"1"}, .score = s.score});
      Must(store_->Write(s));
    }
    return id;
  }
  Result<RowsComparison> Run(const std::string& a, const std::string& b,
                             const CompareOptions& options = {}) {
    ResultStore* const stores[] = {store_.get()};
    return CompareRows(stores, ParseRowName(a), ParseRowName(b), options);
  }
  std::string Complaint(const std::string& a, const std::string& b,
                        const CompareOptions& options = {}) {
    const Result<RowsComparison> result = Run(a, b, options);
    return result.ok() ? "" : result.error().message;
  }

  ScratchDirectory scratch_;
  std::unique_ptr<ResultStore> store_;
  int64_t run_ = 0;
};

TEST(RowName, IsParsed) {
  RowName name = ParseRowName("snapkv[score.window=16]@20%");
  EXPECT_EQ(name.method, "snapkv");
  EXPECT_EQ(name.variant, "score.window=16");
  EXPECT_EQ(name.budget, "20%");
  name = ParseRowName("kivi_2bit");
  EXPECT_EQ(name.method, "kivi_2bit");
  EXPECT_FALSE(name.variant || name.budget);
}

TEST(RowName, SettingsFitInAnyOrderAndSpacing) {
  CellRow cell;
  cell.method.name = "snapkv";
  cell.method.variant = "score.kernel=1, score.window=8";
  cell.budget = "128";
  for (const char* name :
       {"snapkv[score.kernel=1, score.window=8]@128", "snapkv[score.kernel=1,score.window=8]@128",
        "snapkv[score.window=8, score.kernel=1]"}) {
    EXPECT_TRUE(Fits(ParseRowName(name), cell)) << name;
  }
  for (const char* name :
       {"snapkv[score.kernel=8, score.window=1]@128", "snapkv[score.kernel=1]@128",
        "snapkv[score.kernel=1,score.window=8,score.window=8]", "snapkv[]@128"}) {
    EXPECT_FALSE(Fits(ParseRowName(name), cell)) << name;
  }
}

TEST_F(Compare, ByHand) {
  Add("snapkv", "20%", "needle/single", 400, 0, 800);
  Add("h2o", "20%", "needle/single", 400, 20, 1000);
  const RowsComparison result = Must(Run("snapkv@20%", "h2o@20%"));
  ASSERT_EQ(result.tasks.size(), 1u);
  EXPECT_FALSE(result.overall.has_value());
  const RowComparison& row = result.conclusion();
  EXPECT_EQ(row.a_score, 1.0);
  EXPECT_EQ(row.b_score, 0.95);
  EXPECT_DOUBLE_EQ(row.score.value, -0.05);
  EXPECT_EQ(row.score.test, "exact McNemar");
  EXPECT_DOUBLE_EQ(row.score.p, McNemarExact(0, 20));
  EXPECT_EQ(row.verdict, Verdict::kWorse);
  EXPECT_DOUBLE_EQ(row.a_ratio, 0.2);
  EXPECT_NEAR(row.bytes.value, -std::log(1.25), 1e-12);
  EXPECT_EQ(row.bytes_verdict, Verdict::kWorse);
  // The other way round it is as much better.
  const RowComparison turned = Must(Run("h2o@20%", "snapkv@20%")).conclusion();
  EXPECT_DOUBLE_EQ(turned.score.value, 0.05);
  EXPECT_EQ(turned.verdict, Verdict::kBetter);
  EXPECT_EQ(Must(Run("h2o", "h2o")).conclusion().verdict, Verdict::kSame);
}

TEST_F(Compare, OverTasksIsThePlainMean) {
  Add("snapkv", "20%", "needle/single", 400, 0, 800);
  Add("h2o", "20%", "needle/single", 400, 40, 800);
  Add("snapkv", "20%", "needle/multi", 40, 0, 800);
  Add("h2o", "20%", "needle/multi", 40, 20, 800);
  const RowsComparison result = Must(Run("snapkv@20%", "h2o@20%"));
  EXPECT_EQ(result.tasks.size(), 2u);
  ASSERT_TRUE(result.overall.has_value());
  EXPECT_DOUBLE_EQ(result.overall->score.value, -(0.1 + 0.5) / 2);
  EXPECT_DOUBLE_EQ(result.overall->b_score, (0.9 + 0.5) / 2);
  EXPECT_EQ(result.overall->verdict, Verdict::kWorse);
  // Holm over the two tasks.
  for (const RowComparison& row : result.tasks) {
    EXPECT_GE(row.p_adjusted, row.score.p);
    EXPECT_EQ(row.verdict, Verdict::kWorse);
  }
  EXPECT_EQ(Must(Run("snapkv@20%", "h2o@20%", {.task = "needle/m"})).tasks.size(), 1u);
}

TEST_F(Compare, WhatIsNotThereIsSaid) {
  Add("snapkv", "20%", "needle/single", 10, 0, 800);
  Add("snapkv", "40%", "needle/single", 10, 0, 800);
  Add("snapkv", "40%", "needle/single", 10, 0, 800, "score.window=16");
  Add("h2o", "20%", "needle/multi", 10, 0, 800);
  EXPECT_THAT(Complaint("snapvk@20%", "snapkv@20%"),
              AllOf(HasSubstr("there is no row 'snapvk@20%' (did you mean 'snapkv'?)"),
                    HasSubstr("there is: h2o@20%, snapkv@20%, snapkv@40%")));
  EXPECT_THAT(Complaint("snapkv@30%", "snapkv@20%"), HasSubstr("no row 'snapkv@30%'; there is"));
  EXPECT_THAT(Complaint("snapkv@40", "snapkv@20%"),
              HasSubstr("no row 'snapkv@40' (did you mean 'snapkv@40%'?)"));
  EXPECT_THAT(Complaint("snapkv", "snapkv@20%"),
              AllOf(HasSubstr("'snapkv' fits 3 rows of needle/single"),
                    HasSubstr("snapkv[score.window=16]@40%")));
  EXPECT_EQ(Complaint("snapkv@40%", "snapkv@20%"), "") << "the plain row beside its variants";
  EXPECT_EQ(Must(Run("snapkv@40%", "snapkv@20%")).conclusion().a, "snapkv@40%");
  EXPECT_EQ(Complaint("snapkv[]@40%", "snapkv@20%"), "");
  EXPECT_THAT(Complaint("snapkv@20%", "h2o@20%"), HasSubstr("not run on the same model, task"));
  EXPECT_THAT(Complaint("snapkv@20%", "h2o@20%", {.task = "needel/single"}),
              HasSubstr("did you mean 'needle/single'"));
}

TEST_F(Compare, SignaturesAreNeverMixed) {
  Add("snapkv", "20%", "needle/single", 10, 0, 800);
  Add("h2o", "20%", "needle/single", 10, 0, 800, "", "2");
  const RowsComparison result = Must(Run("snapkv@20%", "h2o@20%"));
  ASSERT_EQ(result.tasks.size(), 1u);
  EXPECT_EQ(result.tasks[0].obstacle, "signatures differ: template");
}

TEST_F(Compare, SamplesThatWereSkippedAreCounted) {
  Add("snapkv", "20%", "needle/single", 40, 0, 800);
  const int64_t cell = Add("h2o", "20%", "needle/single", 30, 0, 800);
  for (int i = 30; i < 36; ++i) {
    SampleRow s;
    s.cell = cell;
    s.run = run_;
    s.sample_id = s.hash = s.group = StrCat(i);
    s.position = i;
    s.status = i < 34 ? SampleStatus::kSkipped : SampleStatus::kFailed;
    s.reason = "too short";
    Must(store_->Write(s));
  }
  const RowComparison row = Must(Run("snapkv", "h2o")).conclusion();
  EXPECT_EQ(row.score.samples, 30);
  EXPECT_EQ(row.a_side.samples, 40);
  EXPECT_EQ(row.b_side.samples, 36);
  EXPECT_EQ(row.b_side.skipped, 4);
  EXPECT_EQ(row.b_side.failed, 2);
}

class CompareTimesTest : public Compare {
 protected:
  void Times(int64_t cell, const std::vector<double>& tpot_s, double others_share = 0) {
    std::vector<LatencyRow> rows(tpot_s.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i].repetition = static_cast<int64_t>(i);
      rows[i].context_tokens = 4096;
      rows[i].ttft_s = 1;
      rows[i].tpot_p50_s = tpot_s[i];
      // The first repetition of a disturbed cell is quiet.
      rows[i].others_share = i > 0 ? others_share : 0;
    }
    MustOk(store_->WriteLatency(cell, run_, rows));
  }
};

TEST_F(CompareTimesTest, OfOneRunArePaired) {
  Times(Add("snapkv", "20%", "needle/single", 10, 0, 800), {0.010, 0.020, 0.030, 0.040});
  Times(Add("h2o", "20%", "needle/single", 10, 0, 800), {0.0149, 0.0302, 0.0449, 0.0601});
  const RowComparison row = Must(Run("snapkv", "h2o")).conclusion();
  EXPECT_EQ(row.latency_tokens, 4096);
  EXPECT_NEAR(row.tpot.ratio(), 1.5, 0.01);
  EXPECT_EQ(row.tpot.evidence.test, "paired t of logarithms");
  EXPECT_EQ(row.tpot.verdict, Verdict::kWorse);
  EXPECT_LT(row.tpot.evidence.interval.high, -std::log(1.45));
  EXPECT_EQ(row.ttft.verdict, Verdict::kSame);
  EXPECT_EQ(row.disturbed, 0);
}

TEST_F(CompareTimesTest, OfSeveralRunsAreRelatedToTheFullCache) {
  const int64_t full = Add("full", "none", "needle/single", 10, 0, 4000);
  Times(full, {0.020, 0.020, 0.021});
  Times(Add("snapkv", "20%", "needle/single", 10, 0, 800), {0.010, 0.010, 0.0105});
  // Another machine, twice as slow.
  run_ = Must(store_->AddRun(TestRun("second")));
  Times(full, {0.040, 0.040, 0.042});
  Times(Add("h2o", "20%", "needle/single", 10, 0, 800), {0.030, 0.0301, 0.0315});
  const RowComparison row = Must(Run("snapkv", "h2o")).conclusion();
  EXPECT_NEAR(row.tpot.ratio(), 1.5, 0.01);
  EXPECT_EQ(row.tpot.evidence.test, "Welch's t of logarithms");
  EXPECT_EQ(row.tpot.verdict, Verdict::kWorse);
}

TEST_F(CompareTimesTest, DisturbedOnesAreLeftOut) {
  const double share = LatencyRow::kMaxOthersShare + 0.01;
  Times(Add("snapkv", "20%", "needle/single", 10, 0, 800), {0.01, 0.01, 0.01, 0.01});
  Times(Add("h2o", "20%", "needle/single", 10, 0, 800), {0.015, 0.09, 0.09, 0.09}, share);
  const RowComparison row = Must(Run("snapkv", "h2o")).conclusion();
  EXPECT_EQ(row.disturbed, 3);
  EXPECT_EQ(row.tpot.evidence.samples, 1);
  EXPECT_DOUBLE_EQ(row.tpot.ratio(), 1.5);
  EXPECT_TRUE(std::isinf(row.tpot.evidence.interval.low)) << "one repetition is no interval";
  EXPECT_EQ(row.tpot.verdict, Verdict::kUndecided);
}

}  // namespace
}  // namespace kvgauge
