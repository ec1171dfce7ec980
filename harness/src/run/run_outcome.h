// SPDX-License-Identifier: Apache-2.0
// What came of a run as JSON, for people's programs and for the process that leads several workers.
#pragma once

#include <string>
#include <vector>

#include "core/json_fwd.h"
#include "core/result.h"
#include "src/run/run_executor.h"

namespace kvgauge {

Json ReasonsJson(const std::vector<ReasonTally::Line>& lines);
Json OutcomeJson(const RunOutcome& outcome, const std::string& name, const std::string& database);
// The same back; `from` begins the message where it is none.
Result<RunOutcome> ReadOutcome(const std::string& json, const std::string& from);
// What came of both parts of a run. Seconds are not added: parts run at one time.
void AddOutcome(const RunOutcome& part, RunOutcome& all);

}  // namespace kvgauge
