// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "src/distributions.h"
#include "src/leaderboard_data.h"

namespace kvgauge {
namespace {

// By linear interpolation; 0 of nothing.
double Quantile(std::vector<double> values, double p) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const double position = p * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(position);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (position - static_cast<double>(below)) * (values[above] - values[below]);
}

// Reads the rows that measured it at all.
double Quantile(const std::vector<const LatencyRow*>& rows, double LatencyRow::*field, double p) {
  std::vector<double> values;
  for (const LatencyRow* row : rows) {
    if (row->*field > 0) values.push_back(row->*field);
  }
  return Quantile(std::move(values), p);
}

using RowKey = std::tuple<std::string, int64_t, int64_t>;  // run, context tokens, repetition
using Partners = std::map<RowKey, const LatencyRow*>;

RowKey KeyOf(const LatencyRow& row) { return {row.run_key, row.context_tokens, row.repetition}; }

bool Disturbed(const LatencyRow& row) { return row.others_share > LatencyRow::kMaxOthersShare; }

std::optional<double> MedianRatio(const std::vector<const LatencyRow*>& rows,
                                  const Partners& partners, double LatencyRow::*field) {
  std::vector<double> ratios;
  for (const LatencyRow* row : rows) {
    const auto partner = partners.find(KeyOf(*row));
    if (partner == partners.end() || Disturbed(*partner->second)) continue;
    if (!(row->*field > 0) || !(partner->second->*field > 0)) continue;
    ratios.push_back(row->*field / partner->second->*field);
  }
  if (ratios.empty()) return std::nullopt;
  return Quantile(std::move(ratios), 0.5);
}

LatencySummary Summarise(std::vector<const LatencyRow*> rows, const Partners& partners) {
  LatencySummary s;
  s.isolated = rows[0]->isolated;
  if (s.isolated) {
    const auto quiet = [](const LatencyRow* row) { return !Disturbed(*row); };
    s.disturbed = std::ranges::none_of(rows, quiet);
    if (!s.disturbed) {
      s.left_out = static_cast<int64_t>(
          std::erase_if(rows, [&](const LatencyRow* row) { return !quiet(row); }));
    }
  }
  s.count = static_cast<int64_t>(rows.size());
  std::vector<double> lengths;
  for (const LatencyRow* row : rows) {
    lengths.push_back(static_cast<double>(row->context_tokens));
    const double n = static_cast<double>(rows.size());
    s.prefill_s += row->prefill_s / n;
    s.score_s += row->score_s / n;
    s.select_s += row->select_s / n;
    s.compact_s += row->compact_s / n;
    s.quantise_s += row->quantise_s / n;
    s.attend_s += row->attend_s / n;
    s.other_s += row->other_s / n;
    s.vision_s += row->vision_s / n;
    s.resident_bytes += static_cast<double>(row->resident_bytes) / n;
    s.peak_bytes += static_cast<double>(row->peak_bytes) / n;
    s.others_share = std::max(s.others_share, row->others_share);
  }
  s.context_tokens = static_cast<int64_t>(Quantile(std::move(lengths), 0.5));
  s.ttft_s = {Quantile(rows, &LatencyRow::ttft_s, 0.5), Quantile(rows, &LatencyRow::ttft_s, 0.9),
              Quantile(rows, &LatencyRow::ttft_s, 0.99)};
  s.tpot_s = {Quantile(rows, &LatencyRow::tpot_p50_s, 0.5),
              Quantile(rows, &LatencyRow::tpot_p90_s, 0.5),
              Quantile(rows, &LatencyRow::tpot_p99_s, 0.5)};
  if (s.isolated && !s.disturbed) {
    s.ttft_ratio = MedianRatio(rows, partners, &LatencyRow::ttft_s);
    s.tpot_ratio = MedianRatio(rows, partners, &LatencyRow::tpot_p50_s);
  }
  return s;
}

// Undisturbed times of one length, by round; how many were disturbed goes to `disturbed`.
std::map<RowKey, double> QuietTimes(std::span<const LatencyRow> rows, int64_t tokens,
                                    double LatencyRow::*field, int64_t& disturbed) {
  std::map<RowKey, double> times;
  for (const LatencyRow& row : rows) {
    if (!row.isolated || row.context_tokens != tokens || !(row.*field > 0)) continue;
    if (Disturbed(row)) {
      ++disturbed;
    } else {
      times.emplace(KeyOf(row), row.*field);
    }
  }
  return times;
}

// Logarithms of `times` over `base` at the same rounds.
std::vector<double> LogRatios(const std::map<RowKey, double>& times,
                              const std::map<RowKey, double>& base) {
  std::vector<double> logs;
  for (const auto& [key, time] : times) {
    const auto partner = base.find(key);
    if (partner != base.end()) logs.push_back(std::log(time / partner->second));
  }
  return logs;
}

}  // namespace

std::vector<int64_t> CommonLengths(std::span<const LatencyRow> a, std::span<const LatencyRow> b) {
  const auto lengths = [](std::span<const LatencyRow> rows) {
    std::set<int64_t, std::greater<>> found;
    for (const LatencyRow& row : rows) {
      if (row.isolated) found.insert(row.context_tokens);
    }
    return found;
  };
  const auto of_a = lengths(a), of_b = lengths(b);
  std::vector<int64_t> common;
  std::ranges::set_intersection(of_a, of_b, std::back_inserter(common), std::greater<>());
  return common;
}

Evidence CompareTimes(std::span<const LatencyRow> a, std::span<const LatencyRow> b,
                      std::span<const LatencyRow> full, int64_t tokens, double LatencyRow::*field,
                      double alpha, int64_t& disturbed) {
  int64_t in_a = 0, in_b = 0, ignored = 0;
  const std::map<RowKey, double> times_a = QuietTimes(a, tokens, field, in_a);
  const std::map<RowKey, double> times_b = QuietTimes(b, tokens, field, in_b);
  disturbed = std::max(disturbed, in_a + in_b);
  Evidence e;
  std::vector<double> logs = LogRatios(times_a, times_b);  // of a over b: positive is b's gain
  if (!logs.empty()) {
    const Estimate wide = MeasuredMean(logs, 1 - alpha);
    e.value = wide.value;
    e.interval = wide.interval;
    e.equivalence = MeasuredMean(logs, 1 - 2 * alpha).interval;
    e.samples = wide.samples;
    e.test = "paired t of logarithms";
    const double degrees = static_cast<double>(e.samples - 1);
    if (e.samples > 1) {
      e.p = wide.standard_error > 0
                ? 2 * StudentCdf(-std::abs(wide.value) / wide.standard_error, degrees)
            : wide.value == 0 ? 1
                              : 0;
    }
  } else {
    const std::map<RowKey, double> base = QuietTimes(full, tokens, field, ignored);
    const std::vector<double> logs_a = LogRatios(times_a, base), logs_b = LogRatios(times_b, base);
    if (logs_a.empty() || logs_b.empty()) return e;
    const TwoSampleResult wide = WelchTest(logs_b, logs_a, 1 - alpha);
    e.value = wide.difference;
    e.interval = wide.interval;
    e.equivalence = WelchTest(logs_b, logs_a, 1 - 2 * alpha).interval;
    e.samples = static_cast<int64_t>(std::min(logs_a.size(), logs_b.size()));
    e.p = wide.p;
    e.test = "Welch's t of logarithms";
  }
  e.clusters = e.samples;
  e.detectable = std::numeric_limits<double>::infinity();
  if (e.samples < LatencyRow::kLeastRepetitions) {
    e.interval = e.equivalence = {-e.detectable, e.detectable};
    e.p = 1;
  }
  return e;
}

std::vector<LatencySummary> SummariseLatency(std::span<const LatencyRow* const> rows,
                                             std::span<const LatencyRow* const> full) {
  Partners partners;
  for (const LatencyRow* row : full) {
    if (row->isolated) partners.emplace(KeyOf(*row), row);
  }
  std::map<int64_t, std::vector<const LatencyRow*>> isolated;
  std::vector<const LatencyRow*> shared;
  for (const LatencyRow* row : rows) {
    (row->isolated ? isolated[row->context_tokens] : shared).push_back(row);
  }
  std::vector<LatencySummary> summaries;
  for (const auto& entry : isolated) summaries.push_back(Summarise(entry.second, partners));
  if (summaries.empty() && !shared.empty()) summaries.push_back(Summarise(shared, partners));
  return summaries;
}

}  // namespace kvgauge
