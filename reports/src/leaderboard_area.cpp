// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "core/counted.h"
#include "core/strings.h"
#include "src/leaderboard_columns.h"

namespace kvgauge {
namespace {

// A method and variant: its lines with a rank, by bytes. The others' scores are of fewer
// samples.
struct Curve {
  std::vector<size_t> lines, left_out;
  double low = 0, high = 0;
};

// The range of bytes that is worth most: methods that cover it, times its width in log(bytes).
std::optional<Interval> CommonRange(const std::vector<Curve>& curves) {
  std::optional<Interval> best;
  double worth = 0;
  for (const Curve& a : curves) {
    for (const Curve& b : curves) {
      if (!(a.low > 0) || !(a.low < b.high)) continue;
      const auto covered = static_cast<double>(std::ranges::count_if(
          curves, [&](const Curve& c) { return c.low <= a.low && c.high >= b.high; }));
      const double value = covered * std::log(b.high / a.low);
      if (value <= worth) continue;
      worth = value;
      best = {a.low, b.high};
    }
  }
  return best;
}

// How much each line of a curve counts in the mean height between `range`: straight lines between
// neighbours in log(bytes).
std::vector<double> Weights(const std::vector<double>& bytes, const Interval& range) {
  std::vector<double> weights(bytes.size(), 0.0);
  const double width = std::log(range.high / range.low);
  for (size_t i = 0; i + 1 < bytes.size(); ++i) {
    const double a = std::log(bytes[i]), b = std::log(bytes[i + 1]);
    const double from = std::max(a, std::log(range.low)), to = std::min(b, std::log(range.high));
    if (to <= from) continue;
    const double right = ((from + to) / 2 - a) / (b - a);
    weights[i] += (to - from) / width * (1 - right);
    weights[i + 1] += (to - from) / width * right;
  }
  return weights;
}

}  // namespace

void AddAreas(const std::vector<const TaskData*>& tasks, const std::vector<DraftLine>& lines,
              size_t reference, const LeaderboardOptions& options, LeaderboardTable& table) {
  std::map<std::pair<std::string, std::string>, Curve> by_method;
  for (size_t i = 0; i < table.lines.size(); ++i) {
    const LeaderboardLine& line = table.lines[i];
    if (line.method.full_cache) continue;
    Curve& curve = by_method[{line.method.name, line.method.variant}];
    if (!line.not_ranked.empty()) {
      curve.left_out.push_back(i);
    } else if (line.scored > 0 && line.bytes.logical_ratio > 0) {
      curve.lines.push_back(i);
    }
  }
  const auto ratio = [&](size_t i) { return table.lines[i].bytes.logical_ratio; };
  std::vector<Curve> curves;
  for (auto& entry : by_method) {
    Curve& curve = entry.second;
    std::ranges::stable_sort(curve.lines, {}, ratio);
    // Budgets that come to the same bytes are one point: the first stands for them.
    const auto repeats = std::unique(curve.lines.begin(), curve.lines.end(),
                                     [&](size_t a, size_t b) { return ratio(a) == ratio(b); });
    curve.lines.erase(repeats, curve.lines.end());
    if (curve.lines.empty()) continue;
    curve.low = ratio(curve.lines.front());
    curve.high = ratio(curve.lines.back());
    if (curve.lines.size() > 1) curves.push_back(curve);
  }
  table.area_range = CommonRange(curves);

  std::vector<MeanColumn> columns;
  std::vector<std::pair<size_t, bool>> owners;  // (method, against the full cache)
  for (const auto& [name, curve] : by_method) {
    MethodSummary summary;
    summary.method = name.first;
    summary.variant = name.second;
    summary.budgets = static_cast<int64_t>(curve.lines.size());
    summary.low_ratio = curve.low;
    summary.high_ratio = curve.high;
    std::vector<std::string> left_out;
    for (const size_t i : curve.left_out) {
      left_out.push_back(StrCat(table.lines[i].budget, " (", table.lines[i].not_ranked, ")"));
    }
    summary.left_out = Join(left_out, ", ");
    if (curve.lines.size() < 2) {
      summary.missing =
          StrCat("has ", Counted(std::ssize(curve.lines), "budget"), " with a rank, needs two");
    } else if (curve.low > table.area_range->low || curve.high < table.area_range->high) {
      summary.missing = "its budgets do not cover the range";
    } else {
      std::vector<double> bytes;
      for (const size_t i : curve.lines) bytes.push_back(ratio(i));
      const std::vector<double> weights = Weights(bytes, *table.area_range);
      // Units that every line of the curve in the range has.
      std::vector<std::vector<double>> heights(tasks.size()), deltas(tasks.size());
      for (size_t t = 0; t < tasks.size(); ++t) {
        heights[t].assign(tasks[t]->clusters.size(), 0.0);
        for (size_t k = 0; k < weights.size(); ++k) {
          if (weights[k] == 0) continue;
          const std::vector<double>& scores = lines[curve.lines[k]].parts[t]->scores;
          for (size_t u = 0; u < scores.size(); ++u) heights[t][u] += weights[k] * scores[u];
        }
        const TaskLine* full = reference == kNoLine ? nullptr : lines[reference].parts[t];
        if (!full) continue;
        deltas[t] = heights[t];
        for (size_t u = 0; u < deltas[t].size(); ++u) {
          deltas[t][u] = (deltas[t][u] - full->scores[u]) * (table.lower_is_better ? -1 : 1);
        }
      }
      for (const bool against : {false, true}) {
        MeanColumn column = ColumnOf(tasks, against ? deltas : heights);
        if (column.samples == 0) continue;
        owners.emplace_back(table.methods.size(), against);
        columns.push_back(std::move(column));
      }
      if (owners.empty() || owners.back().first != table.methods.size()) {
        summary.missing = "its budgets share no samples";
      }
    }
    table.methods.push_back(std::move(summary));
  }
  // A height is a mean of scores, with their reach.
  const double reach = AllBetweenZeroAndOne(tasks) ? 1.0 : 0.0;
  const std::vector<ColumnResult> results = ResampleMeans(columns, {.confidence = 1 - options.alpha,
                                                                    .resamples = options.resamples,
                                                                    .seed = options.seed,
                                                                    .reach = reach});
  for (size_t i = 0; i < results.size(); ++i) {
    const auto& [method, against] = owners[i];
    Estimate estimate = results[i].estimate;
    if (reach > 0) ClampInterval(estimate.interval, against ? -1 : 0, 1);
    (against ? table.methods[method].versus_full : table.methods[method].area) = estimate;
  }
  const double sign = table.lower_is_better ? 1 : -1;
  std::ranges::stable_sort(table.methods, {}, [&](const MethodSummary& m) {
    return std::tuple(!m.area, m.area ? sign * m.area->value : 0.0, m.method, m.variant);
  });
}

}  // namespace kvgauge
