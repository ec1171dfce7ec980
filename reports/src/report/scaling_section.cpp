// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <set>

#include "core/strings.h"
#include "reports/gate.h"
#include "src/chart/palette.h"
#include "src/chart/xy_chart.h"
#include "src/html/format.h"
#include "src/report/sections.h"

namespace kvgauge::report {
namespace {

struct Measure {
  const char* title;
  const char* what;
  Unit unit;
  double (*of)(const LatencySummary&);
  Interval RowTimes::*range;  // null: it does not vary
};
constexpr Measure kMeasures[] = {
    {"Time to the first token", "time to the first token", Unit::kSeconds,
     [](const LatencySummary& l) { return l.ttft_s.p50; }, &RowTimes::ttft_s},
    {"Time of an output token", "time of an output token, median of steps", Unit::kSeconds,
     [](const LatencySummary& l) { return l.tpot_s.p50; }, &RowTimes::tpot_s},
    {"Bytes held", "bytes that the cache holds", Unit::kBytes,
     [](const LatencySummary& l) { return l.resident_bytes; }, nullptr},
};

Html Figure(const Board& board, const Measure& measure, const std::string& budget,
            const std::vector<const BoardRow*>& rows) {
  double low = 1e300, high = 0, short_end = 1e300, long_end = 0, full = 0;
  XyChart chart = {.label = StrCat(measure.title, " against the length of the context",
                                   budget.empty() ? "" : " at ", budget),
                   .description = "",
                   .x_title = "tokens of context, logarithmic",
                   .y_title = StrCat(measure.what, ", logarithmic"),
                   .x = Axis::Log(1, 2, Unit::kTokens),
                   .y = Axis::Log(1, 2, measure.unit),
                   .width = 440,
                   .height = 320};
  for (const BoardRow* row : rows) {
    XySeries series;
    series.family = row->method.family;
    series.variety = board.Variety(row->method.name);
    series.dashed = row->method.full_cache;
    for (const RowTimes& times : row->times) {
      const LatencySummary& latency = times.summary;
      const double value = measure.of(latency);
      if (value <= 0) continue;
      low = std::min(low, measure.range != nullptr ? (times.*measure.range).low : value);
      high = std::max(high, measure.range != nullptr ? (times.*measure.range).high : value);
      const auto tokens = static_cast<double>(latency.context_tokens);
      short_end = std::min(short_end, tokens);
      long_end = std::max(long_end, tokens);
      series.points.push_back(
          {.x = tokens,
           .y = value,
           .interval =
               measure.range != nullptr ? std::optional(times.*measure.range) : std::nullopt,
           .tip = StrCat(row->NameBudget(), " at ", Format(tokens, Unit::kTokens),
                         " tokens: ", Format(value, measure.unit),
                         measure.range != nullptr
                             ? StrCat(", ", RepetitionsText(times, times.*measure.range))
                             : ""),
           .target = row->id,
           .open = times.disturbed && measure.range != nullptr});
    }
    if (series.points.empty()) continue;
    std::sort(series.points.begin(), series.points.end(),
              [](const XyPoint& a, const XyPoint& b) { return a.x < b.x; });
    if (row->method.full_cache) full = series.points.back().y;
    // Its variant only where the method is there twice; what is pointed at says it in full.
    series.name = std::ranges::count_if(rows,
                                        [row](const BoardRow* other) {
                                          return other->method.name == row->method.name;
                                        }) > 1
                      ? row->Name()
                      : row->method.name;
    chart.series.push_back(std::move(series));
  }
  if (chart.series.empty() || short_end >= long_end) return {};
  // Times the full cache's at the longest context, beside the name.
  const double furthest = long_end;
  for (XySeries& series : chart.series) {
    const XyPoint& last = series.points.back();
    if (full > 0 && !series.dashed && last.x == furthest) {
      series.name.append(" ").append(Format(last.y / full, Unit::kRatio));
    }
  }
  std::stable_sort(chart.series.begin(), chart.series.end(),
                   [](const XySeries& a, const XySeries& b) {
                     return a.dashed != b.dashed ? a.dashed : a.points.back().y < b.points.back().y;
                   });
  for (size_t i = 16; i < chart.series.size(); ++i) chart.series[i].named = false;
  chart.x = Axis::Log(short_end, long_end, Unit::kTokens);
  chart.y = Axis::Log(low, high, measure.unit);
  chart.description =
      "Medians of repetitions measured alone. Ratios are to the full cache at the longest context.";
  return Html().Put(
      R"(<figure><figcaption><b>{}</b></figcaption><div class="scroll">{}</div></figure>)"
      "\n",
      {measure.title, Render(chart)});
}

}  // namespace

Html ScalingSection(const Board& board) {
  const BoardRow* full = board.Full();
  struct Budget {
    double value = 0;
    std::vector<const BoardRow*> rows;
  };
  std::map<std::string, Budget> budgets;
  for (const BoardRow& row : board.rows) {
    if (row.method.full_cache || board.InSweep(row.method) || row.times.empty()) continue;
    Budget& budget = budgets[row.budget_kind == "none" ? "" : row.budget];
    budget.value = row.budget_value;
    budget.rows.push_back(&row);
  }
  std::vector<std::pair<std::string, Budget>> order(budgets.begin(), budgets.end());
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.second.value < b.second.value; });
  Html html;
  for (size_t i = 0; i < order.size(); ++i) {
    std::vector<const BoardRow*> rows = order[i].second.rows;
    if (full != nullptr && !full->times.empty()) rows.insert(rows.begin(), full);
    Html figures;
    for (const Measure& measure : kMeasures)
      figures.Put(Figure(board, measure, order[i].first, rows));
    if (figures.empty()) continue;
    Html summary;
    summary.Text(order[i].first.empty() ? "Without a budget"
                                        : StrCat("At a budget of ", order[i].first));
    html.Put(Folded(summary, Html().Put(R"(<div class="figures three">{}</div>)", {figures}), "",
                    i == order.size() / 2));
  }
  if (html.empty()) return html;
  int64_t left_out = 0, disturbed = 0, shown = 0;
  std::vector<LegendMethod> methods;
  std::set<std::string_view> seen;
  for (const BoardRow& row : board.rows) {
    if (!row.times.empty() && !board.InSweep(row.method) && seen.insert(row.method.name).second) {
      methods.push_back({row.method.name, row.method.family, board.Variety(row.method.name)});
    }
    for (const RowTimes& times : row.times) {
      ++shown;
      left_out += times.left_out;
      disturbed += times.disturbed ? 1 : 0;
    }
  }
  Html company;
  if (left_out > 0) {
    company.Put(" {} left out: other programs had more than {} of the processors meanwhile.",
                {Plural(left_out, "repetition is", "repetitions are"),
                 Format(GateMargins().max_others_share, Unit::kPercent)});
  }
  if (disturbed > 0) {
    company.Put(R"( <b class="v worse">⚠ {} of {} points are disturbed</b> (outlines): all their )"
                "repetitions had such company, so that they measure it, too.",
                {disturbed, shown});
  }
  Html section;
  if (!board.alone) section.Put("<h3>{}</h3>", {board.Title()});
  return section.Put(
      R"(<p class="lead">Each point is the median of repetitions measured alone, between )"
      "those of the full cache (dashed); bars run from the least to the most of them. Behind a "
      "name: times the full cache's at the longest context.{}{}</p>{}{}",
      {company, board.OnlySwept(), MethodLegend(methods), html});
}

}  // namespace kvgauge::report
