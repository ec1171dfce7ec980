// SPDX-License-Identifier: Apache-2.0
#include "metrics/math_strings.h"

#include <utility>
#include <vector>

#include "metrics/numbers.h"

namespace kvgauge::metrics {
namespace {

std::vector<Text> SplitMath(TextView text, TextView at) {
  std::vector<Text> parts;
  for (size_t from = 0;;) {
    const size_t found = text.find(at, from);
    parts.emplace_back(text.substr(from, found - from));
    if (found == TextView::npos) return parts;
    from = found + at.size();
  }
}

// \sqrt3 is \sqrt{3}. Nothing where the text ends behind \sqrt.
std::optional<Text> BraceRoots(TextView text) {
  const std::vector<Text> parts = SplitMath(text, U"\\sqrt");
  Text out = parts[0];
  for (size_t i = 1; i < parts.size(); ++i) {
    if (parts[i].empty()) return std::nullopt;
    out += U"\\sqrt";
    out += parts[i][0] == '{' ? parts[i] : U"{" + parts[i].substr(0, 1) + U"}" + parts[i].substr(1);
  }
  return out;
}

// \frac12 and \frac1{72} have braces around both parts; \frac{72}1 stays as it is.
std::optional<Text> BraceFractions(TextView text) {
  const std::vector<Text> parts = SplitMath(text, U"\\frac");
  Text out = parts[0];
  for (size_t i = 1; i < parts.size(); ++i) {
    const Text& part = parts[i];
    if (part.empty()) return std::nullopt;
    out += U"\\frac";
    if (part[0] == '{') {
      out += part;
      continue;
    }
    if (part.size() < 2) return Text(text);
    out += U"{" + part.substr(0, 1) + U"}";
    out += part[1] == '{' ? part.substr(1) : U"{" + part.substr(1, 1) + U"}" + part.substr(2);
  }
  return out;
}

// 3/4 of two plain whole numbers is \frac{3}{4}.
Text SlashAsFraction(const Text& text) {
  const std::vector<Text> parts = SplitMath(text, U"/");
  if (parts.size() != 2) return text;
  const std::optional<std::string> over = PythonInt(parts[0]), under = PythonInt(parts[1]);
  if (!over || !under || Decode(*over + "/" + *under) != text) return text;
  return U"\\frac{" + parts[0] + U"}{" + parts[1] + U"}";
}

}  // namespace

std::optional<Text> NormalMath(TextView answer) {
  Text text(answer);
  // In the order of the reference: one may make what the next one finds.
  static constexpr std::pair<TextView, TextView> kFirst[] = {
      {U"\n", U""},        {U"\\!", U""},    {U"\\\\", U"\\"},  {U"tfrac", U"frac"},
      {U"dfrac", U"frac"}, {U"\\left", U""}, {U"\\right", U""}, {U"^{\\circ}", U""},
      {U"^\\circ", U""},   {U"\\$", U""}};
  for (const auto& [from, to] : kFirst) ReplaceEach(text, from, to);
  // A unit stands behind the number.
  const std::vector<Text> unit = SplitMath(text, U"\\text{ ");
  if (unit.size() > 2) return std::nullopt;
  text = unit[0];
  static constexpr std::pair<TextView, TextView> kThen[] = {
      {U"\\%", U""}, {U" .", U" 0."}, {U"{.", U"{0."}};
  for (const auto& [from, to] : kThen) ReplaceEach(text, from, to);
  if (text.empty()) return text;
  if (text[0] == '.') text = U"0" + text;
  const std::vector<Text> sides = SplitMath(text, U"=");
  if (sides.size() == 2 && sides[0].size() <= 2) text = sides[1];
  std::optional<Text> braced = BraceRoots(text);
  if (!braced) return std::nullopt;
  ReplaceEach(*braced, U" ", U"");
  braced = BraceFractions(*braced);
  if (!braced) return std::nullopt;
  if (*braced == U"0.5") return U"\\frac{1}{2}";
  return SlashAsFraction(*braced);
}

bool EqualMathTexts(TextView one, TextView other) {
  const std::optional<Text> a = NormalMath(one), b = NormalMath(other);
  return a && b ? *a == *b : one == other;
}

}  // namespace kvgauge::metrics
