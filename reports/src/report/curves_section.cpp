// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/strings.h"
#include "src/chart/xy_chart.h"
#include "src/html/format.h"
#include "src/report/sections.h"

namespace kvgauge::report {
namespace {

// More names than this at the ends of lines cannot be read; the others answer when pointed at.
constexpr size_t kNames = 14;

Html Curves(const Board& board, const LeaderboardTable& table) {
  std::map<std::string, XySeries> curves;  // by method
  double low = 1, high = 1, bottom = 1e300, top = -1e300;
  XyChart chart = {
      .label = StrCat(table.task, ": score over measured bytes, a line for each method"),
      .description = "",
      .x_title = "logical bytes, of the full cache's; smaller to the right",
      .y_title = ScoreTitle(table),
      .x = Axis::Log(0.1, 1, Unit::kPercent),
      .y = Axis::Linear(0, 100, Unit::kNumber),
      .width = 600,
      .height = 350};
  for (const LeaderboardLine& line : table.lines) {
    if (line.scored == 0 || board.InSweep(line.method)) continue;
    const double score = ScoreNumber(table, line.score.value);
    bottom = std::min(bottom, score);
    top = std::max(top, score);
    if (line.method.full_cache) {
      chart.rules.push_back({score, StrCat("full cache ", ReportedText(table, line.reported))});
      continue;
    }
    if (line.bytes.samples == 0 || line.bytes.logical_ratio <= 0) continue;
    low = std::min(low, line.bytes.logical_ratio);
    high = std::max(high, line.bytes.logical_ratio);
    XySeries& series = curves[line.method.name];
    series.name = line.method.name;
    series.family = line.method.family;
    series.variety = board.Variety(line.method.name);
    const BoardRow* row = board.Find(line);
    std::optional<Interval> interval;
    if (std::isfinite(line.score.interval.low)) {
      interval = Interval{ScoreNumber(table, ShownInterval(table, line).low),
                          ScoreNumber(table, ShownInterval(table, line).high)};
    }
    series.points.push_back({.x = line.bytes.logical_ratio,
                             .y = score,
                             .tip = row != nullptr ? RowTip(table, *row, line) : "",
                             .target = row != nullptr ? row->id : "",
                             .open = !line.rank.has_value()});
  }
  if (curves.empty()) return {};
  for (auto& [name, series] : curves) {
    std::sort(series.points.begin(), series.points.end(),
              [](const XyPoint& a, const XyPoint& b) { return a.x > b.x; });
    chart.series.push_back(series);
  }
  // Names for those that end best.
  std::stable_sort(chart.series.begin(), chart.series.end(),
                   [&](const XySeries& a, const XySeries& b) {
                     const double x = a.points.back().y, y = b.points.back().y;
                     return table.lower_is_better ? x < y : x > y;
                   });
  for (size_t i = kNames; i < chart.series.size(); ++i) chart.series[i].named = false;
  chart.x = Axis::Log(low, high, Unit::kPercent).Reversed();
  chart.y = table.lower_is_better ? Axis::Linear(bottom, top, Unit::kNumber)
                                  : Axis::Linear(bottom, top, Unit::kNumber, 5, 0, 100);
  chart.description = StrCat("Best at its smallest budget: ", chart.series.front().name, ".");
  Html html;
  html.Put(R"(<figure><figcaption><b>{}</b></figcaption><div class="scroll">{}</div></figure>)"
           "\n",
           {table.task, Render(chart)});
  return html;
}

}  // namespace

Html CurvesSection(const Board& board) {
  Html html;
  for (const LeaderboardTable* table : board.tasks) html.Put(Curves(board, *table));
  if (html.empty()) return html;
  Html section;
  if (!board.alone) section.Put("<h3>{}</h3>", {board.Title()});
  return section.Put(
      R"(<p class="lead">A figure for each task, a line for each method from its largest budget )"
      "to its smallest, over the bytes measured. Dotted: the full cache.{}</p>{}{}",
      {board.OnlySwept(), board.Legend(false), Figures(board, html)});
}

}  // namespace kvgauge::report
