// SPDX-License-Identifier: Apache-2.0
// Filters of lists, dicts and what else can be gone through.
#include <algorithm>
#include <functional>

#include "core/strings.h"
#include "src/text/jinja/by_character.h"
#include "src/text/jinja/functions.h"

namespace kvgauge::jinja {
namespace {

// Filters of jinja2 that make no sense in a prompt, or that show an object's inside.
constexpr std::string_view kUnsupported[] = {"filesizeformat", "groupby", "pprint",   "random",
                                             "striptags",      "urlize",  "wordwrap", "xmlattr"};

// "a.b.0": what stands there in an item.
Value AttributeOf(const Value& item, const Value& attribute, const Value* otherwise = nullptr) {
  if (attribute.integral()) return GetItem(item, attribute);
  if (!attribute.text()) FailRuntime("an attribute is named by a text or a number");
  Value at = item;
  for (const std::string& part : kvgauge::Split(attribute.str(), '.')) {
    const bool number =
        !part.empty() && part.size() < 10 &&
        std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    at = GetItem(at, number ? Value::Int(std::stoll(part)) : Value::Text(part));
    if (otherwise != nullptr && at.undefined()) at = *otherwise;
  }
  return at;
}

Value Folded(const Value& value, bool case_sensitive) {
  return value.text() && !case_sensitive ? Value::Text(Lower(value.str())) : value;
}

bool Absent(const Value* value) { return value == nullptr || value->none(); }

Value First(Engine&, const Value& self, const Given&) {
  if (self.Is(Kind::kIterator)) {
    auto& iterator = self.as<IteratorObject>();
    if (iterator.items.empty()) return Value::Undefined("No first item, sequence was empty.");
    Value item = iterator.items.front();
    iterator.items.erase(iterator.items.begin());
    return item;
  }
  const Value items = Listed(self);
  if (items.items().empty()) return Value::Undefined("No first item, sequence was empty.");
  return items.items().front();
}

Value Last(Engine&, const Value& self, const Given&) {
  if (self.Is(Kind::kIterator)) {
    FailRuntime("'generator' object is not reversible");
  }
  if (self.undefined()) FailRuntime("'Undefined' object is not reversible");
  const Value items = Listed(self);
  if (items.items().empty()) return Value::Undefined("No last item, sequence was empty.");
  return items.items().back();
}

Value ToList(Engine&, const Value& self, const Given&) {
  const Value items = Listed(self);
  return items.Is(Kind::kList) ? items : Value::List(items.items());
}

Value ItemPairs(Engine&, const Value& self, const Given&) {
  if (self.undefined()) return Value::Iterator({});
  if (!self.Is(Kind::kDict)) FailRuntime("Can only get item pairs from a mapping.");
  std::vector<Value> items;
  for (const auto& [key, value] : self.as<DictObject>().items()) {
    items.push_back(Value::Tuple({key, value}));
  }
  return Value::Iterator(std::move(items));
}

Value JoinItems(Engine&, const Value& self, const Given& given) {
  const std::string separator = given[0] != nullptr ? ToText(*given[0]) : "";
  const Value items = Listed(self);
  TextBuilder out;
  bool first = true;
  for (const Value& item : items.items()) {
    if (!std::exchange(first, false)) out.Add(separator);
    AppendText(Absent(given[1]) ? item : AttributeOf(item, *given[1]), out);
  }
  return Value::Text(out.Take());
}

// Runs a filter by name with the arguments behind the name.
Value Map(Engine& engine, const Value& self, const Given& given) {
  const Arguments& all = given.all();
  if (!Truth(self)) return Value::Iterator({});
  const Value items = Listed(self);
  std::vector<Value> mapped;
  mapped.reserve(items.items().size());
  if (all.positional.empty()) {
    const Value *attribute = nullptr, *otherwise = nullptr;
    for (const auto& [name, value] : all.named) {
      if (name == "attribute")
        attribute = &value;
      else if (name == "default")
        otherwise = &value;
      else
        FailRuntime(StrCat("Unexpected keyword argument '", name, "'"));
    }
    if (attribute == nullptr) FailRuntime("map requires a filter argument");
    for (const Value& item : items.items()) {
      mapped.push_back(AttributeOf(item, *attribute, Absent(otherwise) ? nullptr : otherwise));
    }
    return Value::Iterator(std::move(mapped));
  }
  if (!all.positional[0].text()) FailRuntime("map requires the name of a filter");
  const std::string& name = all.positional[0].str();
  const FilterSpec* filter = FindFilter(name);
  if (filter == nullptr && IsUnsupportedFilter(name)) {
    Fail(FaultKind::kUnsupported, StrCat("the filter '", name, "' is not supported"));
  }
  if (filter == nullptr) FailRuntime(NoFilter(name));
  Arguments rest;
  rest.positional.assign(all.positional.begin() + 1, all.positional.end());
  rest.named = all.named;
  for (const Value& item : items.items()) {
    StepOver(item);
    mapped.push_back(filter->run(engine, item, Given(filter->name, filter->parameters, rest)));
  }
  return Value::Iterator(std::move(mapped));
}

// select and its kin: items that a test accepts, or whose attribute it accepts.
Value Choose(Engine& engine, const Value& self, const Given& given, bool keep, bool of_attribute) {
  const Arguments& all = given.all();
  const size_t off = of_attribute ? 1 : 0;
  if (all.positional.size() < off) FailRuntime("Missing parameter for attribute name");
  const TestSpec* test = nullptr;
  if (all.positional.size() > off) {
    if (!all.positional[off].text()) FailRuntime("a test is named by a text");
    const std::string& name = all.positional[off].str();
    test = FindTest(name);
    if (test == nullptr) FailRuntime(NoTest(name));
  }
  Arguments rest;
  if (test != nullptr) {
    rest.positional.assign(all.positional.begin() + static_cast<std::ptrdiff_t>(off) + 1,
                           all.positional.end());
    rest.named = all.named;
  }
  const auto fits = [&](const Value& item) {
    const Value subject = of_attribute ? AttributeOf(item, all.positional[0]) : item;
    return test == nullptr ? Truth(subject)
                           : test->run(engine, subject, Given(test->name, test->parameters, rest));
  };
  std::vector<Value> chosen;
  // A test without generators says the same of the same character.
  const auto generator = [](const Value& value) { return value.Is(Kind::kIterator); };
  if (self.text() && rest.named.empty() &&
      std::none_of(rest.positional.begin(), rest.positional.end(), generator)) {
    ByCharacter<bool> known;
    ForEachCharacter(self.str(), [&](std::string_view character) {
      Meter::Step();
      const bool* fit = known.Find(character);
      if (fit == nullptr) {
        fit = &known.Keep(character, fits(CharacterItem(character, self.safe())));
      }
      if (*fit == keep) chosen.push_back(CharacterItem(character, self.safe()));
    });
    return Value::Iterator(std::move(chosen));
  }
  const Value items = Listed(self);
  for (const Value& item : items.items()) {
    if (fits(item) == keep) chosen.push_back(item);
  }
  return Value::Iterator(std::move(chosen));
}

Value Select(Engine& engine, const Value& self, const Given& given) {
  return Choose(engine, self, given, true, false);
}
Value Reject(Engine& engine, const Value& self, const Given& given) {
  return Choose(engine, self, given, false, false);
}
Value SelectAttr(Engine& engine, const Value& self, const Given& given) {
  return Choose(engine, self, given, true, true);
}
Value RejectAttr(Engine& engine, const Value& self, const Given& given) {
  return Choose(engine, self, given, false, true);
}

// Stable, by keys made once.
Value Sorted(const Value& items, bool reverse, const std::function<Value(const Value&)>& key) {
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : items.items()) keyed.emplace_back(key(item), item);
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return reverse ? Less(b.first, a.first) : Less(a.first, b.first);
  });
  std::vector<Value> sorted;
  for (auto& entry : keyed) sorted.push_back(std::move(entry.second));
  return Value::List(std::move(sorted));
}

Value Sort(Engine&, const Value& self, const Given& given) {
  const bool case_sensitive = given.Flag(1, false);
  return Sorted(Listed(self), given.Flag(0, false), [&](const Value& item) {
    if (Absent(given[2])) return Folded(item, case_sensitive);
    if (!given[2]->text()) return Folded(AttributeOf(item, *given[2]), case_sensitive);
    std::vector<Value> keys;
    for (const std::string& name : kvgauge::Split(given[2]->str(), ',')) {
      keys.push_back(Folded(AttributeOf(item, Value::Text(name)), case_sensitive));
    }
    return Value::List(std::move(keys));
  });
}

Value DictSort(Engine&, const Value& self, const Given& given) {
  if (self.undefined()) FailRuntime(UndefinedMessage(self));
  if (!self.Is(Kind::kDict)) FailRuntime(StrCat("dictsort of a ", TypeName(self)));
  const std::string by = given[1] != nullptr ? given.Text(1) : "key";
  if (by != "key" && by != "value") {
    FailRuntime("You can only sort by either \"key\" or \"value\"");
  }
  std::vector<Value> items;
  for (const auto& [key, value] : self.as<DictObject>().items()) {
    items.push_back(Value::Tuple({key, value}));
  }
  return Sorted(Value::List(std::move(items)), given.Flag(2, false), [&](const Value& item) {
    return Folded(item.items()[by == "key" ? 0 : 1], given.Flag(0, false));
  });
}

Value Unique(Engine&, const Value& self, const Given& given) {
  auto* seen = new DictObject;
  const Value holder = Value::Of(Kind::kDict, seen);
  std::vector<Value> items;
  const Value all = Listed(self);
  for (const Value& item : all.items()) {
    const Value key =
        Folded(Absent(given[1]) ? item : AttributeOf(item, *given[1]), given.Flag(0, false));
    HashOf(key);
    if (seen->Find(key) != nullptr) continue;
    seen->Set(key, Value::None());
    items.push_back(item);
  }
  return Value::Iterator(std::move(items));
}

Value Reverse(Engine&, const Value& self, const Given&) {
  const Value items = Listed(self);
  std::vector<Value> reversed(items.items().rbegin(), items.items().rend());
  if (!self.text()) return Value::Iterator(std::move(reversed));
  TextBuilder out;
  for (const Value& item : reversed) out.Add(item.str());
  return Value::Text(out.Take(), self.safe());
}

Value Sum(Engine&, const Value& self, const Given& given) {
  Value sum = given[1] != nullptr ? *given[1] : Value::Int(0);
  if (sum.text()) FailRuntime("sum() can't sum strings [use ''.join(seq) instead]");
  const Value items = Listed(self);
  for (const Value& item : items.items()) {
    sum = BinaryOp(Op::kAdd, sum, Absent(given[0]) ? item : AttributeOf(item, *given[0]));
  }
  return sum;
}

Value Extreme(const Value& self, const Given& given, bool most) {
  const Value items = Listed(self);
  if (items.items().empty()) return Value::Undefined("No aggregated item, sequence was empty.");
  Value best, best_key;
  bool first = true;
  for (const Value& item : items.items()) {
    const Value key =
        Folded(Absent(given[1]) ? item : AttributeOf(item, *given[1]), given.Flag(0, false));
    if (first || (most ? Less(best_key, key) : Less(key, best_key))) {
      best = item;
      best_key = key;
    }
    first = false;
  }
  return best;
}
Value Max(Engine&, const Value& self, const Given& given) { return Extreme(self, given, true); }
Value Min(Engine&, const Value& self, const Given& given) { return Extreme(self, given, false); }

Value Batch(Engine&, const Value& self, const Given& given) {
  const int64_t count = given.Int(0, 1);
  if (count < 1) FailRuntime("batch() takes a count of at least 1");
  std::vector<Value> rows, row;
  const Value items = Listed(self);
  for (const Value& item : items.items()) {
    if (std::ssize(row) == count) rows.push_back(Value::List(std::exchange(row, {})));
    row.push_back(item);
  }
  if (!row.empty()) {
    if (!Absent(given[1])) {
      Meter::Room(count * static_cast<int64_t>(sizeof(Value)));
      row.resize(static_cast<size_t>(std::max(count, std::ssize(row))), *given[1]);
    }
    rows.push_back(Value::List(std::move(row)));
  }
  return Value::Iterator(std::move(rows));
}

Value Slice(Engine&, const Value& self, const Given& given) {
  const int64_t slices = given.Int(0, 1);
  if (slices < 1) FailRuntime("slice() takes a count of at least 1");
  const Value all = Listed(self);
  const std::vector<Value>& items = all.items();
  Meter::Room(slices * 128);
  const int64_t each = std::ssize(items) / slices, over = std::ssize(items) % slices;
  std::vector<Value> rows;
  int64_t from = 0;
  for (int64_t i = 0; i < slices; ++i) {
    Meter::Step();
    const int64_t to = from + each + (i < over ? 1 : 0);
    std::vector<Value> row(items.begin() + from, items.begin() + to);
    if (!Absent(given[1]) && i >= over) row.push_back(*given[1]);
    rows.push_back(Value::List(std::move(row)));
    from = to;
  }
  return Value::Iterator(std::move(rows));
}

Value Attr(Engine&, const Value& self, const Given& given) {
  const Value name = Value::Text(given.Text(0));
  if (self.Is(Kind::kDict) && FindMethod(self, name.str()) == nullptr) {
    return Value::UndefinedOf(self, name);
  }
  return GetAttribute(self, name);
}

const FilterSpec kListFilters[] = {
    {"first", "", First},
    {"last", "", Last},
    {"list", "", ToList},
    {"items", "", ItemPairs},
    {"join", "d? attribute?", JoinItems},
    {"map", "*", Map},
    {"select", "*", Select},
    {"reject", "*", Reject},
    {"selectattr", "*", SelectAttr},
    {"rejectattr", "*", RejectAttr},
    {"sort", "reverse? case_sensitive? attribute?", Sort},
    {"dictsort", "case_sensitive? by? reverse?", DictSort},
    {"unique", "case_sensitive? attribute?", Unique},
    {"reverse", "", Reverse},
    {"sum", "attribute? start?", Sum},
    {"max", "case_sensitive? attribute?", Max},
    {"min", "case_sensitive? attribute?", Min},
    {"batch", "linecount fill_with?", Batch},
    {"slice", "slices fill_with?", Slice},
    {"attr", "name", Attr},
};

}  // namespace

std::span<const FilterSpec> ListFilters() { return kListFilters; }

const FilterSpec* FindFilter(std::string_view name) {
  for (const std::span<const FilterSpec> filters : {TextFilters(), ListFilters()}) {
    for (const FilterSpec& filter : filters) {
      if (filter.name == name) return &filter;
    }
  }
  return nullptr;
}

bool IsUnsupportedFilter(std::string_view name) {
  return std::find(std::begin(kUnsupported), std::end(kUnsupported), name) !=
         std::end(kUnsupported);
}

}  // namespace kvgauge::jinja
