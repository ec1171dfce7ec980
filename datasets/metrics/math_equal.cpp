// SPDX-License-Identifier: Apache-2.0
// Answers of the MATH data set: equal as its authors compare texts, or equal in value.
#include <cstdio>

#include "metrics/math_strings.h"
#include "metrics/math_values.h"

namespace kvgauge::metrics::math_equal {
namespace {

constexpr const char* kHendrycks = "hendrycks/math math_equivalence.py is_equiv, commit 985bdc1";

double EqualTexts(TextView prediction, TextView answer) {
  return EqualMathTexts(prediction, answer) ? 1 : 0;
}

double EqualValues(TextView prediction, TextView answer) {
  if (EqualMathTexts(prediction, answer)) return 1;
  // An empty answer is none.
  if (Strip(prediction).empty()) return 0;
  return EqualMathValues(Encode(prediction), Encode(answer)).value_or(false) ? 1 : 0;
}

// Answers that are equal by the first rule have equal texts, and most of those that are by value.
std::string Canonical(const std::string& answer) {
  if (const std::optional<double> number = MathNumber(answer)) {
    char text[40];
    std::snprintf(text, sizeof(text), "%.9g", *number);
    return text;
  }
  const std::optional<Text> normal = NormalMath(Decode(answer));
  return normal ? Encode(*normal) : answer;
}

}  // namespace

KVG_REGISTER_METRIC(math_string, {.name = "math_string",
                                  .version = 1,
                                  .description = "equal in the normal form of the MATH data set",
                                  .reference = kHendrycks,
                                  .score = BestOf(EqualTexts),
                                  .canonical = Canonical});
KVG_REGISTER_METRIC(math_equal,
                    {.name = "math_equal",
                     .version = 1,
                     .description = "equal in that form, or in value: numbers, expressions, sets, "
                                    "tuples, intervals, matrices, equations",
                     .reference = "math_verify on the cases of tests/datasets/data/math_equal.json",
                     .score = BestOf(EqualValues),
                     .canonical = Canonical});

}  // namespace kvgauge::metrics::math_equal
