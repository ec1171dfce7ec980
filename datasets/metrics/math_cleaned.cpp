// SPDX-License-Identifier: Apache-2.0
#include "metrics/math_cleaned.h"

#include <algorithm>

namespace kvgauge::metrics {
namespace {

bool IsGroupDigit(char c) { return c >= '0' && c <= '9'; }

// "\text{ cm}^2" and its like: the words of units at the end say nothing of the number. Words
// elsewhere keep their letters.
void DropUnits(std::string& text) {
  for (const std::string_view command : {"\\text", "\\mbox", "\\mathrm", "\\textrm", "\\mathbf",
                                         "\\textbf", "\\operatorname", "\\mathit"}) {
    for (size_t at = text.find(command); at != std::string::npos; at = text.find(command, at)) {
      size_t open = at + command.size();
      while (open < text.size() && text[open] == ' ') ++open;
      if (open >= text.size() || text[open] != '{') {
        at = open;
        continue;
      }
      const size_t end = MathGroupEnd(text, open);
      if (end == std::string::npos) return;
      const std::string inside = text.substr(open + 1, end - open - 2);
      const bool first = text.find_first_not_of(' ') == at;
      // A unit: behind something, with nothing but a power behind itself.
      size_t rest = end;
      if (rest < text.size() && text[rest] == '^') {
        ++rest;
        rest = rest < text.size() && text[rest] == '{' ? MathGroupEnd(text, rest) : rest + 1;
      }
      const bool last =
          rest != std::string::npos &&
          text.find_first_not_of(" .", std::min(rest, text.size())) == std::string::npos;
      if (!first && last) {
        text.resize(at);
      } else {
        text.replace(at, end - at, inside);
        at += inside.size();
      }
    }
  }
}

// Commas between groups of three digits say nothing: 1,234,567. Within brackets a comma divides.
void DropThousands(std::string& text) {
  ReplaceEach(text, "{,}", "");
  const auto run = [&](size_t at) {
    size_t end = at;
    while (end < text.size() && IsGroupDigit(text[end])) ++end;
    return end - at;
  };
  int depth = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '(' || text[at] == '[' || text[at] == '{') ++depth;
    if (text[at] == ')' || text[at] == ']' || text[at] == '}') --depth;
    size_t end = at + run(at);
    if (end == at) continue;
    const bool first = end - at <= 3;
    while (first && depth == 0 && end < text.size() && text[end] == ',' && run(end + 1) == 3) {
      text.erase(end, 1);
      end += 3;
    }
    at = end - 1;
  }
}

}  // namespace

void ReplaceEach(std::string& text, std::string_view what, std::string_view instead) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at)) {
    text.replace(at, what.size(), instead);
    at += instead.size();
  }
}

size_t MathGroupEnd(std::string_view text, size_t at) {
  int depth = 0;
  for (; at < text.size(); ++at) {
    if (text[at] == '{') ++depth;
    if (text[at] == '}' && --depth == 0) return at + 1;
  }
  return std::string::npos;
}

std::string CleanedMath(std::string_view answer) {
  std::string text(answer);
  for (const char* sign : {"\\left",   "\\right",   "\\displaystyle",
                           "\\!",      "\\,",       "\\;",
                           "\\:",      "\\quad",    "\\qquad",
                           "\\bigg",   "\\Bigg",    "\\big",
                           "\\Big",    "\\(",       "\\)",
                           "\\$",      "$",         "\\%",
                           "%",        "^{\\circ}", "^\\circ",
                           "\\degree", "\n",        "~"}) {
    ReplaceEach(text, sign);
  }
  ReplaceEach(text, "\\dfrac", "\\frac");
  ReplaceEach(text, "\\tfrac", "\\frac");
  ReplaceEach(text, "\\cfrac", "\\frac");
  ReplaceEach(text, "\\lbrace", "\\{");
  ReplaceEach(text, "\\rbrace", "\\}");
  DropUnits(text);
  DropThousands(text);
  while (!text.empty() && (text.back() == '.' || text.back() == ' ')) text.pop_back();
  text.erase(0, std::min(text.find_first_not_of(' '), text.size()));
  return text;
}

}  // namespace kvgauge::metrics
