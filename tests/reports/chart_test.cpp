// SPDX-License-Identifier: Apache-2.0
// The chart layer: ticks, numbers, colours, places of labels.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "core/rng.h"
#include "core/strings.h"
#include "src/chart/axis.h"
#include "src/chart/bars.h"
#include "src/chart/forest.h"
#include "src/chart/heat_map.h"
#include "src/chart/palette.h"
#include "src/chart/xy_chart.h"
#include "src/html/format.h"
#include "src/report/sections.h"

namespace kvgauge::report {
namespace {

using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(AxisTest, LinearTicksAreRoundAndHoldTheRange) {
  const Axis axis = Axis::Linear(3, 97, Unit::kNumber);
  EXPECT_THAT(axis.ticks(), ElementsAre(0, 20, 40, 60, 80, 100));
  EXPECT_EQ(axis.Place(0), 0);
  EXPECT_EQ(axis.Place(100), 1);
  EXPECT_DOUBLE_EQ(axis.Reversed().Place(25), 0.75);
}

// A model has no layer half way between two.
TEST(AxisTest, WholeNumbersHaveNoTickBetweenThem) {
  EXPECT_THAT(Axis::Linear(0, 1, Unit::kWhole, 2).ticks(), ElementsAre(0, 1));
  EXPECT_THAT(Axis::Linear(0, 3, Unit::kWhole, 8).ticks(), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(Axis::Linear(0, 19, Unit::kWhole, 8).ticks(), ElementsAre(0, 5, 10, 15, 20));
  EXPECT_EQ(FormatTick(1000, Unit::kWhole), "1,000");
}

TEST(AxisTest, ScoresEndAtTheirBounds) {
  const Axis axis = Axis::Linear(71, 100, Unit::kNumber, 4, 0, 100);
  EXPECT_EQ(axis.high(), 100);
  EXPECT_EQ(axis.low(), 70);
}

// Where all are alike there is room beside them, but none where no score can be.
TEST(AxisTest, EqualScoresStayWithinTheirBounds) {
  for (const double score : {0.0, 37.0, 100.0}) {
    const Axis axis = Axis::Linear(score, score, Unit::kNumber, 5, 0, 100);
    EXPECT_GE(axis.low(), 0) << score;
    EXPECT_LE(axis.high(), 100) << score;
    EXPECT_GE(axis.high() - axis.low(), 20) << score;
    EXPECT_GE(axis.Place(score), 0) << score;
    EXPECT_LE(axis.Place(score), 1) << score;
  }
}

// Advances of DejaVu Sans, in thousandths: what is set to the left of an edge must not cross it.
TEST(TextWidthTest, HoldsTheWidestFont) {
  EXPECT_GE(TextWidth("100%", 11), 11 * (3 * 0.636 + 0.950));
  EXPECT_GE(TextWidth("streaming_llm", 11), 11 * (0.521 + 0.392 + 0.411 + 0.615 + 0.613 + 0.974 +
                                                  0.278 + 0.634 + 0.635 + 0.5 + 2 * 0.278 + 0.974));
  EXPECT_LT(TextWidth("lil", 11), TextWidth("mwm", 11) / 2);
}

TEST(AxisTest, BytesStepInPowersOfTwo) {
  EXPECT_THAT(Axis::Linear(0, 3000, Unit::kBytes).ticks(), ElementsAre(0, 1024, 2048, 3072));
  EXPECT_THAT(Axis::Log(60, 3000, Unit::kBytes).ticks(),
              ElementsAre(64, 128, 256, 512, 1024, 2048));
  EXPECT_THAT(Axis::Log(512, 2048, Unit::kTokens).ticks(), ElementsAre(512, 1024, 2048));
}

TEST(AxisTest, LogTicksAreOneTwoFive) {
  EXPECT_THAT(Axis::Log(0.05, 1, Unit::kPercent).ticks(),
              ElementsAre(::testing::DoubleEq(0.05), 0.1, 0.2, 0.5, 1));
}

// Any range gives some ticks, in order, inside.
TEST(AxisTest, RandomRangesHaveTicksInside) {
  Rng rng(3, 0);
  for (int i = 0; i < 2000; ++i) {
    const double a = std::pow(10, rng.NextDouble() * 12 - 6);
    const double b = a * (1 + std::pow(10, rng.NextDouble() * 8 - 6));
    for (const Unit unit : {Unit::kNumber, Unit::kBytes, Unit::kSeconds}) {
      for (const Axis& axis : {Axis::Linear(a, b, unit), Axis::Log(a, b, unit)}) {
        ASSERT_GE(axis.ticks().size(), 1u) << a << " " << b;
        ASSERT_LE(axis.ticks().size(), 14u) << a << " " << b;
        ASSERT_TRUE(std::is_sorted(axis.ticks().begin(), axis.ticks().end()));
        for (const double tick : axis.ticks()) {
          ASSERT_GE(axis.Place(tick), -1e-9) << a << " " << b;
          ASSERT_LE(axis.Place(tick), 1 + 1e-9) << a << " " << b;
        }
        ASSERT_GE(axis.Place(a), -1e-9);
        ASSERT_LE(axis.Place(b), 1 + 1e-9);
      }
    }
  }
}

TEST(FormatTest, NumbersAsPeopleReadThem) {
  EXPECT_EQ(Format(0.1234, Unit::kPercent), "12.3%");
  EXPECT_EQ(Format(-0.0123, Unit::kPoints), "−1.2");
  EXPECT_EQ(Format(0.0123, Unit::kPoints), "+1.2");
  EXPECT_EQ(Format(-0.0001, Unit::kPoints), "0.0");
  EXPECT_EQ(Format(12.8, Unit::kBytes), "12.8 B");
  EXPECT_EQ(Format(8, Unit::kBytes), "8 B");
  EXPECT_EQ(Format(-8, Unit::kBytes), "−8 B");
  EXPECT_EQ(Format(1536, Unit::kBytes), "1.5 KiB");
  EXPECT_EQ(Format(1023.9, Unit::kBytes), "1023.9 B");
  EXPECT_EQ(Format(1023.96, Unit::kBytes), "1.0 KiB");
  EXPECT_EQ(Format(0.0123, Unit::kSeconds), "12.3 ms");
  EXPECT_EQ(Format(0.9999, Unit::kSeconds), "1.00 s");
  EXPECT_EQ(Format(99.9, Unit::kSeconds), "99.9 s");
  EXPECT_EQ(Format(150, Unit::kSeconds), "2.50 min");
  EXPECT_EQ(Format(37'440, Unit::kSeconds), "10.4 h");
  EXPECT_EQ(Format(4096, Unit::kTokens), "4K");
  EXPECT_EQ(Format(5000, Unit::kTokens), "5,000");
  EXPECT_EQ(Format(1.534, Unit::kRatio), "1.53×");
  EXPECT_EQ(Format(std::nan(""), Unit::kBytes), "–");
  EXPECT_EQ(FormatTick(0.125, Unit::kPercent), "12.5%");
  EXPECT_EQ(FormatTick(1536, Unit::kBytes), "1.5 KiB");
  EXPECT_EQ(FormatTick(1280 << 20, Unit::kBytes), "1.25 GiB");
  EXPECT_EQ(Plural(1, "row", "rows"), "1 row");
  EXPECT_EQ(Plural(1200, "row", "rows"), "1,200 rows");
}

// The same result is the same text in a table of the terminal and on a page.
TEST(FormatTest, BytesAreThoseOfTheTerminal) {
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{1023}, int64_t{1024}, int64_t{1025},
                              int64_t{10'000}, int64_t{123'456}, int64_t{1'000'000},
                              int64_t{1'048'575}, int64_t{123'456'789}, int64_t{5'000'000'000}}) {
    EXPECT_EQ(Format(static_cast<double>(bytes), Unit::kBytes), HumanBytes(bytes));
  }
}

const Shade& InkNamed(std::string_view name) {
  for (const Shade& ink : Inks()) {
    if (ink.name == name) return ink;
  }
  ADD_FAILURE() << "no ink " << name;
  return Inks()[0];
}

// WCAG: text at least 4.5, graphics at least 3.
TEST(PaletteTest, EverythingStandsOutFromItsGround) {
  const Shade& page = InkNamed("page");
  const Shade& panel = InkNamed("panel");
  const Shade& hint = InkNamed("hint");
  for (const char* name : {"ink", "faint", "accent", "good", "bad"}) {
    const Shade& ink = InkNamed(name);
    for (const Shade* ground : {&page, &panel, &hint}) {
      EXPECT_GE(Contrast(ink.light, ground->light), 4.5) << name << " on " << ground->name;
      EXPECT_GE(Contrast(ink.dark, ground->dark), 4.5) << name << " on " << ground->name;
    }
  }
  // Names of lines are texts in the colour of their family.
  for (const FamilyLook& look : Families()) {
    EXPECT_GE(Contrast(look.colour.light, page.light), 4.3) << look.family;
    EXPECT_GE(Contrast(look.colour.dark, page.dark), 4.5) << look.family;
  }
  for (const Shade& kind : KindShades()) {
    EXPECT_GE(Contrast(kind.light, page.light), 3) << kind.name;
    EXPECT_GE(Contrast(kind.dark, page.dark), 3) << kind.name;
  }
  for (const HeatScale scale : {HeatScale::kAmount, HeatScale::kScore}) {
    for (int level = 0; level < kHeatLevels; ++level) {
      for (const bool dark : {false, true}) {
        EXPECT_GE(Contrast(HeatColour(scale, level, dark), HeatInk(scale, level, dark)), 4.5)
            << level << dark;
      }
    }
  }
}

TEST(PaletteTest, FamiliesDifferInColourAndMark) {
  std::set<std::string_view> marks, names;
  for (const FamilyLook& look : Families()) {
    EXPECT_TRUE(marks.insert(look.mark).second) << look.family;
    EXPECT_TRUE(names.insert(look.family).second) << look.family;
  }
  EXPECT_EQ(LookOf("selection").family, "selection");
  EXPECT_EQ(LookOf("nobody knows").family, "other");
  EXPECT_EQ(LookOf("<script>").family, "other");
}

// A scale of amounts has one order of brightness, whoever looks at it.
TEST(PaletteTest, AmountsGrowInBrightnessOrFall) {
  for (const bool dark : {false, true}) {
    double last = 0;
    for (int level = 0; level < kHeatLevels; ++level) {
      const double contrast =
          Contrast(HeatColour(HeatScale::kAmount, level, dark), dark ? Rgb{} : Rgb{255, 255, 255});
      EXPECT_GT(contrast, last) << level;
      last = contrast;
    }
  }
}

TEST(SpreadTest, KeepsOrderGapAndFrame) {
  EXPECT_THAT(Spread({50, 10}, 13, 0, 100), ElementsAre(50, 10));
  EXPECT_THAT(Spread({50, 50, 50}, 10, 0, 100), ElementsAre(40, 50, 60));
  Rng rng(5, 0);
  for (int i = 0; i < 500; ++i) {
    std::vector<double> wanted(1 + rng.NextBelow(20));
    for (double& place : wanted) place = rng.NextDouble() * 300 - 20;
    const std::vector<double> places = Spread(wanted, 13, 0, 280);
    for (size_t a = 0; a < places.size(); ++a) {
      ASSERT_GE(places[a], -1e-9);
      ASSERT_LE(places[a], 280 + 1e-9);
      for (size_t b = 0; b < places.size(); ++b) {
        if (wanted[a] < wanted[b]) {
          ASSERT_GE(places[b] - places[a], 13 - 1e-6);
        }
      }
    }
  }
}

TEST(ParetoFrontTest, HoldsWhatNothingSmallerBeats) {
  EXPECT_THAT(ParetoFront({1, 2, 3, 2}, {5, 4, 6, 7}), ElementsAre(0, 3));
  EXPECT_THAT(ParetoFront({2, 2}, {5, 5}), ElementsAre(0));
  EXPECT_TRUE(ParetoFront({}, {}).empty());
}

XyChart EmptyChart() {
  return {.label = "A chart",
          .description = "",
          .x_title = "x",
          .y_title = "y",
          .x = Axis::Linear(0, 100, Unit::kNumber),
          .y = Axis::Linear(0, 100, Unit::kNumber)};
}

TEST(XyChartTest, MethodsOfAFamilyDifferInSignAndDashes) {
  XyChart chart = EmptyChart();
  for (size_t v = 0; v < 3; ++v) {
    chart.series.push_back({.name = "m",
                            .family = "selection",
                            .variety = v,
                            .points = {{.x = 10, .y = 10}, {.x = 50, .y = 20}}});
  }
  const std::string svg = Render(chart).text();
  EXPECT_THAT(svg, HasSubstr("class=\"ln f-selection\""));
  EXPECT_THAT(svg, HasSubstr("class=\"ln f-selection d1\""));
  EXPECT_THAT(svg, HasSubstr("class=\"ln f-selection d2\""));
  EXPECT_THAT(svg, HasSubstr("href=\"#v-1\""));
  EXPECT_THAT(svg, HasSubstr("href=\"#v-2\""));
  EXPECT_THAT(svg, Not(HasSubstr("href=\"#v-0\"")));
  EXPECT_THAT(MarkDefinitions().text(), HasSubstr("id=\"v-5\""));
}

TEST(XyChartTest, BothIntervalsAreDrawn) {
  XyChart chart = EmptyChart();
  chart.series.push_back(
      {.family = "selection",
       .line = false,
       .points = {
           {.x = 50, .y = 50, .interval = Interval{40, 60}, .x_interval = Interval{30, 70}}}});
  const std::string svg = Render(chart).text();
  EXPECT_THAT(svg, ContainsRegex("class=\"ci\" d=\"M[0-9.]+ [0-9.]+V"));
  EXPECT_THAT(svg, ContainsRegex("class=\"ci\" d=\"M[0-9.]+ [0-9.]+H"));
}

// Names are set where there is room: none lies on a mark or on another name.
TEST(XyChartTest, NamesEndWithinTheFigure) {
  EXPECT_EQ(Shortened("quest", 11, 200), "quest");
  for (const std::string name :
       {"a_method_with_a_name_of_forty_two_letters_ 1.02×", "ééééééééééééééé", "ab"}) {
    for (const double width : {8.0, 30.0, 60.0, 100.0}) {
      const std::string shorter = Shortened(name, 11, width);
      EXPECT_LE(TextWidth(shorter, 11), std::max(width, TextWidth("…", 11))) << shorter;
      EXPECT_EQ(FindInvalidUtf8(shorter), std::string::npos) << shorter;
    }
  }
  EXPECT_TRUE(
      Shortened("a_method_with_a_name_of_forty_two_letters_ 1.02×", 11, 120).ends_with("1.02×"));
  XyChart chart = EmptyChart();
  XySeries series{.name = std::string(200, 'm') + " 1.02×", .family = "selection"};
  series.points = {{.x = 1, .y = 1}, {.x = 100, .y = 1}};
  chart.series.push_back(series);
  const std::string svg = Render(chart).text();
  EXPECT_EQ(svg.find(series.name), std::string::npos);
  EXPECT_NE(svg.find("m…m"), std::string::npos);
}

TEST(XyChartTest, NamesCoverNeitherMarksNorEachOther) {
  struct Box {
    double left, top, right, bottom;
  };
  Rng rng(23, 0);
  for (int round = 0; round < 20; ++round) {
    XyChart chart = EmptyChart();
    for (int i = 0; i < 25; ++i) {
      XySeries series{.family = "selection", .line = false, .named = false};
      series.points.push_back(
          {.x = 100 * rng.NextDouble(), .y = 100 * rng.NextDouble(), .label = "method 40%"});
      chart.series.push_back(series);
    }
    const std::string svg = Render(chart).text();
    std::vector<Box> boxes;
    const auto number = [&](size_t at, const char* name) {
      const size_t begin = svg.find(StrCat(" ", name, "=\""), at);
      return std::atof(svg.c_str() + begin + std::string(name).size() + 3);
    };
    for (size_t at = svg.find("<use href=\"#m-"); at != std::string::npos;
         at = svg.find("<use href=\"#m-", at + 1)) {
      const double x = number(at, "x"), y = number(at, "y");
      boxes.push_back({x - 4, y - 4, x + 4, y + 4});
    }
    const size_t marks = boxes.size();
    ASSERT_EQ(marks, 25u);
    const double width = TextWidth("method 40%", 11);
    for (size_t at = svg.find("<text class=\"nm"); at != std::string::npos;
         at = svg.find("<text class=\"nm", at + 1)) {
      const double x = number(at, "x"), y = number(at, "y");
      boxes.push_back({x, y - 8, x + width, y + 2});
    }
    EXPECT_GT(boxes.size() - marks, 12u);
    for (size_t a = marks; a < boxes.size(); ++a) {
      for (size_t b = 0; b < a; ++b) {
        const bool apart = boxes[a].right <= boxes[b].left || boxes[b].right <= boxes[a].left ||
                           boxes[a].bottom <= boxes[b].top || boxes[b].bottom <= boxes[a].top;
        ASSERT_TRUE(apart) << "name " << a - marks << " in round " << round;
      }
    }
  }
}

TEST(XyChartTest, SaysWhatItIsAndLinksItsPoints) {
  XyChart chart = {.label = "Score <over> bytes",
                   .description = "One point.",
                   .x_title = "bytes",
                   .y_title = "score",
                   .x = Axis::Log(1, 100, Unit::kBytes),
                   .y = Axis::Linear(0, 100, Unit::kNumber)};
  XySeries series;
  series.name = "snapkv";
  series.family = "selection";
  series.points = {
      {.x = 10, .y = 50, .interval = Interval{40, 60}, .tip = "the point", .target = "r1"},
      {.x = 20, .y = 70}};
  chart.series.push_back(series);
  chart.rules.push_back({90, "full"});
  const std::string svg = Render(chart).text();
  EXPECT_THAT(svg, HasSubstr("aria-label=\"Score &lt;over&gt; bytes\""));
  EXPECT_THAT(svg, HasSubstr("<desc>One point.</desc>"));
  EXPECT_THAT(svg, HasSubstr("href=\"#r1\" aria-label=\"the point\""));
  EXPECT_THAT(svg, HasSubstr("class=\"ln f-selection\""));
  EXPECT_THAT(svg, HasSubstr(">snapkv</text>"));
  EXPECT_THAT(svg, HasSubstr("class=\"rule\""));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

// One long bar among short ones runs out of the frame; the others keep their width.
TEST(ForestTest, AnOutlierDoesNotStretchTheAxis) {
  Forest forest{.label = "f", .description = "", .title = "change", .lines = {}, .margin = 0.05};
  forest.unit = Unit::kPercent;
  for (int i = 0; i < 6; ++i) forest.lines.push_back({"line", 0.02, Interval{-0.1, 0.1}});
  const std::string calm = Render(forest).text();
  EXPECT_THAT(calm, Not(HasSubstr("class=\"on\"")));
  forest.lines.push_back({"outlier", 0.5, Interval{-0.99, 3673}});
  const std::string svg = Render(forest).text();
  EXPECT_THAT(svg, HasSubstr("class=\"on\""));
  EXPECT_THAT(svg, HasSubstr(">20%</text>"));
  EXPECT_THAT(svg, Not(HasSubstr("00%</text>")));
  // Without an interval only the value is drawn.
  forest.lines.back() = {"open", 0, Interval{}};
  forest.lines.back().interval = {-std::numeric_limits<double>::infinity(),
                                  std::numeric_limits<double>::infinity()};
  EXPECT_THAT(Render(forest).text(), Not(HasSubstr("class=\"on\"")));
  EXPECT_THAT(Render(forest).text(), HasSubstr("<circle class=\"open\""));
}

TEST(HeatMapTest, CellsOfALevelAreOnePath) {
  HeatMap map;
  map.label = "map";
  map.rows = {"0", "1"};
  map.columns = {"a", "b"};
  map.cells = {{HeatCell{1.0, "2/2"}, HeatCell{1.0, "2/2"}}, {HeatCell{0.0, "0/2"}, std::nullopt}};
  map.cell_width = 40;
  const std::string svg = Render(map).text();
  // Neighbours are one piece of two widths, less the line that is drawn between them.
  EXPECT_THAT(svg, ContainsRegex("<path class=\"s9\" d=\"M[0-9.]+ [0-9.]+h79v29h-79z\"/>"));
  EXPECT_THAT(svg, ContainsRegex("<path class=\"s0\" d=\"M[0-9.]+ [0-9.]+h39v29h-39z\"/>"));
  EXPECT_THAT(svg, ContainsRegex("<path class=\"none\" d=\"M[0-9.]+ [0-9.]+h39v29h-39z\"/>"));
  EXPECT_THAT(svg, ContainsRegex("<path class=\"gap\" stroke-width=\"1\" d=\"M[^M]+\"/>"));
  EXPECT_THAT(svg, ContainsRegex("<g class=\"hc st9\"><text [^>]+>2/2</text><text "));
  EXPECT_THAT(svg, ContainsRegex("<g class=\"hc st0\"><text [^>]+>0/2</text></g>"));
}

TEST(StackedBarsTest, NamesOnlyKindsThatAreThere) {
  StackedBars bars;
  bars.label = "bytes";
  bars.kinds = {"payload", "scales", "outliers"};
  bars.bars.push_back({"20%", "selection", {100, 20, 0}, "120 B"});
  bars.rule = 500;
  bars.rule_label = "full cache 500 B";
  const std::string svg = Render(bars).text();
  EXPECT_THAT(svg, HasSubstr(">payload</text>"));
  EXPECT_THAT(svg, Not(HasSubstr(">outliers</text>")));
  EXPECT_THAT(svg, HasSubstr("full cache 500 B"));
}

}  // namespace
}  // namespace kvgauge::report
