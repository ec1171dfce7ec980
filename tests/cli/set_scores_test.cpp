// SPDX-License-Identifier: Apache-2.0
// Scores of a set that are no mean of its samples' scores, from a real run of the reference model
// to what every command says of them.
#include <cmath>

#include "cli/run_fixture.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class SetScores : public RunTest {
 protected:
  void SetUp() override {
    RunTest::SetUp();
    Write("task.json", R"({"name": "lines", "version": 1, "group": "lines", "description": "d",
      "metric": "sacrebleu_corpus", "max_new_tokens": 48,
      "post": {"strip": true, "cut_at": ["\n"]}, "stop": {"texts": ["\n"]},
      "report": {"scale": 100, "digits": 2},
      "source": {"name": "closed_english", "form": "points", "lengths": "512"}})");
    Write("mine.json", StrCat(R"({"models": [{"path": ")", KVG_SOURCE_DIR, R"(/models/ref-gqa"}],
      "tasks": [{"task": ")",
                              Path("task.json"), R"(", "samples": 24}], "budgets": ["50%"],
      "methods": [")",
                              Path("kept.json"), "\"]}"));
    Keep("recency");
  }
  // What the method keeps half of.
  void Keep(const std::string& score) const {
    Write("kept.json", StrCat(R"({"id": "kept", "title": "t", "family": "selection", "version": 1,
      "protect": {"sinks": 4}, "stages": {"score": {"id": ")",
                              score, R"("}, "reduce": {"id": "top_k"}}})"));
  }
};

// BLEU of sums of the n-grams that match and that there are, words and answers' words.
double Bleu(const std::vector<double>& sums) {
  double logs = 0;
  for (size_t n = 0; n < 4; ++n) {
    if (sums[n] == 0) return -1;
    logs += std::log(sums[n] / sums[4 + n]) / 4;
  }
  return std::exp(logs) * (sums[8] >= sums[9] ? 1 : std::exp(1 - sums[9] / sums[8]));
}

TEST_F(SetScores, OfARunAreThoseOfItsSums) {
  RunInto("base.db");
  const auto store = Open("base.db");
  std::map<std::string, double> wanted, means;
  for (const StoredCell& cell : CellsOf(*store)) {
    std::vector<double> sums(10, 0.0);
    double mean = 0;
    const std::vector<ScoreRow> rows = ScoresOf(*store, cell);
    ASSERT_EQ(rows.size(), 24u);
    for (const ScoreRow& row : rows) {
      ASSERT_EQ(row.parts.size(), 10u);
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += row.parts[i];
      mean += *row.score / 24;
    }
    wanted[cell.cell.method.name] = Bleu(sums);
    means[cell.cell.method.name] = mean;
  }
  ASSERT_EQ(wanted.size(), 2u);
  EXPECT_GT(wanted["full"], 0.5);
  EXPECT_GT(wanted["full"], wanted["kept"]);
  EXPECT_GT(wanted["kept"], 0) << "every order needs a match for the sums to say it all";
  EXPECT_GT(std::abs(wanted["kept"] - means["kept"]), 1e-4) << "the mean would do";

  const Json board = *ParseJson(Run({"leaderboard", Path("base.db"), "--json"}).out, "out");
  for (const Json& row : board["tables"][0]["rows"]) {
    EXPECT_NEAR(row["score"].get<double>(), wanted[row["method"]], 1e-9) << row["method"];
  }
  char shown[32];
  std::snprintf(shown, sizeof(shown), "%.2f", 100 * wanted["kept"]);
  EXPECT_THAT(Run({"leaderboard", Path("base.db")}).out, HasSubstr(shown));
  const Outcome compared = Run({"compare", "full", "kept", "--db", Path("base.db"), "--json"});
  const Json sides = *ParseJson(compared.out, "out");
  EXPECT_NEAR(sides["tasks"][0]["a_score"].get<double>(), wanted["full"], 1e-9) << sides.dump();
  EXPECT_NEAR(sides["tasks"][0]["b_score"].get<double>(), wanted["kept"], 1e-9);
  EXPECT_EQ(sides["tasks"][0]["verdict"], "WORSE");
}

// The same plan again passes; a method of the same name that keeps something else does not, and the
// way back is no loss.
TEST_F(SetScores, AreGated) {
  Keep("snapkv");
  RunInto("base.db");
  RunInto("again.db");
  const auto gate = [&](const std::string& baseline, const std::string& candidate) {
    return Run({"gate", "--baseline", Path(baseline), "--candidate", Path(candidate)});
  };
  Outcome gated = gate("base.db", "again.db");
  EXPECT_EQ(gated.exit_code, 0) << gated.out << gated.err;
  EXPECT_THAT(gated.out, HasSubstr("PASS"));
  Keep("random");
  RunInto("worse.db");
  gated = gate("base.db", "worse.db");
  EXPECT_EQ(gated.exit_code, 1) << gated.out << gated.err;
  EXPECT_THAT(gated.out, AllOf(HasSubstr("WORSE"), HasSubstr("FAIL"), HasSubstr("lines, kept")));
  gated = gate("worse.db", "base.db");
  EXPECT_EQ(gated.exit_code, 0) << gated.out << gated.err;
}

}  // namespace
}  // namespace kvgauge
