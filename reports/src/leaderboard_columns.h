// SPDX-License-Identifier: Apache-2.0
// From lines of a table to columns of paired scores, and one number for a method over its budgets.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "reports/leaderboard.h"
#include "src/leaderboard_data.h"
#include "src/resampling.h"

namespace kvgauge {

inline constexpr size_t kNoLine = static_cast<size_t>(-1);

// A line's place in each task of its table; null where it was not run.
struct DraftLine {
  std::vector<const TaskLine*> parts;
};

// A value for each unit of each task; NaN: none. A task may have none at all.
using UnitValues = std::vector<std::vector<double>>;

// The mean over tasks; tasks without values are left out.
MeanColumn ColumnOf(const std::vector<const TaskData*>& tasks, const UnitValues& values);
// sign x (values of `line`, less those of `other` where that is given), over the units of both.
UnitValues PairedValues(const std::vector<const TaskData*>& tasks,
                        std::vector<double> TaskLine::*field, const DraftLine& line,
                        const DraftLine* other, double sign);
// Scores of `line`, over the units that `other` has as well where that is given: where the score of
// a set is no mean, of that very set.
UnitValues CommonScores(const std::vector<const TaskData*>& tasks, const DraftLine& line,
                        const DraftLine* other);
// The same as PairedValues makes them of other fields.
UnitValues PairedScores(const std::vector<const TaskData*>& tasks, const DraftLine& line,
                        const DraftLine* other, double sign);
MeanColumn ScoreColumn(const std::vector<const TaskData*>& tasks, const DraftLine& line,
                       const DraftLine* other, double sign);

// The chance of such differences between two equal lines: McNemar's exact test where all scores are
// 0 or 1 and every unit its own cluster, else sign flips. `test` takes its name.
double PairedP(const std::vector<const TaskData*>& tasks, const DraftLine& a, const DraftLine& b,
               const MeanColumn& differences, std::string& test);

// Clusters of which the sum of differences is not zero.
int64_t Differing(const MeanColumn& differences);

// Every score of the tasks is from 0 to 1.
bool AllBetweenZeroAndOne(const std::vector<const TaskData*>& tasks);

// `result` of differences as evidence; p and test are left open.
Evidence EvidenceOf(const ColumnResult& result, double reach, double alpha);

// Scores from 0 to 1 have means from 0 to 1.
void ClampInterval(Interval& interval, double low, double high);

// Fills area_range and methods. `lines` lie beside table.lines.
void AddAreas(const std::vector<const TaskData*>& tasks, const std::vector<DraftLine>& lines,
              size_t reference, const LeaderboardOptions& options, LeaderboardTable& table);

}  // namespace kvgauge
