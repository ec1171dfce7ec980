// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <tuple>

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

// Of the rows that measured it at all.
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

std::optional<double> MedianRatio(const std::vector<const LatencyRow*>& rows,
                                  const Partners& partners, double LatencyRow::*field) {
  std::vector<double> ratios;
  for (const LatencyRow* row : rows) {
    const auto partner = partners.find(KeyOf(*row));
    if (partner == partners.end() || !(row->*field > 0) || !(partner->second->*field > 0)) continue;
    ratios.push_back(row->*field / partner->second->*field);
  }
  if (ratios.empty()) return std::nullopt;
  return Quantile(std::move(ratios), 0.5);
}

LatencySummary Summarise(const std::vector<const LatencyRow*>& rows, const Partners& partners) {
  LatencySummary s;
  s.isolated = rows[0]->isolated;
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
  if (s.isolated) {
    s.ttft_ratio = MedianRatio(rows, partners, &LatencyRow::ttft_s);
    s.tpot_ratio = MedianRatio(rows, partners, &LatencyRow::tpot_p50_s);
  }
  return s;
}

}  // namespace

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
