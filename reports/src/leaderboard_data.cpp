// SPDX-License-Identifier: Apache-2.0
#include "src/leaderboard_data.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <unordered_map>

#include "core/json.h"
#include "core/strings.h"
#include "src/token_bytes.h"

namespace kvgauge {
namespace {

// Times of samples say roughly where time goes; no more are read of a file.
constexpr int64_t kMostSharedTimes = 100000;
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// A cell over all stores that hold it; rows refer to items and reasons of the union.
struct UnionCell {
  StoredCell stored;
  std::vector<SampleTable::Row> rows;
  std::vector<size_t> origins;  // beside rows: which store
  std::vector<LatencyRow> latency;
  bool shared = false;  // several stores hold samples of it
};

struct Union {
  std::vector<SampleTable::Item> items;
  std::vector<std::string> reasons;
  std::vector<double> parts;
  std::vector<UnionCell> cells;  // in the order of Cells() of the first store, then the next
};

// A sample that several stores hold counts once; a success goes before what is none.
Status DropRepeats(const Union& all, UnionCell& cell, std::span<ResultStore* const> stores) {
  std::map<std::string, size_t> place;
  std::vector<SampleTable::Row> rows;
  std::vector<size_t> origins;
  for (size_t i = 0; i < cell.rows.size(); ++i) {
    const SampleTable::Row& row = cell.rows[i];
    const std::string& id = all.items[row.item].sample_id;
    const auto [at, added] = place.try_emplace(id, rows.size());
    if (added) {
      rows.push_back(row);
      origins.push_back(cell.origins[i]);
      continue;
    }
    SampleTable::Row& held = rows[at->second];
    if (row.status != SampleStatus::kOk) continue;
    if (held.status == SampleStatus::kOk) {
      const bool equal =
          held.item == row.item &&
          (held.score == row.score || (std::isnan(held.score) && std::isnan(row.score)));
      if (equal) continue;
      return BadInput(StrCat(stores[cell.origins[i]]->path(), ": sample ", Quoted(id), " of ",
                             cell.stored.cell.method.name, " at ", cell.stored.cell.budget,
                             " differs from the one in ", stores[origins[at->second]]->path(),
                             ", expected equal results of one cell"));
    }
    held = row;
    origins[at->second] = cell.origins[i];
  }
  cell.rows = std::move(rows);
  return {};
}

Result<Union> ReadUnion(std::span<ResultStore* const> stores, bool latency) {
  Union all;
  all.reasons.emplace_back();
  std::map<std::string, size_t> cell_of_key;
  std::unordered_map<std::string, uint32_t> items;
  for (size_t s = 0; s < stores.size(); ++s) {
    KVG_ASSIGN(const std::vector<StoredCell> cells, stores[s]->Cells());
    std::unordered_map<int64_t, size_t> place;
    for (const StoredCell& stored : cells) {
      const auto [at, added] = cell_of_key.try_emplace(stored.cell.Key(), all.cells.size());
      if (added) all.cells.push_back({stored, {}, {}, {}, false});
      place[stored.id] = at->second;
    }
    KVG_ASSIGN(SampleTable table, stores[s]->Samples());
    // The first store's numbers are the union's.
    std::vector<uint32_t> renumbered(table.items.size());
    for (size_t i = 0; i < table.items.size(); ++i) {
      renumbered[i] = static_cast<uint32_t>(i);
      if (stores.size() == 1) continue;
      const SampleTable::Item& item = table.items[i];
      const std::string spelling = Join({item.sample_id, item.group, item.hash}, {"\0", 1});
      const auto at = items.try_emplace(spelling, static_cast<uint32_t>(all.items.size()));
      if (at.second) all.items.push_back(item);
      renumbered[i] = at.first->second;
    }
    if (stores.size() == 1) all.items = std::move(table.items);
    const auto first_reason = static_cast<uint32_t>(all.reasons.size() - 1);
    all.reasons.insert(all.reasons.end(), table.reasons.begin() + 1, table.reasons.end());
    const size_t first_part = all.parts.size();
    all.parts.insert(all.parts.end(), table.parts.begin(), table.parts.end());
    for (SampleTable::Row& row : table.rows) {
      row.parts_at += first_part;
      const auto at = place.find(row.cell);
      if (at == place.end()) continue;  // a run added it since the cells were read
      UnionCell& cell = all.cells[at->second];
      row.item = renumbered[row.item];
      if (row.reason > 0) row.reason += first_reason;
      cell.shared = cell.shared || (!cell.origins.empty() && cell.origins[0] != s);
      cell.rows.push_back(row);
      cell.origins.push_back(s);
    }
    if (!latency) continue;
    KVG_TRY(stores[s]->VisitLatency(kMostSharedTimes, [&](int64_t cell, const LatencyRow& row) {
      const auto at = place.find(cell);
      if (at != place.end()) all.cells[at->second].latency.push_back(row);
    }));
  }
  for (UnionCell& cell : all.cells) {
    if (!cell.shared) continue;
    KVG_TRY(DropRepeats(all, cell, stores));
    std::ranges::stable_sort(cell.rows, {}, &SampleTable::Row::position);
  }
  return all;
}

// What a task's file says of how its scores are shown. Files of other programs' tasks may say
// nothing.
void ReadTaskSpec(const TaskRow& row, TaskData& task) {
  task.task = row.name;
  const size_t slash = row.name.find('/');
  task.group = slash == std::string::npos ? row.name : row.name.substr(0, slash);
  task.lower_is_better = row.lower_is_better;
  const Result<Json> spec = ParseJson(row.spec, "task");
  if (!spec.ok() || !spec->is_object()) return;
  const auto text = [&](const char* key, std::string& out) {
    const auto at = spec->find(key);
    if (at != spec->end() && at->is_string()) out = at->get<std::string>();
  };
  text("group", task.group);
  text("metric", task.metric);
  const auto report = spec->find("report");
  if (report == spec->end() || !report->is_object()) return;
  const auto scale = report->find("scale"), digits = report->find("digits");
  const auto by = report->find("by");
  if (by != report->end() && by->is_array()) {
    for (const Json& key : *by) {
      if (key.is_string()) task.report_by.push_back(key.get<std::string>());
    }
  }
  if (scale != report->end() && scale->is_number() && scale->get<double>() > 0) {
    task.scale = scale->get<double>();
  }
  if (digits != report->end() && digits->is_number_integer()) task.digits = digits->get<int>();
}

// Numbers the (seed, sample) of a task's lines, and their clusters. Samples of one context are one
// cluster under all seeds when the seeds share samples, else one for each seed.
class Units {
 public:
  Units(const Union& all, const std::vector<const UnionCell*>& cells) {
    std::unordered_map<uint32_t, int64_t> seed_of_item;
    std::unordered_map<std::string, bool> repeated;  // group -> several seeds hold a sample of it
    bool seeds_differ = false;
    for (const UnionCell* cell : cells) {
      seeds_differ = seeds_differ || cell->stored.cell.seed != cells[0]->stored.cell.seed;
    }
    if (seeds_differ) {
      for (const UnionCell* cell : cells) {
        const int64_t seed = cell->stored.cell.seed;
        for (const SampleTable::Row& row : cell->rows) {
          const auto at = seed_of_item.try_emplace(row.item, seed);
          if (at.first->second != seed) repeated[all.items[row.item].group] = true;
        }
      }
    }
    std::map<std::pair<std::string, int64_t>, uint32_t> cluster_numbers;
    for (const UnionCell* cell : cells) {
      const int64_t seed = cell->stored.cell.seed;
      std::vector<int32_t>& numbers = of_seed_[seed];
      numbers.resize(all.items.size(), -1);
      for (const SampleTable::Row& row : cell->rows) {
        if (numbers[row.item] >= 0) continue;
        numbers[row.item] = static_cast<int32_t>(items_.size());
        items_.push_back(row.item);
        const std::string& group = all.items[row.item].group;
        const int64_t key = repeated.contains(group) ? 0 : seed;
        const auto next = static_cast<uint32_t>(cluster_numbers.size());
        clusters_.push_back(cluster_numbers.try_emplace({group, key}, next).first->second);
      }
    }
    cluster_count_ = static_cast<uint32_t>(cluster_numbers.size());
  }

  size_t count() const { return items_.size(); }
  const std::vector<uint32_t>& clusters() const { return clusters_; }
  uint32_t cluster_count() const { return cluster_count_; }
  // -1: no cell holds it.
  int32_t Of(int64_t seed, uint32_t item) const { return of_seed_.at(seed)[item]; }
  std::vector<int64_t> seeds() const {
    std::vector<int64_t> seeds;
    for (const auto& entry : of_seed_) seeds.push_back(entry.first);
    return seeds;
  }

 private:
  std::map<int64_t, std::vector<int32_t>> of_seed_;
  std::vector<uint32_t> items_, clusters_;
  uint32_t cluster_count_ = 0;
};

// Sums first, then means.
void AddBytes(const SampleTable::Row& row, double full_token_bytes, bool has_cache,
              ByteSummary& bytes, double& tokens) {
  if (row.logical_bytes < 0 || row.full_bytes < 0 || (has_cache && row.full_bytes == 0)) return;
  ++bytes.samples;
  // A record without its counts of memory, as a small baseline is, has these two at -1.
  bytes.nominal += static_cast<double>(std::max<int64_t>(row.nominal_bytes, 0));
  bytes.logical += static_cast<double>(row.logical_bytes);
  bytes.resident += static_cast<double>(std::max<int64_t>(row.resident_bytes, 0));
  bytes.full += static_cast<double>(row.full_bytes);
  bytes.host += static_cast<double>(row.host_bytes);
  tokens += HeldTokens(static_cast<double>(row.full_bytes), full_token_bytes,
                       static_cast<double>(row.tokens_in));
}

void Finish(ByteSummary& b, double tokens) {
  if (b.samples == 0) return;
  // A model without a cache keeps all of nothing.
  b.nominal_ratio = b.full > 0 ? b.nominal / b.full : 1;
  b.logical_ratio = b.full > 0 ? b.logical / b.full : 1;
  b.resident_ratio = b.full > 0 ? b.resident / b.full : 1;
  b.host_ratio = b.full > 0 ? b.host / b.full : 0;
  if (tokens > 0) {
    b.nominal_per_token = b.nominal / tokens;
    b.logical_per_token = b.logical / tokens;
    b.resident_per_token = b.resident / tokens;
    b.host_per_token = b.host / tokens;
  }
  for (double* sum : {&b.nominal, &b.logical, &b.resident, &b.full, &b.host}) {
    *sum /= static_cast<double>(b.samples);
  }
}

void CopyParts(const Union& all, const SampleTable::Row& row, const TaskData& task, size_t unit,
               TaskLine& line) {
  if (!task.set_score || row.part_count != task.part_count) return;
  std::copy_n(all.parts.begin() + static_cast<std::ptrdiff_t>(row.parts_at), task.part_count,
              line.parts.begin() + static_cast<std::ptrdiff_t>(unit * task.part_count));
}

void FillLine(const Union& all, const std::vector<const UnionCell*>& cells, const Units& units,
              const TaskData& task, TaskLine& line) {
  line.scores.assign(units.count(), kNone);
  line.parts.assign(units.count() * task.part_count, kNone);
  line.log_bytes = line.scores;
  double tokens = 0;
  for (const UnionCell* cell : cells) {
    line.cells.push_back(cell->stored);
    line.latency.insert(line.latency.end(), cell->latency.begin(), cell->latency.end());
    const std::string& facts = cell->stored.cell.model.facts;
    const double full_token_bytes = FullTokenBytes(facts);
    const bool has_cache = full_token_bytes > 0 || StateBytes(facts) == 0;
    for (const SampleTable::Row& row : cell->rows) {
      ++line.samples;
      line.not_engaged += row.engagement == EngagementMark::kNotEngaged ? 1 : 0;
      if (row.status != SampleStatus::kOk) {
        ++(row.status == SampleStatus::kFailed ? line.failed : line.skipped);
        ++line.troubles[all.reasons[row.reason]];
        continue;
      }
      ++line.ok;
      const auto unit = static_cast<size_t>(units.Of(cell->stored.cell.seed, row.item));
      line.scores[unit] = row.score;
      line.scored += std::isnan(row.score) ? 0 : 1;
      CopyParts(all, row, task, unit, line);
      if (row.logical_bytes > 0) {
        line.log_bytes[unit] = std::log(static_cast<double>(row.logical_bytes));
      }
      AddBytes(row, full_token_bytes, has_cache, line.bytes, tokens);
      if (!std::isnan(row.kl_divergence)) line.kl_divergence.Add(row.kl_divergence);
      if (!std::isnan(row.read_share)) line.read_share.Add(row.read_share);
      if (!std::isnan(row.fetched_per_step)) line.fetched_per_step.Add(row.fetched_per_step);
      if (!std::isnan(row.top1_agreement)) line.top1_agreement.Add(row.top1_agreement);
    }
  }
  Finish(line.bytes, tokens);
}

// The full cache's answers depend on the sample alone where the seed changes none of its content:
// seeds at which it was not run take the score of the same content under another.
void SpreadFullCache(const Union& all, const std::vector<const UnionCell*>& cells,
                     const Units& units, const TaskData& task, TaskLine& line) {
  for (const int64_t seed : units.seeds()) {
    const bool run = std::ranges::any_of(
        cells, [&](const UnionCell* cell) { return cell->stored.cell.seed == seed; });
    if (run) continue;
    for (const UnionCell* cell : cells) {
      for (const SampleTable::Row& row : cell->rows) {
        const int32_t unit = units.Of(seed, row.item);
        if (unit >= 0 && row.status == SampleStatus::kOk) {
          line.scores[static_cast<size_t>(unit)] = row.score;
          CopyParts(all, row, task, static_cast<size_t>(unit), line);
        }
      }
    }
  }
}

// Lines of a table: cells that differ in nothing but the seed. A second cell for one seed differs
// in something else that can move a number, and is a line of its own.
std::vector<std::vector<const UnionCell*>> LinesOf(const std::vector<const UnionCell*>& cells,
                                                   std::vector<std::string>& notes) {
  using Key = std::tuple<std::string, std::string, std::string, int64_t, std::string, int>;
  std::map<Key, size_t> place;
  std::vector<std::vector<const UnionCell*>> lines;
  for (const UnionCell* cell : cells) {
    const CellRow& c = cell->stored.cell;
    for (int twin = 0;; ++twin) {
      const Key key = {c.method.name,    c.method.variant, c.budget,
                       c.method.version, c.method.spec,    twin};
      const auto [at, added] = place.try_emplace(key, lines.size());
      if (added) lines.emplace_back();
      std::vector<const UnionCell*>& line = lines[at->second];
      const bool taken = std::ranges::any_of(
          line, [&](const UnionCell* other) { return other->stored.cell.seed == c.seed; });
      if (taken) continue;
      if (twin > 0 && line.empty()) {
        notes.push_back(StrCat(c.method.name, " at ", c.budget,
                               " was recorded more than once for a seed, with other inputs; each "
                               "is a row of its own"));
      }
      line.push_back(cell);
      break;
    }
  }
  return lines;
}

// The score of a set where it is no mean. Records of a version that kept no parts have means only.
void ReadSetScore(const std::vector<const UnionCell*>& cells, const SumScores& set_scores,
                  TaskData& task) {
  if (!set_scores) return;
  const SumScore score = set_scores(task.metric);
  if (!score) return;
  for (const UnionCell* cell : cells) {
    for (const SampleTable::Row& row : cell->rows) {
      if (row.status != SampleStatus::kOk || std::isnan(row.score)) continue;
      if (task.part_count == 0) task.part_count = row.part_count;
      if (row.part_count == task.part_count && row.part_count > 0) continue;
      task.part_count = 0;
      task.notes.push_back(
          StrCat(task.task, ": scores are means over samples; ", task.metric,
                 " of the set needs what each adds to it, which was not recorded"));
      return;
    }
  }
  if (task.part_count > 0) task.set_score = score;
}

TaskData MakeTask(const Union& all, const std::vector<const UnionCell*>& cells,
                  const SumScores& set_scores) {
  TaskData task;
  const CellRow& first = cells[0]->stored.cell;
  task.model = first.model.name;
  task.model_fingerprint = first.model.fingerprint;
  task.compress_at = first.compress_at;
  task.signature_key = cells[0]->stored.signature_key;
  task.signature = first.signature;
  ReadTaskSpec(first.task, task);
  if (const double states = StateBytes(first.model.facts); states > 0) {
    task.notes.push_back(StrCat(task.model, ": a sequence also has states of ",
                                HumanBytes(static_cast<int64_t>(states)), ", however long it is; ",
                                FullTokenBytes(first.model.facts) > 0
                                    ? "bytes are those of the cache beside them"
                                    : "it has no cache, so a token adds 0 bytes"));
  }
  ReadSetScore(cells, set_scores, task);
  // Draws depend on the seed.
  const bool drawn = DrawnByOf(task.signature).has_value();
  const Units units(all, cells);
  task.clusters = units.clusters();
  task.cluster_count = units.cluster_count();
  for (const std::vector<const UnionCell*>& line : LinesOf(cells, task.notes)) {
    TaskLine& made = task.lines.emplace_back();
    FillLine(all, line, units, task, made);
    if (line[0]->stored.cell.method.full_cache && !drawn)
      SpreadFullCache(all, line, units, task, made);
    if (task.set_score) made.scores = SetValues(made.parts, task.part_count, task.set_score);
  }
  return task;
}

// Tasks that were run under several signatures say so.
void NoteSignatures(std::vector<TaskData>& tasks) {
  for (TaskData& task : tasks) {
    for (const TaskData& other : tasks) {
      if (&task == &other || task.model != other.model || task.task != other.task ||
          task.compress_at != other.compress_at) {
        continue;
      }
      task.notes.push_back(StrCat("also run under signature ", other.signature_key.substr(0, 8),
                                  ", not compared with this one (", task.signature_key.substr(0, 8),
                                  "): they differ in ",
                                  DifferingSignatureKeys(task.signature, other.signature)));
    }
  }
}

}  // namespace

Result<LeaderboardData> ReadLeaderboardData(std::span<ResultStore* const> stores, bool latency,
                                            const SumScores& set_scores) {
  KVG_ASSIGN(const Union all, ReadUnion(stores, latency));
  std::map<std::tuple<std::string, std::string, std::string, std::string>,
           std::vector<const UnionCell*>>
      tables;
  LeaderboardData data;
  for (const UnionCell& cell : all.cells) {
    if (cell.rows.empty() && cell.latency.empty()) continue;  // planned, and nothing came of it yet
    const CellRow& c = cell.stored.cell;
    tables[{c.model.name, c.task.name, c.compress_at, cell.stored.signature_key}].push_back(&cell);
    data.samples += static_cast<int64_t>(cell.rows.size());
  }
  for (const auto& entry : tables) {
    data.tasks.push_back(MakeTask(all, entry.second, set_scores));
  }
  NoteSignatures(data.tasks);
  return data;
}

std::string DifferingSignatureKeys(const std::string& a, const std::string& b) {
  const Result<Json> left = ParseJson(a, "signature"), right = ParseJson(b, "signature");
  if (!left.ok() || !right.ok() || !left->is_object() || !right->is_object()) return "all";
  std::vector<std::string> keys;
  for (const Json& step : Json::diff(*left, *right)) {
    std::string path = step["path"].get<std::string>();
    std::ranges::replace(path, '/', '.');
    keys.push_back(path.empty() ? "all" : path.substr(1));
  }
  return Join(keys, ", ");
}

}  // namespace kvgauge
