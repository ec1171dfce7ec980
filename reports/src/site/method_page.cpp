// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/strings.h"
#include "src/chart/palette.h"
#include "src/chart/xy_chart.h"
#include "src/html/format.h"
#include "src/site/site_pages.h"

namespace kvgauge::site {
namespace {

using report::Axis;
using report::Html;
using report::Markup;
using report::Unit;
using report::XyChart;
using report::XyPoint;
using report::XySeries;

void Fact(Html& html, const char* name, const std::string& text) {
  if (!text.empty()) html.Put("<div><dt>{}</dt><dd>{}</dd></div>", {name, text});
}

Html FactsOf(const Data& data, const std::string& method, const Series& any) {
  const auto known = std::ranges::find(data.options().methods, method, &SiteMethod::id);
  Html html;
  html.Put(R"(<dl class="facts">)");
  Fact(html, "Family", std::string(report::LookOf(any.method.family).title));
  if (known != data.options().methods.end()) {
    Fact(html, "Paper", known->paper);
    Fact(html, "Stages", known->stages);
    Fact(html, "Held against", known->proof);
    for (const std::string& departure : known->departures) Fact(html, "Departs", departure);
  }
  if (any.method.experimental) {
    Fact(html, "Experimental", "no independent implementation has confirmed what the method does");
  }
  Fact(html, "Version", std::to_string(any.method.version));
  return html.Put("</dl>\n");
}

// The interval of a point as figures show it; nothing where too few samples make one.
std::optional<Interval> Whisker(const LeaderboardTable& frame, const Point& point) {
  if (!std::isfinite(point.score.interval.low)) return {};
  Interval interval = point.score.interval;
  if (!frame.lower_is_better) {
    interval = {std::max(interval.low, 0.0), std::min(interval.high, 1.0)};
  }
  return Interval{report::ScoreNumber(frame, interval.low),
                  report::ScoreNumber(frame, interval.high)};
}

Axis ScoreAxis(const LeaderboardTable& frame, double low, double high) {
  return frame.lower_is_better ? Axis::Linear(low, high, Unit::kNumber)
                               : Axis::Linear(low, high, Unit::kNumber, 5, 0, 100);
}

// The method's budgets in one task, beside the full cache.
Html OverBytes(const Data& data, const Table& table, const std::string& method) {
  XyChart chart = {.label = StrCat(table.frame.task, ": score over measured bytes"),
                   .description = "A line for each variant.",
                   .x_title = "logical bytes, of the full cache's; smaller to the right",
                   .y_title = report::ScoreTitle(table.frame),
                   .x = Axis::Log(0.1, 1, Unit::kPercent),
                   .y = Axis::Linear(0, 100, Unit::kNumber),
                   .width = 600,
                   .height = 300};
  std::map<std::string, XySeries> lines;  // by variant
  double low = 1, high = 1, bottom = 1e300, top = -1e300;
  for (const size_t number : table.series) {
    const Series& series = data.series()[number];
    const Point& point = series.points.back();
    const bool own = series.method.name == method;
    if (point.scored == 0 || (!own && !series.method.full_cache)) continue;
    const double score = report::ScoreNumber(table.frame, point.score.value);
    bottom = std::min(bottom, score);
    top = std::max(top, score);
    if (series.method.full_cache) {
      chart.rules.push_back(
          {score, StrCat("full cache ", report::ReportedText(table.frame, point.reported))});
      continue;
    }
    if (point.logical_ratio <= 0) continue;
    low = std::min(low, point.logical_ratio);
    high = std::max(high, point.logical_ratio);
    XySeries& line = lines[series.method.variant];
    line.name = series.method.variant.empty() ? method : series.method.variant;
    line.family = series.method.family;
    line.points.push_back(
        {.x = point.logical_ratio,
         .y = score,
         .interval = Whisker(table.frame, point),
         .tip = StrCat(series.Name(), ": ", report::ReportedText(table.frame, point.reported),
                       " at ", Format(point.logical_ratio, Unit::kPercent)),
         .open = !point.ranked});
  }
  Html html;
  if (lines.empty()) return html;
  size_t variety = 0;
  for (auto& [variant, line] : lines) {
    line.variety = variety++ % report::kVarieties;
    std::ranges::sort(line.points, std::greater<>(), &XyPoint::x);
    chart.series.push_back(std::move(line));
  }
  chart.x = Axis::Log(low, high, Unit::kPercent).Reversed();
  chart.y = ScoreAxis(table.frame, bottom, top);
  return html.Put(
      R"(<figure><figcaption><b>{}</b> {}</figcaption><div class="scroll">{}</div></figure>)"
      "\n",
      {table.frame.task, data.TitleOf(table), Render(chart)});
}

// The same rows over the stores that have them; where something changed a point is named.
Html OverStores(const Data& data, const Table& table, const std::string& method) {
  XyChart chart = {.label = StrCat(table.frame.task, ": score over stores"),
                   .description = "A line for each budget, oldest store left.",
                   .x_title = "stores, oldest first",
                   .y_title = report::ScoreTitle(table.frame),
                   .x = Axis::Linear(0, 1, Unit::kNumber),
                   .y = Axis::Linear(0, 100, Unit::kNumber),
                   .width = 600,
                   .height = 300};
  double bottom = 1e300, top = -1e300, first = 1e300, last = -1e300;
  for (const size_t number : table.series) {
    const Series& series = data.series()[number];
    if (series.method.name != method || series.points.size() < 2) continue;
    XySeries line = {.name = series.budget_kind == "none" ? series.Name() : series.budget,
                     .family = series.method.family,
                     .variety = chart.series.size() % report::kVarieties};
    for (size_t i = 0; i < series.points.size(); ++i) {
      const Point& point = series.points[i];
      if (point.scored == 0) continue;
      const Source& source = data.sources()[point.source];
      const double x = static_cast<double>(point.source) + 1;
      const double y = report::ScoreNumber(table.frame, point.score.value);
      const auto change = std::ranges::find(series.changes, i, &Change::to);
      std::string label;
      if (change != series.changes.end() && change->verdict != Verdict::kUndecided &&
          change->verdict != Verdict::kSame && change->evidence.differing > 0) {
        label = StrCat(report::DifferenceText(table.frame, change->evidence.value), ", ",
                       RevisionOf(source));
      }
      bottom = std::min(bottom, y);
      top = std::max(top, y);
      first = std::min(first, x);
      last = std::max(last, x);
      line.points.push_back({.x = x,
                             .y = y,
                             .interval = Whisker(table.frame, point),
                             .tip = StrCat(source.name, ", ", WhenOf(source), ": ",
                                           report::ReportedText(table.frame, point.reported)),
                             .label = label,
                             .open = !point.ranked});
    }
    if (line.points.size() > 1) chart.series.push_back(std::move(line));
  }
  Html html;
  if (chart.series.empty()) return html;
  chart.x = Axis::Linear(first, last, Unit::kNumber);
  chart.y = ScoreAxis(table.frame, bottom, top);
  return html.Put(
      R"(<figure><figcaption><b>{}</b> {}</figcaption><div class="scroll">{}</div></figure>)"
      "\n",
      {table.frame.task, data.TitleOf(table), Render(chart)});
}

Html RowsTable(const Data& data, const std::string& method) {
  Html html;
  html.Put(R"(<div class="scroll"><table class="board plain"><caption class="hide">Rows of {})"
           R"(</caption><thead><tr><th scope="col">Model and task</th><th scope="col">Row</th><th )"
           R"(scope="col" class="n">bytes</th><th scope="col" class="n">score</th><th )"
           R"(scope="col" class="n">Δ full</th><th scope="col" class="n">TTFT</th><th )"
           R"(scope="col" class="n">TPOT</th><th scope="col">newest store</th></tr></thead>)"
           "<tbody>\n",
           {method});
  bool any = false;
  std::vector<size_t> tables;
  for (const Board& board : data.boards()) {
    tables.insert(tables.end(), board.tasks.begin(), board.tasks.end());
  }
  for (const size_t index : tables) {
    const Table& table = data.tables()[index];
    std::vector<const Series*> own;
    for (const size_t number : table.series) {
      if (data.series()[number].method.name == method) own.push_back(&data.series()[number]);
    }
    std::ranges::stable_sort(own, {}, [](const Series* series) {
      return std::pair(series->method.variant, series->budget_value);
    });
    for (const Series* one : own) {
      const Series& series = *one;
      const Point& point = series.points.back();
      any = true;
      html.Put("<tr><td>{}<small>{}</small></td><td>{}</td><td class=\"n\">{}</td>",
               {report::Breakable(table.frame.task), data.TitleOf(table),
                report::Breakable(series.Name()),
                point.logical_ratio > 0 ? Format(point.logical_ratio, Unit::kPercent) : "–"});
      ScoreCells(html, table.frame, series, "");
      const auto time = [](const std::optional<double>& ratio) {
        return ratio ? Format(*ratio, Unit::kRatio) : std::string("–");
      };
      html.Put(
          "<td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td></tr>\n",
          {time(point.ttft_ratio), time(point.tpot_ratio), WhenOf(data.sources()[point.source])});
    }
  }
  html.Put("</tbody></table></div>\n");
  return any ? html : Html();
}

}  // namespace

std::string MethodPage(const Data& data, const std::string& method) {
  const Series* any = nullptr;
  for (const Series& series : data.series()) {
    if (series.method.name == method) any = &series;
  }
  Html over_bytes, over_stores;
  for (const Board& board : data.boards()) {
    for (const size_t index : board.tasks) {
      over_bytes.Put(OverBytes(data, data.tables()[index], method));
      over_stores.Put(OverStores(data, data.tables()[index], method));
    }
  }
  Html body;
  std::vector<report::PageLink> links;
  body.Put(R"(<p class="over"><a href="../index.html">{}</a></p><h1>{}</h1>{})",
           {data.options().title, any->method.title.empty() ? method : any->method.title,
            FactsOf(data, method, *any)});
  const auto add = [&](const char* id, const char* title, Markup lead, const Html& content,
                       bool figures) {
    if (content.empty()) return;
    links.push_back({id, title});
    body.Put(
        R"(<section id="{}" aria-labelledby="{}-h"><h2 id="{}-h">{}</h2><p class="lead">{}</p>)",
        {id, id, id, title, lead});
    if (figures) {
      body.Put(R"(<div class="figures">{}</div></section>)"
               "\n",
               {content});
    } else {
      body.Put("{}</section>\n", {content});
    }
  };
  add("bytes", "Over bytes", "A figure for each task. Dotted: the full cache.", over_bytes, true);
  add("time", "Over stores",
      "Where a change is decided, the point says by how much and since which revision.",
      over_stores, true);
  add("rows", "Rows",
      "The newest store's row of each model, task and budget. Times are over the full cache's, "
      "measured alone at the longest length.",
      RowsTable(data, method), false);
  add("changes", "Changes", "", ChangesSection(data, method, "../"), false);
  return report::WrapPage(StrCat(method, ": ", data.options().title), links, body);
}

}  // namespace kvgauge::site
