// SPDX-License-Identifier: Apache-2.0
#include "reports/leaderboard_split.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "core/decimal.h"
#include "core/json.h"
#include "core/strings.h"
#include "src/store_impl.h"

namespace kvgauge {
namespace {

using Values = std::vector<std::string>;  // of one sample, beside the keys

// Samples of one cell with the same values.
struct Pot {
  int64_t samples = 0;
  double sum = 0;
  std::vector<double> parts;  // sums; empty where some sample has none
  bool even = true;

  void Add(double score, const std::vector<double>& more) {
    if (samples == 0) parts.assign(more.size(), 0.0);
    even = even && more.size() == parts.size();
    for (size_t i = 0; i < more.size() && even; ++i) parts[i] += more[i];
    ++samples;
    sum += score;
  }
};

struct CellPots {
  std::string task, metric;
  std::map<Values, Pot> pots;
  std::set<std::string> seen;  // samples, where several stores may hold one twice
};

std::string MetricOf(const TaskRow& task) {
  const Result<Json> spec = ParseJson(task.spec, "task");
  if (!spec.ok() || !spec->is_object()) return "";
  const auto at = spec->find("metric");
  return at != spec->end() && at->is_string() ? at->get<std::string>() : "";
}

std::optional<Values> ValuesOf(std::string_view facts, const std::vector<std::string>& keys) {
  const Result<Json> json = ParseJson(std::string(facts), "facts");
  if (!json.ok() || !json->is_object()) return std::nullopt;
  Values values;
  for (const std::string& key : keys) {
    const auto at = json->find(key);
    if (at == json->end() || !at->is_string()) return std::nullopt;
    values.push_back(at->get<std::string>());
  }
  return values;
}

bool AsNumber(const std::string& text, double& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size();
}

std::vector<std::string> Sorted(const std::set<std::string>& texts) {
  std::vector<std::string> sorted(texts.begin(), texts.end());
  double number = 0;
  if (!std::ranges::all_of(sorted, [&](const std::string& t) { return AsNumber(t, number); })) {
    return sorted;
  }
  std::ranges::stable_sort(sorted, {}, [](const std::string& text) {
    double value = 0;
    AsNumber(text, value);
    return value;
  });
  return sorted;
}

}  // namespace

Result<std::vector<LeaderboardSplit>> SplitLeaderboard(std::span<ResultStore* const> stores,
                                                       const LeaderboardModel& model,
                                                       const std::vector<std::string>& keys) {
  std::vector<LeaderboardSplit> splits(model.tables.size());
  std::unordered_map<std::string, std::vector<std::string>> wanted;  // cell key -> keys of facts
  for (size_t t = 0; t < model.tables.size(); ++t) {
    splits[t].keys = keys.empty() ? model.tables[t].report_by : keys;
    if (splits[t].keys.size() > 2) splits[t].keys.resize(2);
    if (splits[t].keys.empty()) continue;
    for (const LeaderboardLine& line : model.tables[t].lines) {
      for (const std::string& key : line.cell_keys) wanted[key] = splits[t].keys;
    }
  }
  if (wanted.empty()) return splits;

  std::unordered_map<std::string, CellPots> cells;
  for (ResultStore* store : stores) {
    KVG_ASSIGN(const std::vector<StoredCell> stored, store->Cells());
    std::unordered_map<int64_t, std::pair<CellPots*, const std::vector<std::string>*>> of_id;
    for (const StoredCell& cell : stored) {
      const std::string key = cell.cell.Key();
      const auto at = wanted.find(key);
      if (at == wanted.end()) continue;
      CellPots& pots = cells[key];
      pots.task = cell.cell.task.name;
      pots.metric = MetricOf(cell.cell.task);
      of_id[cell.id] = {&pots, &at->second};
    }
    KVG_TRY(store->VisitFacts([&](int64_t cell, const std::string& sample, std::string_view facts,
                                  double score, const std::vector<double>& parts) {
      const auto at = of_id.find(cell);
      if (at == of_id.end()) return;
      const auto [pots, own_keys] = at->second;
      if (stores.size() > 1 && !pots->seen.insert(sample).second) return;
      const std::optional<Values> values = ValuesOf(facts, *own_keys);
      if (values) pots->pots[*values].Add(score, parts);
    }));
  }

  for (size_t t = 0; t < model.tables.size(); ++t) {
    LeaderboardSplit& split = splits[t];
    if (split.keys.empty()) continue;
    const LeaderboardTable& table = model.tables[t];
    std::vector<std::set<std::string>> found(split.keys.size());
    for (const LeaderboardLine& line : table.lines) {
      for (const std::string& key : line.cell_keys) {
        for (const auto& entry : cells[key].pots) {
          for (size_t k = 0; k < found.size(); ++k) found[k].insert(entry.first[k]);
        }
      }
    }
    for (const auto& set : found) split.values.push_back(Sorted(set));
    const size_t across = split.keys.size() > 1 ? split.values[1].size() : 1;
    for (const LeaderboardLine& line : table.lines) {
      std::vector<SplitScore>& scores = split.lines.emplace_back(split.values[0].size() * across);
      for (size_t i = 0; i < scores.size(); ++i) {
        Values values = {split.values[0][i / across]};
        if (split.keys.size() > 1) values.push_back(split.values[1][i % across]);
        // All seeds of a task in one pot, then the mean over tasks.
        std::map<std::string, std::pair<Pot, std::string>> tasks;
        for (const std::string& key : line.cell_keys) {
          const CellPots& cell = cells[key];
          const auto pot = cell.pots.find(values);
          if (pot == cell.pots.end()) continue;
          auto& [whole, metric] = tasks[cell.task];
          metric = cell.metric;
          if (whole.samples == 0) {
            whole = pot->second;
            continue;
          }
          whole.even =
              whole.even && pot->second.even && whole.parts.size() == pot->second.parts.size();
          for (size_t p = 0; p < whole.parts.size() && whole.even; ++p) {
            whole.parts[p] += pot->second.parts[p];
          }
          whole.samples += pot->second.samples;
          whole.sum += pot->second.sum;
        }
        double sum = 0, reported = 0;
        for (const auto& entry : tasks) {
          const auto& [whole, metric] = entry.second;
          const SumScore set =
              model.options.set_scores ? model.options.set_scores(metric) : SumScore();
          const double score = set && whole.even && !whole.parts.empty()
                                   ? set(whole.parts)
                                   : whole.sum / static_cast<double>(whole.samples);
          sum += score;
          reported += RoundDecimal(table.scale * score, table.digits);
          scores[i].samples += whole.samples;
        }
        if (tasks.empty()) continue;
        scores[i].score = sum / static_cast<double>(tasks.size());
        scores[i].reported = reported / static_cast<double>(tasks.size());
      }
    }
  }
  return splits;
}

}  // namespace kvgauge
