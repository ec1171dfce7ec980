// SPDX-License-Identifier: Apache-2.0
// Where a context divides into passages, for methods that reuse what was read of each.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace kvgauge {

// The first bytes of lines that begin a passage as public data sets mark them: "Passage 3:",
// "Paragraph 3:", "Document 3:" and "Document [3]". Ascending; empty where nothing is marked.
std::vector<int64_t> FindPassages(std::string_view context);

}  // namespace kvgauge
