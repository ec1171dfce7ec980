// SPDX-License-Identifier: Apache-2.0
#include "src/cli/table.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "core/strings.h"

namespace kvgauge {
namespace {

struct CodePoints {
  char32_t first, last;
};
// Marks that stand on the letter before them, and what is not seen at all.
constexpr CodePoints kNarrow[] = {
    {0x0300, 0x036F}, {0x0483, 0x0489}, {0x0591, 0x05BD}, {0x064B, 0x065F}, {0x0E34, 0x0E3A},
    {0x0E47, 0x0E4E}, {0x200B, 0x200F}, {0x20D0, 0x20F0}, {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}};
constexpr CodePoints kWide[] = {{0x1100, 0x115F},   {0x2E80, 0x303E},  {0x3041, 0xA4CF},
                                {0xAC00, 0xD7A3},   {0xF900, 0xFAFF},  {0xFE30, 0xFE6F},
                                {0xFF00, 0xFF60},   {0xFFE0, 0xFFE6},  {0x1F300, 0x1F64F},
                                {0x1F900, 0x1F9FF}, {0x20000, 0x3FFFD}};

template <size_t kCount>
bool In(char32_t c, const CodePoints (&ranges)[kCount]) {
  return std::any_of(std::begin(ranges), std::end(ranges),
                     [c](const CodePoints& r) { return r.first <= c && c <= r.last; });
}

std::string_view Escape(Tone tone) {
  switch (tone) {
    case Tone::kPlain:
      return "";
    case Tone::kStrong:
      return "\x1b[1m";
    case Tone::kFaint:
      return "\x1b[2m";
    case Tone::kGood:
      return "\x1b[32m";
    case Tone::kBad:
      return "\x1b[31m";
    case Tone::kDoubtful:
      return "\x1b[33m";
  }
  return "";
}

// Without what would break a line or a terminal.
std::string Printable(const std::string& text) {
  std::string out;
  for (const char c : RepairUtf8(text)) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte < 0x20 || byte == 0x7f ? ' ' : c;
  }
  return out;
}

std::string MarkdownText(const std::string& text) {
  std::string out;
  for (const char c : Printable(text)) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

std::string CsvText(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out.append("\"");
}

}  // namespace

Result<TableFormat> ParseTableFormat(const std::string& text, const std::string& flag) {
  const std::vector<std::string> known = {"table", "markdown", "csv", "json"};
  const auto at = std::ranges::find(known, text);
  if (at != known.end()) return static_cast<TableFormat>(at - known.begin());
  return BadInput(StrCat(flag, ": ", Quoted(text), DidYouMean(text, known), ", expected one of ",
                         Join(known, ", ")));
}

size_t DisplayWidth(std::string_view text) {
  size_t width = 0;
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const size_t length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    char32_t c = length == 1 ? lead : lead & (0xFFu >> (length + 1));
    for (size_t k = 1; k < length && i + k < text.size(); ++k) {
      c = c << 6 | (static_cast<unsigned char>(text[i + k]) & 0x3Fu);
    }
    i += length;
    width += In(c, kNarrow) ? 0 : In(c, kWide) ? 2 : 1;
  }
  return width;
}

std::string Padded(const std::string& text, size_t width, bool right) {
  const std::string blank(width - std::min(width, DisplayWidth(text)), ' ');
  return right ? blank + text : text + blank;
}

void TextTable::DropEmptyColumns() {
  for (size_t c = columns.size(); c-- > 0;) {
    const bool says = std::ranges::any_of(
        rows, [c](const auto& row) { return !row[c].text.empty() && row[c].text != "-"; });
    if (says || rows.empty()) continue;
    columns.erase(columns.begin() + static_cast<std::ptrdiff_t>(c));
    for (auto& row : rows) row.erase(row.begin() + static_cast<std::ptrdiff_t>(c));
  }
}

std::vector<std::string> TextTable::FitTo(size_t width) {
  std::vector<std::string> gone;
  while (columns.size() > 2) {
    size_t total = 0, least = 0;
    for (size_t c = 0; c < columns.size(); ++c) {
      size_t widest = DisplayWidth(columns[c].name);
      for (const auto& row : rows) widest = std::max(widest, DisplayWidth(row[c].text));
      total += widest + (c > 0 ? 2 : 0);
      if (columns[c].importance <= columns[least].importance) least = c;
    }
    if (total <= width) break;
    gone.push_back(columns[least].id.empty() ? columns[least].name : columns[least].id);
    columns.erase(columns.begin() + static_cast<std::ptrdiff_t>(least));
    for (auto& row : rows) row.erase(row.begin() + static_cast<std::ptrdiff_t>(least));
  }
  return gone;
}

std::string TextTable::ToText(bool colour) const {
  std::vector<size_t> widths;
  for (size_t c = 0; c < columns.size(); ++c) {
    widths.push_back(DisplayWidth(columns[c].name));
    for (const auto& row : rows) {
      widths[c] = std::max(widths[c], DisplayWidth(Printable(row[c].text)));
    }
  }
  std::string out;
  const auto add_line = [&](const std::vector<TableCell>& cells) {
    size_t last = 0;
    for (size_t c = 0; c < cells.size(); ++c) last = cells[c].text.empty() ? last : c + 1;
    for (size_t c = 0; c < last; ++c) {
      if (c > 0) out += "  ";
      std::string text = Printable(cells[c].text);
      if (c + 1 < last || columns[c].right) text = Padded(text, widths[c], columns[c].right);
      out += Coloured(text, cells[c].tone, colour);
    }
    out += '\n';
  };
  std::vector<TableCell> header;
  for (const TableColumn& column : columns) header.push_back({column.name, Tone::kStrong});
  add_line(header);
  for (const auto& row : rows) add_line(row);
  return out;
}

std::string TextTable::ToMarkdown() const {
  std::string out = "|";
  for (const TableColumn& column : columns)
    out.append(StrCat(" ", MarkdownText(column.name), " |"));
  out += "\n|";
  for (const TableColumn& column : columns) out += column.right ? "---:|" : "---|";
  out += '\n';
  for (const auto& row : rows) {
    out += '|';
    for (const TableCell& cell : row) out.append(StrCat(" ", MarkdownText(cell.text), " |"));
    out += '\n';
  }
  return out;
}

std::string TextTable::ToCsv() const {
  std::vector<std::string> cells;
  for (const TableColumn& column : columns) cells.push_back(CsvText(column.name));
  std::string out = Join(cells, ",") + "\r\n";
  for (const auto& row : rows) {
    cells.clear();
    for (const TableCell& cell : row) cells.push_back(CsvText(cell.text));
    out.append(Join(cells, ",")).append("\r\n");
  }
  return out;
}

std::string Coloured(const std::string& text, Tone tone, bool colour) {
  if (!colour || tone == Tone::kPlain) return text;
  return StrCat(Escape(tone), text, "\x1b[0m");
}

bool StdoutTakesColour() {
  const char* refused = std::getenv("NO_COLOR");
  return isatty(STDOUT_FILENO) != 0 && (refused == nullptr || *refused == '\0');
}

size_t StdoutWidth() {
  if (isatty(STDOUT_FILENO) == 0) return 0;
  winsize size = {};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

}  // namespace kvgauge
