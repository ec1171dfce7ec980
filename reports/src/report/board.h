// SPDX-License-Identifier: Apache-2.0
// The leaderboard as a page shows it: a board holds all rows of one model and compress_at, with a
// column for each group of tasks; every section refers to its rows by their ids.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "reports/draws.h"
#include "reports/leaderboard.h"
#include "reports/leaderboard_split.h"
#include "reports/store.h"
#include "src/html/html.h"
#include "src/report/queries.h"

namespace kvgauge::report {

// The means of a row over its tasks: each counts once, as it does in scores.
struct RowMeans {
  int64_t tasks = 0;  // that bytes were counted on; 0: `bytes` means nothing
  ByteSummary bytes;
  double full_per_token = 0;
  std::optional<double> kl_divergence, top1_agreement, fetched_per_step;
};

// Times of a row at one length of context, measured alone. Repetitions during which other programs
// had more of the machine than the gate allows are left out, unless all were such.
struct RowTimes {
  LatencySummary summary;
  Interval ttft_s, tpot_s;  // the least and the most of its repetitions
  int64_t left_out = 0;
  bool disturbed = false;  // all were: what was timed is the company, too
};

struct BoardRow {
  std::string id;  // in the page: "r12"
  MethodRow method;
  std::string budget, budget_kind;
  double budget_value = 0;
  std::vector<const LeaderboardLine*> lines;  // beside Board::groups; null: not run
  std::vector<int64_t> cells;                 // ids in the store
  RowMeans means;
  std::vector<RowTimes> times;  // by length of context

  std::string Name() const;                               // "snapkv", "snapkv (score.window=16)"
  std::string NameBudget() const;                         // "snapkv 20%"; the full cache is "full"
  std::string ShortName() const;                          // the same without its setting
  const RowTimes* TimesAt(int64_t context_tokens) const;  // null: not timed
};

// Which of its family's methods each one is: figures tell them apart by it. A method has one number
// on a page, whatever board or figure it stands in.
class MethodVarieties {
 public:
  // A method not yet known comes behind those of its family.
  size_t Of(const MethodRow& method);

 private:
  std::map<std::string, std::vector<std::string>> names_;  // by family
};

struct Board {
  std::string model, fingerprint, compress_at;
  std::string model_facts;
  std::vector<const LeaderboardTable*> groups;
  std::vector<const LeaderboardTable*> tasks;
  std::vector<BoardRow> rows;  // in the order of the first group that ranks them
  size_t task_count = 0;       // of its groups
  bool alone = false;          // the only one of its page
  bool same_moment = false;    // all of its page were compressed at the same moment

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
  std::map<std::string, size_t> varieties;  // of its rows' methods
  size_t Variety(const std::string& method) const { return varieties.at(method); }
  // Names the methods of its rows; without `sweeps` only those that InSweep leaves.
  Html Legend(bool sweeps) const;
  // A sentence on the methods that figures leave out; nothing where there are none.
  Html OnlySwept() const;
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
  MethodVarieties varieties;  // by the order of boards and their rows
  // For each fact that tasks report by, beside the tables of by_group and by_task.
  std::vector<KeySplits> group_splits, task_splits;
  std::vector<DrawTable> draws;                              // beside the tables of by_task
  std::map<int64_t, std::pair<size_t, size_t>> row_of_cell;  // board and row
};
Result<PageData> GatherPage(ResultStore& store, const LeaderboardOptions& options);

// Scores are shown of a hundred, whatever their tasks' own scale, with the decimals that the tasks'
// authors print, else one; perplexities as they are, with three digits. A row's score is printed as
// the authors make it, rounded task by task (LeaderboardLine::reported); what is drawn, intervals
// and differences come from unrounded means.
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

// "median of 5 repetitions, 21.0 ms to 23.0 ms; 2 disturbed ones left out".
std::string RepetitionsText(const RowTimes& times, const Interval& range);
// The same in a word beside the number; nothing of times that were not disturbed.
Html DisturbedMark(const RowTimes& times);

// A variant's parameters: {"score.window", "16"}.
std::map<std::string, std::string> VariantParameters(const std::string& variant);

}  // namespace kvgauge::report
