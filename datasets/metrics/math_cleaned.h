// SPDX-License-Identifier: Apache-2.0
// An answer in LaTeX without what says nothing of its value.
#pragma once

#include <string>
#include <string_view>

namespace kvgauge::metrics {

void ReplaceEach(std::string& text, std::string_view what, std::string_view instead = "");

// The end of the group whose opening brace is at `at`, its closing brace included; npos: none.
size_t MathGroupEnd(std::string_view text, size_t at);

// Without marks of size and space, units, signs of money and degrees, and commas of thousands.
std::string CleanedMath(std::string_view answer);

}  // namespace kvgauge::metrics
