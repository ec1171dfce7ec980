// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "core/strings.h"
#include "src/chart/xy_chart.h"
#include "src/html/format.h"
#include "src/report/sections.h"

namespace kvgauge::report {
namespace {

struct Item {
  const BoardRow* row = nullptr;
  const LeaderboardLine* line = nullptr;
  const RowTimes* times = nullptr;  // where they are what x is
  double x = 0, y = 0, low = 0, high = 0;

  // May be on a front: it has a rank, and what it costs is its own.
  bool Counts() const { return line->rank.has_value() && (times == nullptr || !times->disturbed); }
};

// What a score is set against.
enum class Price { kBytes, kTime };

// At the longest context that was timed; times belong to the row, whichever task they were taken
// with.
const RowTimes* TimesOf(const BoardRow& row) {
  if (row.times.empty() || row.times.back().summary.tpot_s.p50 <= 0) return nullptr;
  return &row.times.back();
}

std::vector<Item> ItemsOf(const Board& board, size_t group, Price price) {
  const LeaderboardTable& table = *board.groups[group];
  std::vector<Item> items;
  for (const BoardRow& row : board.rows) {
    const LeaderboardLine* line = row.lines[group];
    if (line == nullptr || line->scored == 0) continue;
    // A sweep has figures of its own.
    if (!row.method.variant.empty() && !line->rank) continue;
    const RowTimes* times = price == Price::kTime ? TimesOf(row) : nullptr;
    const double x = price == Price::kBytes ? line->bytes.resident_per_token
                     : times != nullptr     ? times->summary.tpot_s.p50
                                            : 0;
    if (x <= 0) continue;
    Item item = {.row = &row,
                 .line = line,
                 .times = times,
                 .x = x,
                 .y = ScoreNumber(table, line->score.value)};
    const bool known = std::isfinite(line->score.interval.low);
    item.low = known ? ScoreNumber(table, ShownInterval(table, *line).low) : item.y;
    item.high = known ? ScoreNumber(table, ShownInterval(table, *line).high) : item.y;
    items.push_back(item);
  }
  return items;
}

// The best `value` among ranked items up to each x, as steps.
std::vector<std::pair<double, double>> Best(const std::vector<Item>& items, bool lower_is_better,
                                            double Item::*value, double end) {
  std::vector<const Item*> order;
  for (const Item& item : items) {
    if (item.Counts()) order.push_back(&item);
  }
  std::sort(order.begin(), order.end(), [&](const Item* a, const Item* b) {
    if (a->x != b->x) return a->x < b->x;
    return lower_is_better ? a->*value < b->*value : a->*value > b->*value;
  });
  std::vector<std::pair<double, double>> steps;
  for (const Item* item : order) {
    const double v = item->*value;
    if (!steps.empty()) {
      const double best = steps.back().second;
      if (lower_is_better ? v >= best : v <= best) continue;
      steps.emplace_back(item->x, best);
    }
    steps.emplace_back(item->x, v);
  }
  if (!steps.empty()) steps.emplace_back(end, steps.back().second);
  return steps;
}

double StepAt(const std::vector<std::pair<double, double>>& steps, double x) {
  double value = steps.front().second;
  for (const auto& [at, height] : steps) {
    if (at <= x) value = height;
  }
  return value;
}

// Where the front could lie: between the front of the intervals' lower ends and that of the upper.
XyBand UncertainFront(const std::vector<Item>& items, bool lower_is_better, double end) {
  XyBand band;
  const auto low = Best(items, lower_is_better, &Item::low, end);
  const auto high = Best(items, lower_is_better, &Item::high, end);
  if (low.empty() || high.empty()) return band;
  std::vector<double> places;
  for (const auto& steps : {low, high}) {
    for (const auto& step : steps) places.push_back(step.first);
  }
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  const auto add = [&](double x, double of) {
    const double a = StepAt(low, of), b = StepAt(high, of);
    band.slices.push_back({x, std::min(a, b), std::max(a, b)});
  };
  for (size_t i = 0; i < places.size(); ++i) {
    if (i > 0) add(places[i], places[i - 1]);
    add(places[i], places[i]);
  }
  return band;
}

// The full cache, the front, and of every other method its best row.
std::vector<bool> Named(const std::vector<Item>& items, const std::vector<size_t>& front,
                        bool lower_is_better) {
  std::vector<bool> named(items.size(), false);
  std::map<std::string, size_t> best;
  std::set<std::string> done;
  for (size_t i = 0; i < items.size(); ++i) {
    const std::string& method = items[i].row->method.name;
    named[i] =
        items[i].row->method.full_cache || std::find(front.begin(), front.end(), i) != front.end();
    if (named[i]) done.insert(method);
    const auto [at, added] = best.emplace(method, i);
    const double own = items[i].y, other = items[at->second].y;
    if (!added && (lower_is_better ? own < other : own > other)) at->second = i;
  }
  for (const auto& [method, i] : best) {
    if (!done.contains(method)) named[i] = true;
  }
  return named;
}

Html Figure(const Board& board, size_t group, const std::vector<Item>& items,
            const std::string& x_title, Unit unit, const std::string& what) {
  const LeaderboardTable& table = *board.groups[group];
  std::vector<double> x, y;
  double low = 1e300, high = -1e300, bottom = 1e300, top = -1e300;
  for (const Item& item : items) {
    low = std::min(low, item.times != nullptr ? item.times->tpot_s.low : item.x);
    high = std::max(high, item.times != nullptr ? item.times->tpot_s.high : item.x);
    bottom = std::min(bottom, item.low);
    top = std::max(top, item.high);
    x.push_back(item.Counts() ? item.x : 1e300);
    y.push_back(table.lower_is_better ? -item.y : item.y);
  }
  XyChart chart = {
      .label = StrCat(table.task, ": score against ", what),
      .description = "",
      .x_title = x_title,
      .y_title = ScoreTitle(table),
      .x = Axis::Log(low, high, unit),
      .y = table.lower_is_better ? Axis::Linear(bottom, top, Unit::kNumber, 6)
                                 : Axis::Linear(bottom, top, Unit::kNumber, 6, 0, 100),
      .width = 600,
      .height = 370,
  };
  chart.band = UncertainFront(items, table.lower_is_better, chart.x.high());
  std::vector<size_t> front = ParetoFront(x, y);
  std::vector<std::string> names;
  for (const size_t i : front) names.push_back(items[i].row->NameBudget());
  chart.description = names.empty()
                          ? "Nothing can be called the front."
                          : StrCat("On the front, from the smallest: ", Join(names, ", "), ".");
  XySeries line;
  line.family = "baseline";
  line.dashed = true;
  line.marks = line.named = false;
  for (const auto& [at, height] : Best(items, table.lower_is_better, &Item::y, chart.x.high())) {
    line.points.push_back({.x = at, .y = height});
  }
  chart.series.push_back(line);
  const std::vector<bool> named = Named(items, front, table.lower_is_better);
  std::vector<size_t> order(items.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // Names are set in this order: the full cache's first, as what the others are held against, then
  // those of the front.
  std::ranges::stable_sort(order, {}, [&](size_t i) {
    return items[i].row->method.full_cache                           ? 0
           : std::find(front.begin(), front.end(), i) != front.end() ? 1
                                                                     : 2;
  });
  for (const size_t i : order) {
    const Item& item = items[i];
    XySeries series;
    series.family = item.row->method.family;
    series.variety = board.Variety(item.row->method.name);
    series.line = series.named = false;
    series.points.push_back(
        {.x = item.x,
         .y = item.y,
         .interval = Interval{item.low, item.high},
         .x_interval = item.times != nullptr ? std::optional(item.times->tpot_s) : std::nullopt,
         .tip =
             StrCat(RowTip(table, *item.row, *item.line),
                    item.times != nullptr ? StrCat(", ", Format(item.x, unit), " an output token, ",
                                                   RepetitionsText(*item.times, item.times->tpot_s))
                                          : ""),
         .target = item.row->id,
         .label = named[i] ? item.row->ShortName() : "",
         .open = !item.Counts()});
    chart.series.push_back(std::move(series));
  }
  Html html;
  html.Put(
      "<figure><figcaption><b>{}</b> against {}</figcaption><div "
      R"(class="scroll">{}</div></figure>)"
      "\n",
      {table.task, what, Render(chart)});
  return html;
}

}  // namespace

std::vector<size_t> ParetoFront(const std::vector<double>& x, const std::vector<double>& y) {
  std::vector<size_t> order(x.size()), front;
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (x[a] != x[b]) return x[a] < x[b];
    return y[a] != y[b] ? y[a] > y[b] : a < b;
  });
  for (const size_t i : order) {
    if (x[i] >= 1e300) break;
    if (front.empty() || y[i] > y[front.back()]) front.push_back(i);
  }
  return front;
}

Html ParetoSection(const Board& board) {
  Html html;
  for (size_t g = 0; g < board.groups.size(); ++g) {
    const std::vector<Item> bytes = ItemsOf(board, g, Price::kBytes);
    if (bytes.size() >= 2) {
      html.Put(Figure(board, g, bytes, "bytes held for a token of context, logarithmic",
                      Unit::kBytes, "bytes"));
    }
    const std::vector<Item> times = ItemsOf(board, g, Price::kTime);
    if (times.size() >= 2) {
      html.Put(Figure(board, g, times,
                      "time of an output token at the longest context timed, logarithmic",
                      Unit::kSeconds, "time"));
    }
  }
  if (html.empty()) return html;
  Html section;
  if (!board.alone) section.Put("<h3>{}</h3>", {board.Title()});
  section.Put(
      R"(<p class="lead">The dashed line is the best score that a size or a time buys. Bars are )"
      "95% "
      "intervals of scores, and the range of the repetitions of times; the front could lie "
      "anywhere in the shaded band, so that rows whose bars "
      "reach it may belong to it. Outlines are rows that are not ranked, or whose times other "
      "programs disturbed. Each mark leads to its row.</p>{}{}",
      {board.Legend(true), Figures(board, html)});
  return section;
}

}  // namespace kvgauge::report
