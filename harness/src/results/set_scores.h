// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reports/set_score.h"

namespace kvgauge {

// Of every metric of this build whose score of a set is no mean, and of perplexities, which are
// taken over all counted tokens. What reads stores for people passes it on.
SumScores KnownSetScores();

}  // namespace kvgauge
