// SPDX-License-Identifier: Apache-2.0
#include "src/text/jinja/value.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "core/strings.h"
#include "src/text/tokenizer/unicode.h"

namespace kvgauge::jinja {
namespace {

constexpr int32_t kMostNesting = 200;
constexpr size_t kSmallDict = 12;
constexpr int64_t kObjectBytes = 64;  // of an object without what it holds

template <class T>
Value Holding(Kind kind, std::vector<Value>&& items) {
  Meter::Room(static_cast<int64_t>(items.size() * sizeof(Value)));
  auto* object = new T;
  Value made = Value::Of(kind, object);
  for (const Value& item : items) object->Holds(item);
  object->items = std::move(items);
  object->Charge(kObjectBytes + static_cast<int64_t>(object->items.size() * sizeof(Value)));
  return made;
}

}  // namespace

thread_local Meter* Meter::current = nullptr;

void Meter::FailMemory() const {
  Fail(FaultKind::kLimit,
       StrCat("the template needs more than ", HumanBytes(limits_.memory_bytes), " of memory"));
}
void Meter::FailSteps() const {
  Fail(FaultKind::kLimit, StrCat("the template takes more than ", WithCommas(limits_.steps),
                                 " steps; it seems to have no end"));
}

void Object::Holds(const Value& item) {
  const Object* object = item.object();
  if (object == nullptr || item.Is(Kind::kNamespace)) return;
  nesting_ = std::max(nesting_, object->nesting_ + 1);
  if (nesting_ > kMostNesting) {
    Fail(FaultKind::kLimit, StrCat("values nested more than ", kMostNesting, " deep"));
  }
}

Value Value::Text(std::string text, bool safe) {
  auto* object = new TextObject;
  Value made = Of(Kind::kString, object);
  object->text = std::move(text);
  object->safe = safe;
  object->Charge(kObjectBytes + static_cast<int64_t>(object->text.size()));
  return made;
}
Value Value::List(std::vector<Value> items) {
  return Holding<ListObject>(Kind::kList, std::move(items));
}
Value Value::Tuple(std::vector<Value> items) {
  return Holding<ListObject>(Kind::kTuple, std::move(items));
}
Value Value::Iterator(std::vector<Value> items) {
  return Holding<IteratorObject>(Kind::kIterator, std::move(items));
}

Value Value::Undefined(std::string message) {
  auto* object = new UndefinedObject;
  object->message = std::move(message);
  return Of(Kind::kUndefined, object);
}
Value Value::UndefinedName(std::string_view name) {
  auto* object = new UndefinedObject;
  object->message = StrCat("'", name, "' is undefined");
  return Of(Kind::kUndefined, object);
}
Value Value::UndefinedOf(const Value& of, const Value& name) {
  auto* object = new UndefinedObject;
  Value made = Of(Kind::kUndefined, object);
  object->of = ObjectTypeName(of);
  object->Holds(name);
  object->name = name;
  return made;
}

std::string UndefinedMessage(const Value& value) {
  const auto* object = static_cast<const UndefinedObject*>(value.object());
  if (object == nullptr) return "a value is undefined";
  if (!object->message.empty()) return object->message;
  if (object->name.text()) {
    return StrCat("'", object->of, "' has no attribute ", Repr(object->name));
  }
  return StrCat(object->of, " has no element ", Repr(object->name));
}

const std::string& Value::str() const { return as<TextObject>().text; }
bool Value::safe() const { return as<TextObject>().safe; }
const std::vector<Value>& Value::items() const { return as<ListObject>().items; }

bool Value::SameObject(const Value& other) const {
  if (kind_ != other.kind_) return false;
  if (Shared()) return content_.object == other.content_.object;
  return none() || content_.integer == other.content_.integer;
}

size_t DictObject::IndexOf(const Value& key) const {
  if (items_.size() <= kSmallDict) {
    for (size_t i = 0; i < items_.size(); ++i) {
      if (Equal(items_[i].first, key)) return i;
    }
    return items_.size();
  }
  const auto [begin, end] = index_.equal_range(HashOf(key));
  for (auto at = begin; at != end; ++at) {
    if (Equal(items_[at->second].first, key)) return at->second;
  }
  return items_.size();
}

const Value* DictObject::Find(const Value& key) const {
  const size_t at = IndexOf(key);
  return at < items_.size() ? &items_[at].second : nullptr;
}

const Value* DictObject::Find(std::string_view key) const {
  if (items_.size() > kSmallDict) return Find(Value::Text(std::string(key)));
  for (const auto& [name, value] : items_) {
    if (name.text() && name.str() == key) return &value;
  }
  return nullptr;
}

void DictObject::Set(Value key, Value value) {
  const size_t hash = HashOf(key);
  Holds(key);
  Holds(value);
  const size_t at = IndexOf(key);
  if (at < items_.size()) {
    items_[at].second = std::move(value);
    return;
  }
  items_.emplace_back(std::move(key), std::move(value));
  if (items_.size() == kSmallDict + 1) {
    for (size_t i = 0; i < items_.size(); ++i) index_.emplace(HashOf(items_[i].first), i);
  } else if (items_.size() > kSmallDict) {
    index_.emplace(hash, at);
  }
}

int64_t RangeObject::size() const {
  if (step > 0) return start < stop ? (stop - start - 1) / step + 1 : 0;
  return start > stop ? (start - stop - 1) / -step + 1 : 0;
}

Value* NamespaceObject::Find(std::string_view name) {
  for (auto& [known, value] : attributes) {
    if (known == name) return &value;
  }
  return nullptr;
}

void TextBuilder::Repeat(std::string_view piece, int64_t times) {
  if (times <= 0 || piece.empty()) return;
  const auto size = static_cast<int64_t>(piece.size());
  if (times > (int64_t{1} << 40) / size) {
    Fail(FaultKind::kLimit, StrCat("a text of ", times, " times ", size, " bytes is too long"));
  }
  Reserve(static_cast<size_t>(size * times));
  Meter::Step(times);
  text_.reserve(text_.size() + static_cast<size_t>(size * times));
  for (int64_t i = 0; i < times; ++i) text_ += piece;
}

std::string_view TypeName(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return value.safe() ? "Markup" : "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kRange:
      return "range";
    case Kind::kIterator:
      return "generator";
    case Kind::kView:
      switch (value.as<ViewObject>().what) {
        case ViewObject::What::kKeys:
          return "dict_keys";
        case ViewObject::What::kValues:
          return "dict_values";
        default:
          return "dict_items";
      }
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kCycler:
      return "Cycler";
    case Kind::kJoiner:
      return "Joiner";
    default:
      return "function";
  }
}

std::string ObjectTypeName(const Value& value) {
  switch (value.kind()) {
    case Kind::kNone:
      return "None";
    case Kind::kNamespace:
    case Kind::kCycler:
    case Kind::kJoiner:
      return StrCat("jinja2.utils.", TypeName(value), " object");
    case Kind::kLoop:
      return "jinja2.runtime.LoopContext object";
    case Kind::kUndefined:
      return "jinja2.runtime.Undefined object";
    case Kind::kString:
      return value.safe() ? "markupsafe.Markup object" : "str object";
    default:
      return StrCat(TypeName(value), " object");
  }
}

bool Truth(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.integer() != 0;
    case Kind::kFloat:
      return value.number() != 0;
    case Kind::kString:
      return !value.str().empty();
    case Kind::kList:
    case Kind::kTuple:
      return !value.items().empty();
    case Kind::kDict:
    case Kind::kRange:
    case Kind::kView:
    case Kind::kLoop:
      return LengthOf(value) != 0;
    default:
      return true;
  }
}

namespace {

bool EqualLists(const std::vector<Value>& a, const std::vector<Value>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), Equal);
}

bool EqualNumbers(const Value& a, const Value& b) {
  if (a.integral() && b.integral()) return a.integer() == b.integer();
  return a.number() == b.number();
}

bool EqualDicts(const DictObject& a, const DictObject& b) {
  if (a.items().size() != b.items().size()) return false;
  return std::all_of(a.items().begin(), a.items().end(), [&](const auto& item) {
    const Value* other = b.Find(item.first);
    return other != nullptr && Equal(item.second, *other);
  });
}

}  // namespace

bool Equal(const Value& a, const Value& b) {
  Meter::Step();
  if (a.numeric() && b.numeric()) return EqualNumbers(a, b);
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      if (a.SameObject(b)) return true;
      if (a.str().size() != b.str().size()) return false;
      StepOver(a);
      return a.str() == b.str();
    case Kind::kList:
    case Kind::kTuple:
      return a.SameObject(b) || EqualLists(a.items(), b.items());
    case Kind::kDict:
      return a.SameObject(b) || EqualDicts(a.as<DictObject>(), b.as<DictObject>());
    case Kind::kRange:
    case Kind::kView:
      // Keys and items are sets for Python; orders rarely differ, and never in what templates hold.
      return a.SameObject(b) ||
             (!(a.Is(Kind::kView) && a.as<ViewObject>().what == ViewObject::What::kValues) &&
              TypeName(a) == TypeName(b) && EqualLists(Listed(a).items(), Listed(b).items()));
    default:
      return a.SameObject(b);
  }
}

bool Less(const Value& a, const Value& b, std::string_view symbol) {
  Meter::Step();
  if (a.undefined()) FailRuntime(UndefinedMessage(a));
  if (b.undefined()) FailRuntime(UndefinedMessage(b));
  if (a.integral() && b.integral()) return a.integer() < b.integer();
  if (a.numeric() && b.numeric()) return a.number() < b.number();
  // Bytes of UTF-8 stand in the order of their code points.
  if (a.text() && b.text()) {
    StepOver(a.str().size() < b.str().size() ? a : b);
    return a.str() < b.str();
  }
  if (a.listed() && a.kind() == b.kind()) {
    const auto [x, y] = std::mismatch(a.items().begin(), a.items().end(), b.items().begin(),
                                      b.items().end(), Equal);
    if (x == a.items().end() || y == b.items().end()) {
      return a.items().size() < b.items().size();
    }
    return Less(*x, *y, symbol);
  }
  FailRuntime(StrCat("'", symbol, "' not supported between instances of '", TypeName(a), "' and '",
                     TypeName(b), "'"));
}

size_t HashOf(const Value& value) {
  switch (value.kind()) {
    case Kind::kNone:
    case Kind::kUndefined:
      return 7;
    case Kind::kBool:
    case Kind::kInt:
      return std::hash<double>()(static_cast<double>(value.integer()));
    case Kind::kFloat:
      return std::hash<double>()(value.number());
    case Kind::kString:
      StepOver(value);
      return std::hash<std::string>()(value.str());
    case Kind::kTuple: {
      size_t hash = 17;
      for (const Value& item : value.items()) hash = hash * 31 + HashOf(item);
      return hash;
    }
    case Kind::kList:
    case Kind::kDict:
    case Kind::kView:
      FailRuntime(StrCat("unhashable type: '", TypeName(value), "'"));
    default:
      return std::hash<const void*>()(value.object());
  }
}

bool Contains(const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kString:
      if (!item.text()) {
        FailRuntime(StrCat("'in <string>' requires string as left operand, not ", TypeName(item)));
      }
      return Find(container.str(), item.str()) != std::string_view::npos;
    case Kind::kDict:
      HashOf(item);
      return container.as<DictObject>().Find(item) != nullptr;
    case Kind::kUndefined:
      return false;
    case Kind::kIterator: {
      // Gone through up to the item; what stands behind it stays.
      std::vector<Value>& items = container.as<IteratorObject>().items;
      const auto found = std::find_if(items.begin(), items.end(),
                                      [&](const Value& other) { return Equal(item, other); });
      const bool held = found != items.end();
      items.erase(items.begin(), held ? found + 1 : found);
      return held;
    }
    default: {
      const Value list = Listed(container);
      return std::any_of(list.items().begin(), list.items().end(),
                         [&](const Value& other) { return Equal(item, other); });
    }
  }
}

int64_t LengthOf(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return CharacterCount(value);
    case Kind::kList:
    case Kind::kTuple:
      return std::ssize(value.items());
    case Kind::kDict:
      return std::ssize(value.as<DictObject>().items());
    case Kind::kRange:
      return value.as<RangeObject>().size();
    case Kind::kView:
      return std::ssize(value.as<ViewObject>().dict.as<DictObject>().items());
    case Kind::kLoop:
      return value.as<LoopObject>().length();
    default:
      FailRuntime(StrCat("object of type '", TypeName(value), "' has no len()"));
  }
}

namespace {

// Texts of one ASCII character are made once and belong to no rendering.
const std::vector<Value>& AsciiTexts() {
  static const std::vector<Value> kTexts = [] {
    const Meter::Pause pause;
    std::vector<Value> texts;
    for (int c = 0; c < 128; ++c) {
      texts.push_back(Value::Text(std::string(1, static_cast<char>(c))));
    }
    return texts;
  }();
  return kTexts;
}

Value CharactersOf(const Value& text) {
  const std::string& bytes = text.str();
  const bool ascii = CharacterCount(text) == std::ssize(bytes);
  Meter::Room(CharacterCount(text) * static_cast<int64_t>(sizeof(Value)) *
              (ascii && !text.safe() ? 1 : 6));
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(CharacterCount(text)));
  for (size_t at = 0; at < bytes.size();) {
    const size_t width = Utf8Width(bytes[at]);
    items.push_back(CharacterItem(std::string_view(bytes).substr(at, width), text.safe()));
    at += width;
  }
  return Value::List(std::move(items));
}

Value NumbersOf(const RangeObject& range) {
  const int64_t size = range.size();
  Meter::Room(size * static_cast<int64_t>(sizeof(Value)));
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(size));
  for (int64_t i = 0; i < size; ++i) items.push_back(Value::Int(range.start + i * range.step));
  return Value::List(std::move(items));
}

Value EntriesOf(const DictObject& dict, ViewObject::What what) {
  Meter::Room(std::ssize(dict.items()) * static_cast<int64_t>(sizeof(Value)) * 8);
  std::vector<Value> items;
  for (const auto& [key, value] : dict.items()) {
    items.push_back(what == ViewObject::What::kKeys     ? key
                    : what == ViewObject::What::kValues ? value
                                                        : Value::Tuple({key, value}));
  }
  return Value::List(std::move(items));
}

}  // namespace

Value CharacterItem(std::string_view character, bool safe) {
  if (character.size() > 1 || safe) return Value::Text(std::string(character), safe);
  return AsciiTexts()[static_cast<uint8_t>(character[0]) % 128];
}

Value Listed(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return Value::List({});
    case Kind::kString:
      return CharactersOf(value);
    case Kind::kList:
    case Kind::kTuple:
      return value;
    case Kind::kDict:
      return EntriesOf(value.as<DictObject>(), ViewObject::What::kKeys);
    case Kind::kRange:
      return NumbersOf(value.as<RangeObject>());
    case Kind::kView: {
      const auto& view = value.as<ViewObject>();
      return EntriesOf(view.dict.as<DictObject>(), view.what);
    }
    case Kind::kIterator: {
      auto& iterator = value.as<IteratorObject>();
      if (iterator.spent) return Value::List({});
      iterator.spent = true;
      return Value::List(std::move(iterator.items));
    }
    case Kind::kLoop:
      Fail(FaultKind::kUnsupported, "going through a loop from within it is not supported");
    default:
      FailRuntime(StrCat("'", TypeName(value), "' object is not iterable"));
  }
}

int64_t CharacterCount(const Value& text) {
  const auto& object = text.as<TextObject>();
  const std::string& bytes = object.text;
  if (object.ascii.load(std::memory_order_relaxed) < 0) {
    const bool ascii = std::all_of(bytes.begin(), bytes.end(),
                                   [](char c) { return static_cast<uint8_t>(c) < 128; });
    object.ascii.store(ascii ? 1 : 0, std::memory_order_relaxed);
  }
  if (object.ascii.load(std::memory_order_relaxed) == 1) return std::ssize(bytes);
  Meter::Step(std::ssize(bytes) / 64);
  return std::count_if(bytes.begin(), bytes.end(),
                       [](char c) { return (static_cast<uint8_t>(c) & 0xc0u) != 0x80u; });
}

std::string_view Characters(const Value& text, int64_t begin, int64_t end) {
  const std::string& bytes = text.str();
  if (begin >= end) return {};
  if (CharacterCount(text) == std::ssize(bytes)) {
    return std::string_view(bytes).substr(static_cast<size_t>(begin),
                                          static_cast<size_t>(end - begin));
  }
  size_t at = 0, from = 0;
  int64_t count = 0;
  for (; count < end && at < bytes.size(); ++count) {
    if (count == begin) from = at;
    at += Utf8Width(bytes[at]);
  }
  return std::string_view(bytes).substr(from, at - from);
}

size_t Find(std::string_view text, std::string_view wanted, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  // memmem() is linear in both, which no implementation of find() promises.
  const void* const found =
      memmem(text.data() + from, text.size() - from, wanted.data(), wanted.size());
  const size_t at = found == nullptr
                        ? text.size()
                        : static_cast<size_t>(static_cast<const char*>(found) - text.data());
  Meter::Step(1 + static_cast<int64_t>(at - from + wanted.size()) / 64);
  return found == nullptr ? std::string_view::npos : at;
}

size_t FindLast(std::string_view text, std::string_view wanted) {
  if (wanted.empty()) return text.size();
  if (wanted.size() > text.size()) return std::string_view::npos;
  // Every place costs what is compared there, so that the limit of steps ends a slow search.
  for (size_t at = text.size() - wanted.size() + 1; at-- > 0;) {
    if (at % 64 == 0) Meter::Step();
    if (text[at] != wanted[0]) continue;
    size_t same = 1;
    while (same < wanted.size() && text[at + same] == wanted[same]) ++same;
    Meter::Step(static_cast<int64_t>(same) / 64);
    if (same == wanted.size()) return at;
  }
  return std::string_view::npos;
}

}  // namespace kvgauge::jinja
