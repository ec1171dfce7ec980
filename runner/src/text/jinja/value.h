// SPDX-License-Identifier: Apache-2.0
// Values of the template engine, with Python's meaning of truth, equality, order and printing.
//
// A value is small and cheap to copy; texts, lists and dicts are shared and never change once made
// (the sandbox refuses what would change them), namespaces and loops do. Reference counts are
// atomic: the constants of a parsed template may be used by several threads at once.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/text/jinja/fault.h"

namespace kvgauge::jinja {

class Value;

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kRange,
  kIterator,  // a generator: can be gone through once, has no length
  kView,      // dict.keys(), .values(), .items()
  kNamespace,
  kLoop,
  kCycler,
  kJoiner,
  kFunction,
};

// What is shared between values.
class Object {
 public:
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() {
    if (meter_ != nullptr) meter_->Release(charged_);
  }
  // Counts the object in the current meter; to be called once, when its size is known.
  void Charge(int64_t bytes) {
    meter_ = Meter::Current();
    if (meter_ == nullptr) return;
    meter_->Charge(bytes);  // a failure leaves nothing to release
    charged_ = bytes;
  }
  // Says that the object holds `item`. Fails where things are nested too deeply: whoever prints or
  // drops them goes down by recursion. Namespaces and scopes, which can hold themselves, are
  // dropped by their rendering and end the count.
  void Holds(const Value& item);

 private:
  friend class Value;
  std::atomic<uint32_t> owners_ = 0;
  int32_t nesting_ = 0;
  Meter* meter_ = nullptr;
  int64_t charged_ = 0;
};

class Value {
 public:
  Value() = default;  // undefined, without a name
  Value(const Value& other) : kind_(other.kind_), content_(other.content_) { Hold(); }
  Value(Value&& other) noexcept : kind_(other.kind_), content_(other.content_) {
    other.kind_ = Kind::kNone;
  }
  Value& operator=(Value other) noexcept {
    std::swap(kind_, other.kind_);
    std::swap(content_, other.content_);
    return *this;
  }
  ~Value() { Drop(); }

  static Value None() { return Value(Kind::kNone); }
  static Value Bool(bool value) {
    Value made(Kind::kBool);
    made.content_.integer = value ? 1 : 0;
    return made;
  }
  static Value Int(int64_t value) {
    Value made(Kind::kInt);
    made.content_.integer = value;
    return made;
  }
  static Value Float(double value) {
    Value made(Kind::kFloat);
    made.content_.number = value;
    return made;
  }
  // `safe`: marked as needing no escapes, Python's Markup.
  static Value Text(std::string text, bool safe = false);
  static Value List(std::vector<Value> items);
  static Value Tuple(std::vector<Value> items);
  static Value Iterator(std::vector<Value> items);
  // The undefined value of a name, or of an attribute or element of `of`; its message is made when
  // someone uses it.
  static Value Undefined(std::string message);
  static Value UndefinedName(std::string_view name);
  static Value UndefinedOf(const Value& of, const Value& name);
  // Takes a new object.
  static Value Of(Kind kind, Object* object) {
    Value made(kind);
    made.content_.object = object;
    made.Hold();
    return made;
  }

  Kind kind() const { return kind_; }
  bool Is(Kind kind) const { return kind_ == kind; }
  bool undefined() const { return kind_ == Kind::kUndefined; }
  bool none() const { return kind_ == Kind::kNone; }
  bool text() const { return kind_ == Kind::kString; }
  bool listed() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }
  bool integral() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }
  bool numeric() const { return integral() || kind_ == Kind::kFloat; }
  int64_t integer() const { return content_.integer; }  // of a bool or an int
  double number() const {
    return kind_ == Kind::kFloat ? content_.number : static_cast<double>(content_.integer);
  }
  // Precondition: the kind's own object.
  template <class T>
  T& as() const {
    return static_cast<T&>(*content_.object);
  }
  const std::string& str() const;             // of a string
  bool safe() const;                          // of a string
  const std::vector<Value>& items() const;    // of a list or tuple
  bool SameObject(const Value& other) const;  // Python's `is`
  const Object* object() const { return Shared() ? content_.object : nullptr; }

 private:
  explicit Value(Kind kind) : kind_(kind) {}
  bool Shared() const { return kind_ == Kind::kUndefined || kind_ >= Kind::kString; }
  void Hold() const {
    if (Shared() && content_.object != nullptr) {
      content_.object->owners_.fetch_add(1, std::memory_order_relaxed);
    }
  }
  void Drop() {
    if (Shared() && content_.object != nullptr &&
        content_.object->owners_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      delete content_.object;
    }
  }

  Kind kind_ = Kind::kUndefined;
  union {
    Object* object = nullptr;
    int64_t integer;
    double number;
  } content_;
};

struct UndefinedObject : Object {
  std::string message;  // whole; or made from the two below
  std::string of;       // the type that lacks it; "": a name
  Value name;
};

struct TextObject : Object {
  std::string text;
  bool safe = false;
  // Whether bytes are characters; -1: not looked at yet.
  mutable std::atomic<int8_t> ascii = -1;
};

struct ListObject : Object {
  std::vector<Value> items;
};

class DictObject : public Object {
 public:
  const std::vector<std::pair<Value, Value>>& items() const { return items_; }
  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;
  // Replaces, or appends. Fails for a key that Python could not hash.
  void Set(Value key, Value value);

 private:
  size_t IndexOf(const Value& key) const;

  std::vector<std::pair<Value, Value>> items_;
  std::unordered_multimap<size_t, size_t> index_;  // by hash, of dicts that are not small
};

struct RangeObject : Object {
  int64_t start = 0, stop = 0, step = 1;
  int64_t size() const;
};

struct IteratorObject : Object {
  std::vector<Value> items;
  bool spent = false;
};

struct ViewObject : Object {
  enum class What { kKeys, kValues, kItems } what = What::kKeys;
  Value dict;
};

struct NamespaceObject : Object {
  std::vector<std::pair<std::string, Value>> attributes;
  Value* Find(std::string_view name);
};

struct LoopObject : Object {
  Value items;  // a list
  int64_t index0 = 0;
  int64_t depth0 = 0;
  std::optional<Value> changed;
  int64_t length() const { return std::ssize(items.items()); }
};

struct CyclerObject : Object {
  std::vector<Value> items;
  size_t at = 0;
};

struct JoinerObject : Object {
  Value separator;
  bool used = false;
};

// Builds a text; what it holds is charged to the meter while it lives.
class TextBuilder {
 public:
  TextBuilder() : meter_(Meter::Current()) {}
  ~TextBuilder() {
    if (meter_ != nullptr) meter_->Release(charged_);
  }
  TextBuilder(const TextBuilder&) = delete;
  TextBuilder& operator=(const TextBuilder&) = delete;

  void Add(std::string_view piece) {
    Reserve(piece.size());
    text_ += piece;
  }
  void Add(char c) { Add(std::string_view(&c, 1)); }
  void Repeat(std::string_view piece, int64_t times);
  const std::string& text() const { return text_; }
  std::string Take() { return std::move(text_); }

 private:
  void Reserve(size_t bytes) {
    const auto needed = static_cast<int64_t>(text_.size() + bytes);
    if (meter_ == nullptr || needed <= charged_) return;
    const int64_t more = std::max(needed - charged_, charged_);
    meter_->Charge(more);
    charged_ += more;
  }

  Meter* meter_;
  int64_t charged_ = 0;
  std::string text_;
};

// Python's names of types: "str", "list", "Namespace".
std::string_view TypeName(const Value& value);
// As messages about undefined values have it: "dict object", "None".
std::string ObjectTypeName(const Value& value);
// Why an undefined value cannot be used.
std::string UndefinedMessage(const Value& value);

bool Truth(const Value& value);
bool Equal(const Value& a, const Value& b);
// Less, for Python's order; fails where Python has none. `symbol` is for the message.
bool Less(const Value& a, const Value& b, std::string_view symbol = "<");
bool Contains(const Value& container, const Value& item);
size_t HashOf(const Value& value);

// str() and repr(). Generators, loops and functions print an address in Python: refused.
std::string ToText(const Value& value);
void AppendText(const Value& value, TextBuilder& out);
std::string Repr(const Value& value);
std::string FloatText(double value);

// len(); fails for what has none.
int64_t LengthOf(const Value& value);
// What a `for` would go through: a list (the value itself where it is one). Uses up an iterator.
Value Listed(const Value& value);

// An item of the list that a text is; equal ASCII ones are the same object.
Value CharacterItem(std::string_view character, bool safe);

// Code points. `count`: of the whole text.
int64_t CharacterCount(const Value& text);
// Byte range of code points [begin, end) of a text; both within it.
std::string_view Characters(const Value& text, int64_t begin, int64_t end);

// Counts a look at a whole text, which leaves no text behind that would count.
inline void StepOver(const Value& value) {
  if (value.text()) Meter::Step(std::ssize(value.str()) / 64);
}
// Like find and rfind of a string_view, but their time is counted and grows with the text alone,
// not with the text times what is wanted.
size_t Find(std::string_view text, std::string_view wanted, size_t from = 0);
size_t FindLast(std::string_view text, std::string_view wanted);

}  // namespace kvgauge::jinja
