// SPDX-License-Identifier: Apache-2.0
// The leaderboard as a page shows it: a board holds all rows of one model and compress_at, with a
// column for each group of tasks; every section refers to its rows by their ids.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "reports/leaderboard.h"
#include "reports/leaderboard_split.h"
#include "reports/store.h"
#include "src/html/html.h"
#include "src/report/queries.h"

namespace kvgauge::report {

struct BoardRow {
  std::string id;  // in the page: "r12"
  MethodRow method;
  std::string budget, budget_kind;
  double budget_value = 0;
  std::vector<const LeaderboardLine*> lines;  // beside Board::groups; null: not run
  std::vector<int64_t> cells;                 // ids in the store

  std::string Name() const;        // "snapkv", "snapkv (score.window=16)"
  std::string NameBudget() const;  // "snapkv 20%"; the full cache is "full"
  std::string ShortName() const;   // the same without its setting
  // The first line that holds such; null: none.
  const LeaderboardLine* WithBytes() const;
  const LeaderboardLine* WithLatency() const;  // isolated
};

struct Board {
  std::string model, fingerprint, compress_at;
  std::string model_facts;
  std::vector<const LeaderboardTable*> groups;
  std::vector<const LeaderboardTable*> tasks;
  std::vector<BoardRow> rows;  // in the order of the first group that ranks them
  bool alone = false;          // the only one of its page

  // Scripts show the first rows of its table until all are asked for: to lay out three hundred rows
  // of thirty columns takes longer than all the rest. The style sheet has the number of rows.
  bool IsLong() const { return rows.size() > 150; }

  // "ref-gqa", with compress_at where boards differ in it.
  std::string Title() const;
  const BoardRow* Find(const LeaderboardLine& line) const;
  const BoardRow* Full() const;
  // Is it one of several settings of its method? Figures of methods show the plain ones alone;
  // a method that was run in one setting only is shown in that.
  bool InSweep(const MethodRow& method) const;
  Html Legend() const;  // of the families of its rows
};

// The tables of a leaderboard by one fact of their samples.
struct KeySplits {
  std::string key;
  std::vector<LeaderboardSplit> of_table;
};

struct PageData {
  LeaderboardModel by_group, by_task;
  std::vector<StoredRun> runs;
  std::vector<StoredCell> cells;
  std::vector<Board> boards;
  // For each fact that tasks report by, beside the tables of by_group and by_task.
  std::vector<KeySplits> group_splits, task_splits;
  std::map<int64_t, std::pair<size_t, size_t>> row_of_cell;  // board and row
};
Result<PageData> GatherPage(ResultStore& store, const LeaderboardOptions& options);

// Scores are shown of a hundred, whatever their tasks' own scale, with the decimals that the tasks'
// authors print, else one; perplexities as they are, with three digits. A row's score is printed as
// the authors make it, rounded task by task (LeaderboardLine::reported); what is drawn, intervals
// and differences come from means that nobody rounded.
std::string ScoreText(const LeaderboardTable& table, double score);
std::string ReportedText(const LeaderboardTable& table, double reported);
// The same as sentences, for readers of a board.
std::string ScoreRule(const Board& board);
// What is plotted, and how its axis is named.
double ScoreNumber(const LeaderboardTable& table, double score);
std::string ScoreTitle(const LeaderboardTable& table);
// The interval of a mean, no wider than scores can be.
Interval ShownInterval(const LeaderboardTable& table, const LeaderboardLine& line);
// A difference: "+1.2".
std::string DifferenceText(const LeaderboardTable& table, double difference);

// "same", "better" ... with a sign that needs no colour.
Html VerdictMark(Verdict verdict);
std::string VerdictWord(Verdict verdict);
// Everything known of a comparison with the full cache, as sentences.
std::string EvidenceText(const LeaderboardTable& table, const LeaderboardLine& line);
// What a point or row says of itself.
std::string RowTip(const LeaderboardTable& table, const BoardRow& row, const LeaderboardLine& line);

// A variant's parameters: {"score.window", "16"}.
std::map<std::string, std::string> VariantParameters(const std::string& variant);

}  // namespace kvgauge::report
