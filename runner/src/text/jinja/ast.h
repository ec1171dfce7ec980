// SPDX-License-Identifier: Apache-2.0
// A parsed template. Immutable once parsed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "src/text/jinja/value.h"

namespace kvgauge::jinja {

struct FilterSpec;
struct TestSpec;

using Symbol = int32_t;  // of a variable's name

enum class ExprKind : uint8_t {
  kConstant,
  kName,
  kList,
  kTuple,
  kDict,  // keys and values take turns
  kAttribute,
  kItem,
  kSlice,  // of an item: start, stop, step; each may be null
  kCall,
  kFilter,  // the first is what is filtered; null in a filter block
  kTest,
  kNot,
  kNegate,
  kPlus,
  kAnd,
  kOr,
  kConcat,
  kBinary,
  kCompare,      // an operand more than there are operators
  kConditional,  // test, then, else (may be null)
};

enum class Op : uint8_t {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kFloorDiv,
  kMod,
  kPow,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kIn,
  kNotIn,
};

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Keyword {
  std::string name;
  ExprPtr value;
};

struct Expr {
  ExprKind kind = ExprKind::kConstant;
  Op op = Op::kAdd;
  int line = 0;
  int depth = 1;  // of the tree below
  Symbol symbol = -1;
  Value constant;
  std::string name;  // of a variable, attribute, filter or test
  std::vector<ExprPtr> parts;
  std::vector<Op> operators;           // of a comparison
  std::vector<Keyword> named;          // of a call, filter or test
  ExprPtr star, double_star;           // *args, **kwargs
  const FilterSpec* filter = nullptr;  // null: unknown, an error where it is reached
  const TestSpec* test = nullptr;
};

// Where a value is put: a name, an attribute of a namespace, or several of these.
struct Target {
  Symbol symbol = -1;
  std::string name;
  std::string attribute;  // "": the name itself
  std::vector<Target> parts;
  bool tuple = false;
};

enum class NodeKind : uint8_t {
  kData,
  kPrint,
  kIf,
  kFor,
  kSet,
  kSetBlock,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kWith,
  kScope,  // generation
  kBreak,
  kContinue,
};

struct Node;
using NodePtr = std::unique_ptr<Node>;
using Body = std::vector<NodePtr>;

struct Parameter {
  Symbol symbol = -1;
  std::string name;
  ExprPtr fallback;  // null: none
};

// What a macro takes beside its parameters, because its body names it.
struct Signature {
  std::string name;
  std::vector<Parameter> parameters;
  Body body;
  Symbol caller = -1, kwargs = -1, varargs = -1;
};

struct Branch {
  ExprPtr test;  // null: else
  Body body;
};

struct Node {
  NodeKind kind = NodeKind::kData;
  int line = 0;
  std::string text;            // of data
  std::vector<ExprPtr> exprs;  // print: what; for: what, condition (may be null); set, call: value
  std::vector<Target> targets;
  std::vector<Branch> branches;
  Body body, otherwise;
  std::unique_ptr<Signature> signature;
  Symbol symbol = -1;  // of a macro
  bool recursive = false;
  bool by_item = false;  // of a loop: PrintsByItemAlone
};

struct Document {
  Body body;
  std::vector<std::string> names;  // of symbols
  std::vector<bool> read;          // symbols that some expression reads
  Symbol loop = -1;
};

}  // namespace kvgauge::jinja
