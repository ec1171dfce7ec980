// SPDX-License-Identifier: Apache-2.0
// Text for people: aligned tables and key-value blocks on standard output.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/counted.h"
#include "core/json_fwd.h"
#include "core/result.h"

namespace kvgauge {

// Writes all of `text` to standard output.
void Print(const std::string& text);
// Whether all that was printed until now got there; a full disk swallows it.
Status CheckPrinted();
void PrintJson(const Json& value);

// "name   value" lines with the values in one column.
void PrintFacts(const std::vector<std::pair<std::string, std::string>>& facts);

// Rows under a header; numbers (cells that begin with a digit or sign) are set flush right.
void PrintTable(const std::vector<std::string>& header,
                const std::vector<std::vector<std::string>>& rows);

// printf-style rounding of one number: Fixed(3.14159, 2) == "3.14".
std::string Fixed(double value, int digits);

// Times in units that a person reads, from "ms" to "days": "8.5 / 12.0 ms", "850 ms / 2.50 s / 1.4
// h". Not for times below a hundredth of a millisecond.
std::string TimesText(std::initializer_list<double> seconds);

// "1.23%", "12.3%"; of 1.
std::string Percent(double ratio);
// Null for what JSON has no number for.
Json FiniteOrNull(double value);
// Beginning and end of a text too long for a screen; `hint` follows the count of bytes left out.
std::string WithoutMiddle(const std::string& text, std::string_view hint = "");

// A word of a shell command, in quotes where it needs them.
std::string ShellWord(const std::string& text);

}  // namespace kvgauge
