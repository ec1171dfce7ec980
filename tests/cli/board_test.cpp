// SPDX-License-Identifier: Apache-2.0
// A directory of databases as a static site, from the command line.
#include "cli/run_fixture.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class BoardTest : public RunTest {
 protected:
  void SetUp() override {
    RunTest::SetUp();
    Write("mine.json", Config(R"("samples": 1, )", R"("random", "h2o")"));
    std::filesystem::create_directories(Path("stores/nightly"));
    ASSERT_EQ(RunInto("stores/a.db").exit_code, 0);
    ASSERT_EQ(RunInto("stores/nightly/b.db").exit_code, 0);
  }
  Outcome Board(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"board", Path("stores"), "-o", Path("site")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Run(arguments);
  }
};

TEST_F(BoardTest, EveryDatabaseBelowTheDirectoryIsTaken) {
  const Outcome outcome = Board({"--json", "--title", "Ours"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json told = *ParseJson(outcome.out, "out");
  EXPECT_EQ(told["stores"], 2);
  EXPECT_EQ(told["pages"], 4) << "the first, full, random and h2o";
  EXPECT_EQ(told["changes"], 0) << "two runs of one configuration are equal";
  const std::string index = *ReadFile(Path("site/index.html"));
  EXPECT_THAT(index, AllOf(HasSubstr("<h1>Ours</h1>"), HasSubstr("methods/h2o.html"),
                           HasSubstr("nightly/<wbr>b")));
  // What the registry knows of a method.
  EXPECT_THAT(*ReadFile(Path("site/methods/h2o.html")), HasSubstr("arXiv:2306.14048"));
  const Json manifest = *ReadJsonFile(Path("site/board.json"));
  EXPECT_EQ(manifest["files"].size(), 4u);
  EXPECT_EQ(manifest["stores"][0]["store"], "a");
}

TEST_F(BoardTest, AnEarlierBoardIsReplacedAndNothingElse) {
  ASSERT_EQ(Board().exit_code, 0);
  Write("mine.json", Config(R"("samples": 1, )", R"("random")"));
  std::filesystem::remove_all(Path("stores"));
  std::filesystem::create_directories(Path("stores"));
  ASSERT_EQ(RunInto("stores/c.db").exit_code, 0);
  Write("site/notes.txt", "somebody's");
  ASSERT_EQ(Board().exit_code, 0);
  EXPECT_FALSE(FileExists(Path("site/methods/h2o.html")));
  EXPECT_TRUE(FileExists(Path("site/methods/random.html")));
  EXPECT_TRUE(FileExists(Path("site/notes.txt")));

  // A directory of somebody's, and a manifest that names files of somebody's.
  std::filesystem::create_directories(Path("other"));
  Write("other/thesis.txt", "years of work");
  const Outcome foreign = Run({"board", Path("stores"), "-o", Path("other")});
  EXPECT_EQ(foreign.exit_code, 2);
  EXPECT_THAT(foreign.err, AllOf(HasSubstr("other"), HasSubstr("board.json")));
  for (const char* file : {"../thesis.txt", "methods/../../x.html", "notes.txt", "methods/a.txt"}) {
    Write("site/board.json", Json{{"files", {file}}}.dump());
    const Outcome refused = Board();
    EXPECT_EQ(refused.exit_code, 2) << file;
    EXPECT_THAT(refused.err, HasSubstr("is no page of a board")) << file;
  }
}

TEST_F(BoardTest, BadInput) {
  Write("stores/broken.db", "no database at all, but as long as the head of one would have to be");
  const Outcome broken = Board();
  EXPECT_EQ(broken.exit_code, 2);
  EXPECT_THAT(broken.err, AllOf(HasSubstr("broken.db"), HasSubstr("--skip-bad")));
  EXPECT_FALSE(FileExists(Path("site/index.html"))) << "nothing is written";
  const Outcome skipped = Board({"--skip-bad", "--json"});
  EXPECT_EQ(skipped.exit_code, 0) << skipped.err;
  EXPECT_THAT(skipped.err, HasSubstr("left out: "));
  EXPECT_EQ((*ParseJson(skipped.out, "out"))["left_out"], 1);
  for (const auto& [directory, word] :
       {std::pair("nowhere", "is no directory"), std::pair("site", "holds no *.db")}) {
    const Outcome outcome = Run({"board", Path(directory), "-o", Path("new")});
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_THAT(outcome.err, HasSubstr(word));
  }
  Write("file", "");
  const Outcome blocked = Run({"board", Path("stores"), "--skip-bad", "-o", Path("file/site")});
  EXPECT_EQ(blocked.exit_code, 2);
  EXPECT_THAT(blocked.err, HasSubstr("cannot be made"));
}

}  // namespace
}  // namespace kvgauge
