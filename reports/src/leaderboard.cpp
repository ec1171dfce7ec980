// SPDX-License-Identifier: Apache-2.0
#include "reports/leaderboard.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "core/check.h"
#include "core/counted.h"
#include "core/decimal.h"
#include "core/strings.h"
#include "src/leaderboard_columns.h"
#include "src/leaderboard_data.h"
#include "src/resampling.h"

namespace kvgauge {
namespace {

// A table before statistics: its tasks, and each line's place in them.
struct Draft {
  std::vector<const TaskData*> tasks;
  std::vector<DraftLine> lines;
  size_t reference = kNoLine;  // the full cache
  LeaderboardTable table;
};

// Means over tasks of what each task says of its samples.
void MergeBytes(const DraftLine& line, ByteSummary& out) {
  int64_t tasks = 0;
  double* const to[] = {&out.nominal,
                        &out.logical,
                        &out.resident,
                        &out.full,
                        &out.nominal_ratio,
                        &out.logical_ratio,
                        &out.resident_ratio,
                        &out.nominal_per_token,
                        &out.logical_per_token,
                        &out.resident_per_token,
                        &out.host,
                        &out.host_ratio,
                        &out.host_per_token};
  for (const TaskLine* part : line.parts) {
    if (!part || part->bytes.samples == 0) continue;
    const ByteSummary& b = part->bytes;
    const double from[] = {b.nominal,
                           b.logical,
                           b.resident,
                           b.full,
                           b.nominal_ratio,
                           b.logical_ratio,
                           b.resident_ratio,
                           b.nominal_per_token,
                           b.logical_per_token,
                           b.resident_per_token,
                           b.host,
                           b.host_ratio,
                           b.host_per_token};
    for (size_t i = 0; i < std::size(from); ++i) *to[i] += from[i];
    out.samples += b.samples;
    ++tasks;
  }
  for (double* sum : to) *sum = tasks > 0 ? *sum / static_cast<double>(tasks) : 0;
}

std::optional<double> MergeTally(const DraftLine& line, TaskTally TaskLine::*field) {
  TaskTally tasks;
  for (const TaskLine* part : line.parts) {
    const std::optional<double> mean = part ? (part->*field).Mean() : std::nullopt;
    if (mean) tasks.Add(*mean);
  }
  return tasks.Mean();
}

// Everything of a line that needs no other line.
LeaderboardLine Describe(const DraftLine& draft) {
  LeaderboardLine line;
  std::map<std::string, int64_t> troubles;
  std::set<int64_t> seeds;
  line.tasks = 0;
  for (const TaskLine* part : draft.parts) {
    if (!part) continue;
    const CellRow& cell = part->cells[0].cell;
    line.method = cell.method;
    line.budget = cell.budget;
    line.budget_kind = cell.budget_kind;
    line.budget_value = cell.budget_value;
    line.tasks += part->samples > 0 ? 1 : 0;
    for (const StoredCell& stored : part->cells) {
      seeds.insert(stored.cell.seed);
      line.cell_keys.push_back(stored.cell.Key());
    }
    line.samples += part->samples;
    line.ok += part->ok;
    line.failed += part->failed;
    line.skipped += part->skipped;
    line.not_engaged += part->not_engaged;
    line.scored += part->scored;
    for (const auto& [reason, count] : part->troubles) troubles[reason] += count;
  }
  line.seeds.assign(seeds.begin(), seeds.end());
  const auto most =
      std::ranges::max_element(troubles, {}, [](const auto& entry) { return entry.second; });
  if (most != troubles.end()) line.trouble = most->first;
  MergeBytes(draft, line.bytes);
  line.kl_divergence = MergeTally(draft, &TaskLine::kl_divergence);
  line.top1_agreement = MergeTally(draft, &TaskLine::top1_agreement);
  line.read_share = MergeTally(draft, &TaskLine::read_share);
  line.fetched_per_step = MergeTally(draft, &TaskLine::fetched_per_step);
  return line;
}

Draft StartDraft(const std::vector<const TaskData*>& tasks) {
  Draft draft;
  draft.tasks = tasks;
  LeaderboardTable& table = draft.table;
  const TaskData& first = *tasks[0];
  table.model = first.model;
  table.model_fingerprint = first.model_fingerprint;
  table.compress_at = first.compress_at;
  table.metric = first.metric;
  table.scale = first.scale;
  table.digits = first.digits;
  table.lower_is_better = first.lower_is_better;
  table.report_by = first.report_by;
  table.drawn = DrawnByOf(first.signature);
  using Key = std::tuple<std::string, std::string, std::string, int64_t, std::string, int>;
  std::map<Key, size_t> place;
  for (size_t t = 0; t < tasks.size(); ++t) {
    const TaskData& task = *tasks[t];
    table.task_names.push_back(task.task);
    table.signatures.push_back(task.signature_key);
    if (task.metric != table.metric) table.metric = "several";
    if (task.report_by != table.report_by) table.report_by.clear();
    if (table.drawn && DrawnByOf(task.signature) != table.drawn) {
      table.drawn.reset();
      table.notes.emplace_back("answers of its tasks were chosen in different ways");
    }
    for (const std::string& note : task.notes) {
      // That of a model is one of each of its tasks.
      const bool of_model = note.starts_with(StrCat(task.model, ": "));
      if (of_model && std::ranges::find(table.notes, note) != table.notes.end()) continue;
      table.notes.push_back(note);
    }
    std::map<Key, int> twins;
    for (const TaskLine& line : task.lines) {
      const CellRow& c = line.cells[0].cell;
      Key key = {c.method.name, c.method.variant, c.budget, c.method.version, c.method.spec, 0};
      std::get<5>(key) = twins[key]++;
      const auto [at, added] = place.try_emplace(key, draft.lines.size());
      if (added) draft.lines.push_back({std::vector<const TaskLine*>(tasks.size(), nullptr)});
      draft.lines[at->second].parts[t] = &line;
    }
  }
  for (const DraftLine& line : draft.lines) table.lines.push_back(Describe(line));
  // The reference holds most of the full cache's scores.
  for (size_t i = 0; i < table.lines.size(); ++i) {
    if (!table.lines[i].method.full_cache || table.lines[i].scored == 0) continue;
    if (draft.reference == kNoLine || table.lines[i].scored > table.lines[draft.reference].scored) {
      draft.reference = i;
    }
  }
  return draft;
}

// Why a line cannot be compared with the full cache; "" when it can.
std::string Obstacle(const Draft& draft, size_t line) {
  const LeaderboardLine& row = draft.table.lines[line];
  if (row.method.full_cache && line == draft.reference) return "it is the full cache";
  if (draft.reference == kNoLine) return "the full cache was not run under this signature";
  if (row.scored == 0) return row.samples == 0 ? "no samples yet" : "nothing is scored";
  return "";
}

// Each task's scores are added up in the order of its samples and scaled before they are divided,
// as LongBench's own code does: the last printed digit can depend on it.
double ReportedScore(const Draft& draft, const DraftLine& line) {
  double sum = 0;
  int64_t tasks = 0;
  for (size_t t = 0; t < draft.tasks.size(); ++t) {
    if (!line.parts[t]) continue;
    double total = 0;
    int64_t count = 0;
    for (const double score : line.parts[t]->scores) {
      if (std::isnan(score)) continue;
      total += score;
      ++count;
    }
    if (count == 0) continue;
    const TaskData& task = *draft.tasks[t];
    sum += RoundDecimal(task.scale * total / static_cast<double>(count), task.digits);
    ++tasks;
  }
  return tasks > 0 ? sum / static_cast<double>(tasks) : 0;
}

void AddStatistics(Draft& draft, const LeaderboardOptions& options) {
  LeaderboardTable& table = draft.table;
  const double reach = AllBetweenZeroAndOne(draft.tasks) ? 1.0 : 0.0;
  std::vector<MeanColumn> columns;
  std::vector<size_t> score_of(table.lines.size(), kNoLine), delta_of = score_of;
  for (size_t i = 0; i < table.lines.size(); ++i) {
    LeaderboardLine& line = table.lines[i];
    if (line.scored > 0) {
      score_of[i] = columns.size();
      columns.push_back(ScoreColumn(draft.tasks, draft.lines[i], nullptr, 1));
    }
    line.not_compared = Obstacle(draft, i);
    if (!line.not_compared.empty()) continue;
    MeanColumn delta = ScoreColumn(draft.tasks, draft.lines[i], &draft.lines[draft.reference],
                                   table.lower_is_better ? -1 : 1);
    if (delta.samples == 0) {
      line.not_compared = "it shares no sample of the same content with the full cache";
      continue;
    }
    delta_of[i] = columns.size();
    columns.push_back(std::move(delta));
  }
  const std::vector<ColumnResult> results = ResampleMeans(columns, {.confidence = 1 - options.alpha,
                                                                    .resamples = options.resamples,
                                                                    .seed = options.seed,
                                                                    .reach = reach});
  for (size_t i = 0; i < table.lines.size(); ++i) {
    LeaderboardLine& line = table.lines[i];
    if (score_of[i] != kNoLine) {
      line.score = results[score_of[i]].estimate;
      line.reported = ReportedScore(draft, draft.lines[i]);
      if (reach > 0) ClampInterval(line.score.interval, 0, 1);
    }
    if (delta_of[i] == kNoLine) continue;
    const ColumnResult& result = results[delta_of[i]];
    Evidence& e = line.versus_full.emplace(EvidenceOf(result, reach, options.alpha));
    e.differing = Differing(columns[delta_of[i]]);
    e.p = PairedP(draft.tasks, draft.lines[draft.reference], draft.lines[i], columns[delta_of[i]],
                  e.test);
  }
}

void AddLatency(Draft& draft) {
  for (size_t i = 0; i < draft.lines.size(); ++i) {
    std::vector<const LatencyRow*> rows, full;
    for (size_t t = 0; t < draft.tasks.size(); ++t) {
      const TaskLine* part = draft.lines[i].parts[t];
      if (!part || part->latency.empty()) continue;
      for (const LatencyRow& row : part->latency) rows.push_back(&row);
      if (draft.table.lines[i].method.full_cache) continue;
      for (const TaskLine& other : draft.tasks[t]->lines) {
        if (!other.cells[0].cell.method.full_cache) continue;
        for (const LatencyRow& row : other.latency) full.push_back(&row);
      }
    }
    draft.table.lines[i].latency = SummariseLatency(rows, full);
  }
}

// Why a line has no rank; "" when it has one.
std::string Unranked(const Draft& draft, size_t i, int64_t most_scored) {
  const LeaderboardLine& line = draft.table.lines[i];
  if (line.samples == 0) return "no samples yet";
  if (line.not_engaged > 0) {
    return StrCat("not engaged on ", line.not_engaged, " of ", Counted(line.samples, "sample"));
  }
  if (line.failed > 0)
    return StrCat(line.failed, " of ", Counted(line.samples, "sample"), " failed");
  if (line.scored == 0 && line.skipped == 0) return "nothing is scored";
  if (line.skipped > 0) {
    return StrCat(line.skipped, " of ", Counted(line.samples, "sample"), " skipped");
  }
  const auto tasks = static_cast<int64_t>(draft.tasks.size());
  if (line.tasks < tasks) return StrCat("has ", line.tasks, " of ", Counted(tasks, "task"));
  if (line.scored < most_scored) {
    return StrCat("has ", line.scored, " of ", Counted(most_scored, "score"));
  }
  return "";
}

void SayWhoIsUnranked(Draft& draft) {
  std::vector<LeaderboardLine>& lines = draft.table.lines;
  int64_t most_scored = 0;
  for (const LeaderboardLine& line : lines) most_scored = std::max(most_scored, line.scored);
  for (size_t i = 0; i < lines.size(); ++i) lines[i].not_ranked = Unranked(draft, i, most_scored);
}

void Rank(Draft& draft) {
  std::vector<LeaderboardLine>& lines = draft.table.lines;
  std::vector<LeaderboardLine*> ranked;
  for (LeaderboardLine& line : lines) {
    if (line.not_ranked.empty()) ranked.push_back(&line);
  }
  const double sign = draft.table.lower_is_better ? 1 : -1;
  const auto standing = [&](const LeaderboardLine* line) {
    return std::tuple(sign * line->score.value, line->bytes.logical_ratio);
  };
  std::ranges::stable_sort(ranked, {}, standing);
  for (size_t i = 0; i < ranked.size(); ++i) {
    const bool equal = i > 0 && standing(ranked[i]) == standing(ranked[i - 1]);
    ranked[i]->rank = equal ? ranked[i - 1]->rank : static_cast<int64_t>(i + 1);
  }
  std::ranges::stable_sort(lines, {}, [](const LeaderboardLine& line) {
    return std::tuple(line.rank.value_or(std::numeric_limits<int64_t>::max()), line.method.name,
                      line.method.variant, line.budget_kind, line.budget_value);
  });
}

// Holm over all comparisons of a model and compress_at. What does not differ at all takes no part:
// it could not become a false alarm (Tarone 1990). Gains and losses that cancel do take part.
void Conclude(LeaderboardModel& model) {
  std::map<std::pair<std::string, std::string>,
           std::vector<std::pair<LeaderboardTable*, LeaderboardLine*>>>
      families;
  for (LeaderboardTable& table : model.tables) {
    for (LeaderboardLine& line : table.lines) {
      if (line.versus_full) families[{table.model, table.compress_at}].push_back({&table, &line});
    }
  }
  for (auto& entry : families) {
    std::vector<double> p_values;
    std::vector<LeaderboardLine*> open;
    for (const auto& [table, line] : entry.second) {
      ++model.comparisons;
      if (line->versus_full->differing == 0) continue;
      open.push_back(line);
      p_values.push_back(line->versus_full->p);
    }
    const std::vector<double> adjusted = HolmAdjust(p_values);
    for (size_t i = 0; i < open.size(); ++i) open[i]->p_adjusted = adjusted[i];
    for (const auto& [table, line] : entry.second) {
      table->corrected_over = static_cast<int64_t>(open.size());
      double margin = model.options.margin;
      if (table->lower_is_better) {
        const auto full = std::ranges::find_if(table->lines, [](const LeaderboardLine& l) {
          return l.method.full_cache && l.scored > 0;
        });
        margin *= full != table->lines.end() ? std::abs(full->score.value) : 1;
      }
      line->verdict = Decide(*line->versus_full, line->p_adjusted,
                             {.alpha = model.options.alpha, .margin = margin});
    }
  }
}

// The tables' tasks: each by itself, or those of a group that have one signature each.
std::vector<std::vector<const TaskData*>> Arrange(const LeaderboardData& data, TaskGrouping by,
                                                  std::vector<std::vector<std::string>>& notes) {
  std::vector<std::vector<const TaskData*>> tables;
  if (by == TaskGrouping::kTask) {
    for (const TaskData& task : data.tasks) tables.push_back({&task});
    notes.resize(tables.size());
    return tables;
  }
  std::map<std::tuple<std::string, std::string, std::string>, std::vector<const TaskData*>> groups;
  for (const TaskData& task : data.tasks) {
    groups[{task.model, task.group, task.compress_at}].push_back(&task);
  }
  for (const auto& entry : groups) {
    std::vector<const TaskData*> kept;
    std::vector<std::string> said;
    for (const TaskData* task : entry.second) {
      const auto twins = std::ranges::count(entry.second, task->task, &TaskData::task);
      const bool other_units = task->scale != entry.second[0]->scale ||
                               task->lower_is_better != entry.second[0]->lower_is_better;
      if (twins == 1 && !other_units) {
        kept.push_back(task);
      } else {
        said.push_back(StrCat(
            task->task, " is left out: ",
            twins > 1 ? "it was run under several signatures" : "its scores have another unit"));
      }
    }
    if (kept.empty()) continue;
    tables.push_back(std::move(kept));
    notes.push_back(std::move(said));
  }
  return tables;
}

}  // namespace

Result<LeaderboardModel> MakeLeaderboard(std::span<ResultStore* const> stores,
                                         const LeaderboardOptions& options) {
  KVG_CHECK(!stores.empty() && options.alpha > 0 && options.alpha < 0.5 && options.resamples > 0,
            "some stores, alpha below one half, some resamples");
  KVG_ASSIGN(const LeaderboardData data,
             ReadLeaderboardData(stores, options.latency, options.set_scores));
  LeaderboardModel model;
  model.options = options;
  model.samples = data.samples;
  std::vector<std::vector<std::string>> notes;
  const std::vector<std::vector<const TaskData*>> tables = Arrange(data, options.by, notes);
  for (size_t i = 0; i < tables.size(); ++i) {
    Draft draft = StartDraft(tables[i]);
    draft.table.task = options.by == TaskGrouping::kTask ? tables[i][0]->task : tables[i][0]->group;
    draft.table.notes.insert(draft.table.notes.end(), notes[i].begin(), notes[i].end());
    AddStatistics(draft, options);
    if (options.latency) AddLatency(draft);
    SayWhoIsUnranked(draft);
    AddAreas(draft.tasks, draft.lines, draft.reference, options, draft.table);
    Rank(draft);
    model.tables.push_back(std::move(draft.table));
  }
  Conclude(model);
  return model;
}

}  // namespace kvgauge
