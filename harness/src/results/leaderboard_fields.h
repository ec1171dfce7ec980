// SPDX-License-Identifier: Apache-2.0
// The rows of a leaderboard as named values (what --filter, --sort, CSV and JSON speak of), and as
// the columns that people read.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/json_fwd.h"
#include "core/result.h"
#include "reports/leaderboard.h"
#include "src/cli/table.h"

namespace kvgauge {

// Ids of all values, in the order of CSV files.
const std::vector<std::string>& LeaderboardFields();
// One set of names for --columns, --sort and --filter: columns, then the values that have none.
const std::vector<std::string>& LeaderboardNames();
// The value that a name stands for: "logical_ratio" of "bytes".
std::string FieldOfName(std::string_view name);
// For programs: an interval is its two ends. Other names stay as they were asked for.
std::vector<std::string> FieldsOfNames(const std::vector<std::string>& names);
// A line's value by any name; null where it has none. Scores are in the metric's own units.
Json FieldOf(const LeaderboardTable& table, const LeaderboardLine& line, std::string_view name);
// True where more is better, so that sorting begins with the largest.
bool MoreIsBetter(const LeaderboardTable& table, std::string_view name);

// "k=v", also != < > <= >=; alternatives by commas; a * at the end stands for anything.
struct FieldFilter {
  std::string id, operation, value;
};
Result<FieldFilter> ParseFieldFilter(const std::string& text);
Result<bool> Passes(const FieldFilter& filter, const LeaderboardTable& table,
                    const LeaderboardLine& line);

// Columns for people.
const std::vector<std::string>& LeaderboardColumns();
// Those that a table shows when none are named.
const std::vector<std::string>& DefaultColumns();
// Any name; a value without a column is shown as it is.
TableColumn ColumnOf(std::string_view id);
TableCell CellOf(const LeaderboardTable& table, const LeaderboardLine& line, std::string_view id);

// A score, or a difference of scores with its sign, as the task reports it.
std::string ShowScore(const LeaderboardTable& table, double score);
// For a score that is scaled already.
std::string ShowReported(const LeaderboardTable& table, double reported);
std::string ShowChange(const LeaderboardTable& table, double change);
// "[0.91, 0.97]", or "" where nothing is known.
std::string ShowInterval(const LeaderboardTable& table, const Interval& interval, bool change);
std::string ShowSeconds(double seconds);
Tone ToneOf(Verdict verdict);

}  // namespace kvgauge
