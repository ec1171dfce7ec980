// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <cmath>
#include <cstdio>

#include "core/json.h"
#include "core/strings.h"
#include "methods/method.h"

namespace kvgauge {
namespace {

// The whole text as a number.
bool ParseNumber(std::string_view text, double* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(*value);
}

}  // namespace

Result<Budget> Budget::Parse(std::string_view text) {
  const auto wrong = [&](std::string_view why) -> Error {
    return BadInput(StrCat("budget ", Quoted(text), ": ", why,
                           "; write a fraction (0.2 or 20%), entries per head (512), bytes per "
                           "token (64B), or none"));
  };
  Budget budget;
  if (text == "none") return budget;
  std::string_view number = text;
  double percent = 1;
  if (text.ends_with('%')) {
    budget.kind = Kind::kFraction;
    percent = 100;
    number.remove_suffix(1);
  } else if (text.ends_with('B')) {
    budget.kind = Kind::kBytesPerToken;
    number.remove_suffix(1);
  } else if (text.find('.') != std::string_view::npos) {
    budget.kind = Kind::kFraction;
  } else {
    budget.kind = Kind::kEntries;
  }
  if (!ParseNumber(number, &budget.value)) return wrong("not a number");
  budget.value /= percent;
  if (!(budget.value > 0)) return wrong("must be above 0");
  if (budget.kind == Kind::kFraction && budget.value > 1) {
    return wrong("a fraction of the prompt is at most 1");
  }
  if (budget.kind == Kind::kEntries && budget.value != std::floor(budget.value)) {
    return wrong("entries are a whole number");
  }
  return budget;
}

std::string Budget::ToString() const {
  switch (kind) {
    case Kind::kNone:
      return "none";
    case Kind::kEntries:
      return StrCat(static_cast<int64_t>(value));
    case Kind::kFraction: {
      char text[32];
      std::snprintf(text, sizeof(text), "%.10g%%", 100 * value);
      return text;
    }
    case Kind::kBytesPerToken:
      return value == std::floor(value) ? StrCat(static_cast<int64_t>(value), "B")
                                        : Json(value).dump() + "B";
  }
  return "";
}

std::string_view NameOf(Budget::Kind kind) {
  switch (kind) {
    case Budget::Kind::kNone:
      return "none";
    case Budget::Kind::kEntries:
      return "entries";
    case Budget::Kind::kFraction:
      return "fraction";
    case Budget::Kind::kBytesPerToken:
      return "bytes_per_token";
  }
  return "";
}

}  // namespace kvgauge
