// SPDX-License-Identifier: Apache-2.0
// Other texts in the place of a prompt's (methods/rewriting_thin.h).
#pragma once

#include <cstdint>
#include <vector>

#include "core/result.h"
#include "methods/method.h"
#include "methods/rewriting_thin.h"
#include "runner/model.h"

namespace kvgauge {

// Puts the ids of the stage's changes into `prompt`. The rows that stay, ascending.
Result<std::vector<int32_t>> RewritePrompt(const RewritingThin& stage, const StageChoice& choice,
                                           const Model& model, Prompt& prompt);

}  // namespace kvgauge
