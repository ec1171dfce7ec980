// SPDX-License-Identifier: Apache-2.0
// A line of progress that fits the terminal: what matters least leaves first.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace kvgauge {

struct LinePart {
  std::string text;
  int weight = 0;  // parts of the least weight leave first; of equal ones the last
};

// The first part, ": ", and the others with ", " between. Where not even the weightiest two fit,
// the first is cut, and in the end the line. Widths count a code point as one column.
std::string FitLine(std::vector<LinePart> parts, size_t columns);
size_t TextWidth(const std::string& text);
// The width of the terminal that a file descriptor is, as it is now; else of COLUMNS, else 80.
size_t TerminalColumns(int descriptor);

}  // namespace kvgauge
