// SPDX-License-Identifier: Apache-2.0
// What an answer in LaTeX stands for: numbers and expressions, and what is made of these: lists,
// sets, tuples and intervals, unions, matrices, equations and inequalities.
#pragma once

#include <optional>
#include <string_view>

namespace kvgauge::metrics {

// Whether an answer stands for the same as the right one. Expressions are equal where they agree at
// several points that their letters are given, i being the imaginary unit; plain numbers where one
// is written with decimals, rounded to six of them. Nothing where one of them cannot be read.
std::optional<bool> EqualMathValues(std::string_view answer, std::string_view right);

// Whether it is a single expression without letters, and which number; for votes.
std::optional<double> MathNumber(std::string_view answer);

}  // namespace kvgauge::metrics
