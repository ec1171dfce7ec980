// SPDX-License-Identifier: Apache-2.0
// Beside a leaderboard: how fast the full cache is with the drafts of compressed ones.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/json_fwd.h"
#include "core/result.h"
#include "reports/speculation.h"
#include "reports/store.h"

namespace kvgauge {

// What the union of the stores holds; a row that several hold counts once.
Result<std::vector<SpeculationBoard>> ReadSpeculations(std::span<ResultStore* const> stores);

// A table for each model, set of prompts and machine, the fastest draft first; "" without any.
std::string SpeculationText(const std::vector<SpeculationBoard>& boards, bool markdown,
                            bool colour);
Json SpeculationJson(const std::vector<SpeculationBoard>& boards);

}  // namespace kvgauge
