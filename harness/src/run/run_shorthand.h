// SPDX-License-Identifier: Apache-2.0
// A run that the command line describes, without a file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/json_fwd.h"
#include "core/result.h"
#include "src/run/run_config.h"

namespace kvgauge {

struct RunShorthand {
  std::vector<std::string> models, tasks, methods, budgets;

  bool empty() const {
    return models.empty() && tasks.empty() && methods.empty() && budgets.empty();
  }
};

// The configuration that the words stand for: written to a file, `kvgauge run FILE` does the same
// with cells of the same keys. `overrides` that a file has keys for become keys of it. `limit`: the
// first so many samples of each task; -1: all. A flag that is missing or names something unknown is
// an error that names the flag.
Result<Json> ShorthandConfig(const RunShorthand& run, const RunOverrides& overrides, int64_t limit);

}  // namespace kvgauge
