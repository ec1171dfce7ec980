// SPDX-License-Identifier: Apache-2.0
// Numbers as Python reads them out of text: decimal digits of every script, underscores between
// digits, white space at the ends.
#pragma once

#include <optional>
#include <string>

#include "metrics/text.h"

namespace kvgauge::metrics {

// 0 to 9 of a character for which IsDigit holds.
int DigitValue(char32_t digit);

// int(text), printed again: "+0_345" is "345", "-0" is "0". Nothing where int() refuses the text.
std::optional<std::string> PythonInt(TextView text);

// float(text), "1e-3", "inf" and "nan" included. Nothing where float() refuses the text.
std::optional<double> PythonFloat(TextView text);

// The first match of \d+\.\d+|\d+; empty for none.
TextView FirstNumber(TextView text);

}  // namespace kvgauge::metrics
