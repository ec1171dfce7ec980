// SPDX-License-Identifier: Apache-2.0
// The report as a whole: what it says of a known store, that it is well-formed and self-contained,
// and that no text in a store can act.
#include "reports/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "core/files.h"
#include "core/json.h"
#include "core/rng.h"
#include "reports/html_check.h"
#include "reports/leaderboard_fixture.h"
#include "reports/report_scene.h"
#include "reports/store_fixture.h"
#include "src/html/format.h"
#include "src/html/html.h"
#include "src/html/visible.h"

namespace kvgauge {
namespace {

using ::testing::IsEmpty;

// A matcher would print the page.
// Small enough to be rendered in every test, with every section.
SceneOptions Small() {
  SceneOptions options;
  options.methods = 11;
  options.tasks = 3;
  options.repeats = 1;
  options.lengths = 2;
  options.depths = 5;
  options.layers = 2;
  options.kv_heads = 2;
  return options;
}

std::string Page(const SceneOptions& scene, const ReportOptions& options = {}) {
  const ScratchDirectory scratch;
  auto store = MustOpen(scratch.File("scene.db"));
  MustOk(WriteScene(*store, scene));
  return Must(RenderReport(*store, options));
}

// Without what changes with every edit of the looks: style, script and their hashes.
std::string Normalised(std::string html) {
  const auto cut = [&html](const std::string& from, const std::string& to) {
    const size_t a = html.find(from);
    const size_t b = a == std::string::npos ? a : html.find(to, a + from.size());
    if (b != std::string::npos) html = html.substr(0, a + from.size()) + html.substr(b);
  };
  cut("script-src ", "; style-src");
  cut("style-src ", "; base-uri");
  cut("<style>", "</style>");
  cut("\n<script>", "</script>");
  return html;
}

TEST(ReportTest, IsWellFormedAndHoldsEverySection) {
  const std::string html = Page(Small());
  const HtmlFacts facts = CheckHtml(html);
  EXPECT_THAT(facts.faults, IsEmpty());
  for (const char* id : {"leaderboard", "pareto", "curves", "needle", "parts", "ablation",
                         "anatomy", "scaling", "samples", "reproduce"}) {
    EXPECT_TRUE(Holds(html, StrCat("<section id=\"", id, "\""))) << id;
  }
  EXPECT_EQ(facts.elements.at("h1"), 1);
  std::string rest = html;  // less the one name that is a name and no address
  const std::string name = "http://www.w3.org/2000/svg";
  if (const size_t at = rest.find(name); at != std::string::npos) rest.erase(at, name.size());
  EXPECT_FALSE(Holds(rest, "http://"));
  EXPECT_FALSE(Holds(html, "https://"));
  EXPECT_TRUE(Holds(html, "default-src 'none'"));
  EXPECT_FALSE(Holds(html, "unsafe-inline"));
}

TEST(ReportTest, SaysWhatTheStoreSays) {
  const ScratchDirectory scratch;
  auto store = MustOpen(scratch.File("scene.db"));
  MustOk(WriteScene(*store, Small()));
  const std::string html = Must(RenderReport(*store));
  // The mean of a row of the database stands in its row of the page.
  for (const LeaderboardRow& row : Must(store->Leaderboard())) {
    if (row.task != "key_value" || !row.mean_score || row.method != "adakv") continue;
    const std::string percent = report::Format(*row.mean_score, report::Unit::kPercent);
    EXPECT_TRUE(Holds(html, StrCat("<b>", percent.substr(0, percent.size() - 1), "</b>")));
  }
  EXPECT_TRUE(Holds(html, "mean_pool_gqa"));
  EXPECT_TRUE(Holds(html, "✕ no"));  // it was not engaged
  EXPECT_TRUE(Holds(html, "kvgauge run configs/runs/leaderboard.json"));
  EXPECT_TRUE(Holds(html, "out of memory: the pool of 64 MiB is full"));
}

// Two moments of compression rank two methods in other orders, and a draft comes of the second.
TEST(ReportTest, AMethodHasOneSignOnAPage) {
  Board board;
  for (const std::string at : {"context", "prompt"}) {
    const auto add = [&](const std::string& method, const std::string& budget,
                         const std::function<Given(int)>& give) {
      CellRow cell = Cell(method, budget);
      cell.identity += at;
      cell.compress_at = at;
      board.Add(cell, 8, give);
    };
    add("full", "none", Half);
    add("h2o", "10%", Losing(at == "context" ? 0 : 3));
    add("tova", "10%", Losing(at == "context" ? 3 : 0));
  }
  SpeculationRow draft = TestSpeculation(1, 2, 0, 0);
  draft.model = Cell("full").model;
  draft.method = Cell("tova").method;
  MustOk(board.get().WriteSpeculation(Must(board.get().AddRun(TestRun("drafts"))), draft));
  const std::string html = Must(RenderReport(board.get()));
  const auto signs_of = [](const std::string& part, const std::string& begin) {
    std::set<std::string> signs;
    for (size_t at = part.find(begin); at != std::string::npos; at = part.find(begin, at + 1)) {
      const std::string mark = part.substr(at, part.find("</svg>", at) - at);
      const size_t sign = mark.find("#v-");
      signs.insert(sign == std::string::npos ? "none" : mark.substr(sign, 4));
    }
    return signs;
  };
  std::map<std::string, std::set<std::string>> signs;
  const std::string begin = "<span class=\"one\">";
  for (size_t at = html.find(begin); at != std::string::npos; at = html.find(begin, at + 1)) {
    const std::string entry = html.substr(at, html.find("</span>", at) - at);
    signs[entry.substr(entry.find("</svg>") + 7)].merge(signs_of(entry, begin));
  }
  ASSERT_EQ(signs["h2o"].size(), 1u);
  ASSERT_EQ(signs["tova"].size(), 1u);
  EXPECT_NE(signs["h2o"], signs["tova"]);
  const size_t section = html.find("<section id=\"speculation\"");
  ASSERT_NE(section, std::string::npos);
  const std::string drafts = html.substr(section, html.find("</section>", section) - section);
  EXPECT_EQ(signs_of(drafts, "class=\"pt "), signs["tova"]);
}

TEST(ReportTest, ScoresByWhatTheDataSaysAreMeansOfItsParts) {
  const ScratchDirectory scratch;
  auto store = MustOpen(scratch.File("scene.db"));
  MustOk(WriteScene(*store, Small()));
  int64_t cell = -1;
  for (const StoredCell& stored : Must(store->Cells())) {
    if (stored.cell.task.name == "key_value" && stored.cell.method.name == "h2o" &&
        stored.cell.budget == "40%") {
      cell = stored.id;
    }
  }
  double sum = 0;
  int64_t count = 0;
  MustOk(store->VisitFacts([&](int64_t of, const std::string&, std::string_view facts, double score,
                               const std::vector<double>&) {
    if (of != cell || facts.find("\"0-1k\"") == std::string_view::npos) return;
    sum += score;
    ++count;
  }));
  ASSERT_GT(count, 0);
  const std::string html = Must(RenderReport(*store));
  const size_t begin = html.find("aria-label=\"key_value, length_bucket 0-1k: partial_match");
  ASSERT_NE(begin, std::string::npos);
  const std::string map = html.substr(begin, html.find("</svg>", begin) - begin);
  const std::string mean = report::Format(sum / static_cast<double>(count), report::Unit::kPercent);
  EXPECT_TRUE(Holds(map, StrCat(">", mean.substr(0, mean.size() - 1), "</text>"))) << mean;
  EXPECT_TRUE(Holds(map, StrCat("<desc>", count, " samples, full cache ")));
  EXPECT_TRUE(Holds(map, ">h2o</text>"));
  EXPECT_FALSE(Holds(html, "needle/single, length_bucket"));
}

// As the terminal's tables do: the mean of rounded scores, where that of exact ones is another.
TEST(ReportTest, ScoresAreRoundedAsTheirAuthorsDo) {
  const ScratchDirectory scratch;
  auto store = MustOpen(scratch.File("long.db"));
  const int64_t run = Must(store->AddRun(TestRun("r")));
  for (const auto& [name, score] :
       {std::pair("long/a", 0.12348), std::pair("long/b", 0.12348), std::pair("long/c", 0.12338)}) {
    CellRow cell = TestCell(0);
    cell.identity = name;
    cell.signature = StrCat(R"({"task":")", name, R"("})");
    cell.task = {name, 1, R"({"group":"long","report":{"scale":100,"digits":2}})"};
    SampleRow sample = TestSample(Must(store->AddCell(cell)), run, 0, 0);
    sample.score = score;
    Must(store->Write(sample));
  }
  const std::string html = Must(RenderReport(*store));
  EXPECT_TRUE(Holds(html, "data-v=\"12.344"));
  EXPECT_TRUE(Holds(html, "<b>12.35</b>"));
  EXPECT_TRUE(Holds(html, "print rounded scores, so does this page"));
  EXPECT_FALSE(Holds(Page(Small()), "print rounded scores"));
}

// Scripts parse them when they are wanted; readers without scripts find them where they belong.
TEST(ReportTest, FiguresOfALargeBoardWaitInTheirPlace) {
  SceneOptions scene = Small();
  EXPECT_FALSE(Holds(Page(scene), "<div class=\"later\">"));
  scene.methods = 40;
  scene.tasks = scene.lengths = 1;
  scene.depths = 2;
  scene.latency = false;
  const std::string html = Page(scene);
  EXPECT_THAT(CheckHtml(html).faults, IsEmpty());
  for (const char* id : {"pareto", "curves"}) {
    const size_t begin = html.find(StrCat("<section id=\"", id, "\""));
    ASSERT_NE(begin, std::string::npos) << id;
    const std::string section = html.substr(begin, html.find("</section>", begin) - begin);
    EXPECT_TRUE(Holds(section, "<div class=\"later\"><noscript><div class=\"figures\">")) << id;
  }
}

TEST(ReportTest, EqualStoresGiveEqualPages) { EXPECT_TRUE(Page(Small()) == Page(Small())); }

TEST(ReportTest, AnEmptyStoreSaysSo) {
  const ScratchDirectory scratch;
  auto store = MustOpen(scratch.File("empty.db"));
  const std::string html = Must(RenderReport(*store));
  EXPECT_TRUE(Holds(html, "holds no results yet"));
  EXPECT_THAT(CheckHtml(html).faults, IsEmpty());
}

TEST(ReportTest, WhatIsBeyondTheLimitIsSaid) {
  ReportOptions options;
  options.max_answers = 7;
  const std::string html = Page(Small(), options);
  EXPECT_TRUE(Holds(html, "This page holds 7 of them"));
  EXPECT_TRUE(Holds(html, "the others are in the database"));
  options.max_answers = 0;
  EXPECT_THAT(CheckHtml(Page(Small(), options)).faults, IsEmpty());
}

TEST(ReportTest, HostileTextsAreShownNotRun) {
  SceneOptions scene = Small();
  scene.hostile = true;
  const std::string html = Page(scene);
  const HtmlFacts facts = CheckHtml(html);
  EXPECT_THAT(facts.faults, IsEmpty());
  EXPECT_EQ(facts.elements.at("script"), 3);  // the data of samples and tables, and ours
  EXPECT_EQ(facts.elements.count("img"), 0u);
  EXPECT_EQ(html.find('\0'), std::string::npos);
  EXPECT_EQ(FindInvalidUtf8(html), std::string::npos);
  EXPECT_FALSE(Holds(html, "\xe2\x80\xae"));  // the override that turns text around
  EXPECT_TRUE(Holds(html, "⟨U+202E⟩ reversed"));
  EXPECT_TRUE(Holds(html, "&lt;script&gt;document.title"));
  EXPECT_TRUE(Holds(html, "\\u003cscript\\u003edocument.title"));
  EXPECT_TRUE(Holds(html, "␀after the zero byte"));
  EXPECT_LT(html.size(), size_t{3} << 20);  // the megabyte in one line is cut
}

// Bytes of any kind, in every place a text can go.
TEST(ReportTest, RandomBytesNeverBecomeMarkup) {
  constexpr char kLikely[] = "<>&\"'`=/\\ -!\0\n\r\t{}[]();scriptonerror";
  Rng rng(17, 0);
  for (int i = 0; i < 3000; ++i) {
    std::string text;
    for (uint64_t n = rng.NextBelow(60); n > 0; --n) {
      const uint64_t kind = rng.NextBelow(4);
      if (kind == 0) {
        text.push_back(static_cast<char>(rng.NextBelow(256)));
      } else if (kind == 1) {
        AppendUtf8(text, static_cast<char32_t>(rng.NextBelow(0x110000)));
      } else {
        text.push_back(kLikely[rng.NextBelow(sizeof(kLikely) - 1)]);
      }
    }
    const std::string visible = report::MakeVisible(text);
    ASSERT_EQ(FindInvalidUtf8(visible), std::string::npos);
    ASSERT_EQ(report::MakeVisible(visible), visible) << Quoted(text);
    for (const char c : visible) {
      ASSERT_TRUE(static_cast<unsigned char>(c) >= 0x20 || c == '\n' || c == '\t') << Quoted(text);
    }
    const std::string element = report::Html().Put("<p title=\"{}\">{}</p>", {text, text}).text();
    const HtmlFacts facts = CheckHtml("<html>" + element + "</html>");
    ASSERT_THAT(facts.faults, IsEmpty()) << Quoted(text);
    ASSERT_EQ(facts.elements.size(), 2u) << Quoted(text);
    std::string json;
    report::AppendScriptString(json, visible);
    ASSERT_EQ(json.find('<'), std::string::npos);
    const auto parsed = ParseJson(json, "text");
    ASSERT_TRUE(parsed.ok()) << parsed.error().message;
    ASSERT_EQ(parsed->get<std::string>(), visible);
  }
}

TEST(ReportTest, TextsAreCutBetweenCharacters) {
  size_t left_out = 0;
  EXPECT_EQ(report::MakeVisible("aé", 2, left_out), "a");
  EXPECT_EQ(left_out, 2u);
  EXPECT_EQ(report::MakeVisible("aé", 3, left_out), "aé");
  EXPECT_EQ(left_out, 0u);
}

int64_t CountOf(const std::string& html, const std::string& part) {
  int64_t count = 0;
  for (size_t at = html.find(part); at != std::string::npos; at = html.find(part, at + 1)) ++count;
  return count;
}

// The data that scripts draw samples from.
Json SamplesOf(const std::string& html) {
  const std::string opening = R"(id="samples-data">)";
  const size_t begin = html.find(opening) + opening.size();
  return Must(ParseJson(html.substr(begin, html.find("</script>", begin) - begin), "samples"));
}

TEST(ReportTest, PicturesAreHeldOnceWithWhatWasKept) {
  SceneOptions scene = Small();
  scene.pictures = 3;
  scene.methods = 4;
  const std::string html = Page(scene);
  EXPECT_THAT(CheckHtml(html).faults, IsEmpty());
  EXPECT_TRUE(Holds(html, "img-src data:;"));
  EXPECT_TRUE(Holds(html, "<section id=\"opening\""));
  EXPECT_TRUE(Holds(html, "<section id=\"modalities\""));
  EXPECT_TRUE(Holds(html, "Entries of pictures held, by layer"));
  EXPECT_TRUE(Holds(html, "right answers by depth of the needle and number of pictures"));
  const Json data = SamplesOf(html);
  std::set<int64_t> used;
  int64_t videos = 0, answers = 0;
  for (const Json& question : data["questions"]) {
    const Json& sight = question[9];
    if (question[0] != "visual/needle") {
      EXPECT_TRUE(sight.empty());
      continue;
    }
    ASSERT_EQ(sight.size(), 3u);
    for (const Json& shown : sight) {
      used.insert(shown[0].get<int64_t>());
      videos += shown[2] >= 0;
      answers += shown[3].get<int64_t>();
    }
    EXPECT_EQ(sight[0][4], Json::parse("[[6,8],[12,16]]"));
    for (const Json& answer : question[7]) {
      EXPECT_EQ(answer[5].get<std::string>().size(), 3u * 48 + 192);
    }
  }
  EXPECT_EQ(std::ssize(used), std::ssize(data["pictures"]));
  EXPECT_GT(videos, 0);
  EXPECT_EQ(answers * 3, std::ssize(used));
  const std::string first = data["pictures"][0][0].get<std::string>();
  EXPECT_TRUE(first.starts_with("/9j/")) << "a JPEG file";
  EXPECT_EQ(CountOf(html, StrCat("[\"", first)), 1);
}

// Texts that tell rows apart are many more than the pictures that do.
TEST(ReportTest, TheExampleIsOneOfPicturesAmongManyTexts) {
  SceneOptions scene = Small();
  scene.methods = 4;
  scene.tasks = 4;
  scene.repeats = 8;
  EXPECT_FALSE(Holds(Page(scene), "<section id=\"opening\""));
  scene.pictures = 2;
  const std::string html = Page(scene);
  const size_t opening = html.find("<section id=\"opening\"");
  ASSERT_NE(opening, std::string::npos);
  const std::string section = html.substr(opening, html.find("</section>", opening) - opening);
  EXPECT_EQ(CountOf(section, "<div class=\"pictures\">"), 3);
  EXPECT_EQ(CountOf(section, " answers <bdi>"), 3);
}

// A picture's name is the data's, and its bytes can be anything.
TEST(ReportTest, HostilePicturesStayText) {
  SceneOptions scene = Small();
  scene.pictures = 2;
  scene.hostile = true;
  const std::string html = Page(scene);
  const HtmlFacts facts = CheckHtml(html);
  EXPECT_THAT(facts.faults, IsEmpty());
  EXPECT_EQ(facts.elements.at("script"), 3);
  EXPECT_EQ(facts.elements.count("img"), 0u);
  EXPECT_GT(facts.elements.at("image"), 0);
}

TEST(ReportTest, PicturesWithoutRoomAreSaid) {
  SceneOptions scene = Small();
  scene.pictures = 4;
  ReportOptions options;
  options.max_pictures = 10;
  const std::string html = Page(scene, options);
  EXPECT_EQ(std::ssize(SamplesOf(html)["pictures"]), 8);
  EXPECT_TRUE(Holds(html, "The pictures of 8 samples are left out"));
  options.max_pictures = 0;
  const std::string none = Page(scene, options);
  EXPECT_TRUE(SamplesOf(none)["pictures"].empty());
  EXPECT_EQ(CheckHtml(none).elements.count("image"), 0u);
}

TEST(ReportTest, AThousandPicturesAreUnderTwentyMebibytes) {
  SceneOptions scene = Small();
  scene.pictures = 100;
  scene.methods = 2;
  const std::string html = Page(scene);
  EXPECT_EQ(std::ssize(SamplesOf(html)["pictures"]), 1000);
  EXPECT_LT(html.size(), size_t{20} << 20);
}

// A store whose numbers are missing: no bytes, no latencies, no layers, no full cache.
TEST(ReportTest, ABareStoreGivesAPage) {
  const ScratchDirectory scratch;
  auto store = MustOpen(scratch.File("bare.db"));
  const int64_t run = Must(store->AddRun(TestRun("r")));
  const int64_t cell = Must(store->AddCell(TestCell(1)));
  SampleRow sample = TestSample(cell, run, 1, 0);
  sample.memory.clear();
  sample.layers.clear();
  sample.latency.reset();
  Must(store->Write(sample));
  const std::string html = Must(RenderReport(*store));
  EXPECT_THAT(CheckHtml(html).faults, IsEmpty());
  EXPECT_TRUE(Holds(html, "The full cache was not run"));
  EXPECT_TRUE(Holds(html, "<summary>Protocol: 1 signature</summary>"));
}

TEST(ReportTest, CommandsStandInTheOrderInWhichTheyRan) {
  const ScratchDirectory scratch;
  auto store = MustOpen(scratch.File("runs.db"));
  RunRow first = TestRun("first"), second = TestRun("second");
  first.command = "kvgauge run mine.json";
  second.command = "kvgauge bench capacity DIR";
  const int64_t run = Must(store->AddRun(first));
  Must(store->AddRun(second));
  const int64_t cell = Must(store->AddCell(TestCell(1)));
  Must(store->Write(TestSample(cell, run, 1, 0)));
  const std::string html = Must(RenderReport(*store));
  EXPECT_TRUE(Holds(html,
                    "<dt>Command</dt><dd><code>kvgauge run mine.json</code><code>kvgauge "
                    "bench capacity DIR</code>"));
}

TEST(ComparisonTest, SaysWhatGotWorse) {
  const ScratchDirectory scratch;
  auto before = MustOpen(scratch.File("before.db")), after = MustOpen(scratch.File("after.db"));
  SceneOptions scene = Small();
  scene.methods = 2;
  scene.repeats = 3;
  MustOk(WriteScene(*before, scene));
  scene.damage = 0.5;
  MustOk(WriteScene(*after, scene));
  const std::string html = Must(RenderComparison(*before, *after, {}));
  EXPECT_THAT(CheckHtml(html).faults, IsEmpty());
  EXPECT_TRUE(Holds(html, "The candidate is worse in"));
  EXPECT_TRUE(Holds(html, "<section id=\"accuracy\""));
  const std::string same = Must(RenderComparison(*before, *before, {}));
  EXPECT_TRUE(Holds(same, "Nothing is shown to be worse, but "));
}

// Times have units, undecided results come before the counts, and lines that cannot be drawn are
// kept apart from those that are only not urgent.
TEST(ComparisonTest, TimesHaveUnitsAndWhatIsOpenIsSaid) {
  const ScratchDirectory scratch;
  auto before = MustOpen(scratch.File("before.db")), after = MustOpen(scratch.File("after.db"));
  for (ResultStore* store : {before.get(), after.get()}) {
    const int64_t run = Must(store->AddRun(TestRun(store == before.get() ? "a" : "b")));
    for (int64_t c = 0; c < 2; ++c) {
      const int64_t cell = Must(store->AddCell(TestCell(c)));
      Must(store->Write(TestSample(cell, run, c, 0)));
      std::vector<LatencyRow> rows;
      for (const int64_t length : {1024, 2048}) {
        for (int64_t repetition = 0; repetition < 4; ++repetition) {
          LatencyRow row;
          row.context_tokens = length;
          row.repetition = repetition;
          const double noise = (store == before.get()) == (repetition % 2 == 0) ? 1.3 : 0.9;
          row.prefill_s = row.ttft_s = (c == 0 ? 0.010 : 0.020) * noise;
          row.tpot_p50_s = row.tpot_p90_s = row.tpot_p99_s = row.ttft_s / 10;
          row.steps = 4;
          row.others_share = length == 2048 ? 0.9 : 0;
          rows.push_back(row);
        }
      }
      MustOk(store->WriteLatency(cell, run, rows));
    }
  }
  const std::string html = Must(RenderComparison(*before, *after, {}));
  EXPECT_THAT(CheckHtml(html).faults, IsEmpty());
  EXPECT_TRUE(Holds(html, ">2.00×</td>"));
  EXPECT_TRUE(Holds(html, " ms</td>"));
  EXPECT_FALSE(Holds(html, ">0.011</td>"));
  EXPECT_TRUE(Holds(html, "Nothing is shown to be worse, but "))
      << html.substr(html.find("verdict"), 300);
  EXPECT_TRUE(Holds(html, "4 lines have no numbers to draw; the table says why."));
  EXPECT_FALSE(Holds(html, "most urgent"));
}

// Approved output; scripts/approve rewrites it.
TEST(ReportGolden, PageIsAsApproved) {
  SceneOptions scene = Small();
  scene.methods = 2;
  scene.layers = 1;
  scene.sweep = false;
  ReportOptions options;
  options.max_answers = 6;
  const std::string got = Normalised(Page(scene, options));
  const std::string path = StrCat(KVG_TEST_DATA, "/reports/data/report.html");
  if (std::getenv("KVG_APPROVE") != nullptr) MustOk(WriteFile(path, got));
  const auto want = ReadFile(path);
  ASSERT_TRUE(want.ok()) << want.error().message;
  // Not compared as a whole: the first line that differs is what a reader needs.
  const std::vector<std::string> a = Split(got, '\n'), b = Split(*want, '\n');
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    ASSERT_EQ(a[i], b[i]) << "line " << i + 1 << " changed; run scripts/approve if it should";
  }
  EXPECT_EQ(a.size(), b.size());
}

}  // namespace
}  // namespace kvgauge
