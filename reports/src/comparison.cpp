// SPDX-License-Identifier: Apache-2.0
#include "reports/comparison.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "core/strings.h"
#include "src/known_scope.h"
#include "src/leaderboard_columns.h"

namespace kvgauge {
namespace {

// A task and the lines of both names in it.
struct Match {
  const TaskData* task = nullptr;
  const TaskLine *a = nullptr, *b = nullptr;
};

bool Wanted(const TaskData& task, const CompareOptions& options) {
  const bool named =
      std::string_view(task.task).starts_with(options.task) || task.group == options.task;
  return named && std::string_view(task.model).starts_with(options.model) &&
         std::string_view(task.compress_at).starts_with(options.compress_at);
}

std::string Spelling(const RowName& name) {
  std::string text = name.method;
  if (name.variant) text.append("[").append(*name.variant).append("]");
  if (name.budget) text.append("@").append(*name.budget);
  return text;
}

// The line of a task that fits; null where none does. The name of one line, letter by letter, is
// that line, whatever else it fits.
Result<const TaskLine*> LineOf(const TaskData& task, const RowName& name) {
  const TaskLine *found = nullptr, *exact = nullptr;
  std::vector<std::string> labels;
  for (const TaskLine& line : task.lines) {
    if (!Fits(name, line.cells[0].cell)) continue;
    found = &line;
    labels.push_back(RowLabel(line.cells[0].cell));
    if (labels.back() == Spelling(name)) exact = &line;
  }
  if (labels.size() < 2) return found;
  if (std::ranges::count(labels, Spelling(name)) == 1) return exact;
  return BadInput(StrCat(Quoted(Spelling(name)), " fits ", labels.size(), " rows of ", task.task,
                         ": ", Join(labels, ", "), "; expected one of them"));
}

Error NothingFits(const LeaderboardData& data, const RowName& name, const CompareOptions& options) {
  std::set<std::string> labels, names;
  KnownScope known;
  for (const TaskData& task : data.tasks) {
    known.tasks.insert(task.task);
    known.models.insert(task.model);
    known.places.insert(task.compress_at);
    if (!Wanted(task, options)) continue;
    for (const TaskLine& line : task.lines) {
      labels.insert(RowLabel(line.cells[0].cell));
      names.insert(line.cells[0].cell.method.name);
    }
  }
  const auto list = [](const std::set<std::string>& set) {
    return std::vector<std::string>(set.begin(), set.end());
  };
  if (labels.empty()) {
    const GateScope asked = {
        .task = options.task, .model = options.model, .compress_at = options.compress_at};
    return BadInput(StrCat("there are no results of ", AskedAndKnown(asked, known)));
  }
  return BadInput(StrCat("there is no row ", Quoted(Spelling(name)),
                         DidYouMeanRow(Spelling(name), list(labels), list(names)),
                         "; there is: ", Join(list(labels), ", ")));
}

// One side, where the other is under another signature.
void AddObstacles(const std::vector<const TaskLine*>& a, const std::vector<const TaskLine*>& b,
                  const std::vector<const TaskData*>& tasks, RowsComparison& result) {
  for (size_t i = 0; i < tasks.size(); ++i) {
    for (size_t k = 0; k < tasks.size(); ++k) {
      const bool same = tasks[i]->task == tasks[k]->task && tasks[i]->model == tasks[k]->model &&
                        tasks[i]->compress_at == tasks[k]->compress_at;
      if (i == k || !same || !a[i] || !b[k] || b[i] || a[k]) continue;
      RowComparison& row = result.tasks.emplace_back();
      row.model = tasks[i]->model;
      row.task = tasks[i]->task;
      row.compress_at = tasks[i]->compress_at;
      row.a = RowLabel(a[i]->cells[0].cell);
      row.b = RowLabel(b[k]->cells[0].cell);
      row.obstacle = StrCat("signatures differ: ",
                            DifferingSignatureKeys(tasks[i]->signature, tasks[k]->signature));
    }
  }
}

double MeanOf(const UnitValues& values, const UnitValues& mask) {
  double sum = 0;
  int64_t tasks = 0;
  for (size_t t = 0; t < values.size(); ++t) {
    double total = 0;
    int64_t count = 0;
    for (size_t u = 0; u < mask[t].size(); ++u) {
      if (std::isnan(mask[t][u])) continue;
      total += values[t][u];
      ++count;
    }
    if (count == 0) continue;
    sum += total / static_cast<double>(count);
    ++tasks;
  }
  return tasks > 0 ? sum / static_cast<double>(tasks) : 0;
}

void AddLatency(const Match& match, const CompareOptions& options, RowComparison& row) {
  std::vector<LatencyRow> full;
  for (const TaskLine& line : match.task->lines) {
    if (!line.cells[0].cell.method.full_cache) continue;
    full.insert(full.end(), line.latency.begin(), line.latency.end());
  }
  const VerdictLimits limits = {.alpha = options.alpha,
                                .margin = std::log1p(options.latency_margin)};
  for (const int64_t tokens : CommonLengths(match.a->latency, match.b->latency)) {
    int64_t disturbed = 0;
    const auto compare = [&](double LatencyRow::*field) {
      RowComparison::Times times;
      times.evidence = CompareTimes(match.a->latency, match.b->latency, full, tokens, field,
                                    options.alpha, disturbed);
      times.verdict = Decide(times.evidence, times.evidence.p, limits);
      return times;
    };
    const RowComparison::Times ttft = compare(&LatencyRow::ttft_s);
    const RowComparison::Times tpot = compare(&LatencyRow::tpot_p50_s);
    row.disturbed = disturbed;
    if (ttft.evidence.samples == 0 && tpot.evidence.samples == 0) continue;
    row.ttft = ttft;
    row.tpot = tpot;
    row.latency_tokens = tokens;
    return;
  }
}

RowComparison Compare(const std::vector<Match>& matches, const CompareOptions& options) {
  const TaskData& first = *matches[0].task;
  RowComparison row;
  row.model = first.model;
  row.task = matches.size() == 1 ? first.task : StrCat(matches.size(), " tasks");
  row.compress_at = first.compress_at;
  row.a = RowLabel(matches[0].a->cells[0].cell);
  row.b = RowLabel(matches[0].b->cells[0].cell);
  row.scale = first.scale;
  row.digits = first.digits;
  row.lower_is_better = first.lower_is_better;
  std::vector<const TaskData*> tasks;
  DraftLine a, b;
  for (const Match& m : matches) {
    tasks.push_back(m.task);
    a.parts.push_back(m.a);
    b.parts.push_back(m.b);
    row.a_ratio += m.a->bytes.logical_ratio / static_cast<double>(matches.size());
    row.b_ratio += m.b->bytes.logical_ratio / static_cast<double>(matches.size());
    const auto count = [](const TaskLine& line, RowComparison::Side& side) {
      side.samples += line.samples;
      side.failed += line.failed;
      side.skipped += line.skipped;
    };
    count(*m.a, row.a_side);
    count(*m.b, row.b_side);
  }
  const double sign = first.lower_is_better ? -1 : 1;
  const double reach = AllBetweenZeroAndOne(tasks) ? 1.0 : 0.0;
  const UnitValues differences = PairedScores(tasks, b, &a, sign);
  const MeanColumn column = ColumnOf(tasks, differences);
  if (column.samples == 0) {
    row.obstacle = "they share no scored sample of the same content";
    return row;
  }
  ResamplingOptions resampling = {.confidence = 1 - options.alpha,
                                  .resamples = options.resamples,
                                  .seed = options.seed,
                                  .reach = reach};
  row.score = EvidenceOf(ResampleMeans({&column, 1}, resampling)[0], reach, options.alpha);
  row.score.p = PairedP(tasks, a, b, column, row.score.test);
  row.a_score = MeanOf(CommonScores(tasks, a, &b), differences);
  row.b_score = MeanOf(CommonScores(tasks, b, &a), differences);
  const MeanColumn bytes = ColumnOf(tasks, PairedValues(tasks, &TaskLine::log_bytes, b, &a, -1));
  if (bytes.samples > 0) {
    resampling.reach = 0;
    row.bytes = EvidenceOf(ResampleMeans({&bytes, 1}, resampling)[0], 0, options.alpha);
    row.bytes.p = PairedP({}, a, b, bytes, row.bytes.test);
    row.bytes_verdict =
        Decide(row.bytes, row.bytes.p,
               {.alpha = options.alpha, .margin = std::log1p(options.bytes_margin)});
  }
  if (matches.size() == 1) AddLatency(matches[0], options, row);
  return row;
}

void Conclude(const CompareOptions& options, double p, RowComparison& row) {
  row.p_adjusted = p;
  const double margin =
      row.lower_is_better ? options.score_margin * std::abs(row.a_score) : options.score_margin;
  row.verdict = Decide(row.score, p, {.alpha = options.alpha, .margin = margin});
}

// "b=2,a=1" is "a=1, b=2". A value may hold commas; its parts move as settings do, on both sides.
std::multiset<std::string> SettingsOf(const std::string& variant) {
  std::multiset<std::string> settings;
  for (const std::string_view setting : Split(variant, ',')) settings.emplace(Trim(setting));
  return settings;
}

}  // namespace

RowName ParseRowName(const std::string& text) {
  RowName name;
  const size_t at = text.rfind('@');
  name.method = text.substr(0, at);
  if (at != std::string::npos) name.budget = text.substr(at + 1);
  const size_t open = name.method.find('[');
  if (open != std::string::npos && name.method.back() == ']') {
    name.variant = name.method.substr(open + 1, name.method.size() - open - 2);
    name.method.resize(open);
  }
  return name;
}

bool Fits(const RowName& name, const CellRow& cell) {
  return cell.method.name == name.method &&
         (!name.variant || SettingsOf(*name.variant) == SettingsOf(cell.method.variant)) &&
         (!name.budget || *name.budget == cell.budget);
}

std::string RowLabel(const CellRow& cell) {
  return Spelling({cell.method.name,
                   cell.method.variant.empty() ? std::nullopt : std::optional(cell.method.variant),
                   cell.budget == "none" ? std::nullopt : std::optional(cell.budget)});
}

std::string DidYouMeanRow(const std::string& name, const std::vector<std::string>& labels,
                          const std::vector<std::string>& methods) {
  const std::string method = ParseRowName(name).method;
  if (std::ranges::find(methods, method) == methods.end()) return DidYouMean(method, methods);
  // A name that was not written to its end: "snapkv@10".
  const auto begins = [&](const std::string& label) { return label.starts_with(name); };
  if (name == method || std::ranges::count_if(labels, begins) != 1) return "";
  return StrCat(" (did you mean ", Quoted(*std::ranges::find_if(labels, begins)), "?)");
}

Result<RowsComparison> CompareRows(std::span<ResultStore* const> stores, const RowName& a,
                                   const RowName& b, const CompareOptions& options) {
  KVG_ASSIGN(const LeaderboardData data, ReadLeaderboardData(stores, true, options.set_scores));
  std::vector<const TaskData*> tasks;
  std::vector<const TaskLine*> lines_a, lines_b;
  std::vector<Match> matches;
  bool any_a = false, any_b = false;
  for (const TaskData& task : data.tasks) {
    if (!Wanted(task, options)) continue;
    KVG_ASSIGN(const TaskLine* line_a, LineOf(task, a));
    KVG_ASSIGN(const TaskLine* line_b, LineOf(task, b));
    any_a = any_a || line_a != nullptr;
    any_b = any_b || line_b != nullptr;
    tasks.push_back(&task);
    lines_a.push_back(line_a);
    lines_b.push_back(line_b);
    if (line_a && line_b) matches.push_back({&task, line_a, line_b});
  }
  if (!any_a) return NothingFits(data, a, options);
  if (!any_b) return NothingFits(data, b, options);
  RowsComparison result;
  for (const Match& match : matches) result.tasks.push_back(Compare({match}, options));
  AddObstacles(lines_a, lines_b, tasks, result);
  if (result.tasks.empty()) {
    return BadInput(StrCat(Quoted(Spelling(a)), " and ", Quoted(Spelling(b)),
                           " were not run on the same model, task and compress_at"));
  }
  std::vector<double> p_values;
  for (const RowComparison& row : result.tasks) p_values.push_back(row.score.p);
  const std::vector<double> adjusted = HolmAdjust(p_values);
  for (size_t i = 0; i < result.tasks.size(); ++i) {
    if (result.tasks[i].obstacle.empty()) Conclude(options, adjusted[i], result.tasks[i]);
  }
  // Over tasks of one model in one unit; anything else is no mean.
  std::set<std::string> names;
  for (const Match& m : matches) names.insert(m.task->task);
  const bool alike =
      names.size() == matches.size() && std::ranges::all_of(matches, [&](const Match& m) {
        return m.task->model == matches[0].task->model && m.task->scale == matches[0].task->scale &&
               m.task->compress_at == matches[0].task->compress_at &&
               m.task->lower_is_better == matches[0].task->lower_is_better;
      });
  if (matches.size() > 1 && alike) {
    result.overall = Compare(matches, options);
    if (result.overall->obstacle.empty()) {
      Conclude(options, result.overall->score.p, *result.overall);
    }
  }
  return result;
}

}  // namespace kvgauge
