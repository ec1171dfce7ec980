// SPDX-License-Identifier: Apache-2.0
// A site of several stores: what stands today, what changed, what stands apart.
#include "reports/site.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reports/html_check.h"
#include "reports/report_scene.h"
#include "reports/store_fixture.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class Site : public ::testing::Test {
 protected:
  // A store of a scene whose newest run began on that day.
  std::unique_ptr<ResultStore> Scene(const std::string& name, const std::string& day,
                                     const SceneOptions& options = {.repeats = 1}) {
    auto store = *ResultStore::Open(directory_.File(name), StoreMode::kCreate);
    EXPECT_TRUE(WriteScene(*store, options).ok());
    RunRow run = TestRun(StrCat("later-", name));
    run.started_at = StrCat(day, "T00:00:00Z");
    run.revision = StrCat("revision-of-", name);
    EXPECT_TRUE(store->AddRun(run).ok());
    return store;
  }
  // A store of `samples` scores of snapkv at 10% beside the full cache, which is always right.
  std::unique_ptr<ResultStore> Scores(const std::string& name, const std::string& day,
                                      const std::vector<double>& scores,
                                      const std::string& signature = R"({"template":1})") {
    auto store = *ResultStore::Open(directory_.File(name), StoreMode::kCreate);
    RunRow run = TestRun(name);
    run.started_at = StrCat(day, "T00:00:00Z");
    const int64_t id = *store->AddRun(run);
    for (int64_t c = 0; c < 2; ++c) {
      CellRow row = TestCell(c);
      row.signature = signature;
      row.identity =
          StrCat(row.identity.substr(0, row.identity.size() - 1), R"(,"of":")", day, "\"}");
      const int64_t cell = *store->AddCell(row);
      for (size_t i = 0; i < scores.size(); ++i) {
        SampleRow sample = TestSample(cell, id, c, static_cast<int64_t>(i));
        sample.score = c == 0 ? 1.0 : scores[i];
        sample.answers[0].score = sample.score;
        sample.parts.clear();
        EXPECT_TRUE(store->Write(sample).ok());
      }
    }
    return store;
  }
  static std::set<std::string> Links(const std::vector<SiteFile>& files, const std::string& up) {
    std::set<std::string> links;
    for (const SiteFile& file : files) links.insert(up + file.path);
    return links;
  }
  static const std::string& Page(const std::vector<SiteFile>& files, const std::string& path) {
    static const std::string none;
    for (const SiteFile& file : files) {
      if (file.path == path) return file.content;
    }
    ADD_FAILURE() << path;
    return none;
  }

  ScratchDirectory directory_;
};

TEST_F(Site, EveryPageIsWholeAndLinksOnlyToOthers) {
  const auto a = Scene("a", "2026-02-01"),
             b = Scene("b", "2026-03-01", {.repeats = 1, .damage = 0.4});
  SiteBuilder builder({.title = "Ours"});
  ASSERT_TRUE(builder.Add("a", *a).ok());
  ASSERT_TRUE(builder.Add("b", *b).ok());
  SiteSummary summary;
  const std::vector<SiteFile> files = builder.Render(&summary);
  EXPECT_EQ(summary.stores, 2);
  EXPECT_EQ(summary.models, 1);
  EXPECT_EQ(summary.methods, 12);
  EXPECT_EQ(files.size(), 13u);
  EXPECT_GT(summary.changes, 0);
  EXPECT_EQ(summary.apart, 0);
  for (const SiteFile& file : files) {
    SCOPED_TRACE(file.path);
    const bool index = file.path == "index.html";
    EXPECT_THAT(CheckHtml(file.content, Links(files, index ? "" : "../")).faults, IsEmpty());
    EXPECT_THAT(file.content, HasSubstr("Ours"));
  }
  // Equal stores, equal bytes.
  SiteBuilder again({.title = "Ours"});
  ASSERT_TRUE(again.Add("a", *a).ok());
  ASSERT_TRUE(again.Add("b", *b).ok());
  const std::vector<SiteFile> same = again.Render();
  ASSERT_EQ(same.size(), files.size());
  for (size_t i = 0; i < files.size(); ++i) EXPECT_EQ(same[i].content, files[i].content);
}

TEST_F(Site, HostileNamesStayText) {
  const auto store = Scene("x", "2026-02-01", {.repeats = 1, .hostile = true});
  SiteBuilder builder({.title = "<script>alert(1)</script>"});
  ASSERT_TRUE(builder.Add("<img src=x onerror=alert(1)>", *store).ok());
  const std::vector<SiteFile> files = builder.Render();
  for (const SiteFile& file : files) {
    SCOPED_TRACE(file.path);
    EXPECT_EQ(file.path.find_first_of("<>&\"' "), std::string::npos);
    EXPECT_EQ(file.path.find(".."), std::string::npos);
    const bool index = file.path == "index.html";
    const HtmlFacts facts = CheckHtml(file.content, Links(files, index ? "" : "../"));
    EXPECT_THAT(facts.faults, IsEmpty());
    EXPECT_EQ(facts.elements.at("script"), 1);
    EXPECT_EQ(facts.elements.count("img"), 0u);
  }
}

TEST_F(Site, AChangeIsJudgedOnTheSamplesOfBoth) {
  std::vector<double> right(40, 1), wrong(40, 1), one(40, 1);
  for (size_t i = 0; i < 20; ++i) wrong[i] = 0;
  one[0] = 0;
  const auto a = Scores("a", "2026-02-01", right), b = Scores("b", "2026-03-01", right),
             c = Scores("c", "2026-04-01", wrong), d = Scores("d", "2026-05-01", one);
  SiteBuilder builder({});
  for (const auto& [name, store] :
       {std::pair("a", &a), std::pair("b", &b), std::pair("c", &c), std::pair("d", &d)}) {
    ASSERT_TRUE(builder.Add(name, **store).ok());
  }
  SiteSummary summary;
  const std::vector<SiteFile> files = builder.Render(&summary);
  EXPECT_EQ(summary.changes, 2) << "b to c and c to d; a and b are equal";
  const std::string& page = Page(files, "methods/snapkv.html");
  EXPECT_THAT(page, HasSubstr("b → c"));
  EXPECT_THAT(page, HasSubstr("c → d"));
  EXPECT_THAT(page, Not(HasSubstr("a → b")));
  EXPECT_THAT(page, HasSubstr("▼ worse"));
  EXPECT_THAT(page, HasSubstr("▲ better"));
  EXPECT_THAT(page, HasSubstr("40 common samples"));
  EXPECT_THAT(Page(files, "index.html"), HasSubstr("b → c"));
  EXPECT_THAT(Page(files, "methods/full.html"), Not(HasSubstr("→")));
}

TEST_F(Site, OtherProtocolsStandApart) {
  const auto a = Scores("a", "2026-02-01", {1, 1, 0, 1}, R"({"template":1,"wrap":"raw"})"),
             b = Scores("b", "2026-03-01", {0, 0, 0, 1}, R"({"template":2,"wrap":"raw"})");
  SiteBuilder builder({});
  ASSERT_TRUE(builder.Add("old", *a).ok());
  ASSERT_TRUE(builder.Add("new", *b).ok());
  SiteSummary summary;
  const std::vector<SiteFile> files = builder.Render(&summary);
  EXPECT_EQ(summary.apart, 1);
  EXPECT_EQ(summary.changes, 0) << "scores of two protocols are not compared";
  EXPECT_EQ(summary.rows, 2) << "those of the newest store";
  EXPECT_THAT(Page(files, "index.html"), HasSubstr("template differ"));
}

TEST_F(Site, AFewTasksDoNotTakeThePlaceOfTheGroup) {
  const auto a = Scene("whole", "2026-02-01"),
             b = Scene("part", "2026-03-01", {.tasks = 1, .repeats = 1});
  SiteBuilder whole({}), both({});
  ASSERT_TRUE(whole.Add("whole", *a).ok());
  ASSERT_TRUE(both.Add("whole", *a).ok());
  ASSERT_TRUE(both.Add("part", *b).ok());
  SiteSummary one, two;
  const std::string before = whole.Render(&one)[0].content, after = both.Render(&two)[0].content;
  EXPECT_EQ(one.rows, two.rows);
  const auto columns = [](const std::string& page) {
    int count = 0;
    for (size_t at = page.find("<th scope=\"col\""); at != std::string::npos;
         at = page.find("<th scope=\"col\"", at + 1)) {
      ++count;
    }
    return count;
  };
  EXPECT_EQ(columns(before), columns(after));
}

TEST_F(Site, StoresComeInTheOrderOfTheirDates) {
  const auto a = Scores("a", "2026-02-01", {1}), b = Scores("b", "2026-01-15", {1});
  EXPECT_EQ(*StoreDate(*a), "2026-02-01T00:00:00Z");
  SiteBuilder builder({});
  ASSERT_TRUE(builder.Add("a", *a).ok());
  const Status early = builder.Add("b", *b);
  ASSERT_FALSE(early.ok());
  EXPECT_THAT(early.error().message, HasSubstr("before 2026-02-01"));
  const auto c = Scores("c", "2026-02-02", {1});
  const Status twice = builder.Add("a", *c);
  ASSERT_FALSE(twice.ok());
  EXPECT_THAT(twice.error().message, HasSubstr("'a' already"));
}

TEST_F(Site, OfNothingSaysSo) {
  SiteBuilder builder({});
  const std::vector<SiteFile> files = builder.Render();
  ASSERT_EQ(files.size(), 1u);
  EXPECT_THAT(files[0].content, HasSubstr("No store holds a result."));
}

}  // namespace
}  // namespace kvgauge
