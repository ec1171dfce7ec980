// SPDX-License-Identifier: Apache-2.0
// Pages under docs/ that the program writes: no list of what there is can go stale.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/program.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

class PagesTest : public ProgramTest {
 protected:
  void ExpectPage(const std::string& arguments, const std::string& page) {
    const Outcome outcome = Run(arguments);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    const std::string path = StrCat(KVG_SOURCE_DIR, "/docs/", page);
    if (std::getenv("KVG_APPROVE") != nullptr) {
      std::ofstream(path, std::ios::binary) << outcome.out;
      return;
    }
    const Result<std::string> want = ReadFile(path);
    ASSERT_TRUE(want.ok()) << want.error().message << "; run scripts/approve";
    EXPECT_EQ(outcome.out, *want) << "docs/" << page << " is out of date; run scripts/approve";
  }
};

TEST_F(PagesTest, MethodsIsAsApproved) { ExpectPage("methods --format markdown", "methods.md"); }

TEST_F(PagesTest, EveryMethodIsListed) {
  const std::string page = Run("methods --format markdown").out;
  for (const auto& file :
       std::filesystem::directory_iterator(std::string(KVG_SOURCE_DIR) + "/configs/methods")) {
    EXPECT_THAT(page, HasSubstr("| `" + file.path().stem().string() + "` |"));
  }
}

TEST_F(PagesTest, TasksIsAsApproved) {
  // What this machine has must not show.
  ExpectPage("tasks --format markdown --data /nowhere", "tasks.md");
}

TEST_F(PagesTest, FamiliesIsAsApproved) {
  ExpectPage("inspect --families --format markdown", "families.md");
}

TEST_F(PagesTest, ReproductionsIsAsApproved) {
  ExpectPage("reproduce --format markdown", "reproductions.md");
}

TEST_F(PagesTest, PagesAreWhole) {
  for (const char* arguments :
       {"methods snapkv --format markdown", "methods --json --format markdown",
        "tasks reference --format markdown", "tasks --json --format markdown",
        "reproduce snapkv --format markdown", "reproduce --json --format markdown",
        "inspect --families --json --format markdown"}) {
    const Outcome outcome = Run(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments;
    EXPECT_THAT(outcome.err, HasSubstr("--format markdown")) << arguments;
  }
}

TEST_F(PagesTest, InspectAnswersForEveryShape) {
  int shapes = 0;
  for (const auto& file :
       std::filesystem::directory_iterator(std::string(KVG_SOURCE_DIR) + "/configs/models")) {
    EXPECT_EQ(Run("inspect '" + file.path().string() + "'").exit_code, 0) << file.path();
    ++shapes;
  }
  EXPECT_GE(shapes, 29);
}

TEST_F(PagesTest, InspectNeedsAModelOrFamilies) {
  const Outcome neither = Run("inspect");
  EXPECT_EQ(neither.exit_code, 2);
  EXPECT_THAT(neither.err, HasSubstr("MODEL"));
  EXPECT_EQ(Run("inspect . --families").exit_code, 2);
  EXPECT_THAT(Run("inspect --families --json").out, HasSubstr("\"deepseek_v2\""));
}

}  // namespace
}  // namespace kvgauge
