// SPDX-License-Identifier: Apache-2.0
// Answers that another model grades, or holds against the references.
#pragma once

#include <string>
#include <string_view>

#include "core/result.h"
#include "src/data/score.h"

namespace kvgauge {

inline constexpr std::string_view kWinMetric = "judge_wins";

// `metric`: judge or judge_wins; `what` needs it, for the message.
Status RunJudge(const ScoreOptions& options, const std::string& metric, const std::string& what);

}  // namespace kvgauge
