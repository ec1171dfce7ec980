// SPDX-License-Identifier: Apache-2.0
#include "src/run/passages.h"

#include <cctype>

namespace kvgauge {
namespace {

bool BeginsPassage(std::string_view line) {
  for (const std::string_view word : {"Passage ", "Paragraph ", "Document "}) {
    if (!line.starts_with(word)) continue;
    size_t at = word.size();
    const bool bracket = at < line.size() && line[at] == '[';
    at += bracket ? 1 : 0;
    const size_t number = at;
    while (at < line.size() && std::isdigit(static_cast<unsigned char>(line[at])) != 0) ++at;
    return at > number && at < line.size() && line[at] == (bracket ? ']' : ':');
  }
  return false;
}

}  // namespace

std::vector<int64_t> FindPassages(std::string_view context) {
  std::vector<int64_t> begins;
  size_t line = 0;
  while (line < context.size()) {
    if (BeginsPassage(context.substr(line, 64))) begins.push_back(static_cast<int64_t>(line));
    const size_t end = context.find('\n', line);
    if (end == std::string_view::npos) break;
    line = end + 1;
  }
  return begins;
}

}  // namespace kvgauge
