// SPDX-License-Identifier: Apache-2.0
#include "src/leaderboard_columns.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace kvgauge {
namespace {

// All scores 0 or 1 and every unit a cluster of its own: how many went up and down says it all.
std::optional<std::pair<int64_t, int64_t>> WonAndLost(const std::vector<const TaskData*>& tasks,
                                                      const DraftLine& a, const DraftLine& b) {
  if (tasks.size() != 1 || tasks[0]->set_score) return std::nullopt;
  if (tasks[0]->cluster_count != tasks[0]->clusters.size()) return std::nullopt;
  const std::vector<double>&before = a.parts[0]->scores, &after = b.parts[0]->scores;
  int64_t won = 0, lost = 0;
  for (size_t u = 0; u < before.size(); ++u) {
    const double x = before[u], y = after[u];
    if (std::isnan(x) || std::isnan(y)) continue;
    if ((x != 0 && x != 1) || (y != 0 && y != 1)) return std::nullopt;
    won += y > x ? 1 : 0;
    lost += y < x ? 1 : 0;
  }
  return std::pair(won, lost);
}

}  // namespace

MeanColumn ColumnOf(const std::vector<const TaskData*>& tasks, const UnitValues& values) {
  MeanColumn column;
  for (size_t t = 0; t < tasks.size(); ++t) {
    const TaskData& task = *tasks[t];
    std::vector<double> sums(task.cluster_count, 0.0), counts(task.cluster_count, 0.0);
    for (size_t u = 0; u < values[t].size(); ++u) {
      if (std::isnan(values[t][u])) continue;
      sums[task.clusters[u]] += values[t][u];
      counts[task.clusters[u]] += 1;
      ++column.samples;
    }
    MeanColumn::Stratum stratum;
    for (size_t c = 0; c < sums.size(); ++c) {
      if (counts[c] == 0) continue;
      stratum.sums.push_back(sums[c]);
      stratum.counts.push_back(counts[c]);
    }
    if (!stratum.sums.empty()) column.strata.push_back(std::move(stratum));
  }
  for (MeanColumn::Stratum& s : column.strata) {
    s.weight = 1 / static_cast<double>(column.strata.size());
  }
  return column;
}

UnitValues PairedValues(const std::vector<const TaskData*>& tasks,
                        std::vector<double> TaskLine::*field, const DraftLine& line,
                        const DraftLine* other, double sign) {
  UnitValues values(tasks.size());
  for (size_t t = 0; t < tasks.size(); ++t) {
    if (!line.parts[t] || (other && !other->parts[t])) continue;
    values[t] = line.parts[t]->*field;
    for (size_t u = 0; u < values[t].size(); ++u) {
      if (other) values[t][u] -= (other->parts[t]->*field)[u];
      values[t][u] *= sign;
    }
  }
  return values;
}

UnitValues CommonScores(const std::vector<const TaskData*>& tasks, const DraftLine& line,
                        const DraftLine* other) {
  UnitValues values(tasks.size());
  for (size_t t = 0; t < tasks.size(); ++t) {
    if (!line.parts[t] || (other && !other->parts[t])) continue;
    const TaskLine& own = *line.parts[t];
    values[t] = own.scores;
    if (!other) continue;
    const std::vector<double>& theirs = other->parts[t]->scores;
    std::vector<bool> common(theirs.size());
    bool alike = true;
    for (size_t u = 0; u < theirs.size(); ++u) {
      common[u] = !std::isnan(own.scores[u]) && !std::isnan(theirs[u]);
      alike = alike && common[u] == !std::isnan(own.scores[u]);
      if (!common[u]) values[t][u] = std::numeric_limits<double>::quiet_NaN();
    }
    if (alike || !tasks[t]->set_score) continue;
    values[t] = SetValues(own.parts, tasks[t]->part_count, tasks[t]->set_score, common);
  }
  return values;
}

UnitValues PairedScores(const std::vector<const TaskData*>& tasks, const DraftLine& line,
                        const DraftLine* other, double sign) {
  UnitValues values = CommonScores(tasks, line, other);
  const UnitValues theirs = other ? CommonScores(tasks, *other, &line) : UnitValues();
  for (size_t t = 0; t < values.size(); ++t) {
    for (size_t u = 0; u < values[t].size(); ++u) {
      if (other) values[t][u] -= theirs[t][u];
      values[t][u] *= sign;
    }
  }
  return values;
}

MeanColumn ScoreColumn(const std::vector<const TaskData*>& tasks, const DraftLine& line,
                       const DraftLine* other, double sign) {
  return ColumnOf(tasks, PairedScores(tasks, line, other, sign));
}

double PairedP(const std::vector<const TaskData*>& tasks, const DraftLine& a, const DraftLine& b,
               const MeanColumn& differences, std::string& test) {
  if (const auto counts = WonAndLost(tasks, a, b)) {
    test = "exact McNemar";
    return McNemarExact(counts->first, counts->second);
  }
  test = "sign flips of clusters";
  std::vector<double> terms;
  std::vector<int64_t> numbers;
  for (const MeanColumn::Stratum& s : differences.strata) {
    const double count = std::accumulate(s.counts.begin(), s.counts.end(), 0.0);
    for (const double sum : s.sums) {
      terms.push_back(s.weight * sum / count);
      numbers.push_back(static_cast<int64_t>(numbers.size()));
    }
  }
  return SignFlipTest(terms, numbers);
}

int64_t Differing(const MeanColumn& differences) {
  int64_t differing = 0;
  for (const MeanColumn::Stratum& s : differences.strata) {
    differing += std::ranges::count_if(s.sums, [](double sum) { return sum != 0; });
  }
  return differing;
}

bool AllBetweenZeroAndOne(const std::vector<const TaskData*>& tasks) {
  for (const TaskData* task : tasks) {
    if (task->set_score) return false;
    for (const TaskLine& line : task->lines) {
      for (const double score : line.scores) {
        if (score < 0 || score > 1) return false;
      }
    }
  }
  return true;
}

Evidence EvidenceOf(const ColumnResult& result, double reach, double alpha) {
  Evidence e;
  e.value = result.estimate.value;
  e.interval = result.estimate.interval;
  e.equivalence = result.equivalence;
  if (reach > 0) ClampInterval(e.interval, -1, 1);
  e.detectable = MinimumDetectableEffect(result.estimate, reach, alpha);
  e.samples = result.estimate.samples;
  e.clusters = result.estimate.clusters;
  return e;
}

void ClampInterval(Interval& interval, double low, double high) {
  if (std::isinf(interval.low) || std::isinf(interval.high)) return;
  interval = {std::max(interval.low, low), std::min(interval.high, high)};
}

}  // namespace kvgauge
