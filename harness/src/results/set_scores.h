// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reports/set_score.h"

namespace kvgauge {

// Covers every metric of this build whose score of a set is no mean, and perplexities, which are
// taken over all counted tokens. Commands that read stores for people pass it on.
SumScores KnownSetScores();

}  // namespace kvgauge
