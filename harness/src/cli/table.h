// SPDX-License-Identifier: Apache-2.0
// Tables for people and for programs that read text: aligned for a terminal, Markdown, CSV.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace kvgauge {

enum class Tone { kPlain, kStrong, kFaint, kGood, kBad, kDoubtful };
enum class TableFormat { kTable, kMarkdown, kCsv, kJson };

// "table", "markdown", "csv", "json"; an error that names `flag` otherwise.
Result<TableFormat> ParseTableFormat(const std::string& text, const std::string& flag);

// Columns on a terminal: none for marks that combine, two for East Asian wide letters and emoji.
size_t DisplayWidth(std::string_view text);
// Blanks up to `width` columns, before the text where it stands to the right.
std::string Padded(const std::string& text, size_t width, bool right);

struct TableCell {
  std::string text;
  Tone tone = Tone::kPlain;
};

struct TableColumn {
  std::string name;
  bool right = false;   // flush right, as numbers are
  int importance = 10;  // where a terminal is too narrow the least important leave first
  std::string id = {};  // what a flag calls it, where that is another name
};

struct TextTable {
  std::vector<TableColumn> columns;
  std::vector<std::vector<TableCell>> rows;

  // Columns in which no row says anything go.
  void DropEmptyColumns();
  // Columns go, least important first, until a row fits; their ids, or names, are returned.
  std::vector<std::string> FitTo(size_t width);
  // `colour`: tones as ANSI escapes. Lines end in a newline.
  std::string ToText(bool colour) const;
  std::string ToMarkdown() const;
  std::string ToCsv() const;  // RFC 4180
};

// `text` in a tone, where `colour`.
std::string Coloured(const std::string& text, Tone tone, bool colour);

// Standard output is a terminal and NO_COLOR is not set.
bool StdoutTakesColour();
// Columns of the terminal at standard output; 0 where it is none.
size_t StdoutWidth();

}  // namespace kvgauge
