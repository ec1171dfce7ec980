// SPDX-License-Identifier: Apache-2.0
#include "src/papers/compare_table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <utility>

#include "core/json.h"
#include "core/strings.h"
#include "reports/leaderboard.h"
#include "src/cli/print.h"
#include "src/cli/table.h"
#include "src/results/set_scores.h"

namespace kvgauge {
namespace {

constexpr std::string_view kFull = "full";

// Scores of a task in the units that papers print: points of 100, perplexities as they are.
double ScaleOf(const LeaderboardTable& table) {
  if (table.lower_is_better) return 1;
  return table.scale == 1 ? 100 : table.scale;
}

Estimate Scaled(Estimate estimate, double scale) {
  estimate.value *= scale;
  estimate.standard_error *= scale;
  estimate.interval = {estimate.interval.low * scale, estimate.interval.high * scale};
  return estimate;
}

class MeasuredTables {
 public:
  MeasuredTables(const PaperTable& paper, const LeaderboardModel& all,
                 const CompareTableOptions& options)
      : paper_(paper), all_(all), options_(options) {}

  // The table of a task; null where nothing was run. Several are an error.
  Result<const LeaderboardTable*> TableOf(const std::string& task) const {
    const std::string place = paper_.question == "seen" ? "prompt" : "context";
    const LeaderboardTable* found = nullptr;
    for (const LeaderboardTable& table : all_.tables) {
      if (table.task != task || table.compress_at != place) continue;
      if (!options_.model.empty() && table.model != options_.model) continue;
      if (found != nullptr) {
        return BadInput(StrCat("the database holds ", Quoted(task), " of ",
                               found->model == table.model
                                   ? StrCat("two protocols on ", table.model)
                                   : StrCat(found->model, " and of ", table.model),
                               "; expected one; --model-name picks a model, another --db begins "
                               "anew"));
      }
      found = &table;
    }
    return found;
  }

  static const LeaderboardLine* LineOf(const LeaderboardTable& table, const PaperRow& row) {
    const std::string variant = Join(row.overrides, ", ");
    const std::string budget = row.budget.empty() ? "none" : row.budget;
    for (const LeaderboardLine& line : table.lines) {
      if (line.method.name == row.method && line.method.variant == variant &&
          line.budget == budget) {
        return &line;
      }
    }
    return nullptr;
  }

 private:
  const PaperTable& paper_;
  const LeaderboardModel& all_;
  const CompareTableOptions& options_;
};

// The score of a row over the tasks of a column and, where there is one, its change against the
// full cache. Nothing where a task was not run.
struct ColumnEstimates {
  std::optional<Estimate> score, change;
  bool lower_is_better = false;
  int64_t samples = 0;
};

Result<ColumnEstimates> EstimatesOf(const MeasuredTables& measured, const PaperColumn& column,
                                    const PaperRow& row, double confidence) {
  ColumnEstimates found;
  std::vector<Estimate> scores, changes;
  for (const std::string& task : column.tasks) {
    KVG_ASSIGN(const LeaderboardTable* table, measured.TableOf(task));
    if (table == nullptr) return found;
    found.lower_is_better = found.lower_is_better || table->lower_is_better;
    const LeaderboardLine* line = MeasuredTables::LineOf(*table, row);
    if (line == nullptr || line->scored == 0) return found;
    const double scale = ScaleOf(*table);
    scores.push_back(Scaled(line->score, scale));
    found.samples += line->scored;
    if (line->versus_full) {
      changes.push_back(Scaled(ChangeEstimate(*line->versus_full, confidence), scale));
    }
  }
  found.score = MeanOfEstimates(scores, confidence);
  if (changes.size() == column.tasks.size()) found.change = MeanOfEstimates(changes, confidence);
  return found;
}

double HalfDigit(const PaperTable& table, double numbers) {
  return numbers * 0.5 * std::pow(10.0, -table.decimals);
}

// Verdicts over all scores together, then over all changes.
void JudgeNumbers(const PaperTable& table, const CompareTableOptions& options,
                  std::vector<PaperNumber*> numbers, double roundings) {
  std::erase_if(numbers, [](const PaperNumber* number) { return !number->ours; });
  std::vector<PublishedPair> pairs;
  pairs.reserve(numbers.size());
  for (const PaperNumber* number : numbers) {
    // Perplexities have no scale of their own: their margin is a share.
    const bool points = number->ours->value <= 100 && std::fabs(number->theirs) <= 100;
    const double margin =
        points ? options.margin : options.margin * std::fabs(number->theirs) / 100;
    pairs.push_back({.ours = *number->ours,
                     .theirs = number->theirs,
                     .rounding = HalfDigit(table, roundings),
                     .margin = margin});
  }
  const std::vector<PublishedComparison> compared = CompareWithPublished(pairs, options.alpha);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i]->comparison = compared[i];
}

std::string IntervalText(const Interval& interval, int digits) {
  if (!std::isfinite(interval.low) || !std::isfinite(interval.high)) return "-";
  return StrCat("[", Fixed(interval.low, digits), ", ", Fixed(interval.high, digits), "]");
}

std::string SignedPoints(double value, int digits) {
  const std::string text = Fixed(value, digits);
  return value > 0 ? StrCat("+", text) : text;
}

TableCell VerdictCell(const PaperNumber& number, const CompareTableOptions& options) {
  if (!number.ours) return {"not run", Tone::kFaint};
  if (!options.not_comparable.empty()) return {"-", Tone::kFaint};
  const Agreement agreement = number.comparison.agreement;
  const Tone tone = agreement == Agreement::kAgrees    ? Tone::kGood
                    : agreement == Agreement::kDiffers ? Tone::kBad
                                                       : Tone::kDoubtful;
  return {std::string(NameOf(agreement)), tone};
}

Json NumberJson(const PaperNumber& number, const CompareTableOptions& options) {
  Json json = {{"theirs", number.theirs}};
  if (!number.ours) return json;
  json["ours"] = number.ours->value;
  json["interval"] = {FiniteOrNull(number.ours->interval.low),
                      FiniteOrNull(number.ours->interval.high)};
  if (!options.not_comparable.empty()) return json;
  json["difference"] = number.comparison.difference;
  json["p"] = number.comparison.p;
  json["p_adjusted"] = number.comparison.p_adjusted;
  json["agreement"] = NameOf(number.comparison.agreement);
  return json;
}

}  // namespace

Result<std::vector<PaperCell>> CompareTable(const PaperTable& table,
                                            std::span<ResultStore* const> stores,
                                            const CompareTableOptions& options) {
  LeaderboardOptions wanted;
  wanted.alpha = options.alpha;
  wanted.resamples = 10000;
  wanted.latency = false;
  wanted.set_scores = KnownSetScores();
  KVG_ASSIGN(const LeaderboardModel all, MakeLeaderboard(stores, wanted));
  const MeasuredTables measured(table, all, options);
  const double confidence = 1 - options.alpha;
  const auto full = std::ranges::find(table.rows, kFull, &PaperRow::method);
  std::vector<PaperCell> cells;
  for (size_t c = 0; c < table.columns.size(); ++c) {
    for (size_t r = 0; r < table.rows.size(); ++r) {
      const PaperRow& row = table.rows[r];
      if (!row.scores[c]) continue;
      KVG_ASSIGN(const ColumnEstimates found,
                 EstimatesOf(measured, table.columns[c], row, confidence));
      PaperCell cell = {.row = r, .column = c, .score = {}, .change = {}, .samples = found.samples};
      cell.score.theirs = *row.scores[c];
      cell.score.ours = found.score;
      const bool changes = row.method != kFull && full != table.rows.end() && full->scores[c] &&
                           !found.lower_is_better;
      if (changes) {
        cell.change =
            PaperNumber{.theirs = *row.scores[c] - *full->scores[c], .ours = found.change};
      }
      cells.push_back(cell);
    }
  }
  std::vector<PaperNumber*> scores, changes;
  for (PaperCell& cell : cells) {
    scores.push_back(&cell.score);
    if (cell.change) changes.push_back(&*cell.change);
  }
  JudgeNumbers(table, options, scores, 1);
  JudgeNumbers(table, options, changes, 2);  // two rounded numbers
  return cells;
}

Json ToJson(const PaperTable& table, const std::vector<PaperCell>& cells,
            const CompareTableOptions& options) {
  Json list = Json::array();
  for (const PaperCell& cell : cells) {
    const PaperRow& row = table.rows[cell.row];
    Json json = {{"column", table.columns[cell.column].name},
                 {"row", row.label},
                 {"method", row.method},
                 {"budget", row.budget},
                 {"overrides", row.overrides},
                 {"samples", cell.samples},
                 {"score", NumberJson(cell.score, options)}};
    if (cell.change) json["change"] = NumberJson(*cell.change, options);
    list.push_back(std::move(json));
  }
  return list;
}

void PrintComparison(const PaperTable& table, const std::vector<PaperCell>& cells,
                     const CompareTableOptions& options) {
  const int digits = table.decimals;
  TextTable text;
  text.columns = {
      {"column", false, 20},       {"row", false, 20},       {"theirs", true, 20},
      {"ours", true, 20},          {"interval", false, 9},   {"verdict", false, 19},
      {"their change", true, 12},  {"our change", true, 12}, {"change's interval", false, 5},
      {"of the change", false, 11}};
  std::array<int64_t, 3> counts = {};
  for (const PaperCell& cell : cells) {
    std::vector<TableCell> line = {{table.columns[cell.column].name},
                                   {table.rows[cell.row].label},
                                   {Fixed(cell.score.theirs, digits)}};
    const auto add = [&](const PaperNumber& number, bool change) {
      const auto value = [&](double v) {
        return change ? SignedPoints(v, digits) : Fixed(v, digits);
      };
      line.push_back({number.ours ? value(number.ours->value) : "-"});
      line.push_back({number.ours ? IntervalText(number.ours->interval, digits) : ""});
      line.push_back(VerdictCell(number, options));
    };
    add(cell.score, false);
    if (cell.score.ours) ++counts[static_cast<size_t>(cell.score.comparison.agreement)];
    if (cell.change) {
      line.push_back({SignedPoints(cell.change->theirs, digits)});
      add(*cell.change, true);
    } else {
      line.resize(text.columns.size());
    }
    text.rows.push_back(std::move(line));
  }
  text.DropEmptyColumns();
  if (const size_t width = StdoutWidth(); width > 0) text.FitTo(width);
  Print(text.ToText(StdoutTakesColour()));
  if (!options.not_comparable.empty()) {
    Print(StrCat("\nno verdicts: ", options.not_comparable, "\n"));
    return;
  }
  Print(StrCat("\nscores: ", counts[0], " agree within ", Fixed(options.margin, 1), ", ", counts[1],
               " differ, ", counts[2], " undecided, ",
               std::ssize(cells) - counts[0] - counts[1] - counts[2], " not run\n"));
}

}  // namespace kvgauge
