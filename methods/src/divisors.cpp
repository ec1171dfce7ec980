// SPDX-License-Identifier: Apache-2.0
#include "methods/divisors.h"

#include <algorithm>
#include <vector>

#include "core/strings.h"

namespace kvgauge {

std::string DivisorsOf(int64_t number, int64_t least, int64_t most) {
  std::vector<std::string> all;
  for (int64_t d = least; d <= std::min(number, most); ++d) {
    if (number % d == 0) all.push_back(StrCat(d));
  }
  if (all.empty()) return "none";
  const std::string last = all.back();
  all.pop_back();
  return all.empty() ? last : StrCat(Join(all, ", "), " or ", last);
}

}  // namespace kvgauge
