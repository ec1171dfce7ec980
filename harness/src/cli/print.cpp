// SPDX-License-Identifier: Apache-2.0
#include "src/cli/print.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>

#include "core/json.h"
#include "core/strings.h"
#include "src/cli/table.h"

namespace kvgauge {
namespace {

bool IsPlain(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
         std::string_view("_./:=,+@-").find(c) != std::string_view::npos;
}

bool IsNumber(const std::string& cell) {
  return !cell.empty() &&
         (std::isdigit(static_cast<unsigned char>(cell[0])) || cell[0] == '-' || cell[0] == '+');
}

void PrintRow(const std::vector<std::string>& row, const std::vector<size_t>& widths,
              const std::vector<bool>& right) {
  std::string line;
  for (size_t c = 0; c < row.size(); ++c) {
    if (c > 0) line += "  ";
    line += Padded(row[c], widths[c], right[c]);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  Print(line + "\n");
}

}  // namespace

void Print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

Status CheckPrinted() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return {};
  return IoError(
      "standard output cannot be written: a full disk or a closed file; what was"
      " printed is not whole");
}

void PrintJson(const Json& value) {
  Print(value.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

void PrintFacts(const std::vector<std::pair<std::string, std::string>>& facts) {
  size_t width = 0;
  for (const auto& [name, value] : facts) width = std::max(width, DisplayWidth(name));
  for (const auto& [name, value] : facts) Print(Padded(name, width, false) + "  " + value + "\n");
}

void PrintTable(const std::vector<std::string>& header,
                const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(header.size());
  std::vector<bool> right(header.size(), !rows.empty());
  for (size_t c = 0; c < header.size(); ++c) {
    widths[c] = DisplayWidth(header[c]);
    for (const auto& row : rows) {
      widths[c] = std::max(widths[c], DisplayWidth(row[c]));
      right[c] = right[c] && IsNumber(row[c]);
    }
  }
  PrintRow(header, widths, right);
  for (const auto& row : rows) PrintRow(row, widths, right);
}

std::string Fixed(double value, int digits) {
  char buffer[64];
  std::snprintf(buffer, sizeof(buffer), "%.*f", digits, value);
  return buffer;
}

std::string TimesText(std::initializer_list<double> seconds) {
  struct Unit {
    const char* name;
    double seconds, below;  // the first number that is shown in the next unit
    double whole;           // the first that is shown without digits behind the point
  };
  constexpr Unit kUnits[] = {{"ms", 1e-3, 999.5, 99.95},
                             {"s", 1, 99.95, 1e9},
                             {"min", 60, 99.95, 1e9},
                             {"h", 3600, 99.95, 1e9},
                             {"days", 86400, 0, 99.95}};
  std::string text;
  const Unit* last = nullptr;
  for (const double time : seconds) {
    const Unit* unit = std::find_if(std::begin(kUnits), std::end(kUnits) - 1, [&](const Unit& u) {
      return std::abs(time) < u.below * u.seconds;
    });
    const double number = time / unit->seconds;
    if (last != nullptr) text += unit == last ? " / " : StrCat(" ", last->name, " / ");
    const bool fine = unit == &kUnits[1] ? number < 9.995 : unit == &kUnits[0] && number < 0.995;
    text += Fixed(number, number >= unit->whole ? 0 : fine ? 2 : 1);
    last = unit;
  }
  return last == nullptr ? text : text.append(" ").append(last->name);
}

std::string ShellWord(const std::string& text) {
  if (!text.empty() && std::ranges::all_of(text, IsPlain)) return text;
  std::string word = "'";
  for (const char c : text) {
    if (c == '\'') {
      word += "'\\''";
    } else {
      word += c;
    }
  }
  return word + "'";
}

std::string Percent(double ratio) { return Fixed(100 * ratio, ratio < 0.0995 ? 2 : 1) + "%"; }

Json FiniteOrNull(double value) { return std::isfinite(value) ? Json(value) : Json(); }

std::string WithoutMiddle(const std::string& text, std::string_view hint) {
  constexpr size_t kMost = 1200, kEnd = kMost / 2;
  if (text.size() <= kMost) return text;
  return RepairUtf8(StrCat(text.substr(0, kEnd), "\n[... ",
                           WithCommas(static_cast<int64_t>(text.size() - 2 * kEnd)), " bytes", hint,
                           " ...]\n", text.substr(text.size() - kEnd)));
}

}  // namespace kvgauge
