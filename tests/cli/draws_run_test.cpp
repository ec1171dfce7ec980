// SPDX-License-Identifier: Apache-2.0
// Runs that draw several answers to each prompt: what is recorded, resumed and said of them.
#include <csignal>
#include <map>
#include <set>

#include "cli/run_fixture.h"
#include "reports/drawn_by.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class DrawsRunTest : public RunTest {
 protected:
  void Draw(const std::string& sampling) const {
    Write("mine.json", StrCat(R"({"models": [{"path": ")", Path("config.json"),
                              R"(", "name": "tiny", "weights": "random:5"}],
      "tasks": [{"task": "passkey", "samples": 4, "source": {"lengths": "320"},
                 "max_new_tokens": 6}],
      "budgets": ["25%"], )",
                              sampling, R"("methods": ["streaming_llm", "h2o"]})"));
  }
  static std::string Sampling(int draws) {
    return StrCat(R"("sampling": {"temperature": 1.5, "top_p": 0.9, "draws": )", draws, "}, ");
  }
  Json Done(const std::string& database) const {
    return *ParseJson(RunInto(database, {"--json"}).out, "out");
  }
};

TEST_F(DrawsRunTest, EachDrawIsASampleOfItsOwnAndNoneIsRunTwice) {
  Draw(Sampling(3));
  const Json planned = *ParseJson(Run({"plan", Path("mine.json"), "--json"}).out, "out");
  EXPECT_EQ(planned["groups"][0]["samples"], 4);
  EXPECT_EQ(planned["groups"][0]["cells"], 3 * 4 * 3);
  const Json first = Done("r.db");
  EXPECT_EQ(first["cells"], 3 * 4 * 3);
  EXPECT_EQ(first["prefills"], 4);
  EXPECT_EQ(Done("r.db")["cells"], 0);
  // More draws are more samples of the same cells.
  Draw(Sampling(5));
  const Json more = Done("r.db");
  EXPECT_EQ(more["cells"], 3 * 4 * 2);
  EXPECT_EQ(more["prefills"], 4);
  EXPECT_EQ(Done("at_once.db")["cells"], 3 * 4 * 5);
  EXPECT_EQ(Digest("r.db"), Digest("at_once.db"));
  // A row by itself draws the same answers.
  RunInto("alone.db", {"--only", "h2o"});
  const auto together = Open("r.db"), alone = Open("alone.db");
  int64_t compared = 0;
  for (const StoredCell& cell : CellsOf(*alone)) {
    for (const StoredCell& other : CellsOf(*together)) {
      if (other.cell.Key() != cell.cell.Key()) continue;
      std::set<std::string> answers;
      for (const ScoreRow& row : ScoresOf(*alone, cell)) {
        const SampleRow one = **alone->Read(cell.id, row.sample_id);
        EXPECT_TRUE(one.SameResult(**together->Read(other.id, row.sample_id))) << row.sample_id;
        answers.insert(one.answers[0].prediction);
        ++compared;
      }
      EXPECT_GT(answers.size(), 10u) << "of 20 answers of a hot model";
    }
  }
  EXPECT_EQ(compared, 2 * 4 * 5);
}

TEST_F(DrawsRunTest, GreedyAndDrawnAnswersNeverMeet) {
  Draw("");
  RunInto("r.db");
  Draw(Sampling(2));
  RunInto("r.db");
  Draw(R"("sampling": {"temperature": 0.5}, )");
  RunInto("r.db");
  std::set<std::string> keys;
  std::map<std::string, int64_t> sampling;
  const auto store = Open("r.db");
  for (const StoredCell& cell : CellsOf(*store)) {
    keys.insert(cell.cell.Key());
    ++sampling[(*ParseJson(cell.cell.signature, "signature"))["sampling"].dump()];
  }
  EXPECT_EQ(keys.size(), 9u);
  EXPECT_EQ(sampling, (std::map<std::string, int64_t>{{R"("greedy")", 3},
                                                      {R"({"temperature":0.5,"top_p":1.0})", 3},
                                                      {R"({"temperature":1.5,"top_p":0.9})", 3}}));
  const std::string board = Run({"leaderboard", Path("r.db"), "--all"}).out;
  EXPECT_THAT(board, AllOf(HasSubstr("drawn at temperature 1.5, top-p 0.9, mean over draws"),
                           HasSubstr("drawn at temperature 0.5, mean over draws"),
                           HasSubstr("not compared with this one"), HasSubstr("sampling")));
}

TEST_F(DrawsRunTest, TablesSayWhatTheNumbersAre) {
  Draw(Sampling(3));
  RunInto("r.db");
  const std::string board = Run({"leaderboard", Path("r.db"), "--all"}).out;
  EXPECT_THAT(board,
              AllOf(HasSubstr("12 samples of 4 contexts"), HasSubstr("pass@1"), HasSubstr("pass@3"),
                    HasSubstr("majority@3"), HasSubstr("Intervals draw prompts anew, not draws"),
                    HasSubstr("the score is pass@1")));
  const Json json = *ParseJson(Run({"leaderboard", Path("r.db"), "--json"}).out, "out");
  const Json& drawn = json["tables"][0]["drawn"];
  EXPECT_EQ(drawn["counts"], (Json{1, 2, 3}));
  EXPECT_EQ(drawn["temperature"], 1.5);
  ASSERT_EQ(drawn["rows"].size(), 3u);
  EXPECT_EQ(drawn["rows"][0]["prompts"], 4);
  EXPECT_EQ(drawn["rows"][0]["majority"]["prompts"], 4);
  const auto store = Open("r.db");
  const std::string id = FirstOf(*store, CellsOf(*store)[0]).sample_id;
  EXPECT_EQ(ParseDrawName(id).draw, 0);
  EXPECT_THAT(Run({"show", Path("r.db"), "full"}).out,
              AllOf(HasSubstr(id), HasSubstr("a draw each at temperature 1.5, top-p 0.9")));
  const Outcome shown = Run({"show", Path("r.db"), "full", id});
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_THAT(shown.out, AllOf(HasSubstr("0 of prompt"), HasSubstr("What is the pass key?"),
                               Not(HasSubstr("could not be made again"))));
  const Outcome page = Run({"report", Path("r.db"), "-o", Path("r.html")});
  EXPECT_EQ(page.exit_code, 0) << page.err;
  EXPECT_THAT(*ReadFile(Path("r.html")), AllOf(HasSubstr("Several answers to each prompt"),
                                               HasSubstr("3 draws a prompt at temperature 1.5"),
                                               HasSubstr("scores are means over draws")));
}

TEST_F(DrawsRunTest, ASampleThatLacksDifferentDrawsOfItsRowsCountsOnce) {
  Draw(Sampling(2));
  RunInto("r.db", {"--only", "h2o"});
  const int64_t had = Samples("r.db");
  Draw(Sampling(3));
  EXPECT_THAT(RunInto("r.db").err, HasSubstr(StrCat(": 4/4 samples, ", 36 - had, " cells, ")));
}

TEST_F(DrawsRunTest, AKilledRunGoesOnDrawByDraw) {
  Draw(Sampling(16));
  RunInto("whole.db");
  const pid_t child = Start({"run", Path("mine.json"), "--db", Path("r.db"), "--quiet"});
  while (!HasSamples("r.db") && waitpid(child, nullptr, WNOHANG) == 0) usleep(2000);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  RunInto("r.db");
  EXPECT_EQ(Digest("r.db"), Digest("whole.db"));
  EXPECT_EQ(Samples("r.db"), 3 * 4 * 16);
}

TEST_F(DrawsRunTest, FlagsStandForTheFile) {
  Draw("");
  const auto planned = [&](const std::vector<std::string>& flags) {
    std::vector<std::string> words = {"plan", Path("mine.json"), "--json"};
    words.insert(words.end(), flags.begin(), flags.end());
    const Outcome outcome = Run(words);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return *ParseJson(outcome.out, "out");
  };
  const Json flags = planned({"--temperature", "1.5", "--top-p", "0.9", "--draws", "3"});
  const Json greedy = planned({});
  Draw(Sampling(3));
  const Json file = planned({});
  EXPECT_EQ(flags["groups"][0]["rows"], file["groups"][0]["rows"]);
  EXPECT_NE(flags["groups"][0]["rows"], greedy["groups"][0]["rows"]);
  EXPECT_EQ(flags["cells"], 36);
  const Json same = planned({"--temperature", "0", "--top-p", "1", "--draws", "1"});
  EXPECT_EQ(same["groups"][0]["rows"], greedy["groups"][0]["rows"]);
}

TEST_F(DrawsRunTest, WrongSettingsAreRefusedBeforeAnythingRuns) {
  const auto refused = [&](const std::string& sampling) {
    Draw(sampling);
    const Outcome outcome = Run({"run", Path("mine.json"), "--db", Path("r.db")});
    EXPECT_EQ(outcome.exit_code, 2) << sampling;
    EXPECT_FALSE(FileExists(Path("r.db"))) << sampling;
    return outcome.err;
  };
  EXPECT_THAT(refused(R"("sampling": {"draws": 4}, )"),
              AllOf(HasSubstr("mine.json.sampling.draws: '4'"),
                    HasSubstr("a temperature above 0 beside it")));
  EXPECT_THAT(refused(R"("sampling": {"temperature": 1, "top_p": 0}, )"),
              HasSubstr("sampling.top_p: '0', expected a number above 0, up to 1"));
  EXPECT_THAT(refused(R"("sampling": {"temperature": -1}, )"),
              HasSubstr("sampling.temperature: '-1', expected a number from 0"));
  EXPECT_THAT(refused(R"("sampling": {"temperature": 1, "draws": 0}, )"),
              HasSubstr("sampling.draws: '0', expected a whole number from 1"));
  EXPECT_THAT(refused(R"("sampling": {"temprature": 1}, )"),
              HasSubstr("did you mean 'temperature'"));
  EXPECT_THAT(refused(R"("sampling": 0.6, )"), HasSubstr("expected an object such as"));
}

// A perplexity has no answers.
TEST_F(DrawsRunTest, PerplexitiesAreNotDrawn) {
  const Outcome outcome = Run({"plan", "--model", StrCat(KVG_SOURCE_DIR, "/models/ref-gqa"),
                               "--task", "perplexity/wikitext2_2048", "--method", "streaming_llm",
                               "--budget", "50%", "--temperature", "1"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("a perplexity has no answers that could be drawn"));
}

}  // namespace
}  // namespace kvgauge
