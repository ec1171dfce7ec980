// SPDX-License-Identifier: Apache-2.0
// Several draws of each answer: pass@k, the vote, and intervals over prompts.
#include "reports/draws.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "reports/store_fixture.h"

namespace kvgauge {
namespace {

// The mean over all choices of k, one by one.
double BestByChoices(const std::vector<double>& scores, int64_t k) {
  double sum = 0;
  int64_t choices = 0;
  for (uint32_t set = 0; set < 1u << scores.size(); ++set) {
    if (std::popcount(set) != k) continue;
    double best = -1e9;
    for (size_t i = 0; i < scores.size(); ++i) {
      if ((set >> i & 1) != 0) best = std::max(best, scores[i]);
    }
    sum += best;
    ++choices;
  }
  return sum / static_cast<double>(choices);
}

TEST(Draws, TheBestOfSomeIsTheMeanOverAllChoices) {
  std::mt19937 random(3);
  for (size_t n = 1; n <= 9; ++n) {
    for (int trial = 0; trial < 8; ++trial) {
      std::vector<double> scores;
      for (size_t i = 0; i < n; ++i) {
        const double drawn = static_cast<double>(random()) / 4294967296.0;
        scores.push_back(trial < 4 ? std::floor(2 * drawn) : drawn);
      }
      for (int64_t k = 1; k <= static_cast<int64_t>(n); ++k) {
        EXPECT_NEAR(BestOfDraws(scores, k), BestByChoices(scores, k), 1e-12) << n << " " << k;
      }
    }
  }
  // Chen et al. 2021: 1 - C(n - c, k) / C(n, k), here of 100 draws with 5 right ones.
  std::vector<double> rare(100, 0.0);
  for (size_t i = 0; i < 5; ++i) rare[i * 17] = 1;
  double wrong = 1;
  for (int i = 0; i < 10; ++i) wrong *= (95.0 - i) / (100.0 - i);
  EXPECT_NEAR(BestOfDraws(rare, 10), 1 - wrong, 1e-12);
  EXPECT_EQ(BestOfDraws(std::vector<double>(100, 1.0), 10), 1.0);
  EXPECT_EQ(BestOfDraws(std::vector<double>(100, 0.0), 100), 0.0);
}

TEST(Draws, TheAnswerOfMostDrawsIsScored) {
  EXPECT_EQ(MajorityScore({{0, 0, "7"}, {1, 1, "42"}, {2, 1, "42"}}), 1);
  // The first one of equals counts, in whatever order they come.
  EXPECT_EQ(MajorityScore({{3, 1, "42"}, {1, 0, "7"}, {0, 0.5, "9"}}), 0.5);
  EXPECT_EQ(MajorityScore({{2, 1, "42"}, {0, 1, "42"}, {1, 0, "7"}, {3, 0, "7"}}), 1);
  // What holds no answer does not vote, unless nothing does.
  EXPECT_EQ(MajorityScore({{0, 0, ""}, {1, 0, ""}, {2, 1, "42"}}), 1);
  EXPECT_EQ(MajorityScore({{1, 0, ""}, {0, 0.25, ""}}), 0.25);
}

TEST(Draws, NamesOfDrawsAreReadBack) {
  EXPECT_EQ(DrawName("n4-d50-1", 12), "n4-d50-1#12");
  const NamedDraw name = ParseDrawName("a#b#3");
  EXPECT_EQ(name.prompt, "a#b");
  EXPECT_EQ(name.draw, 3);
  for (const char* other : {"plain", "a#", "a#x", "a#-1", "a#1x"}) {
    EXPECT_EQ(ParseDrawName(other).draw, -1) << other;
    EXPECT_EQ(ParseDrawName(other).prompt, other);
  }
}

TEST(Draws, ASignatureSaysHowAnswersWereDrawn) {
  const auto drawn = DrawnByOf(R"({"sampling":{"temperature":0.6,"top_p":0.95}})");
  ASSERT_TRUE(drawn);
  EXPECT_EQ(drawn->Text(), "temperature 0.6, top-p 0.95");
  EXPECT_EQ(DrawnByOf(R"({"sampling":{"temperature":1.0,"top_p":1.0}})")->Text(), "temperature 1");
  for (const char* greedy : {R"({"sampling":"greedy"})", "{}", "[]", "nothing"}) {
    EXPECT_FALSE(DrawnByOf(greedy)) << greedy;
  }
}

class DrawTablesTest : public ::testing::Test {
 protected:
  DrawTablesTest()
      : store_(ResultStore::Open(scratch_.File("r.db"), StoreMode::kCreate).value()),
        run_(*store_->AddRun(TestRun("a"))) {}

  int64_t Cell(int64_t number, const std::string& signature) {
    CellRow cell = TestCell(number);
    cell.signature = signature;
    return *store_->AddCell(cell);
  }
  void Put(int64_t cell, int64_t prompt, int64_t draw, double score, const std::string& vote) {
    SampleRow row = TestSample(cell, run_, 0, prompt);
    row.sample_id = DrawName(StrCat("p", prompt), draw);
    row.group = StrCat("p", prompt);
    row.hash = StrCat("hash ", prompt);
    row.position = prompt;
    row.status = SampleStatus::kOk;
    row.reason = "";
    row.engagement = EngagementMark::kEngaged;
    row.score = score;
    row.facts = StrCat(R"({"draw":")", draw, R"(","vote":")", vote, R"("})");
    const auto written = store_->Write(row);
    ASSERT_TRUE(written.ok()) << written.error().message;
  }
  std::pair<LeaderboardModel, std::vector<DrawTable>> Tables() {
    ResultStore* const all[] = {store_.get()};
    LeaderboardModel model = *MakeLeaderboard(all);
    std::vector<DrawTable> tables = *MakeDrawTables(all, model);
    return {std::move(model), std::move(tables)};
  }
  static const DrawLine& LineOf(const LeaderboardModel& model, const DrawTable& table,
                                const std::string& method) {
    for (size_t i = 0; i < model.tables[0].lines.size(); ++i) {
      if (model.tables[0].lines[i].method.name == method) return table.lines[i];
    }
    ADD_FAILURE() << "no row of " << method;
    return table.lines[0];
  }

  static constexpr char kDrawn[] = R"({"sampling":{"temperature":0.6,"top_p":0.95}})";
  ScratchDirectory scratch_;
  std::unique_ptr<ResultStore> store_;
  int64_t run_;
};

TEST_F(DrawTablesTest, NumbersAreMeansOverPromptsAndIntervalsDrawPrompts) {
  const int64_t full = Cell(0, kDrawn), other = Cell(1, kDrawn);
  constexpr int64_t kPrompts = 12, kDraws = 4;
  double full_best = 0, full_majority = 0, other_pass2 = 0;
  for (int64_t p = 0; p < kPrompts; ++p) {
    // The full cache is right in p % 5 of the draws; the other row in one draw of odd prompts.
    for (int64_t d = 0; d < kDraws; ++d) {
      const bool right = d < p % 5, odd = p % 2 == 1 && d == 1;
      Put(full, p, d, right, right ? "right" : "wrong");
      Put(other, p, d, odd, odd ? "right" : StrCat("wrong ", d));
    }
    full_best += p % 5 > 0 ? 1 : 0;
    full_majority += p % 5 >= 2 ? 1 : 0;  // of two and two the first one, which is right
    other_pass2 += p % 2 == 1 ? 0.5 : 0;
  }
  const auto [model, tables] = Tables();
  ASSERT_EQ(tables.size(), 1u);
  const DrawTable& table = tables[0];
  EXPECT_EQ(table.draws, 4);
  EXPECT_EQ(table.counts, std::vector<int64_t>({1, 2, 4}));
  EXPECT_TRUE(table.right_or_wrong);
  const DrawLine& line = LineOf(model, table, "full");
  EXPECT_EQ(line.prompts, kPrompts);
  ASSERT_TRUE(line.best[0] && line.best[2] && line.majority);
  EXPECT_NEAR(line.best[2]->value, full_best / kPrompts, 1e-12);
  EXPECT_NEAR(line.majority->value, full_majority / kPrompts, 1e-12);
  EXPECT_EQ(line.best[2]->samples, kPrompts);
  EXPECT_EQ(line.best[2]->clusters, kPrompts);
  // pass@1 is the score of the leaderboard, with its interval: both draw contexts anew.
  const LeaderboardLine* row = nullptr;
  for (const LeaderboardLine& of : model.tables[0].lines) {
    if (of.method.full_cache) row = &of;
  }
  ASSERT_NE(row, nullptr);
  EXPECT_EQ(row->scored, kPrompts * kDraws);
  EXPECT_EQ(row->score.clusters, kPrompts);
  EXPECT_NEAR(line.best[0]->value, row->score.value, 1e-12);
  EXPECT_NEAR(line.best[0]->standard_error, row->score.standard_error, 1e-12);
  // Four copies of each draw say no more of the next prompt: the interval is that of 12 numbers.
  std::vector<double> values;
  std::vector<int64_t> clusters;
  for (int64_t p = 0; p < kPrompts; ++p) {
    values.push_back(static_cast<double>(std::min<int64_t>(p % 5, 4)) / 4);
    clusters.push_back(p);
  }
  EXPECT_NEAR(line.best[0]->standard_error, MeanInterval(values, clusters).standard_error, 1e-12);
  const DrawLine& method = LineOf(model, table, "snapkv");
  EXPECT_NEAR(method.best[1]->value, other_pass2 / kPrompts, 1e-12);
  ASSERT_TRUE(method.best_versus_full[2] && method.majority_versus_full);
  EXPECT_NEAR(method.best_versus_full[2]->value, 0.5 - full_best / kPrompts, 1e-12);
  EXPECT_NEAR(method.majority_versus_full->value, -full_majority / kPrompts, 1e-12);
  EXPECT_FALSE(line.best_versus_full[2]);
}

// An interrupted run: no number pretends that a prompt has draws which it lacks.
TEST_F(DrawTablesTest, PromptsWithFewerDrawsHaveNoNumberBeyond) {
  const int64_t full = Cell(0, kDrawn);
  for (int64_t p = 0; p < 3; ++p) {
    for (int64_t d = 0; d < (p == 2 ? 2 : 4); ++d) Put(full, p, d, 1, "x");
  }
  const auto [model, tables] = Tables();
  const DrawLine& line = LineOf(model, tables[0], "full");
  EXPECT_TRUE(line.best[0] && line.best[1]);
  EXPECT_FALSE(line.best[2]);
  EXPECT_FALSE(line.majority);
}

TEST_F(DrawTablesTest, GreedyAnswersHaveNoTable) {
  const int64_t full = Cell(0, R"({"sampling":"greedy"})");
  Put(full, 0, 0, 1, "x");
  const auto [model, tables] = Tables();
  EXPECT_FALSE(model.tables[0].drawn);
  EXPECT_TRUE(tables[0].empty());
}

// Some questions of a sample have several answers, which no vote decides.
TEST_F(DrawTablesTest, WithoutVotesThereIsNoMajority) {
  const int64_t full = Cell(0, kDrawn);
  for (int64_t d = 0; d < 3; ++d) Put(full, 0, d, 0.5 * static_cast<double>(d), "");
  const auto [model, tables] = Tables();
  EXPECT_EQ(tables[0].counts, std::vector<int64_t>({1, 2, 3}));
  EXPECT_FALSE(tables[0].right_or_wrong);
  EXPECT_FALSE(LineOf(model, tables[0], "full").majority);
  EXPECT_NEAR(LineOf(model, tables[0], "full").best[1]->value, (1 + 1 + 0.5) / 3, 1e-12);
}

}  // namespace
}  // namespace kvgauge
