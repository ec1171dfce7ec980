// SPDX-License-Identifier: Apache-2.0
// Arithmetic, and what stands behind a dot or in brackets.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/strings.h"
#include "src/text/jinja/functions.h"

namespace kvgauge::jinja {
namespace {

constexpr std::string_view kSigns[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};

[[noreturn]] void FailOperands(Op op, const Value& a, const Value& b) {
  FailRuntime(StrCat("unsupported operand type(s) for ", kSigns[static_cast<size_t>(op)], ": '",
                     TypeName(a), "' and '", TypeName(b), "'"));
}
[[noreturn]] void FailWide() {
  Fail(FaultKind::kUnsupported, "a whole number beyond 64 bits is not supported");
}

Value PowerOf(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) FailRuntime("0.0 cannot be raised to a negative power");
    return Value::Float(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  if (base == 0 || base == 1) return Value::Int(exponent == 0 ? 1 : base);
  if (base == -1) return Value::Int(exponent % 2 == 0 ? 1 : -1);
  if (exponent > 63) FailWide();
  int64_t result = 1;
  for (int64_t i = 0; i < exponent; ++i) {
    if (__builtin_mul_overflow(result, base, &result)) FailWide();
  }
  return Value::Int(result);
}

Value WholeOp(Op op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case Op::kAdd:
      if (__builtin_add_overflow(a, b, &result)) FailWide();
      return Value::Int(result);
    case Op::kSub:
      if (__builtin_sub_overflow(a, b, &result)) FailWide();
      return Value::Int(result);
    case Op::kMul:
      if (__builtin_mul_overflow(a, b, &result)) FailWide();
      return Value::Int(result);
    case Op::kDiv:
      if (b == 0) FailRuntime("division by zero");
      return Value::Float(static_cast<double>(a) / static_cast<double>(b));
    case Op::kFloorDiv:
    case Op::kMod: {
      if (b == 0) FailRuntime("integer division or modulo by zero");
      if (b == -1) return op == Op::kMod ? Value::Int(0) : WholeOp(Op::kSub, 0, a);
      int64_t quotient = a / b, rest = a % b;
      if (rest != 0 && (rest < 0) != (b < 0)) {
        --quotient;
        rest += b;
      }
      return Value::Int(op == Op::kMod ? rest : quotient);
    }
    default:
      return PowerOf(a, b);
  }
}

Value RealOp(Op op, double a, double b) {
  switch (op) {
    case Op::kAdd:
      return Value::Float(a + b);
    case Op::kSub:
      return Value::Float(a - b);
    case Op::kMul:
      return Value::Float(a * b);
    case Op::kDiv:
      if (b == 0) FailRuntime("float division by zero");
      return Value::Float(a / b);
    case Op::kFloorDiv:
    case Op::kMod: {
      if (b == 0) FailRuntime("float floor division by zero");
      double rest = std::fmod(a, b);
      if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
      if (op == Op::kMod) return Value::Float(rest == 0 ? std::copysign(0.0, b) : rest);
      return Value::Float(std::round((a - rest) / b));
    }
    default:
      if (a < 0 && b != std::floor(b)) {
        Fail(FaultKind::kUnsupported, "complex numbers are not supported");
      }
      if (a == 0 && b < 0) FailRuntime("0.0 cannot be raised to a negative power");
      return Value::Float(std::pow(a, b));
  }
}

Value AddTexts(const Value& a, const Value& b) {
  TextBuilder out;
  const bool safe = a.safe() || b.safe();
  out.Add(safe ? Escaped(a) : a.str());
  out.Add(safe ? Escaped(b) : b.str());
  return Value::Text(out.Take(), safe);
}

Value AddLists(const Value& a, const Value& b) {
  const std::vector<Value>&x = a.items(), &y = b.items();
  Meter::Room(static_cast<int64_t>((x.size() + y.size()) * sizeof(Value)));
  std::vector<Value> items;
  items.reserve(x.size() + y.size());
  items.insert(items.end(), x.begin(), x.end());
  items.insert(items.end(), y.begin(), y.end());
  return a.Is(Kind::kList) ? Value::List(std::move(items)) : Value::Tuple(std::move(items));
}

Value Times(const Value& of, int64_t times) {
  if (of.text()) {
    TextBuilder out;
    out.Repeat(of.str(), times);
    return Value::Text(out.Take(), of.safe());
  }
  const std::vector<Value>& items = of.items();
  std::vector<Value> all;
  if (times > 0 && !items.empty()) {
    if (times > (int64_t{1} << 40) / std::ssize(items)) {
      Fail(FaultKind::kLimit, StrCat("a list ", times, " times over is too long"));
    }
    Meter::Room(times * std::ssize(items) * static_cast<int64_t>(sizeof(Value)));
    for (int64_t i = 0; i < times; ++i) all.insert(all.end(), items.begin(), items.end());
  }
  return of.Is(Kind::kList) ? Value::List(std::move(all)) : Value::Tuple(std::move(all));
}

bool Repeatable(const Value& value) { return value.text() || value.listed(); }

// An index from the end counts backwards; false where it is outside.
bool InRange(int64_t& index, int64_t size) {
  if (index < 0) index += size;
  return index >= 0 && index < size;
}

// Methods that change lists and dicts: known, and never done.
bool Changes(const Value& of, std::string_view name) {
  constexpr std::string_view kList[] = {"append", "clear",  "extend",  "insert",
                                        "pop",    "remove", "reverse", "sort"};
  constexpr std::string_view kDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  const auto in = [&](const auto& names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  return (of.Is(Kind::kList) && in(kList)) || (of.Is(Kind::kDict) && in(kDict));
}

// Attributes that Python has and this engine has not.
bool Lacking(const Value& of, std::string_view name) {
  constexpr std::string_view kText[] = {"casefold",   "encode",      "expandtabs",
                                        "format_map", "isprintable", "istitle",
                                        "maketrans",  "translate",   "isidentifier"};
  constexpr std::string_view kNumber[] = {
      "real",      "imag",       "numerator", "denominator", "bit_length", "to_bytes",
      "conjugate", "is_integer", "hex",       "bit_count",   "from_bytes", "as_integer_ratio"};
  constexpr std::string_view kMacro[] = {"name",          "arguments", "catch_kwargs",
                                         "catch_varargs", "caller",    "explicit_caller"};
  const auto in = [&](const auto& names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  return (of.text() && in(kText)) || (of.numeric() && in(kNumber)) ||
         (of.Is(Kind::kDict) && name == "fromkeys") ||
         (of.Is(Kind::kFunction) && of.as<FunctionObject>().macro != nullptr && in(kMacro));
}

// Attributes that are no methods: those of loops and namespaces, entries of dicts.
std::optional<Value> Plain(const Value& of, const std::string& name) {
  if (of.Is(Kind::kLoop)) {
    const auto& loop = of.as<LoopObject>();
    const std::vector<Value>& items = loop.items.items();
    const int64_t at = loop.index0, size = std::ssize(items);
    if (name == "index") return Value::Int(at + 1);
    if (name == "index0") return Value::Int(at);
    if (name == "revindex") return Value::Int(size - at);
    if (name == "revindex0") return Value::Int(size - at - 1);
    if (name == "first") return Value::Bool(at == 0);
    if (name == "last") return Value::Bool(at + 1 >= size);
    if (name == "length") return Value::Int(size);
    if (name == "depth") return Value::Int(loop.depth0 + 1);
    if (name == "depth0") return Value::Int(loop.depth0);
    if (name == "previtem") {
      return at > 0 && at <= size ? items[static_cast<size_t>(at - 1)]
                                  : Value::Undefined("there is no previous item");
    }
    if (name == "nextitem") {
      return at + 1 < size ? items[static_cast<size_t>(at + 1)]
                           : Value::Undefined("there is no next item");
    }
  } else if (of.Is(Kind::kNamespace)) {
    if (const Value* found = of.as<NamespaceObject>().Find(name)) return *found;
  } else if (of.Is(Kind::kCycler) && name == "current") {
    const auto& cycler = of.as<CyclerObject>();
    return cycler.items[cycler.at];
  }
  return std::nullopt;
}

// What Python's getattr gives; nothing where the object has no such attribute.
std::optional<Value> Attribute(const Value& of, const std::string& name) {
  if (name.starts_with("__")) {
    Fail(FaultKind::kRefused,
         StrCat("the attribute '", name, "' reaches into the machine below; it is never given"));
  }
  if (const MethodSpec* method = FindMethod(of, name)) {
    auto* object = new FunctionObject;
    Value made = Value::Of(Kind::kFunction, object);
    object->Charge(160);
    object->Holds(of);
    object->method = method;
    object->self = of;
    return made;
  }
  if (Changes(of, name)) {
    return Value::Undefined(
        StrCat("access to attribute '", name, "' of '", TypeName(of), "' object is unsafe."));
  }
  if (Lacking(of, name)) {
    Fail(FaultKind::kUnsupported,
         StrCat("the attribute '", name, "' of a ", TypeName(of), " is not supported"));
  }
  return Plain(of, name);
}

// What Python's brackets give; nothing where they raise LookupError or TypeError.
std::optional<Value> Element(const Value& of, const Value& key) {
  if (of.Is(Kind::kDict)) {
    if (key.Is(Kind::kList) || key.Is(Kind::kDict)) return std::nullopt;
    const Value* found = of.as<DictObject>().Find(key);
    return found != nullptr ? std::optional<Value>(*found) : std::nullopt;
  }
  if (!key.integral()) return std::nullopt;
  int64_t index = key.integer();
  if (of.listed() && InRange(index, LengthOf(of))) return of.items()[static_cast<size_t>(index)];
  if (of.text() && InRange(index, LengthOf(of))) {
    return Value::Text(std::string(Characters(of, index, index + 1)), of.safe());
  }
  if (of.Is(Kind::kRange) && InRange(index, LengthOf(of))) {
    const auto& range = of.as<RangeObject>();
    return Value::Int(range.start + index * range.step);
  }
  return std::nullopt;
}

}  // namespace

Value BinaryOp(Op op, const Value& a, const Value& b) {
  if (a.integral() && b.integral()) return WholeOp(op, a.integer(), b.integer());
  if (a.numeric() && b.numeric()) return RealOp(op, a.number(), b.number());
  if (op == Op::kMod && a.text()) return PercentFormat(a, b);
  if (a.undefined()) FailRuntime(UndefinedMessage(a));
  if (b.undefined()) FailRuntime(UndefinedMessage(b));
  if (op == Op::kAdd) {
    if (a.text() && b.text()) return AddTexts(a, b);
    if (a.listed() && a.kind() == b.kind()) return AddLists(a, b);
    if (a.text()) {
      FailRuntime(StrCat("can only concatenate str (not \"", TypeName(b), "\") to str"));
    }
  }
  if (op == Op::kMul) {
    if (Repeatable(a) && b.integral()) return Times(a, b.integer());
    if (Repeatable(b) && a.integral()) return Times(b, a.integer());
  }
  FailOperands(op, a, b);
}

Value GetAttribute(const Value& of, const Value& name) {
  if (of.undefined()) FailRuntime(UndefinedMessage(of));
  if (std::optional<Value> found = Attribute(of, name.str())) return *found;
  if (std::optional<Value> found = Element(of, name)) return *found;
  return Value::UndefinedOf(of, name);
}

Value GetItem(const Value& of, const Value& key) {
  if (of.undefined()) FailRuntime(UndefinedMessage(of));
  if (std::optional<Value> found = Element(of, key)) return *found;
  if (key.text()) {
    if (std::optional<Value> found = Attribute(of, key.str())) return *found;
  }
  return Value::UndefinedOf(of, key);
}

int64_t WholeNumber(const Value& value, std::string_view what) {
  if (value.undefined()) FailRuntime(UndefinedMessage(value));
  if (!value.integral()) {
    FailRuntime(StrCat(what, " must be a whole number, not ", TypeName(value)));
  }
  return value.integer();
}

Value GetSlice(const Value& of, const Value& start, const Value& stop, const Value& step) {
  if (of.undefined()) FailRuntime(UndefinedMessage(of));
  if (!Repeatable(of) && !of.Is(Kind::kRange)) {
    FailRuntime(StrCat("'", TypeName(of), "' object is not subscriptable"));
  }
  const Value list = of.Is(Kind::kRange) ? Listed(of) : of;
  const int64_t size = LengthOf(list);
  const int64_t by = step.none() ? 1 : WholeNumber(step, "a slice's step");
  if (by == 0) FailRuntime("slice step cannot be zero");
  const auto bound = [&](const Value& given, int64_t otherwise) {
    if (given.none()) return otherwise;
    int64_t at = WholeNumber(given, "a slice's end");
    if (at < 0) at = at < -size ? -1 : at + size;
    return std::clamp(at, by > 0 ? int64_t{0} : int64_t{-1}, by > 0 ? size : size - 1);
  };
  const int64_t from = bound(start, by > 0 ? 0 : size - 1);
  const int64_t to = bound(stop, by > 0 ? size : -1);
  if (list.text() && by == 1) {
    return Value::Text(std::string(Characters(list, from, to)), list.safe());
  }
  const Value source = list.text() ? Listed(list) : list;
  std::vector<Value> items;
  for (int64_t i = from; by > 0 ? i < to : i > to;) {
    items.push_back(source.items()[static_cast<size_t>(i)]);
    // A step beyond the ends is as good as one to the end.
    if (by > 0 ? by >= to - i : by <= to - i) break;
    i += by;
  }
  if (list.text()) {
    TextBuilder out;
    for (const Value& item : items) out.Add(item.str());
    return Value::Text(out.Take(), list.safe());
  }
  return list.Is(Kind::kTuple) ? Value::Tuple(std::move(items)) : Value::List(std::move(items));
}

// --- Arguments -----------------------------------------------------------------------------------

Given::Given(std::string_view who, std::string_view parameters, Arguments& arguments)
    : who_(who), all_(&arguments) {
  if (parameters == "*") return;
  std::vector<std::string_view> names;
  std::vector<bool> optional;
  for (size_t at = 0; at < parameters.size();) {
    const size_t end = std::min(parameters.find(' ', at), parameters.size());
    std::string_view name = parameters.substr(at, end - at);
    optional.push_back(name.ends_with('?'));
    if (optional.back()) name.remove_suffix(1);
    names.push_back(name);
    at = end + 1;
  }
  if (arguments.positional.size() > names.size()) {
    FailRuntime(StrCat(who, "() takes at most ", names.size(), " argument(s), ",
                       arguments.positional.size(), " given"));
  }
  values_.resize(names.size());
  given_.resize(names.size(), false);
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    values_[i] = arguments.positional[i];
    given_[i] = true;
  }
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) {
      FailRuntime(StrCat(who, "() got an unexpected keyword argument '", name, "'"));
    }
    const auto at = static_cast<size_t>(found - names.begin());
    if (given_[at]) FailRuntime(StrCat(who, "() got multiple values for argument '", name, "'"));
    values_[at] = value;
    given_[at] = true;
  }
  for (size_t i = 0; i < names.size(); ++i) {
    if (!given_[i] && !optional[i]) {
      FailRuntime(StrCat(who, "() missing the argument '", names[i], "'"));
    }
  }
}

const std::string& Given::Text(size_t i) const {
  const Value& value = values_[i];
  if (value.undefined()) FailRuntime(UndefinedMessage(value));
  if (!value.text()) FailRuntime(StrCat(who_, "() takes a str, not ", TypeName(value)));
  return value.str();
}

int64_t Given::Int(size_t i, int64_t otherwise) const {
  const Value* value = (*this)[i];
  return value == nullptr || value->none() ? otherwise
                                           : WholeNumber(*value, StrCat("what ", who_, "() takes"));
}

bool Given::Flag(size_t i, bool otherwise) const {
  const Value* value = (*this)[i];
  return value == nullptr ? otherwise : Truth(*value);
}

}  // namespace kvgauge::jinja
