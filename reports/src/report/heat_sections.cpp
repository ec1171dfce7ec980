// SPDX-License-Identifier: Apache-2.0
// Needle maps (depth by length) and sweeps (parameter by parameter).
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/strings.h"
#include "src/chart/heat_map.h"
#include "src/chart/xy_chart.h"
#include "src/html/format.h"
#include "src/report/sections.h"

namespace kvgauge::report {
namespace {

// Numbers by their value, then texts.
struct ByNumber {
  static std::optional<double> Number(const std::string& text) {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (end == text.c_str() || *end != '\0') return std::nullopt;
    return value;
  }
  bool operator()(const std::string& a, const std::string& b) const {
    const auto x = Number(a), y = Number(b);
    if (x && y && *x != *y) return *x < *y;
    if (x.has_value() != y.has_value()) return x.has_value();
    return a < b;
  }
};
using Names = std::set<std::string, ByNumber>;

// A page of sixty methods is folded after the first ones.
constexpr size_t kOpenMaps = 14;

struct Tally {
  int64_t samples = 0, right = 0;
  double sum = 0;
};

struct NeedleGrid {
  std::map<std::pair<std::string, std::string>, Tally> cells;  // depth, length
  bool whole = true;                                           // every score is 0 or 1
};

// What the length of a task's contexts counts.
struct LengthWords {
  bool pictures = false;

  std::string Name(const std::string& length) const {
    const auto value = ByNumber::Number(length);
    return value && !pictures ? Format(*value, Unit::kTokens) : length;
  }
  // "4K tokens".
  std::string Counted(const std::string& length) const {
    const std::string one = pictures ? " picture" : " token";
    return StrCat(Name(length), one, length == "1" ? "" : "s");
  }
  const char* Axis() const { return pictures ? "pictures" : "tokens of context"; }
  const char* What() const { return pictures ? "number of pictures" : "length of the context"; }
};

HeatCell CellOf(const Tally& t, bool whole) {
  HeatCell cell;
  cell.value = t.sum / static_cast<double>(t.samples);
  cell.text = whole
                  ? StrCat(t.right, "/", t.samples)
                  : StrCat(FormatTick(std::round(t.sum * 10) / 10, Unit::kNumber), "/", t.samples);
  return cell;
}

Html NeedleMap(const BoardRow& row, const std::string& task, const NeedleGrid& grid,
               const Names& depths, const Names& lengths, const LengthWords& words) {
  HeatMap map;
  map.label = StrCat(task, ", ", row.NameBudget(), ": right answers by depth of the needle and ",
                     words.What());
  map.row_title = "depth";
  map.column_title = words.Axis();
  map.cell_width = 38;
  map.cell_height = 18;
  double sum = 0;
  int64_t samples = 0;
  for (const std::string& depth : depths)
    map.rows.push_back(ByNumber::Number(depth) ? depth + "%" : depth);
  for (const std::string& length : lengths) map.columns.push_back(words.Name(length));
  for (const std::string& depth : depths) {
    auto& cells = map.cells.emplace_back();
    for (const std::string& length : lengths) {
      const auto tally = grid.cells.find({depth, length});
      if (tally == grid.cells.end() || tally->second.samples == 0) {
        cells.emplace_back();
        continue;
      }
      const Tally& t = tally->second;
      sum += t.sum;
      samples += t.samples;
      cells.push_back(CellOf(t, grid.whole));
    }
  }
  const double mean = samples > 0 ? sum / static_cast<double>(samples) : 0;
  map.description = StrCat("Mean ", Format(mean, Unit::kPercent), " of ",
                           Plural(samples, "sample", "samples"), ".");
  Html html;
  html.Put(R"(<figure class="small"><figcaption><a href="#{}">{}</a> <span )"
           R"(class="soft">{}</span></figcaption>{}</figure>)",
           {row.id, row.budget_kind == "none" ? "all entries" : row.budget,
            Format(mean, Unit::kPercent), Render(map)});
  return html;
}

using DepthRows = std::vector<std::pair<size_t, const NeedleGrid*>>;

// Where all contexts are of one length: a row for each row of the board, depths side by side; of
// many rows several maps.
Html DepthMaps(const Board& board, const std::string& task, const DepthRows& rows,
               const Names& depths, const std::string& length, const LengthWords& words) {
  const size_t maps = (rows.size() + kMapRows - 1) / kMapRows;
  Html html;
  size_t begin = 0;
  for (size_t m = 0; m < maps; ++m) {
    const size_t end = begin + (rows.size() - begin) / (maps - m);
    const std::string part = maps > 1 ? StrCat(", rows ", begin + 1, " to ", end) : "";
    HeatMap map;
    map.label = StrCat(task, part, ": right answers by method and depth of the needle");
    map.description = StrCat("All contexts have ", words.Counted(length), ".");
    map.column_title = StrCat("depth, in contexts of ", words.Counted(length));
    map.cell_width = 44;
    map.cell_height = 18;
    for (const std::string& depth : depths)
      map.columns.push_back(ByNumber::Number(depth) ? depth + "%" : depth);
    for (; begin < end; ++begin) {
      const auto& [row, grid] = rows[begin];
      map.rows.push_back(board.rows[row].ShortName());
      auto& cells = map.cells.emplace_back();
      for (const std::string& depth : depths) {
        const auto tally = grid->cells.find({depth, length});
        if (tally == grid->cells.end() || tally->second.samples == 0) {
          cells.emplace_back();
        } else {
          cells.push_back(CellOf(tally->second, grid->whole));
        }
      }
    }
    html.Put(R"(<figure><figcaption><b>{}</b>{}</figcaption><div class="scroll">{}</div></figure>)"
             "\n",
             {task, part, Render(map)});
  }
  return html;
}

}  // namespace

Html NeedleSection(const Board& board, const PageData& data, const std::vector<GridCount>& grid) {
  std::map<int64_t, const StoredCell*> cells;
  for (const StoredCell& cell : data.cells) cells[cell.id] = &cell;
  const auto board_index = static_cast<size_t>(&board - data.boards.data());
  struct OfTask {
    Names depths, lengths;
    std::map<size_t, NeedleGrid> rows;
    LengthWords words;
  };
  std::map<std::string, OfTask> tasks;
  for (const GridCount& count : grid) {
    const auto place = data.row_of_cell.find(count.cell);
    if (place == data.row_of_cell.end() || place->second.first != board_index) continue;
    if (board.InSweep(board.rows[place->second.second].method)) continue;
    OfTask& task = tasks[cells.at(count.cell)->cell.task.name];
    task.depths.insert(count.depth);
    task.lengths.insert(count.length);
    task.words.pictures = task.words.pictures || count.pictures;
    NeedleGrid& of_row = task.rows[place->second.second];
    Tally& tally = of_row.cells[{count.depth, count.length}];
    tally.samples += count.samples;
    tally.right += count.right;
    tally.sum += count.mean * static_cast<double>(count.samples);
    const double partial =
        count.mean * static_cast<double>(count.samples) - static_cast<double>(count.right);
    if (partial > 1e-9) of_row.whole = false;
  }
  Html html;
  if (tasks.empty()) return html;
  if (!board.alone) html.Put("<h3>{}</h3>", {board.Title()});
  html.Put(
      R"(<p class="lead">Right answers of all samples in a cell, by where in the context they )"
      "stand; of answers that can be partly right, the sum of their scores. Where a cell is "
      "empty, no sample has a score. {}</p>\n",
      {HeatLegend(HeatScale::kScore, "all wrong", "all right")});
  Html of_one_length;
  int64_t one_length_tasks = 0;
  for (const auto& [name, task] : tasks) {
    // By method: the full cache first, then as the board ranks them.
    std::vector<std::pair<std::string, std::vector<size_t>>> methods;
    for (const auto& entry : task.rows) {
      const std::string method = board.rows[entry.first].Name();
      auto found = std::find_if(methods.begin(), methods.end(),
                                [&](const auto& m) { return m.first == method; });
      if (found == methods.end()) {
        methods.push_back({method, {}});
        found = methods.end() - 1;
      }
      found->second.push_back(entry.first);
    }
    std::stable_partition(methods.begin(), methods.end(), [&](const auto& m) {
      return board.rows[m.second.front()].method.full_cache;
    });
    for (auto& [method, rows] : methods) {
      std::sort(rows.begin(), rows.end(), [&](size_t a, size_t b) {
        return board.rows[a].budget_value < board.rows[b].budget_value;
      });
    }
    if (task.lengths.size() == 1) {
      DepthRows order;
      for (const auto& entry : methods) {
        for (const size_t row : entry.second) order.emplace_back(row, &task.rows.at(row));
      }
      ++one_length_tasks;
      of_one_length.Put(
          DepthMaps(board, name, order, task.depths, *task.lengths.begin(), task.words));
      continue;
    }
    Html tiles;
    size_t shown = 0;
    for (const auto& [method, rows] : methods) {
      Html summary, maps;
      const MethodRow& first = board.rows[rows.front()].method;
      summary.Put(R"({} <span class="soft">{}</span>)", {method, first.title});
      for (const size_t row : rows)
        maps.Put(NeedleMap(board.rows[row], name, task.rows.at(row), task.depths, task.lengths,
                           task.words));
      tiles.Put(Folded(summary, Html().Put(R"(<div class="figures tight">{}</div>)", {maps}),
                       first.family, shown++ < kOpenMaps));
    }
    html.Put(R"(<h3>{}</h3><div class="tiles">{}</div>)"
             "\n",
             {name, tiles});
  }
  if (!of_one_length.empty()) {
    html.Put(Folded(Html().Text(Plural(one_length_tasks, "task", "tasks")),
                    Html().Put(R"(<div class="figures">{}</div>)", {of_one_length}), "", true));
  }
  return html;
}

namespace {

struct Sweep {
  std::string method, budget;
  const LeaderboardTable* table = nullptr;
  std::vector<std::pair<std::map<std::string, std::string>, const LeaderboardLine*>> points;
};

Html SweepMap(const Board& board, const Sweep& sweep) {
  std::map<std::string, Names> values;
  for (const auto& point : sweep.points) {
    for (const auto& [key, value] : point.first) values[key].insert(value);
  }
  std::vector<std::string> keys;
  for (const auto& [key, names] : values) {
    if (names.size() > 1) keys.push_back(key);
  }
  if (keys.empty()) return {};
  // The two with most values are the axes; others make a map each.
  std::stable_sort(keys.begin(), keys.end(), [&](const std::string& a, const std::string& b) {
    return values[a].size() > values[b].size();
  });
  const std::string x = keys[0], y = keys.size() > 1 ? keys[1] : "";
  double low = 1e300, high = -1e300;
  std::map<std::string, std::map<std::pair<std::string, std::string>, const LeaderboardLine*>> maps;
  for (const auto& [parameters, line] : sweep.points) {
    std::string rest;
    for (size_t k = 2; k < keys.size(); ++k) {
      const auto value = parameters.find(keys[k]);
      rest.append(rest.empty() ? "" : ", ")
          .append(keys[k])
          .append("=")
          .append(value != parameters.end() ? value->second : "default");
    }
    const auto at = [parameters = &parameters](const std::string& key) {
      const auto value = parameters->find(key);
      return value != parameters->end() ? value->second : std::string();
    };
    maps[rest][{y.empty() ? "" : at(y), at(x)}] = line;
    low = std::min(low, line->score.value);
    high = std::max(high, line->score.value);
  }
  Html html;
  for (const auto& [rest, cells] : maps) {
    HeatMap map;
    map.scale = HeatScale::kAmount;
    map.label = StrCat(sweep.method, " ", sweep.budget, " on ", sweep.table->task, ": score over ",
                       x, y.empty() ? "" : " and ", y);
    map.column_title = x;
    map.row_title = y;
    map.cell_width = 58;
    map.cell_height = 34;
    const Names rows = y.empty() ? Names{""} : values[y];
    const LeaderboardLine* best = nullptr;
    for (const std::string& row : rows) {
      map.rows.push_back(row);
      auto& out = map.cells.emplace_back();
      for (const std::string& column : values[x]) {
        const auto found = cells.find({row, column});
        if (found == cells.end()) {
          out.emplace_back();
          continue;
        }
        const LeaderboardLine& line = *found->second;
        const bool lower = sweep.table->lower_is_better;
        if (best == nullptr ||
            (lower ? line.score.value < best->score.value : line.score.value > best->score.value))
          best = &line;
        const double place = high > low ? (line.score.value - low) / (high - low) : 0.5;
        const double half = (line.score.interval.high - line.score.interval.low) / 2;
        HeatCell cell;
        cell.value = lower ? 1 - place : place;
        cell.text = ReportedText(*sweep.table, line.reported);
        if (std::isfinite(half)) cell.small = StrCat("±", ScoreText(*sweep.table, half));
        out.push_back(cell);
      }
    }
    for (const std::string& column : values[x]) map.columns.push_back(column);
    const bool alike = !(high > low);
    map.description = alike ? "All settings score alike."
                            : StrCat("Best: ", best->method.variant, " with ",
                                     ReportedText(*sweep.table, best->reported), ".");
    Html caption;
    caption.Put("<b>{} {}</b> on {}", {sweep.method, sweep.budget, sweep.table->task});
    if (!rest.empty()) caption.Put(R"( <span class="soft">{}</span>)", {rest});
    const BoardRow* row = board.Find(*best);
    Html verdict;
    if (alike) {
      verdict.Text("All settings alike");
    } else {
      verdict.Put(R"(Best: <a href="#{}">{}</a>)",
                  {row != nullptr ? row->id : "", best->method.variant});
    }
    html.Put(R"(<figure class="small"><figcaption>{}</figcaption>{}<p class="soft )"
             R"(best">{}</p></figure>)",
             {caption, Render(map), verdict});
  }
  return html;
}

}  // namespace

Html AblationSection(const Board& board) {
  std::map<std::tuple<std::string, std::string, const LeaderboardTable*>, Sweep> sweeps;
  for (const LeaderboardTable* table : board.tasks) {
    for (const LeaderboardLine& line : table->lines) {
      if (line.scored == 0) continue;
      auto parameters = VariantParameters(line.method.variant);
      if (parameters.empty()) continue;
      Sweep& sweep = sweeps[{line.method.name, line.budget, table}];
      sweep.method = line.method.name;
      sweep.budget = line.budget_kind == "none" ? "" : line.budget;
      sweep.table = table;
      sweep.points.emplace_back(std::move(parameters), &line);
    }
  }
  Html maps;
  for (const auto& entry : sweeps) {
    if (entry.second.points.size() >= 2) maps.Put(SweepMap(board, entry.second));
  }
  if (maps.empty()) return maps;
  Html html;
  if (!board.alone) html.Put("<h3>{}</h3>", {board.Title()});
  return html.Put(R"(<p class="lead">Score of each setting with half its 95% interval. {}</p><div )"
                  R"(class="figures tight">{}</div>)"
                  "\n",
                  {HeatLegend(HeatScale::kAmount, "worst of the sweep", "best"), maps});
}

}  // namespace kvgauge::report
