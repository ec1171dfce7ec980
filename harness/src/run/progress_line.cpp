// SPDX-License-Identifier: Apache-2.0
#include "src/run/progress_line.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace kvgauge {
namespace {

bool Continues(char c) { return (static_cast<unsigned char>(c) & 0xc0u) == 0x80u; }

std::string Joined(const std::vector<LinePart>& parts) {
  std::string line = parts[0].text;
  for (size_t i = 1; i < parts.size(); ++i) line += (i == 1 ? ": " : ", ") + parts[i].text;
  return line;
}

// The beginning of a text, with dots at its end.
std::string Cut(const std::string& text, size_t columns) {
  if (TextWidth(text) <= columns) return text;
  constexpr size_t kDots = 3;
  if (columns <= kDots) return std::string(columns, '.');
  size_t end = 0;
  for (size_t width = 0; end < text.size(); ++end) {
    if (!Continues(text[end]) && width++ == columns - kDots) break;
  }
  return text.substr(0, end) + std::string(kDots, '.');
}

}  // namespace

size_t TextWidth(const std::string& text) {
  return text.size() - static_cast<size_t>(std::count_if(text.begin(), text.end(), Continues));
}

std::string FitLine(std::vector<LinePart> parts, size_t columns) {
  while (parts.size() > 2 && TextWidth(Joined(parts)) > columns) {
    auto least = parts.begin() + 1;
    for (auto part = least; part != parts.end(); ++part) {
      if (part->weight <= least->weight) least = part;
    }
    parts.erase(least);
  }
  const size_t width = TextWidth(Joined(parts));
  if (width > columns) {
    constexpr size_t kLeastHead = 8;
    const size_t head = TextWidth(parts[0].text);
    parts[0].text =
        Cut(parts[0].text, std::max(kLeastHead, head - std::min(head, width - columns)));
  }
  return Cut(Joined(parts), columns);
}

size_t TerminalColumns(int descriptor) {
  winsize size = {};
  if (ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* given = std::getenv("COLUMNS");
  const int columns = given != nullptr ? std::atoi(given) : 0;
  return columns > 0 ? static_cast<size_t>(columns) : 80;
}

}  // namespace kvgauge
