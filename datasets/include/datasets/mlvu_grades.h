// SPDX-License-Identifier: Apache-2.0
// MLVU's G-Avg over a file of grades that a judge gave to generated answers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "datasets/aggregate.h"

namespace kvgauge {

// The id by which `kvgauge score` knows it; no metric of one answer, so never registered.
inline constexpr std::string_view kGenerationAverage = "g_avg";

struct GradedTask {
  std::string name;
  int64_t count = 0;
  double mean_sum = 0;  // 2 to 10
};

struct GradedSet {
  std::vector<GradePair> grades;
  std::vector<int64_t> lines;  // of each pair, from 1
  std::vector<std::string> bad_lines;
  std::vector<GradedTask> tasks;  // sorted by name
  // The mean over the tasks, each counted once, on the scale 2 to 10. Half of it is on the scale
  // 1 to 5 that is often quoted: state which.
  double generation_average = 0;
};

// Two numbers of 1 to 5, whatever stands around them: "{'accuracy': 3, 'relevance': 4}", "3, 4".
Result<GradePair> ParseGradePair(const std::string& reply);

// JSON lines; each has "grades", a list of two numbers of 1 to 5, or the judge's reply as
// "prediction" (or "pred"). The text under the key `by` names the task. No line left is an error.
Result<GradedSet> AverageGrades(const std::string& path, const std::string& by, bool skip_bad);

}  // namespace kvgauge
