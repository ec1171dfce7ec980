// SPDX-License-Identifier: Apache-2.0
#include "src/run/run_reasons.h"

#include <algorithm>
#include <cctype>

#include "core/counted.h"
#include "core/strings.h"
#include "src/cli/print.h"

namespace kvgauge {
namespace {

std::string WithoutNumbers(const std::string& reason) {
  std::string shape;
  bool inside = false;
  for (const char c : reason) {
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (digit && !inside) shape += '#';
    // "1,024" and "9.6" are one number.
    inside = digit || (inside && (c == ',' || c == '.'));
    if (!inside) shape += c;
  }
  return shape;
}

}  // namespace

void ReasonTally::Add(SampleStatus status, const std::string& reason, int64_t cells) {
  const std::string shape = WithoutNumbers(reason);
  const auto known = std::find_if(kinds_.begin(), kinds_.end(), [&](const Kind& kind) {
    return kind.line.status == status && kind.shape == shape;
  });
  if (known != kinds_.end()) {
    known->line.cells += cells;
  } else {
    kinds_.push_back({shape, {status, reason, cells}});
  }
}

std::vector<ReasonTally::Line> ReasonTally::Lines() const {
  std::vector<Line> lines;
  for (const Kind& kind : kinds_) lines.push_back(kind.line);
  std::stable_sort(lines.begin(), lines.end(),
                   [](const Line& a, const Line& b) { return a.cells > b.cells; });
  return lines;
}

std::vector<std::string> ReasonTexts(const std::vector<ReasonTally::Line>& lines, size_t most) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < std::min(most, lines.size()); ++i) {
    texts.push_back(StrCat(lines[i].cells, " ", NameOf(lines[i].status), ": ", lines[i].reason));
  }
  int64_t left = 0;
  for (size_t i = most; i < lines.size(); ++i) left += lines[i].cells;
  if (left > 0) {
    texts.push_back(StrCat("and ", Counted(left, "cell"), " for ",
                           Counted(std::ssize(lines) - static_cast<int64_t>(most), "other reason"),
                           ", in the database"));
  }
  return texts;
}

}  // namespace kvgauge
