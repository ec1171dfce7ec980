// SPDX-License-Identifier: Apache-2.0
// Scores by what the data says of its samples: the tables that papers print, "0-4k 4-8k 8k+".
#include <algorithm>
#include <cmath>
#include <map>

#include "core/strings.h"
#include "src/chart/heat_map.h"
#include "src/html/format.h"
#include "src/report/sections.h"

namespace kvgauge::report {
namespace {

// What a figure of one table by one key is made of: rows of the page that hold anything.
struct SplitFigure {
  const LeaderboardTable& table;
  const LeaderboardSplit& split;
  std::vector<size_t> lines;  // of the table, best first
};

// From 0 to 1 where scores are; others lie between the best and the worst of the figure.
class Scale {
 public:
  explicit Scale(const SplitFigure& figure) : lower_(figure.table.lower_is_better) {
    for (const size_t line : figure.lines) {
      for (const SplitScore& score : figure.split.lines[line]) {
        if (score.samples == 0 || !std::isfinite(score.score)) continue;
        low_ = std::min(low_, score.score);
        high_ = std::max(high_, score.score);
      }
    }
    if (!lower_ && low_ >= 0 && high_ <= 1) {
      absolute_ = true;
      low_ = 0;
      high_ = 1;
    }
  }
  double Of(double score) const {
    if (!std::isfinite(score)) return 0;
    const double place = high_ > low_ ? (score - low_) / (high_ - low_) : 0.5;
    return lower_ ? 1 - place : place;
  }
  HeatScale colours() const { return absolute_ ? HeatScale::kScore : HeatScale::kAmount; }

 private:
  bool lower_, absolute_ = false;
  double low_ = 1e300, high_ = -1e300;
};

// Methods by budgets, on the samples of one value.
Html Panel(const SplitFigure& figure, const Scale& scale, size_t value) {
  const LeaderboardTable& table = figure.table;
  const std::string& key = figure.split.keys[0];
  const std::string& name = figure.split.values[0][value];
  std::map<double, std::string> budgets;  // ascending
  std::vector<std::string> methods;       // best first
  std::map<std::pair<std::string, double>, SplitScore> scores;
  const SplitScore* full = nullptr;
  for (const size_t index : figure.lines) {
    const LeaderboardLine& line = table.lines[index];
    const SplitScore& score = figure.split.lines[index][value];
    if (line.method.full_cache) {
      if (full == nullptr) full = &score;
      continue;
    }
    budgets.emplace(line.budget_value, line.budget_kind == "none" ? "as it is" : line.budget);
    if (std::ranges::find(methods, line.method.name) == methods.end()) {
      methods.push_back(line.method.name);
    }
    scores[{line.method.name, line.budget_value}] = score;
  }
  HeatMap map;
  map.label =
      StrCat(table.task, ", ", key, " ", name, ": ", ScoreTitle(table), " by method and budget");
  map.column_title = "budget";
  map.scale = scale.colours();
  map.cell_width = 52;
  map.cell_height = 18;
  map.rows = methods;
  for (const auto& [budget, text] : budgets) map.columns.push_back(text);
  int64_t samples = 0;
  for (const std::string& method : methods) {
    auto& cells = map.cells.emplace_back();
    for (const auto& [budget, text] : budgets) {
      const auto score = scores.find({method, budget});
      if (score == scores.end() || score->second.samples == 0) {
        cells.emplace_back();
        continue;
      }
      samples = std::max(samples, score->second.samples);
      cells.push_back(
          HeatCell{scale.Of(score->second.score), ReportedText(table, score->second.reported)});
    }
  }
  map.description = Plural(samples, "sample", "samples");
  if (full != nullptr && full->samples > 0) {
    map.description.append(StrCat(", full cache ", ReportedText(table, full->reported)));
  }
  Html html;
  if (samples == 0) return html;
  return html.Put(
      R"(<figure class="small"><figcaption><b>{}</b> <span class="soft">{}</span></figcaption>)"
      "{}</figure>",
      {name, map.description, Render(map)});
}

Html Panels(const SplitFigure& figure) {
  const Scale scale(figure);
  Html panels;
  for (size_t v = 0; v < figure.split.values[0].size(); ++v) panels.Put(Panel(figure, scale, v));
  if (panels.empty()) return panels;
  return Html().Put(R"(<h3>{} <span class="soft">by {}; {}</span></h3>)"
                    "\n"
                    R"(<div class="figures )"
                    R"(tight">{}</div>)"
                    "\n",
                    {figure.table.task, figure.split.keys[0], ScoreTitle(figure.table), panels});
}

Html Maps(const Board& board, const LeaderboardTable& table,
          const std::vector<LeaderboardTable>& tables, const std::vector<KeySplits>& splits) {
  const auto index = static_cast<size_t>(&table - tables.data());
  Html maps;
  for (const KeySplits& by_key : splits) {
    if (std::ranges::find(table.report_by, by_key.key) == table.report_by.end()) continue;
    const LeaderboardSplit& split = by_key.of_table[index];
    if (split.empty()) continue;
    SplitFigure figure{table, split, {}};
    for (size_t i = 0; i < table.lines.size(); ++i) {
      const bool any = std::ranges::any_of(
          split.lines[i], [](const SplitScore& score) { return score.samples > 0; });
      if (any && !board.InSweep(table.lines[i].method)) figure.lines.push_back(i);
    }
    if (!figure.lines.empty()) maps.Put(Panels(figure));
  }
  return maps;
}

}  // namespace

Html SplitsSection(const Board& board, const PageData& data) {
  Html html;
  for (const LeaderboardTable* group : board.groups) {
    html.Put(Maps(board, *group, data.by_group.tables, data.group_splits));
    Html tasks;
    if (group->task_names.size() > 1) {
      for (const LeaderboardTable* task : board.tasks) {
        if (std::ranges::find(group->task_names, task->task) == group->task_names.end()) continue;
        tasks.Put(Maps(board, *task, data.by_task.tables, data.task_splits));
      }
    }
    if (!tasks.empty()) {
      html.Put(Folded(Html().Put("{}: each task", {group->task}), tasks, "", false));
    }
  }
  if (html.empty()) return html;
  Html section;
  if (!board.alone) section.Put("<h3>{}</h3>", {board.Title()});
  section.Put(
      R"(<p class="lead">Scores by what the data set says of its samples, as its authors print )"
      "them. {}</p>\n{}\n",
      {HeatLegend(HeatScale::kScore, "all wrong", "all right"), html});
  return section;
}

}  // namespace kvgauge::report
