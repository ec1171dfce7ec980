// SPDX-License-Identifier: Apache-2.0
// Stores as the user names them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/result.h"
#include "reports/store.h"

namespace kvgauge {

// For reading. Whatever is wrong with the file is bad input; a missing one names its neighbours.
Result<std::unique_ptr<ResultStore>> OpenForReading(const std::string& path);

struct OpenStores {
  std::vector<std::unique_ptr<ResultStore>> owned;
  std::vector<ResultStore*> all;
};
// A file that is named twice is opened once.
Result<OpenStores> OpenAllForReading(const std::vector<std::string>& paths);

}  // namespace kvgauge
