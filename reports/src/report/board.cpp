// SPDX-License-Identifier: Apache-2.0
#include "src/report/board.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <span>
#include <tuple>

#include "core/strings.h"
#include "reports/gate.h"
#include "reports/statistics.h"
#include "src/chart/palette.h"
#include "src/html/format.h"
#include "src/leaderboard_data.h"

namespace kvgauge::report {
namespace {

using RowKey = std::tuple<std::string, std::string, std::string>;

RowKey KeyOf(const MethodRow& method, const std::string& budget) {
  return {method.name, method.variant, budget};
}

Result<std::vector<KeySplits>> Splits(std::span<ResultStore* const> stores,
                                      const LeaderboardModel& model) {
  std::set<std::string> keys;
  for (const LeaderboardTable& table : model.tables) {
    keys.insert(table.report_by.begin(), table.report_by.end());
  }
  std::vector<KeySplits> splits;
  for (const std::string& key : keys) {
    KVG_ASSIGN(auto of_table, SplitLeaderboard(stores, model, {key}));
    splits.push_back({key, std::move(of_table)});
  }
  return splits;
}

void AddMeans(const std::vector<const LeaderboardLine*>& of_tasks, RowMeans& means) {
  double ByteSummary::*const fields[] = {&ByteSummary::nominal,
                                         &ByteSummary::logical,
                                         &ByteSummary::resident,
                                         &ByteSummary::full,
                                         &ByteSummary::nominal_ratio,
                                         &ByteSummary::logical_ratio,
                                         &ByteSummary::resident_ratio,
                                         &ByteSummary::nominal_per_token,
                                         &ByteSummary::logical_per_token,
                                         &ByteSummary::resident_per_token,
                                         &ByteSummary::host,
                                         &ByteSummary::host_ratio,
                                         &ByteSummary::host_per_token};
  TaskTally sums[std::size(fields)], full, kl, top1, fetched;
  for (const LeaderboardLine* line : of_tasks) {
    if (line->kl_divergence) kl.Add(*line->kl_divergence);
    if (line->top1_agreement) top1.Add(*line->top1_agreement);
    if (line->fetched_per_step) fetched.Add(*line->fetched_per_step);
    if (line->bytes.samples == 0) continue;
    ++means.tasks;
    means.bytes.samples += line->bytes.samples;
    for (size_t i = 0; i < std::size(fields); ++i) sums[i].Add(line->bytes.*fields[i]);
    if (line->bytes.logical_ratio > 0) {
      full.Add(line->bytes.logical_per_token / line->bytes.logical_ratio);
    }
  }
  for (size_t i = 0; i < std::size(fields); ++i) {
    means.bytes.*fields[i] = sums[i].Mean().value_or(0);
  }
  means.full_per_token = full.Mean().value_or(0);
  means.kl_divergence = kl.Mean();
  means.top1_agreement = top1.Mean();
  means.fetched_per_step = fetched.Mean();
}

// Tasks that a group leaves out of its scores are left out here, too.
void AddMeans(Board& board) {
  std::map<RowKey, std::vector<const LeaderboardLine*>> lines;
  std::set<std::string> names;
  for (const LeaderboardTable* group : board.groups) {
    names.insert(group->task_names.begin(), group->task_names.end());
  }
  board.task_count = names.size();
  for (const LeaderboardTable* task : board.tasks) {
    if (!names.contains(task->task)) continue;
    for (const LeaderboardLine& line : task->lines) {
      lines[KeyOf(line.method, line.budget)].push_back(&line);
    }
  }
  for (BoardRow& row : board.rows) AddMeans(lines[KeyOf(row.method, row.budget)], row.means);
}

Interval RangeOf(const std::vector<const LatencyRow*>& rows, double LatencyRow::*field) {
  const auto [low, high] =
      std::ranges::minmax(rows, {}, [field](const LatencyRow* row) { return row->*field; });
  return {low->*field, high->*field};
}

Status AddTimes(ResultStore& store, Board& board) {
  std::vector<std::vector<LatencyRow>> rows(board.rows.size());
  std::vector<const LatencyRow*> full;
  const double most = GateMargins().max_others_share;
  for (size_t r = 0; r < board.rows.size(); ++r) {
    for (const int64_t cell : board.rows[r].cells) {
      KVG_ASSIGN(const std::vector<LatencyRow> of_cell, store.Latency(cell));
      rows[r].insert(rows[r].end(), of_cell.begin(), of_cell.end());
    }
    if (!board.rows[r].method.full_cache) continue;
    for (const LatencyRow& row : rows[r]) full.push_back(&row);
  }
  const auto calm = [most](const LatencyRow* row) { return row->others_share <= most; };
  std::vector<const LatencyRow*> calm_full;
  std::ranges::copy_if(full, std::back_inserter(calm_full), calm);
  for (size_t r = 0; r < board.rows.size(); ++r) {
    std::map<int64_t, std::vector<const LatencyRow*>> by_length;
    for (const LatencyRow& row : rows[r]) by_length[row.context_tokens].push_back(&row);
    for (const auto& [length, all] : by_length) {
      std::vector<const LatencyRow*> kept;
      std::ranges::copy_if(all, std::back_inserter(kept), calm);
      RowTimes times;
      times.disturbed = kept.empty();
      if (times.disturbed) kept = all;
      times.left_out = static_cast<int64_t>(all.size() - kept.size());
      times.summary = SummariseLatency(kept, times.disturbed ? full : calm_full).front();
      times.ttft_s = RangeOf(kept, &LatencyRow::ttft_s);
      times.tpot_s = RangeOf(kept, &LatencyRow::tpot_p50_s);
      board.rows[r].times.push_back(times);
    }
  }
  return {};
}

// A score of a hundred has as many as the terminal shows of the same score on its tasks' own scale.
int ScoreDecimals(const LeaderboardTable& table) {
  const int digits = table.digits >= 0 ? std::min(table.digits, 4) : table.scale >= 10 ? 2 : 3;
  return std::clamp(digits - static_cast<int>(std::lround(std::log10(100 / table.scale))), 0, 4);
}

}  // namespace

std::string BoardRow::Name() const {
  if (method.variant.empty()) return method.name;
  std::string name = method.name;
  return name.append(" (").append(method.variant).append(")");
}

std::string BoardRow::NameBudget() const {
  std::string name = ShortName();
  if (!method.variant.empty()) name.insert(method.name.size(), StrCat(" (", method.variant, ")"));
  return name;
}

std::string BoardRow::ShortName() const {
  std::string name = method.name;
  if (budget_kind != "none") name.append(" ").append(budget);
  return name;
}

const RowTimes* BoardRow::TimesAt(int64_t context_tokens) const {
  const auto found = std::ranges::find_if(
      times, [&](const RowTimes& t) { return t.summary.context_tokens == context_tokens; });
  return found != times.end() ? &*found : nullptr;
}

std::string Board::Title() const {
  std::string title = model;
  if (!alone && !same_moment) title.append(", compressed at ").append(compress_at);
  return title;
}

const BoardRow* Board::Find(const LeaderboardLine& line) const {
  for (const BoardRow& row : rows) {
    if (row.method.name == line.method.name && row.method.variant == line.method.variant &&
        row.budget == line.budget) {
      return &row;
    }
  }
  return nullptr;
}

const BoardRow* Board::Full() const {
  for (const BoardRow& row : rows) {
    if (row.method.full_cache) return &row;
  }
  return nullptr;
}

bool Board::InSweep(const MethodRow& method) const {
  return !method.variant.empty() && std::ranges::any_of(rows, [&](const BoardRow& row) {
    return row.method.name == method.name && row.method.variant != method.variant;
  });
}

size_t MethodVarieties::Of(const MethodRow& method) {
  std::vector<std::string>& known = names_[method.family];
  const auto found = std::ranges::find(known, method.name);
  const auto number = static_cast<size_t>(found - known.begin());
  if (found == known.end()) known.push_back(method.name);
  return number;
}

Html Board::Legend(bool sweeps) const {
  std::vector<LegendMethod> methods;
  std::set<std::string_view> seen;
  for (const BoardRow& row : rows) {
    if (!sweeps && InSweep(row.method)) continue;
    if (!seen.insert(row.method.name).second) continue;
    methods.push_back({row.method.name, row.method.family, Variety(row.method.name)});
  }
  return MethodLegend(methods);
}

Html Board::OnlySwept() const {
  std::vector<std::string> names;
  for (const BoardRow& row : rows) {
    const auto shown = [&](const BoardRow& other) {
      return other.method.name == row.method.name && !InSweep(other.method);
    };
    if (std::ranges::none_of(rows, shown) && std::ranges::count(names, row.method.name) == 0) {
      names.push_back(row.method.name);
    }
  }
  Html html;
  if (names.empty()) return html;
  return html.Put(
      R"( Run in several settings, and therefore under <a href="#ablation">Sweeps</a>: {}.)",
      {Join(names, ", ")});
}

Result<PageData> GatherPage(ResultStore& store, const LeaderboardOptions& options) {
  PageData data;
  ResultStore* const stores[] = {&store};
  LeaderboardOptions by = options;
  by.by = TaskGrouping::kGroup;
  by.latency = false;  // read by itself below
  KVG_ASSIGN(data.by_group, MakeLeaderboard(stores, by));
  by.by = TaskGrouping::kTask;
  KVG_ASSIGN(data.by_task, MakeLeaderboard(stores, by));
  KVG_ASSIGN(data.group_splits, Splits(stores, data.by_group));
  KVG_ASSIGN(data.task_splits, Splits(stores, data.by_task));
  KVG_ASSIGN(data.draws, MakeDrawTables(stores, data.by_task));
  KVG_ASSIGN(data.runs, store.Runs());
  KVG_ASSIGN(data.cells, store.Cells());

  const auto board_of = [&data](const LeaderboardTable& table) -> Board& {
    for (Board& board : data.boards) {
      if (board.model == table.model && board.fingerprint == table.model_fingerprint &&
          board.compress_at == table.compress_at) {
        return board;
      }
    }
    Board& board = data.boards.emplace_back();
    board.model = table.model;
    board.fingerprint = table.model_fingerprint;
    board.compress_at = table.compress_at;
    return board;
  };
  for (const LeaderboardTable& table : data.by_group.tables)
    board_of(table).groups.push_back(&table);
  for (const LeaderboardTable& table : data.by_task.tables) board_of(table).tasks.push_back(&table);

  size_t next_id = 0;
  for (size_t b = 0; b < data.boards.size(); ++b) {
    Board& board = data.boards[b];
    board.alone = data.boards.size() == 1;
    board.same_moment = std::ranges::all_of(
        data.boards, [&](const Board& other) { return other.compress_at == board.compress_at; });
    std::map<RowKey, size_t> index;
    for (size_t g = 0; g < board.groups.size(); ++g) {
      for (const LeaderboardLine& line : board.groups[g]->lines) {
        const auto place = index.emplace(KeyOf(line.method, line.budget), board.rows.size());
        if (place.second) {
          BoardRow row;
          row.id = StrCat("r", next_id++);
          row.method = line.method;
          row.budget = line.budget;
          row.budget_kind = line.budget_kind;
          row.budget_value = line.budget_value;
          row.lines.resize(board.groups.size(), nullptr);
          board.rows.push_back(std::move(row));
        }
        board.rows[place.first->second].lines[g] = &line;
      }
    }
    for (const StoredCell& cell : data.cells) {
      if (cell.cell.model.name != board.model || cell.cell.compress_at != board.compress_at ||
          cell.cell.model.fingerprint != board.fingerprint) {
        continue;
      }
      board.model_facts = cell.cell.model.facts;
      const auto place = index.find(KeyOf(cell.cell.method, cell.cell.budget));
      if (place == index.end()) continue;
      board.rows[place->second].cells.push_back(cell.id);
      data.row_of_cell[cell.id] = {b, place->second};
    }
    for (const BoardRow& row : board.rows) {
      board.varieties[row.method.name] = data.varieties.Of(row.method);
    }
    AddMeans(board);
    KVG_TRY(AddTimes(store, board));
  }
  return data;
}

std::string ScoreText(const LeaderboardTable& table, double score) {
  return ReportedText(table, score * table.scale);
}

std::string ReportedText(const LeaderboardTable& table, double reported) {
  if (table.lower_is_better) {
    return table.digits >= 0 ? FormatDecimals(reported, table.digits)
                             : Format(reported, Unit::kNumber);
  }
  return FormatDecimals(reported * 100 / table.scale, ScoreDecimals(table));
}

std::string ScoreRule(const Board& board) {
  std::string rule =
      "Scores are of 100, with the 95% interval of the mean below; differences to the full cache "
      "are of the same samples.";
  if (std::ranges::any_of(board.rows,
                          [](const BoardRow& row) { return row.method.experimental; })) {
    rule.append(
        " * marks an experimental method: no independent implementation has confirmed what it "
        "does.");
  }
  for (const LeaderboardTable* table : board.groups) {
    if (table->digits < 0) continue;
    rule.append(
        " Where a task's authors print rounded scores, so does this page: of each task to their "
        "decimals, of a group the mean of these. Intervals, differences, verdicts, figures and "
        "the CSV come from means that were not rounded.");
    break;
  }
  for (const LeaderboardTable* table : board.groups) {
    if (!table->drawn) continue;
    rule.append(StrCat(" Answers were drawn at ", table->drawn->Text(),
                       ", and a sample is one draw: scores are means over draws, pass@1 where an "
                       "answer is right or wrong."));
    break;
  }
  return rule;
}

double ScoreNumber(const LeaderboardTable& table, double score) {
  return table.lower_is_better ? score * table.scale : 100 * score;
}

Interval ShownInterval(const LeaderboardTable& table, const LeaderboardLine& line) {
  Interval interval = line.score.interval;
  if (!table.lower_is_better && line.score.value >= 0 && line.score.value <= 1) {
    interval.low = std::max(interval.low, 0.0);
    interval.high = std::min(interval.high, 1.0);
  }
  return interval;
}

std::string ScoreTitle(const LeaderboardTable& table) {
  if (table.lower_is_better) return StrCat(table.metric, ", less is better");
  return StrCat(table.metric.empty() || table.metric == "several" ? "score" : table.metric,
                ", of 100");
}

std::string DifferenceText(const LeaderboardTable& table, double difference) {
  const std::string text = ScoreText(table, difference);
  const bool zero = text.find_first_of("123456789") == std::string::npos;
  return difference > 0 && !zero ? "+" + text : text;
}

std::string VerdictWord(Verdict verdict) {
  switch (verdict) {
    case Verdict::kSame:
      return "same";
    case Verdict::kBetter:
      return "better";
    case Verdict::kWorse:
      return "worse";
    case Verdict::kUndecided:
      return "undecided";
  }
  return "undecided";
}

Html VerdictMark(Verdict verdict) {
  switch (verdict) {
    case Verdict::kSame:
      return Html().Put(R"(<span class="v same">≈ same</span>)");
    case Verdict::kBetter:
      return Html().Put(R"(<span class="v better">▲ better</span>)");
    case Verdict::kWorse:
      return Html().Put(R"(<span class="v worse">▼ worse</span>)");
    case Verdict::kUndecided:
      break;
  }
  return Html().Put(R"(<span class="v undecided">? undecided</span>)");
}

std::string EvidenceText(const LeaderboardTable& table, const LeaderboardLine& line) {
  if (!line.versus_full) return line.not_compared;
  const Evidence& e = *line.versus_full;
  return StrCat(VerdictWord(line.verdict), ": ", DifferenceText(table, e.value),
                " against the full cache, 95% interval ", DifferenceText(table, e.interval.low),
                " to ", DifferenceText(table, e.interval.high), "; ", PSentence(line.p_adjusted),
                " (", e.test, ", Holm); ", Plural(e.samples, "sample", "samples"), " in ",
                Plural(e.clusters, "context", "contexts"), "; ",
                std::isfinite(e.detectable)
                    ? StrCat("a loss of ",
                             DifferenceText(table, e.detectable).substr(e.detectable > 0 ? 1 : 0),
                             " would be found with 80% probability")
                    : "too few to find any loss with 80% probability");
}

std::string RowTip(const LeaderboardTable& table, const BoardRow& row,
                   const LeaderboardLine& line) {
  std::string tip = StrCat(row.NameBudget(), ": ", ReportedText(table, line.reported));
  if (std::isfinite(line.score.interval.low)) {
    const Interval interval = ShownInterval(table, line);
    tip.append(
        StrCat(" (", ScoreText(table, interval.low), " to ", ScoreText(table, interval.high), ")"));
  }
  if (line.bytes.samples > 0) {
    tip.append(StrCat(", ", Format(line.bytes.resident_per_token, Unit::kBytes), " a token (",
                      Format(line.bytes.resident_ratio, Unit::kPercent), " of full)"));
  }
  if (line.versus_full) tip.append(", ").append(VerdictWord(line.verdict));
  if (!line.not_ranked.empty()) tip.append(", not ranked: ").append(line.not_ranked);
  return tip;
}

std::string RepetitionsText(const RowTimes& times, const Interval& range) {
  const LatencySummary& s = times.summary;
  std::string text = s.count == 1 ? std::string("one repetition")
                                  : StrCat("median of ", s.count, " repetitions, ",
                                           Format(range.low, Unit::kSeconds), " to ",
                                           Format(range.high, Unit::kSeconds));
  if (times.left_out > 0) {
    text.append(
        StrCat("; ", Plural(times.left_out, "disturbed one", "disturbed ones"), " left out"));
  }
  if (times.disturbed) {
    text.append(StrCat("; disturbed: other programs had up to ",
                       Format(s.others_share, Unit::kPercent), " of the processors"));
  }
  return text;
}

Html DisturbedMark(const RowTimes& times) {
  Html mark;
  if (times.disturbed) mark.Put(R"(<span class="v worse">⚠ disturbed</span>)");
  return mark;
}

std::map<std::string, std::string> VariantParameters(const std::string& variant) {
  std::map<std::string, std::string> parameters;
  for (const std::string& part : Split(variant, ',')) {
    const std::string_view text = Trim(part);
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    parameters.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return parameters;
}

}  // namespace kvgauge::report
