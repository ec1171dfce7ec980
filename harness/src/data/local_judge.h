// SPDX-License-Identifier: Apache-2.0
// A judge that is one of our own models: greedy, with its chat template and the full cache.
#pragma once

#include <string>

#include "core/result.h"
#include "datasets/judge.h"

namespace kvgauge {

// A checkpoint's directory. The weights are loaded at the first question; what can be wrong before
// that (no tokenizer, no configuration) is an error now. Its name holds the fingerprint, so that
// replies of other weights are not taken for its own.
Result<Judge> LocalJudge(const std::string& directory);

}  // namespace kvgauge
