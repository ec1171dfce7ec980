// SPDX-License-Identifier: Apache-2.0
// The names that a misspelt one may have meant, for lists too long to print.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kvgauge {

// At most `most` of `known`, nearest first: near by edit distance, or beginning with `name`.
std::vector<std::string> NearNames(std::string_view name, const std::vector<std::string>& known,
                                   size_t most = 3);
// " (did you mean 'a', 'b' or 'c'?)" or ""; for the end of an error message.
std::string DidYouMeanOneOf(std::string_view name, const std::vector<std::string>& known);

}  // namespace kvgauge
