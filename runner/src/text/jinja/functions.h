// SPDX-License-Identifier: Apache-2.0
// Filters, tests, methods and global functions: one row each in a table.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/text/jinja/ast.h"
#include "src/text/jinja/value.h"

namespace kvgauge::jinja {

class Engine;

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Arguments put in the order of a function's parameters. `parameters`: names parted by blanks, with
// "?" behind those that may be left out; "*" takes everything as it comes.
class Given {
 public:
  Given(std::string_view who, std::string_view parameters, Arguments& arguments);

  // Null where it was left out.
  const Value* operator[](size_t i) const {
    return i < values_.size() && given_[i] ? &values_[i] : nullptr;
  }
  // Fail where the argument is of another type.
  const std::string& Text(size_t i) const;
  int64_t Int(size_t i, int64_t otherwise) const;
  bool Flag(size_t i, bool otherwise) const;
  const Arguments& all() const { return *all_; }
  std::string_view who() const { return who_; }

 private:
  std::string_view who_;
  std::vector<Value> values_;
  std::vector<bool> given_;
  const Arguments* all_;
};

using Function = Value (*)(Engine& engine, const Value& self, const Given& given);

struct FilterSpec {
  std::string_view name, parameters;
  Function run;
};
struct TestSpec {
  std::string_view name, parameters;
  bool (*run)(Engine& engine, const Value& self, const Given& given);
};
struct MethodSpec {
  std::string_view name, parameters;
  Function run;
};

std::span<const FilterSpec> TextFilters();
std::span<const FilterSpec> ListFilters();
std::span<const MethodSpec> TextMethods();
std::span<const MethodSpec> DictMethods();
std::span<const MethodSpec> ListMethods();
std::span<const MethodSpec> LoopMethods();
std::span<const MethodSpec> CyclerMethods();
std::span<const MethodSpec> Globals();

// Null for names that jinja2 does not know.
const FilterSpec* FindFilter(std::string_view name);
const TestSpec* FindTest(std::string_view name);
// Filters of jinja2 that are not in the table.
bool IsUnsupportedFilter(std::string_view name);
// jinja2's words.
std::string NoFilter(std::string_view name);
std::string NoTest(std::string_view name);

// Variables of a block, a loop's round or a macro's call.
struct Scope {
  std::vector<std::pair<Symbol, Value>> variables;
  std::shared_ptr<Scope> parent;
};

// A macro with the scope it was made in, or a method with its object, or a global function.
struct FunctionObject : Object {
  const Signature* macro = nullptr;
  std::shared_ptr<Scope> closure;
  const MethodSpec* method = nullptr;
  Value self;
};

// The method of a value, or null. Does not look into dicts.
const MethodSpec* FindMethod(const Value& of, std::string_view name);
// x.name and x[key], undefined where there is none. `name` is a text.
Value GetAttribute(const Value& of, const Value& name);
Value GetItem(const Value& of, const Value& key);
Value GetSlice(const Value& of, const Value& start, const Value& stop, const Value& step);

Value BinaryOp(Op op, const Value& a, const Value& b);
// Python's "%" on texts, and str.format.
Value PercentFormat(const Value& format, const Value& arguments);
Value BraceFormat(const Value& format, const Arguments& arguments);

// HTML escapes; a safe text is left as it is.
std::string Escaped(const Value& value);

// The whole number that an index, a count or a width must be.
int64_t WholeNumber(const Value& value, std::string_view what);

// Python's str methods that filters share.
std::string Stripped(std::string_view text, const std::string* characters, bool left, bool right);
std::string Upper(std::string_view text);
std::string Lower(std::string_view text);
std::string Capitalized(std::string_view text);
std::string Titled(std::string_view text);   // Python's, which begins a word behind any sign
std::string Swapped(std::string_view text);  // swapcase
bool IsCased(std::string_view text, bool upper);
std::string Replaced(std::string_view text, std::string_view old, std::string_view with,
                     int64_t count);

// json.dumps as transformers' tojson filter calls it.
struct JsonStyle {
  bool ascii = false;
  bool sorted = false;
  int64_t indent = -1;  // -1: one line
  std::string indent_text;
  std::string item_separator = ", ", key_separator = ": ";
};
std::string ToJson(const Value& value, const JsonStyle& style);
// A parsed JSON text, dicts in its order. Throws a Fault.
Value FromJson(std::string_view text);

}  // namespace kvgauge::jinja
