// SPDX-License-Identifier: Apache-2.0
// The command `score`: a metric over a file of predictions.
#pragma once

#include <string>

#include "core/result.h"

namespace kvgauge {

struct ScoreOptions {
  std::string metric;
  std::string pairs;  // JSON lines; datasets/pairs.h says what they hold
  bool skip_bad = false;
  bool json = false;
};

Status RunScore(const ScoreOptions& options);

}  // namespace kvgauge
