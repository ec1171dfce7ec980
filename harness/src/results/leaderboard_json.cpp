// SPDX-License-Identifier: Apache-2.0
#include "src/results/leaderboard_json.h"

#include <cmath>

#include "core/json.h"
#include "src/cli/print.h"
#include "src/results/draw_tables.h"
#include "src/results/leaderboard_fields.h"

namespace kvgauge {
namespace {

Json ToJson(const Estimate& e) {
  return {{"value", FiniteOrNull(e.value)},
          {"low", FiniteOrNull(e.interval.low)},
          {"high", FiniteOrNull(e.interval.high)},
          {"samples", e.samples},
          {"contexts", e.clusters}};
}

Json ToJson(const std::optional<Estimate>& e) { return e ? ToJson(*e) : Json(); }

Json ToJson(const LatencySummary& s) {
  const auto percentiles = [](const Percentiles& p) {
    return Json{{"p50", p.p50}, {"p90", p.p90}, {"p99", p.p99}};
  };
  Json json = {{"isolated", s.isolated},
               {"context_tokens", s.context_tokens},
               {"count", s.count},
               {"left_out", s.left_out},
               {"disturbed", s.disturbed},
               {"ttft_s", percentiles(s.ttft_s)},
               {"tpot_s", percentiles(s.tpot_s)},
               {"vision_s", s.vision_s},
               {"prefill_s", s.prefill_s},
               {"score_s", s.score_s},
               {"select_s", s.select_s},
               {"compact_s", s.compact_s},
               {"quantise_s", s.quantise_s},
               {"attend_s", s.attend_s},
               {"other_s", s.other_s},
               {"peak_bytes", s.peak_bytes},
               {"resident_bytes", s.resident_bytes},
               {"others_share", s.others_share}};
  if (s.ttft_ratio) json["ttft_ratio"] = *s.ttft_ratio;
  if (s.tpot_ratio) json["tpot_ratio"] = *s.tpot_ratio;
  return json;
}

Json ToJson(const LeaderboardSplit& split) {
  Json lines = Json::array();
  for (const std::vector<SplitScore>& line : split.lines) {
    Json scores = Json::array(), reported = Json::array(), samples = Json::array();
    for (const SplitScore& cell : line) {
      scores.push_back(FiniteOrNull(cell.score));
      reported.push_back(FiniteOrNull(cell.reported));
      samples.push_back(cell.samples);
    }
    lines.push_back({{"scores", scores}, {"reported", reported}, {"samples", samples}});
  }
  return {{"keys", split.keys}, {"values", split.values}, {"rows", lines}};
}

Json ToJson(const LeaderboardTable& table, const LeaderboardSplit& split,
            const std::vector<std::string>& fields) {
  Json lines = Json::array(), methods = Json::array();
  for (const LeaderboardLine& line : table.lines) {
    Json row = Json::object();
    for (const std::string& id : fields.empty() ? LeaderboardFields() : fields) {
      row[id] = FieldOf(table, line, id);
    }
    if (fields.empty()) {
      row["cells"] = line.cell_keys;
      row["latency"] = Json::array();
      for (const LatencySummary& s : line.latency) row["latency"].push_back(ToJson(s));
    }
    lines.push_back(std::move(row));
  }
  for (const MethodSummary& m : table.methods) {
    methods.push_back({{"method", m.method},
                       {"variant", m.variant},
                       {"budgets", m.budgets},
                       {"low_ratio", m.low_ratio},
                       {"high_ratio", m.high_ratio},
                       {"area", ToJson(m.area)},
                       {"delta", ToJson(m.versus_full)},
                       {"missing", m.missing},
                       {"left_out", m.left_out}});
  }
  Json json = {{"model", table.model},
               {"fingerprint", table.model_fingerprint},
               {"task", table.task},
               {"tasks", table.task_names},
               {"compress_at", table.compress_at},
               {"signatures", table.signatures},
               {"metric", table.metric},
               {"scale", table.scale},
               {"lower_is_better", table.lower_is_better},
               {"corrected_over", table.corrected_over},
               {"rows", lines},
               {"methods", methods},
               {"notes", table.notes}};
  if (!split.empty()) json["split"] = ToJson(split);
  if (table.area_range) json["area_range"] = {table.area_range->low, table.area_range->high};
  return json;
}

}  // namespace

Json LeaderboardToJson(const LeaderboardModel& model, const std::vector<LeaderboardSplit>& splits,
                       const std::vector<DrawTable>& draws, const std::vector<std::string>& stores,
                       const std::vector<std::string>& fields) {
  Json tables = Json::array();
  for (size_t i = 0; i < model.tables.size(); ++i) {
    Json& table = tables.emplace_back(ToJson(model.tables[i], splits[i], fields));
    if (!draws[i].empty()) table["drawn"] = DrawsJson(model.tables[i], draws[i]);
  }
  return {{"stores", stores},
          {"samples", model.samples},
          {"comparisons", model.comparisons},
          {"alpha", model.options.alpha},
          {"margin", model.options.margin},
          {"resamples", model.options.resamples},
          {"seed", model.options.seed},
          {"tables", tables}};
}

}  // namespace kvgauge
