// SPDX-License-Identifier: Apache-2.0
#include "reports/leaderboard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>

#include "core/json.h"
#include "core/rng.h"
#include "reports/leaderboard_fixture.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Leaderboard, ByHand) {
  Board board;
  board.Add(Cell("full"), 400, Half);
  board.Add(Cell("snapkv", "20%"), 400, [](int i) {
    Given g = Losing(20, 800)(i);
    g.kl = 0.25;
    return g;
  });
  board.Add(Cell("h2o", "20%"), 400, Losing(0, 820));
  const LeaderboardModel model = board.Make();
  ASSERT_EQ(model.tables.size(), 1u);
  EXPECT_EQ(model.samples, 1200);
  EXPECT_EQ(model.comparisons, 2);
  const LeaderboardTable& table = model.tables[0];
  EXPECT_EQ(table.model, "ref-gqa");
  EXPECT_THAT(table.task_names, ElementsAre("needle/single"));
  ASSERT_EQ(table.lines.size(), 3u);
  // Equal scores: the smaller first.
  EXPECT_EQ(table.lines[0].method.name, "h2o");
  EXPECT_EQ(table.lines[1].method.name, "full");
  EXPECT_EQ(table.lines[2].method.name, "snapkv");
  EXPECT_EQ(*table.lines[2].rank, 3);

  const LeaderboardLine& snapkv = table.lines[2];
  EXPECT_DOUBLE_EQ(snapkv.score.value, 0.45);
  EXPECT_EQ(snapkv.scored, 400);
  EXPECT_EQ(snapkv.bytes.samples, 400);
  EXPECT_EQ(snapkv.bytes.logical, 800);
  EXPECT_EQ(snapkv.bytes.full, 4000);
  EXPECT_DOUBLE_EQ(snapkv.bytes.logical_ratio, 0.2);
  EXPECT_DOUBLE_EQ(snapkv.bytes.nominal_ratio, 0.175);
  EXPECT_DOUBLE_EQ(snapkv.bytes.resident_ratio, 0.215);
  EXPECT_DOUBLE_EQ(snapkv.bytes.logical_per_token, 8.0);
  EXPECT_DOUBLE_EQ(*snapkv.kl_divergence, 0.25);
  EXPECT_FALSE(snapkv.top1_agreement.has_value());
  ASSERT_TRUE(snapkv.versus_full.has_value());
  EXPECT_DOUBLE_EQ(snapkv.versus_full->value, -0.05);
  EXPECT_EQ(snapkv.versus_full->test, "exact McNemar");
  EXPECT_DOUBLE_EQ(snapkv.versus_full->p, McNemarExact(0, 20));
  EXPECT_LT(snapkv.versus_full->interval.high, 0);
  EXPECT_GT(snapkv.versus_full->detectable, 0);
  // h2o does not differ at all and takes no part in Holm's correction.
  EXPECT_EQ(snapkv.p_adjusted, snapkv.versus_full->p);
  EXPECT_EQ(snapkv.verdict, Verdict::kWorse);
  EXPECT_EQ(table.lines[0].verdict, Verdict::kSame);
  EXPECT_EQ(table.lines[1].not_compared, "it is the full cache");
  EXPECT_FALSE(table.lines[1].versus_full.has_value());
}

TEST(Leaderboard, TwoSamplesFindNothing) {
  Board board;
  board.Add(Cell("full"), 2, [](int i) { return Given{.score = i == 0 ? 1.0 : 0.0}; });
  board.Add(Cell("h2o", "20%"), 2, [](int i) { return Given{.score = i == 0 ? 0.0 : 1.0}; });
  const LeaderboardModel model = board.Make();
  EXPECT_TRUE(std::isinf(LineOf(model.tables[0], "h2o", "20%").versus_full->detectable));
}

// The same numbers as the statistics of one comparison by itself.
TEST(Leaderboard, EvidenceIsThatOfAPairedComparison) {
  Board board;
  Rng rng(2, 1);
  std::vector<double> full, method;
  std::vector<int64_t> clusters;
  for (int64_t i = 0; i < 90; ++i) {
    full.push_back(rng.NextDouble());
    method.push_back(rng.NextDouble());
    clusters.push_back(i / 3);
  }
  board.Add(
      Cell("full"), 90, [&](int i) { return Given{.score = full[static_cast<size_t>(i)]}; }, 3);
  board.Add(
      Cell("h2o", "20%"), 90, [&](int i) { return Given{.score = method[static_cast<size_t>(i)]}; },
      3);
  const LeaderboardModel model = board.Make({.seed = 4, .resamples = 700});
  const Evidence& e = *LineOf(model.tables[0], "h2o", "20%").versus_full;
  const Evidence expected =
      ComparePaired(full, method, clusters, 0.05, {.resamples = 700, .seed = 4, .reach = 1});
  EXPECT_NEAR(e.value, expected.value, 1e-12);
  EXPECT_NEAR(e.interval.low, expected.interval.low, 1e-12);
  EXPECT_NEAR(e.equivalence.high, expected.equivalence.high, 1e-12);
  EXPECT_NEAR(e.detectable, expected.detectable, 1e-12);
  EXPECT_NEAR(e.p, expected.p, 1e-9);
  EXPECT_EQ(e.test, expected.test);
  EXPECT_EQ(e.clusters, 30);
}

TEST(Leaderboard, WhatIsNotRankedSaysWhy) {
  Board board;
  board.Add(Cell("full"), 20, Half);
  board.Add(Cell("idle", "20%"), 20, [](int i) {
    Given g = Half(i);
    if (i < 3) g.engagement = EngagementMark::kNotEngaged;
    return g;
  });
  board.Add(Cell("failing", "20%"), 20, [](int i) {
    Given g = Half(i);
    if (i < 2) g.status = SampleStatus::kFailed;
    return g;
  });
  board.Add(Cell("skipped", "20%"), 20, [](int) {
    return Given{.status = SampleStatus::kSkipped, .engagement = EngagementMark::kNone};
  });
  board.Add(Cell("short", "20%"), 12, Half);
  board.Add(Cell("judged", "20%"), 20, [](int) { return Given{.score = std::nullopt}; });
  const LeaderboardTable table = board.Make().tables[0];
  EXPECT_EQ(table.lines.size(), 6u);
  EXPECT_TRUE(LineOf(table, "full").rank.has_value());
  for (size_t i = 1; i < table.lines.size(); ++i) EXPECT_FALSE(table.lines[i].rank.has_value());
  EXPECT_EQ(LineOf(table, "idle", "20%").not_ranked, "not engaged on 3 of 20 samples");
  EXPECT_EQ(LineOf(table, "failing", "20%").not_ranked, "2 of 20 samples failed");
  EXPECT_EQ(LineOf(table, "failing", "20%").trouble, "out of memory");
  EXPECT_EQ(LineOf(table, "failing", "20%").versus_full->samples, 18);
  EXPECT_EQ(LineOf(table, "skipped", "20%").not_ranked, "20 of 20 samples skipped");
  EXPECT_EQ(LineOf(table, "skipped", "20%").not_compared, "nothing is scored");
  EXPECT_EQ(LineOf(table, "short", "20%").not_ranked, "has 12 of 20 scores");
  EXPECT_EQ(LineOf(table, "judged", "20%").not_ranked, "nothing is scored");
}

TEST(Leaderboard, SignaturesAreNeverMixed) {
  Board board;
  board.Add(Cell("full"), 20, Half);
  CellRow other = Cell("snapkv", "20%");
  other.signature = R"({"task":"needle/single","template":2})";
  board.Add(other, 20, Half);
  const LeaderboardModel model = board.Make();
  ASSERT_EQ(model.tables.size(), 2u);
  EXPECT_EQ(model.comparisons, 0);
  for (const LeaderboardTable& table : model.tables) {
    ASSERT_EQ(table.notes.size(), 1u);
    EXPECT_THAT(table.notes[0], AllOf(HasSubstr("also run under signature"),
                                      HasSubstr("not compared"), HasSubstr("template")));
    if (table.lines[0].method.name == "snapkv") {
      EXPECT_EQ(table.lines[0].not_compared, "the full cache was not run under this signature");
    }
  }
  const LeaderboardModel groups = board.Make({.by = TaskGrouping::kGroup});
  EXPECT_THAT(groups.tables, IsEmpty());
}

TEST(Leaderboard, OtherContentIsNotPaired) {
  Board board;
  board.Add(Cell("full"), 20, Half);
  board.Add(Cell("h2o", "20%"), 20, Half, 1, "other");
  const LeaderboardTable table = board.Make().tables[0];
  EXPECT_EQ(LineOf(table, "h2o", "20%").not_compared,
            "it shares no sample of the same content with the full cache");
}

TEST(Leaderboard, HolmIsOverTheWholeGrid) {
  Board board;
  for (const char* task : {"needle/single", "needle/multi"}) {
    board.Add(Cell("full", "none", task), 400, Half);
    board.Add(Cell("h2o", "20%", task), 400, Losing(8));
    board.Add(Cell("snapkv", "20%", task), 400, Losing(4));
  }
  const LeaderboardModel model = board.Make();
  ASSERT_EQ(model.tables.size(), 2u);
  EXPECT_EQ(model.comparisons, 4);
  for (const LeaderboardTable& table : model.tables) {
    EXPECT_DOUBLE_EQ(LineOf(table, "h2o", "20%").p_adjusted, 4 * McNemarExact(0, 8));
    EXPECT_EQ(LineOf(table, "h2o", "20%").verdict, Verdict::kWorse);
    EXPECT_DOUBLE_EQ(LineOf(table, "snapkv", "20%").p_adjusted, 2 * McNemarExact(0, 4));
    EXPECT_EQ(LineOf(table, "snapkv", "20%").verdict, Verdict::kUndecided);
  }
}

// Gains and losses that cancel could have been a false alarm; what is equal everywhere could not.
TEST(Leaderboard, HolmLeavesOutOnlyWhatCouldNotDiffer) {
  Board board;
  board.Add(Cell("full"), 400, Half);
  board.Add(Cell("h2o", "20%"), 400, Losing(8));
  board.Add(Cell("equal", "20%"), 400, Losing(0));
  board.Add(Cell("turned", "20%"), 400, [](int i) {
    Given g = Half(i);
    if (i < 10) g.score = 1 - *g.score;
    return g;
  });
  const LeaderboardModel model = board.Make();
  EXPECT_EQ(model.comparisons, 3);
  const LeaderboardTable& table = model.tables[0];
  EXPECT_EQ(table.corrected_over, 2);
  EXPECT_EQ(LineOf(table, "turned", "20%").versus_full->differing, 10);
  EXPECT_EQ(LineOf(table, "turned", "20%").versus_full->p, 1);
  EXPECT_EQ(LineOf(table, "equal", "20%").versus_full->differing, 0);
  EXPECT_DOUBLE_EQ(LineOf(table, "h2o", "20%").p_adjusted, 2 * McNemarExact(0, 8));
}

TEST(Leaderboard, GroupsAreThePlainMeanOfTheirTasks) {
  Board board;
  const auto spec = [](CellRow cell) {
    cell.task.spec = R"({"group":"long","report":{"scale":100,"digits":2}})";
    return cell;
  };
  board.Add(spec(Cell("full", "none", "long/a")), 40, [](int) { return Given{.score = 1}; });
  board.Add(spec(Cell("full", "none", "long/b")), 400, Half);
  board.Add(spec(Cell("h2o", "20%", "long/a")), 40, Losing(0));
  board.Add(spec(Cell("h2o", "20%", "long/b")), 400, Losing(40, 2000));
  board.Add(spec(Cell("snapkv", "20%", "long/b")), 400, Losing(0));
  const LeaderboardModel model = board.Make({.by = TaskGrouping::kGroup});
  ASSERT_EQ(model.tables.size(), 1u);
  const LeaderboardTable& table = model.tables[0];
  EXPECT_EQ(table.task, "long");
  EXPECT_EQ(table.scale, 100);
  EXPECT_EQ(table.digits, 2);
  EXPECT_THAT(table.task_names, ElementsAre("long/a", "long/b"));
  const LeaderboardLine& h2o = LineOf(table, "h2o", "20%");
  EXPECT_DOUBLE_EQ(h2o.score.value, (0.5 + 0.4) / 2);
  EXPECT_DOUBLE_EQ(h2o.versus_full->value, (-0.5 - 0.1) / 2);
  EXPECT_DOUBLE_EQ(h2o.bytes.logical_ratio, (0.25 + 0.5) / 2);
  EXPECT_EQ(h2o.versus_full->samples, 440);
  EXPECT_EQ(h2o.verdict, Verdict::kWorse);
  EXPECT_EQ(LineOf(table, "snapkv", "20%").not_ranked, "has 1 of 2 tasks");
  EXPECT_DOUBLE_EQ(LineOf(table, "snapkv", "20%").versus_full->value, 0);
  EXPECT_EQ(*h2o.rank, 2);
}

// Scores of several tasks as LongBench's own scorer prints them, and the mean of what it prints.
TEST(Leaderboard, AveragesAreThoseOfThePublishedScorer) {
  const Json golden =
      Must(ReadJsonFile(StrCat(KVG_TEST_DATA, "/golden/metrics/longbench_report.json")));
  int moved = 0;
  for (const Json& row : golden["cases"]) {
    Board board;
    double exact = 0;
    for (const auto& [name, scores] : row["tasks"].items()) {
      CellRow cell = Cell("full", "none", "long/" + name);
      cell.task.spec = R"({"group":"long","report":{"scale":100,"digits":2}})";
      board.Add(cell, static_cast<int>(scores.size()), [&scores = scores](int i) {
        return Given{.score = scores[static_cast<size_t>(i)].get<double>()};
      });
    }
    for (const LeaderboardTable& table : board.Make().tables) {
      const std::string name = table.task.substr(table.task.find('/') + 1);
      EXPECT_EQ(table.lines[0].reported, row["printed"][name].get<double>()) << name;
      exact += 100 * table.lines[0].score.value / static_cast<double>(row["tasks"].size());
    }
    const LeaderboardModel groups = board.Make({.by = TaskGrouping::kGroup});
    const double average = row["average"];
    EXPECT_NEAR(groups.tables.at(0).lines[0].reported, average, 1e-9);
    moved += std::abs(exact - average) > 1e-4 ? 1 : 0;
  }
  EXPECT_GT(moved, 0) << "no case in which rounding shows";
}

// The full cache under one seed serves all seeds whose samples have the same content; samples of
// one content are one cluster under all seeds.
TEST(Leaderboard, SeedsOfTheSameContentAreOneCluster) {
  Board board;
  board.Add(Cell("full"), 30, Half);
  board.Add(Cell("random", "20%", "needle/single", 0), 30, Half);
  board.Add(Cell("random", "20%", "needle/single", 1), 30, Losing(5));
  LeaderboardTable table = board.Make().tables[0];
  const Evidence& shared = *LineOf(table, "random", "20%").versus_full;
  EXPECT_EQ(shared.samples, 60);
  EXPECT_EQ(shared.clusters, 30);
  EXPECT_DOUBLE_EQ(shared.value, -5.0 / 60);
  EXPECT_THAT(LineOf(table, "random", "20%").seeds, ElementsAre(0, 1));

  Board generated;
  for (const int64_t seed : {0, 1}) {
    const std::string content = StrCat("seed", seed);
    generated.Add(Cell("full", "none", "needle/single", seed), 30, Half, 1, content);
    generated.Add(Cell("h2o", "20%", "needle/single", seed), 30, Losing(5), 1, content);
  }
  table = generated.Make().tables[0];
  EXPECT_EQ(LineOf(table, "h2o", "20%").versus_full->clusters, 60);
}

TEST(Leaderboard, AreaIsThatOfTheCurve) {
  Board board;
  Rng rng(8, 1);
  std::vector<BudgetPoint> points;
  std::vector<int64_t> clusters(40);
  std::iota(clusters.begin(), clusters.end(), int64_t{0});
  board.Add(Cell("full"), 40, [](int) { return Given{.score = 1, .bytes = 4000}; });
  for (const int64_t bytes : {400, 800, 1600}) {
    std::vector<double> scores;
    for (int i = 0; i < 40; ++i) scores.push_back(rng.NextDouble());
    points.push_back({static_cast<double>(bytes) / 4000, scores});
    board.Add(Cell("h2o", StrCat(bytes)), 40, [&](int i) {
      return Given{.score = scores[static_cast<size_t>(i)], .bytes = bytes};
    });
  }
  board.Add(Cell("snapkv", "a"), 40, [](int) { return Given{.score = 0.5, .bytes = 600}; });
  board.Add(Cell("snapkv", "b"), 40, [](int) { return Given{.score = 0.5, .bytes = 1600}; });
  board.Add(Cell("kivi"), 40, [](int) { return Given{.score = 0.9, .bytes = 700}; });
  const LeaderboardTable table = board.Make({.seed = 3, .resamples = 400}).tables[0];
  ASSERT_TRUE(table.area_range.has_value());
  EXPECT_DOUBLE_EQ(table.area_range->low, 0.15);
  EXPECT_DOUBLE_EQ(table.area_range->high, 0.4);
  const Estimate expected = Must(
      AreaOverLogBytes(points, clusters, 0.15, 0.4, {.resamples = 400, .seed = 3, .reach = 1}));
  ASSERT_EQ(table.methods.size(), 3u);
  for (const MethodSummary& m : table.methods) {
    if (m.method != "h2o") continue;
    EXPECT_NEAR(m.area->value, expected.value, 1e-12);
    EXPECT_NEAR(m.area->interval.low, expected.interval.low, 1e-12);
    EXPECT_NEAR(m.versus_full->value, expected.value - 1, 1e-12);
    EXPECT_EQ(m.budgets, 3);
    EXPECT_DOUBLE_EQ(m.low_ratio, 0.1);
  }
  EXPECT_EQ(table.methods[2].method, "kivi");
  EXPECT_EQ(table.methods[2].missing, "has 1 budget with a rank, needs two");
}

// Forty equal scores do not prove that the next is equal, of a curve no more than of a row.
TEST(Leaderboard, AreasOfEqualScoresHaveAnInterval) {
  Board board;
  board.Add(Cell("full"), 40, [](int) { return Given{.bytes = 4000}; });
  for (const int64_t bytes : {400, 1600}) {
    board.Add(Cell("h2o", StrCat(bytes)), 40, [&](int) { return Given{.bytes = bytes}; });
  }
  const LeaderboardTable table = board.Make().tables[0];
  const Interval& row = LineOf(table, "h2o", "400").score.interval;
  const MethodSummary& m = table.methods.at(0);
  EXPECT_DOUBLE_EQ(m.area->value, 1);
  EXPECT_LT(m.area->interval.low, 0.95);
  EXPECT_DOUBLE_EQ(m.area->interval.low, row.low);
  EXPECT_EQ(m.area->interval.high, 1);
  EXPECT_LT(m.versus_full->interval.low, -0.05);
  EXPECT_GT(m.versus_full->interval.high, 0.05);
}

TEST(Leaderboard, AreasAreOfRowsWithARank) {
  Board board;
  board.Add(Cell("full"), 40, [](int) { return Given{.bytes = 4000}; });
  // The tightest budget runs on the easy half alone.
  board.Add(Cell("h2o", "5%"), 40, [](int i) {
    return Given{.bytes = 200, .status = i < 20 ? SampleStatus::kSkipped : SampleStatus::kOk};
  });
  for (const int64_t bytes : {400, 1600}) {
    for (const char* method : {"h2o", "snapkv"}) {
      board.Add(Cell(method, StrCat(bytes)), 40,
                [&](int i) { return Given{.score = i < 20 ? 0.0 : 1.0, .bytes = bytes}; });
    }
  }
  const LeaderboardTable table = board.Make().tables[0];
  EXPECT_DOUBLE_EQ(table.area_range->low, 0.1);
  ASSERT_EQ(table.methods.size(), 2u);
  const MethodSummary& h2o = table.methods[0];
  EXPECT_EQ(h2o.method, "h2o");
  EXPECT_EQ(h2o.budgets, 2);
  EXPECT_EQ(h2o.area->samples, 40);
  EXPECT_DOUBLE_EQ(h2o.area->value, 0.5);
  EXPECT_EQ(h2o.left_out, "5% (20 of 40 samples skipped)");
  EXPECT_EQ(table.methods[1].left_out, "");
}

TEST(Leaderboard, ShardsAreOneStore) {
  Board whole, first, second("b.db", "r2");
  for (const char* method : {"full", "h2o"}) {
    whole.Add(Cell(method), 40, Losing(method[0] == 'f' ? 0 : 5));
    first.Add(Cell(method), 25, Losing(method[0] == 'f' ? 0 : 5));
    second.Add(Cell(method), 40, Losing(method[0] == 'f' ? 0 : 5), 1, "", 20);
  }
  ResultStore* const shards[] = {&first.get(), &second.get()};
  const LeaderboardModel joined = Must(MakeLeaderboard(shards));
  const LeaderboardModel one = whole.Make();
  ASSERT_EQ(joined.tables.size(), 1u);
  for (const char* method : {"full", "h2o"}) {
    const LeaderboardLine &a = LineOf(joined.tables[0], method), &b = LineOf(one.tables[0], method);
    EXPECT_EQ(a.samples, 40);
    EXPECT_EQ(a.score.value, b.score.value);
    EXPECT_EQ(a.score.interval.low, b.score.interval.low);
    EXPECT_EQ(a.bytes.logical, b.bytes.logical);
    if (!a.versus_full) continue;
    EXPECT_EQ(a.versus_full->interval.high, b.versus_full->interval.high);
    EXPECT_EQ(a.versus_full->p, b.versus_full->p);
  }
  Board liar("c.db");
  liar.Add(Cell("h2o"), 2, Half);
  ResultStore* const conflict[] = {&first.get(), &liar.get()};
  EXPECT_THAT(MakeLeaderboard(conflict).error().message,
              AllOf(HasSubstr("c.db: sample '0' of h2o at none differs from the one in"),
                    HasSubstr("a.db")));
}

TEST(Leaderboard, OfAPerplexityLessIsBetter) {
  Board board;
  const auto spec = [](CellRow cell) {
    cell.task.spec = R"({"metric":"perplexity"})";
    cell.task.lower_is_better = true;
    return cell;
  };
  board.Add(spec(Cell("full")), 40, [](int i) { return Given{.score = 8 + 0.1 * i}; });
  board.Add(spec(Cell("h2o", "20%")), 40, [](int i) { return Given{.score = 9 + 0.1 * i}; });
  board.Add(spec(Cell("kivi")), 40, [](int i) { return Given{.score = 8.01 + 0.1 * i}; });
  const LeaderboardTable table = board.Make().tables[0];
  EXPECT_TRUE(table.lower_is_better);
  EXPECT_EQ(table.lines[0].method.name, "full");
  EXPECT_NEAR(LineOf(table, "h2o", "20%").versus_full->value, -1, 1e-12);
  EXPECT_EQ(LineOf(table, "h2o", "20%").verdict, Verdict::kWorse);
  // 0.01 of about 10 is within 1%.
  EXPECT_EQ(LineOf(table, "kivi").verdict, Verdict::kSame);
}

TEST(Leaderboard, IsolatedTimesStandBeforeShared) {
  Board board;
  const int64_t full = board.Add(Cell("full"), 4, Half),
                h2o = board.Add(Cell("h2o", "20%"), 4, Half);
  const auto rows = [](double scale) {
    std::vector<LatencyRow> all;
    for (const int64_t length : {1024, 4096}) {
      for (int64_t repetition = 0; repetition < 5; ++repetition) {
        LatencyRow row;
        row.context_tokens = length;
        row.repetition = repetition;
        // The machine slows down; what was measured side by side slows alike.
        row.ttft_s = scale * static_cast<double>(length + 1000 * repetition);
        row.tpot_p50_s = scale * static_cast<double>(1 + repetition);
        row.tpot_p90_s = 2 * row.tpot_p50_s;
        row.tpot_p99_s = 3 * row.tpot_p50_s;
        row.score_s = scale;
        row.compact_s = 2 * scale;
        row.others_share = 0.01 * static_cast<double>(repetition);
        all.push_back(row);
      }
    }
    return all;
  };
  board.Times(full, rows(1));
  board.Times(h2o, rows(0.5));
  const LeaderboardTable table = board.Make().tables[0];
  const LeaderboardLine& line = LineOf(table, "h2o", "20%");
  ASSERT_EQ(line.latency.size(), 2u);
  const LatencySummary& s = line.latency[0];
  EXPECT_TRUE(s.isolated);
  EXPECT_EQ(s.context_tokens, 1024);
  EXPECT_EQ(s.count, 5);
  EXPECT_DOUBLE_EQ(s.ttft_s.p50, 0.5 * 3024);
  EXPECT_DOUBLE_EQ(s.ttft_s.p90, 0.5 * (1024 + 3600));
  EXPECT_DOUBLE_EQ(s.tpot_s.p50, 1.5);
  EXPECT_DOUBLE_EQ(s.tpot_s.p90, 3.0);
  EXPECT_DOUBLE_EQ(s.tpot_s.p99, 4.5);
  EXPECT_DOUBLE_EQ(*s.ttft_ratio, 0.5);
  EXPECT_DOUBLE_EQ(*s.tpot_ratio, 0.5);
  EXPECT_DOUBLE_EQ(s.compress_s(), 1.5);
  EXPECT_DOUBLE_EQ(s.others_share, 0.04);
  EXPECT_FALSE(LineOf(table, "full").latency[0].ttft_ratio.has_value());
  EXPECT_TRUE(board.Make({.latency = false}).tables[0].lines[0].latency.empty());
}

// The gate's rule: what other programs ran beside says nothing.
TEST(Leaderboard, DisturbedTimesAreLeftOutOrMarked) {
  Board board;
  const int64_t full = board.Add(Cell("full"), 4, Half);
  const int64_t some = board.Add(Cell("snapkv", "20%"), 4, Losing(0));
  const int64_t all = board.Add(Cell("h2o", "20%"), 4, Losing(0));
  const auto times = [&](int64_t cell, double tpot_s, int disturbed) {
    std::vector<LatencyRow> rows(5);
    for (int i = 0; i < 5; ++i) {
      LatencyRow& row = rows[static_cast<size_t>(i)];
      row.repetition = i;
      row.context_tokens = 1024;
      row.tpot_p50_s = i < disturbed ? 10 * tpot_s : tpot_s;
      row.others_share = i < disturbed ? 0.5 : 0.01;
    }
    board.Times(cell, rows);
  };
  times(full, 0.02, 1);
  times(some, 0.01, 3);
  times(all, 0.01, 5);
  const LeaderboardTable table = board.Make().tables[0];
  const LatencySummary& s = LineOf(table, "snapkv", "20%").latency.at(0);
  EXPECT_FALSE(s.disturbed);
  EXPECT_EQ(s.count, 2);
  EXPECT_EQ(s.left_out, 3);
  EXPECT_DOUBLE_EQ(s.tpot_s.p50, 0.01);
  EXPECT_DOUBLE_EQ(*s.tpot_ratio, 0.5);
  const LatencySummary& none = LineOf(table, "h2o", "20%").latency.at(0);
  EXPECT_TRUE(none.disturbed);
  EXPECT_EQ(none.count, 5);
  EXPECT_FALSE(none.tpot_ratio.has_value());
}

TEST(Leaderboard, SharedTimesAreMarked) {
  const ScratchDirectory scratch("/dev/shm");
  const auto store = MustOpen(scratch.File("a.db"));
  Fill(*store, "r", 2, 0, 5);
  ResultStore* const stores[] = {store.get()};
  const LeaderboardTable table = Must(MakeLeaderboard(stores)).tables[0];
  ASSERT_EQ(table.lines[0].latency.size(), 1u);
  EXPECT_FALSE(table.lines[0].latency[0].isolated);
  EXPECT_EQ(table.lines[0].latency[0].count, 5);
  EXPECT_EQ(table.lines[0].latency[0].context_tokens, 1002);
  EXPECT_DOUBLE_EQ(table.lines[0].latency[0].prefill_s, 0.25);
}

// Two cells of one method, budget and seed that differ in something else are two rows.
TEST(Leaderboard, CellsOfOneSeedAreRowsOfTheirOwn) {
  Board board;
  board.Add(Cell("h2o", "20%"), 10, Half);
  CellRow twin = Cell("h2o", "20%");
  twin.identity += "|other data";
  board.Add(twin, 10, Losing(2));
  const LeaderboardTable table = board.Make().tables[0];
  EXPECT_EQ(table.lines.size(), 2u);
  EXPECT_THAT(table.notes, ElementsAre(HasSubstr("more than once for a seed")));
}

}  // namespace
}  // namespace kvgauge
