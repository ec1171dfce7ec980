// SPDX-License-Identifier: Apache-2.0
#include "src/report/board_tables.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/strings.h"
#include "src/html/format.h"
#include "src/html/script_json.h"
#include "src/html/visible.h"
#include "src/token_bytes.h"

namespace kvgauge::report {
namespace {

ReportCell Text(const std::string& text) { return {text}; }
ReportCell Number(const std::optional<double>& value, Unit unit) {
  if (!value || !std::isfinite(*value)) return {};
  return {Format(*value, unit), *value};
}
ReportCell Count(int64_t value) { return {StrCat(value), static_cast<double>(value)}; }

// A table whose first columns name the row.
class Builder {
 public:
  Builder(const PageData& data, const std::string& id, const std::string& title,
          const std::vector<ReportColumn>& columns)
      : several_(data.boards.size() > 1) {
    table_.id = id;
    table_.title = title;
    if (several_) table_.columns = {{"model", false}, {"compressed at", false}};
    for (const char* name : {"method", "variant", "budget"})
      table_.columns.push_back({name, false});
    table_.columns.insert(table_.columns.end(), columns.begin(), columns.end());
  }

  void Add(const Board& board, const MethodRow& method, const std::string& budget,
           std::vector<ReportCell> cells) {
    std::vector<ReportCell> row;
    if (several_) row = {{board.model}, {board.compress_at}};
    for (const std::string& name : {method.name, method.variant, budget}) row.push_back({name});
    row.insert(row.end(), cells.begin(), cells.end());
    table_.rows.push_back(std::move(row));
  }

  ReportTable Take() { return std::move(table_); }

 private:
  bool several_;
  ReportTable table_;
};

// Score, its interval, the difference to the full cache with its own, verdict, rank.
const std::vector<ReportColumn> kScoreColumns = {
    {"score"},          {"low"},     {"high"}, {"vs full"}, {"vs full low"}, {"vs full high"},
    {"verdict", false}, {"samples"}, {"rank"}};

std::vector<ReportCell> ScoreCells(const LeaderboardTable& table, const LeaderboardLine& line) {
  const auto score = [&](double value) {
    if (!std::isfinite(value)) return ReportCell();
    return ReportCell{ScoreText(table, value), ScoreNumber(table, value)};
  };
  const auto change = [&](double value) {
    if (!std::isfinite(value)) return ReportCell();
    return ReportCell{DifferenceText(table, value), ScoreNumber(table, value)};
  };
  const Interval interval = ShownInterval(table, line);
  std::vector<ReportCell> cells = {
      {ReportedText(table, line.reported), ScoreNumber(table, line.score.value)},
      score(interval.low),
      score(interval.high)};
  if (line.versus_full) {
    const Evidence& e = *line.versus_full;
    for (const double value : {e.value, e.interval.low, e.interval.high}) {
      cells.push_back(change(value));
    }
    cells.push_back(Text(VerdictWord(line.verdict)));
  } else {
    cells.resize(6);
    cells.push_back(Text(line.method.full_cache ? "reference" : ""));
  }
  cells.push_back(Count(line.scored));
  cells.push_back(line.rank ? Count(*line.rank) : ReportCell());
  return cells;
}

ReportTable Scores(const PageData& data, const std::string& id, const std::string& title,
                   const std::string& first, std::vector<const LeaderboardTable*> Board::*tables) {
  std::vector<ReportColumn> columns = {{first, false}, {"metric", false}};
  columns.insert(columns.end(), kScoreColumns.begin(), kScoreColumns.end());
  Builder builder(data, id, title, columns);
  for (const Board& board : data.boards) {
    for (const LeaderboardTable* table : board.*tables) {
      for (const LeaderboardLine& line : table->lines) {
        if (line.scored == 0) continue;
        std::vector<ReportCell> cells = {Text(table->task), Text(table->metric)};
        const std::vector<ReportCell> scores = ScoreCells(*table, line);
        cells.insert(cells.end(), scores.begin(), scores.end());
        builder.Add(board, line.method, line.budget, std::move(cells));
      }
    }
  }
  return builder.Take();
}

}  // namespace

ReportTable GroupTable(const PageData& data) {
  return Scores(data, "groups", "Scores of groups of tasks", "group", &Board::groups);
}

ReportTable TaskTable(const PageData& data) {
  return Scores(data, "tasks", "Scores of tasks", "task", &Board::tasks);
}

ReportTable BytesTable(const PageData& data, const std::vector<BytesByKind>& bytes) {
  std::vector<ReportColumn> columns = {{"held / full"}};
  for (const char* kind : BytesByKind::kNames) columns.push_back({kind});
  columns.push_back({"full cache"});
  Builder builder(data, "bytes", "Bytes a token of context, by kind", columns);
  struct Sums {
    int64_t cells = 0;
    double parts[BytesByKind::kKinds] = {}, full = 0;
  };
  std::map<std::pair<size_t, size_t>, Sums> sums;
  for (const BytesByKind& of_cell : bytes) {
    const auto place = data.row_of_cell.find(of_cell.cell);
    if (place == data.row_of_cell.end()) continue;
    const Board& board = data.boards[place->second.first];
    const double tokens =
        HeldTokens(of_cell.full_bytes, FullTokenBytes(board.model_facts), of_cell.tokens_in);
    if (tokens <= 0) continue;
    Sums& row = sums[place->second];
    ++row.cells;
    for (size_t k = 0; k < std::size(row.parts); ++k) row.parts[k] += of_cell.parts[k] / tokens;
    row.full += of_cell.full_bytes / tokens;
  }
  for (const auto& [place, row] : sums) {
    const Board& board = data.boards[place.first];
    const BoardRow& of_board = board.rows[place.second];
    const auto cells = static_cast<double>(row.cells);
    std::vector<ReportCell> out = {Number(of_board.means.bytes.resident_ratio, Unit::kPercent)};
    for (const double part : row.parts) {
      out.push_back(part > 0 ? Number(part / cells, Unit::kBytes) : ReportCell());
    }
    out.push_back(Number(row.full / cells, Unit::kBytes));
    builder.Add(board, of_board.method, of_board.budget, std::move(out));
  }
  return builder.Take();
}

ReportTable TimesTable(const PageData& data) {
  Builder builder(
      data, "times", "Times measured alone",
      {{"context"},   {"ttft"},           {"ttft least"},  {"ttft most"},   {"ttft / full"},
       {"tpot"},      {"tpot least"},     {"tpot most"},   {"tpot / full"}, {"vision"},
       {"prefill"},   {"scoring"},        {"selecting"},   {"compacting"},  {"quantising"},
       {"attending"}, {"other decoding"}, {"repetitions"}, {"left out"},    {"note", false}});
  for (const Board& board : data.boards) {
    for (const BoardRow& row : board.rows) {
      for (const RowTimes& times : row.times) {
        const LatencySummary& s = times.summary;
        std::vector<ReportCell> cells = {Count(s.context_tokens)};
        for (const double value : {s.ttft_s.p50, times.ttft_s.low, times.ttft_s.high}) {
          cells.push_back(Number(value, Unit::kSeconds));
        }
        cells.push_back(Number(s.ttft_ratio, Unit::kRatio));
        for (const double value : {s.tpot_s.p50, times.tpot_s.low, times.tpot_s.high}) {
          cells.push_back(Number(value, Unit::kSeconds));
        }
        cells.push_back(Number(s.tpot_ratio, Unit::kRatio));
        cells.push_back(s.vision_s > 0 ? Number(s.vision_s, Unit::kSeconds) : ReportCell());
        cells.push_back(Number(s.prefill_s, Unit::kSeconds));
        for (const double value : {s.score_s, s.select_s, s.compact_s, s.quantise_s}) {
          // What is measured of the full cache's is the clock.
          const bool none = value <= 0 || row.method.full_cache;
          cells.push_back(none ? ReportCell() : Number(value, Unit::kSeconds));
        }
        for (const double value : {s.attend_s, s.other_s}) {
          cells.push_back(Number(value, Unit::kSeconds));
        }
        cells.push_back(Count(s.count));
        cells.push_back(Count(times.left_out));
        cells.push_back(Text(times.disturbed ? "disturbed" : ""));
        builder.Add(board, row.method, row.budget, std::move(cells));
      }
    }
  }
  return builder.Take();
}

ReportTable NeedleTable(const PageData& data, const std::vector<GridCount>& grid) {
  Builder builder(
      data, "needles", "Needles by depth and length",
      {{"task", false}, {"seed"}, {"depth"}, {"length"}, {"samples"}, {"right"}, {"score"}});
  std::map<int64_t, const StoredCell*> cells;
  for (const StoredCell& cell : data.cells) cells[cell.id] = &cell;
  for (const GridCount& count : grid) {
    const auto place = data.row_of_cell.find(count.cell);
    if (place == data.row_of_cell.end()) continue;
    const CellRow& cell = cells.at(count.cell)->cell;
    builder.Add(data.boards[place->second.first], cell.method, cell.budget,
                {Text(cell.task.name), Count(cell.seed), Text(count.depth), Text(count.length),
                 Count(count.samples), Count(count.right), Number(count.mean, Unit::kDecimals)});
  }
  return builder.Take();
}

ReportTable CapacityTable(const std::vector<CapacityBoard>& capacities) {
  ReportTable table = {
      .id = "capacity", .title = "Capacity in a memory", .columns = {}, .rows = {}};
  for (const char* name : {"model", "measured in", "method", "variant", "budget"}) {
    table.columns.push_back({name, false});
  }
  for (const char* name :
       {"batch", "held", "fit", "tokens/s", "tokens/s least", "tokens/s most", "first token p50",
        "first token p90", "token p50", "token p90", "whole p50", "whole p90", "sequence bytes",
        "peak bytes", "served", "requests", "repetitions", "left out"}) {
    table.columns.push_back({name});
  }
  table.columns.push_back({"note", false});
  for (const CapacityBoard& board : capacities) {
    for (const CapacityEntry& entry : board.entries) {
      const CapacityRow& row = entry.row;
      std::vector<ReportCell> cells = {Text(board.model.name), Text(board.Title()),
                                       Text(row.method.name), Text(row.method.variant),
                                       Text(row.budget)};
      cells.push_back(row.batch == 0 ? Text("max") : Count(row.batch));
      if (!entry.ran()) {
        cells.resize(table.columns.size() - 1);
        cells.push_back(Text(StrCat("refused: ", row.refused)));
        table.rows.push_back(std::move(cells));
        continue;
      }
      cells.push_back(Count(row.held));
      cells.push_back(row.fit ? Count(*row.fit) : ReportCell());
      for (const double value :
           {row.tokens_per_s, entry.tokens_per_s.low, entry.tokens_per_s.high}) {
        cells.push_back(Number(value, Unit::kNumber));
      }
      for (const double value : {row.ttft_p50_s, row.ttft_p90_s, row.tpot_p50_s, row.tpot_p90_s,
                                 row.e2e_p50_s, row.e2e_p90_s}) {
        cells.push_back(Number(value, Unit::kSeconds));
      }
      for (const int64_t bytes : {row.sequence_bytes, row.peak_bytes}) {
        cells.push_back(Number(static_cast<double>(bytes), Unit::kBytes));
      }
      cells.push_back(Count(row.served));
      cells.push_back(Count(row.requests));
      cells.push_back(Count(entry.repetitions));
      cells.push_back(Count(entry.left_out));
      cells.push_back(Text(entry.disturbed       ? "disturbed"
                           : row.not_engaged > 0 ? StrCat("not engaged: ", row.not_engaged_because)
                                                 : row.failure));
      table.rows.push_back(std::move(cells));
    }
  }
  return table;
}

ReportTable SpeculationTable(const std::vector<SpeculationBoard>& speculations) {
  ReportTable table = {
      .id = "speculation", .title = "Speculative decoding", .columns = {}, .rows = {}};
  for (const char* name : {"model", "measured with", "form", "method", "variant", "budget"}) {
    table.columns.push_back({name, false});
  }
  for (const char* name :
       {"drafted", "prompts", "accepted", "accepted least", "accepted most", "accepted a check",
        "tokens a check", "tokens/s", "tokens/s least", "tokens/s most", "full alone tokens/s",
        "times", "times least", "times most", "draft bytes", "full cache bytes", "held bytes",
        "timed", "left out"}) {
    table.columns.push_back({name});
  }
  table.columns.push_back({"note", false});
  for (const SpeculationBoard& board : speculations) {
    for (const SpeculationEntry& entry : board.entries) {
      const SpeculationRow& row = entry.row;
      std::vector<ReportCell> cells = {
          Text(board.model.name),   Text(board.Title()), Text(row.form),   Text(row.method.name),
          Text(row.method.variant), Text(row.budget),    Count(row.gamma), Count(entry.prompts)};
      for (const double share :
           {entry.acceptance(), entry.acceptance_range.low, entry.acceptance_range.high}) {
        cells.push_back(Number(share, Unit::kPercent));
      }
      for (const double value : {entry.accepted_per_check(), entry.tokens_per_check(),
                                 entry.tokens_per_s.median, entry.tokens_per_s.range.low,
                                 entry.tokens_per_s.range.high, entry.full_tokens_per_s.median}) {
        cells.push_back(Number(value, Unit::kNumber));
      }
      for (const double value :
           {entry.speedup.median, entry.speedup.range.low, entry.speedup.range.high}) {
        cells.push_back(Number(value, Unit::kRatio));
      }
      for (const int64_t bytes : {row.draft_bytes, row.judge_bytes, row.held_bytes}) {
        cells.push_back(Number(static_cast<double>(bytes), Unit::kBytes));
      }
      cells.push_back(Count(entry.timed));
      cells.push_back(Count(entry.left_out));
      cells.push_back(Text(entry.disturbed         ? "disturbed"
                           : entry.not_engaged > 0 ? StrCat("not engaged in ", entry.not_engaged)
                                                   : ""));
      table.rows.push_back(std::move(cells));
    }
  }
  return table;
}

Html TablesData(const std::vector<ReportTable>& tables) {
  ScriptJson json;
  json.OpenObject();
  bool any = false;
  for (const ReportTable& table : tables) {
    if (table.rows.empty()) continue;
    any = true;
    json.Line().Key(table.id).OpenObject().Key("columns").OpenList();
    for (const ReportColumn& column : table.columns) json.Text(column.name);
    json.CloseList().Key("rows").OpenList();
    for (size_t r = 0; r < table.rows.size(); ++r) {
      if (r > 0) json.Line();
      json.OpenList();
      for (const ReportCell& cell : table.rows[r]) {
        if (cell.number) {
          json.Number(*cell.number);
        } else {
          json.Text(MakeVisible(cell.text));
        }
      }
      json.CloseList();
    }
    json.CloseList().CloseObject();
  }
  Html html;
  if (!any) return html;
  return html.PutData("tables-data", json.Line().CloseObject().text());
}

Html DownloadButton(const ReportTable& table) {
  Html html;
  if (table.rows.empty()) return html;
  return html.Put(
      R"(<p class="js"><button type="button" class="download" data-table="{}">Download CSV: )"
      "{}</button></p>\n",
      {table.id, table.title});
}

}  // namespace kvgauge::report

namespace kvgauge {

Result<std::vector<ReportTable>> MakeReportTables(ResultStore& store,
                                                  const ReportOptions& options) {
  report::Queries queries(store);
  KVG_ASSIGN(const report::PageData data, report::GatherPage(store, options.leaderboard));
  KVG_ASSIGN(const std::vector<report::BytesByKind> bytes, queries.Bytes());
  KVG_ASSIGN(const std::vector<CapacityRow> capacities, store.Capacities());
  KVG_ASSIGN(const std::vector<SpeculationRow> speculations, store.Speculations());
  std::vector<ReportTable> tables = {report::GroupTable(data),
                                     report::TaskTable(data),
                                     report::BytesTable(data, bytes),
                                     report::TimesTable(data),
                                     report::CapacityTable(SummariseCapacity(capacities)),
                                     report::SpeculationTable(SummariseSpeculation(speculations))};
  std::erase_if(tables, [](const ReportTable& table) { return table.rows.empty(); });
  return tables;
}

}  // namespace kvgauge
