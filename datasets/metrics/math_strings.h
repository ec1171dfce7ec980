// SPDX-License-Identifier: Apache-2.0
// Answers of the MATH data set as texts: the normal form in which its authors compare them.
#pragma once

#include <optional>

#include "metrics/text.h"

namespace kvgauge::metrics {

// The normal form of hendrycks/math's math_equivalence.py, quirks included; nothing where that code
// fails on the text, which is then compared as it stands.
std::optional<Text> NormalMath(TextView answer);
// Its is_equiv.
bool EqualMathTexts(TextView one, TextView other);

}  // namespace kvgauge::metrics
