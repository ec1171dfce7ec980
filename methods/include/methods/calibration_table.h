// SPDX-License-Identifier: Apache-2.0
// Tables of numbers by name, as side-files hold them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace kvgauge {

struct CalibrationTable {
  std::vector<int64_t> shape;
  std::vector<float> values;  // row-major
};
using CalibrationTables = std::map<std::string, CalibrationTable, std::less<>>;

}  // namespace kvgauge
