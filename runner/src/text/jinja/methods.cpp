// SPDX-License-Identifier: Apache-2.0
// Methods of dicts, lists, loops and cyclers; global functions.
#include <algorithm>
#include <array>
#include <ctime>
#include <functional>

#include "core/strings.h"
#include "src/text/jinja/engine.h"
#include "src/text/jinja/functions.h"

namespace kvgauge::jinja {
namespace {

constexpr int64_t kMostRange = 100000;  // jinja2's sandbox

Value View(const Value& dict, ViewObject::What what) {
  auto* object = new ViewObject;
  Value made = Value::Of(Kind::kView, object);
  object->Charge(128);
  object->Holds(dict);
  object->what = what;
  object->dict = dict;
  return made;
}

Value DictGet(Engine&, const Value& self, const Given& given) {
  HashOf(*given[0]);
  if (const Value* found = self.as<DictObject>().Find(*given[0])) return *found;
  return given[1] != nullptr ? *given[1] : Value::None();
}
Value DictItems(Engine&, const Value& self, const Given&) {
  return View(self, ViewObject::What::kItems);
}
Value DictKeys(Engine&, const Value& self, const Given&) {
  return View(self, ViewObject::What::kKeys);
}
Value DictValues(Engine&, const Value& self, const Given&) {
  return View(self, ViewObject::What::kValues);
}
// Nothing changes a dict: a copy is as good as itself.
Value Copy(Engine&, const Value& self, const Given&) { return self; }

const MethodSpec kDictMethods[] = {
    {"get", "key default?", DictGet}, {"items", "", DictItems}, {"keys", "", DictKeys},
    {"values", "", DictValues},       {"copy", "", Copy},
};

Value ListIndex(Engine&, const Value& self, const Given& given) {
  const std::vector<Value>& items = self.items();
  const auto found = std::find_if(items.begin(), items.end(),
                                  [&](const Value& item) { return Equal(item, *given[0]); });
  if (found == items.end()) FailRuntime(StrCat(Repr(*given[0]), " is not in list"));
  return Value::Int(found - items.begin());
}
Value ListCount(Engine&, const Value& self, const Given& given) {
  const std::vector<Value>& items = self.items();
  return Value::Int(std::count_if(items.begin(), items.end(),
                                  [&](const Value& item) { return Equal(item, *given[0]); }));
}

const MethodSpec kListMethods[] = {
    {"index", "value", ListIndex}, {"count", "value", ListCount}, {"copy", "", Copy}};

Value LoopCycle(Engine&, const Value& self, const Given& given) {
  const std::vector<Value>& items = given.all().positional;
  if (items.empty()) FailRuntime("no items for cycling given");
  return items[static_cast<size_t>(self.as<LoopObject>().index0) % items.size()];
}
Value LoopChanged(Engine&, const Value& self, const Given& given) {
  auto& loop = self.as<LoopObject>();
  const Value now = Value::Tuple(given.all().positional);
  const bool changed = !loop.changed || !Equal(*loop.changed, now);
  loop.changed = now;
  return Value::Bool(changed);
}

const MethodSpec kLoopMethods[] = {{"cycle", "*", LoopCycle}, {"changed", "*", LoopChanged}};

Value CyclerNext(Engine&, const Value& self, const Given&) {
  auto& cycler = self.as<CyclerObject>();
  Value item = cycler.items[cycler.at];
  cycler.at = (cycler.at + 1) % cycler.items.size();
  return item;
}
Value CyclerReset(Engine&, const Value& self, const Given&) {
  self.as<CyclerObject>().at = 0;
  return Value::None();
}

const MethodSpec kCyclerMethods[] = {{"next", "", CyclerNext}, {"reset", "", CyclerReset}};

// --- Globals -------------------------------------------------------------------------------------

Value MakeRange(Engine&, const Value&, const Given& given) {
  auto* range = new RangeObject;
  Value made = Value::Of(Kind::kRange, range);
  range->Charge(128);
  if (given[1] == nullptr) {
    range->stop = given.Int(0, 0);
  } else {
    range->start = given.Int(0, 0);
    range->stop = given.Int(1, 0);
  }
  range->step = given.Int(2, 1);
  if (range->step == 0) FailRuntime("range() arg 3 must not be zero");
  constexpr int64_t kFar = int64_t{1} << 61;
  const auto far = [](int64_t value) { return value > kFar || value < -kFar; };
  if (far(range->start) || far(range->stop) || far(range->step) || range->size() > kMostRange) {
    Fail(FaultKind::kLimit, StrCat("Range too big. The sandbox blocks ranges larger than "
                                   "MAX_RANGE (",
                                   kMostRange, ")."));
  }
  return made;
}

// What dict() and namespace() take: a dict or pairs, and names.
void EachEntry(const Given& given, const std::function<void(const Value&, const Value&)>& take) {
  const Arguments& all = given.all();
  if (all.positional.size() > 1) {
    FailRuntime(StrCat(given.who(), " expected at most 1 argument, got ", all.positional.size()));
  }
  if (!all.positional.empty()) {
    const Value& first = all.positional[0];
    if (first.Is(Kind::kDict)) {
      for (const auto& [key, value] : first.as<DictObject>().items()) take(key, value);
    } else {
      const Value pairs = Listed(first);
      for (const Value& pair : pairs.items()) {
        const Value both = Listed(pair);
        if (both.items().size() != 2) {
          FailRuntime(StrCat("dictionary update sequence element has length ", both.items().size(),
                             "; 2 is required"));
        }
        take(both.items()[0], both.items()[1]);
      }
    }
  }
  for (const auto& [name, value] : all.named) take(Value::Text(name), value);
}

Value MakeDict(Engine&, const Value&, const Given& given) {
  auto* dict = new DictObject;
  Value made = Value::Of(Kind::kDict, dict);
  EachEntry(given, [&](const Value& key, const Value& value) {
    Meter::Room(128);
    dict->Set(key, value);
  });
  dict->Charge(128 + std::ssize(dict->items()) * 64);
  return made;
}

Value MakeNamespaceOf(Engine& engine, const Value&, const Given& given) {
  std::vector<std::pair<std::string, Value>> attributes;
  EachEntry(given, [&](const Value& key, const Value& value) {
    if (!key.text()) FailRuntime("namespace() takes names that are texts");
    const auto known = std::find_if(attributes.begin(), attributes.end(),
                                    [&](const auto& entry) { return entry.first == key.str(); });
    if (known != attributes.end()) {
      known->second = value;
    } else {
      attributes.emplace_back(key.str(), value);
    }
  });
  return engine.MakeNamespace(std::move(attributes));
}

Value MakeCycler(Engine&, const Value&, const Given& given) {
  auto* cycler = new CyclerObject;
  Value made = Value::Of(Kind::kCycler, cycler);
  cycler->items = given.all().positional;
  if (cycler->items.empty()) FailRuntime("at least one item has to be provided");
  for (const Value& item : cycler->items) cycler->Holds(item);
  cycler->Charge(128 + std::ssize(cycler->items) * 16);
  return made;
}

Value MakeJoiner(Engine&, const Value&, const Given& given) {
  auto* joiner = new JoinerObject;
  Value made = Value::Of(Kind::kJoiner, joiner);
  joiner->separator = given[0] != nullptr ? *given[0] : Value::Text(", ");
  joiner->Holds(joiner->separator);
  joiner->Charge(128);
  return made;
}

Value RaiseException(Engine&, const Value&, const Given& given) {
  Fail(FaultKind::kRaised, ToText(*given[0]));
}

// The pinned day at midnight.
std::tm DayOf(const std::string& date) {
  std::tm day = {};
  day.tm_year = std::stoi(date.substr(0, 4)) - 1900;
  day.tm_mon = std::stoi(date.substr(5, 2)) - 1;
  day.tm_mday = std::stoi(date.substr(8, 2));
  day.tm_isdst = 0;
  timegm(&day);  // fills in the day of the week and of the year
  return day;
}

Value StrftimeNow(Engine& engine, const Value&, const Given& given) {
  constexpr std::string_view kKnown = "aAbBcdeFHIjmMpSTuUwWxXyYZzDCGgVRrnth%";
  const std::string& format = given.Text(0);
  std::string plain;
  for (size_t i = 0; i < format.size(); ++i) {
    plain += format[i];
    if (format[i] == '\0') FailRuntime("embedded null character");
    if (format[i] != '%') continue;
    if (i + 1 < format.size() && format[i + 1] == 'f') {
      plain.pop_back();
      plain += "000000";
      ++i;
      continue;
    }
    if (i + 1 < format.size() && format[i + 1] == '-') plain += format[++i];
    if (i + 1 >= format.size() || kKnown.find(format[i + 1]) == std::string_view::npos) {
      Fail(FaultKind::kUnsupported,
           StrCat("strftime_now(", Quoted(format), "): only the directives ", kKnown,
                  ", f and their form with \"-\" are supported"));
    }
    // The clock knows no time zone.
    if (format[++i] == 'Z' || format[i] == 'z') {
      while (plain.back() != '%') plain.pop_back();
      plain.pop_back();
    } else {
      plain += format[i];
    }
  }
  if (plain.empty()) return Value::Text("");
  const std::tm day = DayOf(engine.date());
  std::vector<char> buffer(plain.size() * 32 + 64);
  const size_t size = std::strftime(buffer.data(), buffer.size(), plain.c_str(), &day);
  return Value::Text(std::string(buffer.data(), size));
}

const MethodSpec kGlobals[] = {
    {"raise_exception", "message", RaiseException},
    {"namespace", "*", MakeNamespaceOf},
    {"range", "start stop? step?", MakeRange},
    {"strftime_now", "format", StrftimeNow},
    {"dict", "*", MakeDict},
    {"cycler", "*", MakeCycler},
    {"joiner", "sep?", MakeJoiner},
};

}  // namespace

std::span<const MethodSpec> DictMethods() { return kDictMethods; }
std::span<const MethodSpec> ListMethods() { return kListMethods; }
std::span<const MethodSpec> LoopMethods() { return kLoopMethods; }
std::span<const MethodSpec> CyclerMethods() { return kCyclerMethods; }
std::span<const MethodSpec> Globals() { return kGlobals; }

const MethodSpec* FindMethod(const Value& of, std::string_view name) {
  std::span<const MethodSpec> methods;
  switch (of.kind()) {
    case Kind::kString:
      methods = TextMethods();
      break;
    case Kind::kDict:
      methods = DictMethods();
      break;
    case Kind::kList:
    case Kind::kTuple:
      methods = ListMethods();
      break;
    case Kind::kLoop:
      methods = LoopMethods();
      break;
    case Kind::kCycler:
      methods = CyclerMethods();
      break;
    default:
      return nullptr;
  }
  const auto found = std::find_if(methods.begin(), methods.end(),
                                  [&](const MethodSpec& method) { return method.name == name; });
  return found == methods.end() ? nullptr : &*found;
}

}  // namespace kvgauge::jinja
