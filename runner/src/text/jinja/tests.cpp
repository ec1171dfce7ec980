// SPDX-License-Identifier: Apache-2.0
// What stands behind "is".
#include <algorithm>

#include "core/strings.h"
#include "src/text/jinja/functions.h"

namespace kvgauge::jinja {
namespace {

bool Iterable(const Value& value) {
  switch (value.kind()) {
    case Kind::kNone:
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
    case Kind::kNamespace:
    case Kind::kCycler:
    case Kind::kJoiner:
    case Kind::kFunction:
      return false;
    default:
      return true;
  }
}

// Has a length and brackets.
bool HasBrackets(const Value& value) {
  return value.undefined() || value.text() || value.listed() || value.Is(Kind::kDict) ||
         value.Is(Kind::kRange);
}

bool Callable(const Value& value) {
  return value.undefined() || value.Is(Kind::kFunction) || value.Is(Kind::kJoiner) ||
         value.Is(Kind::kLoop);
}

bool Divides(const Value& value, const Value& by) {
  const Value rest = BinaryOp(Op::kMod, value, by);
  return rest.numeric() && rest.number() == 0;
}

bool Rest(const Value& value, int64_t wanted) {
  return Equal(BinaryOp(Op::kMod, value, Value::Int(2)), Value::Int(wanted));
}

#define KVG_IS(expr)                                           \
  [](Engine&, const Value& self, const Given& given) -> bool { \
    static_cast<void>(given);                                  \
    static_cast<void>(self);                                   \
    return expr;                                               \
  }

constexpr auto kEqual = KVG_IS(Equal(self, *given[0]));
constexpr auto kUnequal = KVG_IS(!Equal(self, *given[0]));
constexpr auto kLess = KVG_IS(Less(self, *given[0], "<"));
constexpr auto kGreater = KVG_IS(Less(*given[0], self, ">"));
constexpr auto kLessEqual = KVG_IS(Less(self, *given[0], "<=") || Equal(self, *given[0]));
constexpr auto kGreaterEqual = KVG_IS(Less(*given[0], self, ">=") || Equal(self, *given[0]));

const TestSpec kTests[] = {
    {"defined", "", KVG_IS(!self.undefined())},
    {"undefined", "", KVG_IS(self.undefined())},
    {"none", "", KVG_IS(self.none())},
    {"string", "", KVG_IS(self.text())},
    {"mapping", "", KVG_IS(self.Is(Kind::kDict))},
    {"iterable", "", KVG_IS(Iterable(self))},
    {"sequence", "", KVG_IS(HasBrackets(self))},
    {"number", "", KVG_IS(self.numeric())},
    {"integer", "", KVG_IS(self.Is(Kind::kInt))},
    {"float", "", KVG_IS(self.Is(Kind::kFloat))},
    {"boolean", "", KVG_IS(self.Is(Kind::kBool))},
    {"true", "", KVG_IS(self.Is(Kind::kBool) && self.integer() == 1)},
    {"false", "", KVG_IS(self.Is(Kind::kBool) && self.integer() == 0)},
    {"callable", "", KVG_IS(Callable(self))},
    {"even", "", KVG_IS(Rest(self, 0))},
    {"odd", "", KVG_IS(Rest(self, 1))},
    {"divisibleby", "num", KVG_IS(Divides(self, *given[0]))},
    {"in", "seq", KVG_IS(Contains(*given[0], self))},
    {"sameas", "other", KVG_IS(self.SameObject(*given[0]))},
    {"lower", "", KVG_IS(IsCased(ToText(self), false))},
    {"upper", "", KVG_IS(IsCased(ToText(self), true))},
    {"escaped", "", KVG_IS(self.text() && self.safe())},
    {"filter", "", KVG_IS(self.text() && FindFilter(self.str()) != nullptr)},
    {"test", "", KVG_IS(self.text() && FindTest(self.str()) != nullptr)},
    {"==", "other", kEqual},
    {"eq", "other", kEqual},
    {"equalto", "other", kEqual},
    {"!=", "other", kUnequal},
    {"ne", "other", kUnequal},
    {"<", "other", kLess},
    {"lt", "other", kLess},
    {"lessthan", "other", kLess},
    {">", "other", kGreater},
    {"gt", "other", kGreater},
    {"greaterthan", "other", kGreater},
    {"<=", "other", kLessEqual},
    {"le", "other", kLessEqual},
    {">=", "other", kGreaterEqual},
    {"ge", "other", kGreaterEqual},
};

}  // namespace

const TestSpec* FindTest(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kTests), std::end(kTests),
                                         [&](const TestSpec& test) { return test.name == name; });
  return found == std::end(kTests) ? nullptr : found;
}

std::string NoFilter(std::string_view name) { return StrCat("No filter named '", name, "'."); }
std::string NoTest(std::string_view name) { return StrCat("No test named '", name, "'."); }

}  // namespace kvgauge::jinja
