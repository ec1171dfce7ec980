// SPDX-License-Identifier: Apache-2.0
// Expressions.
#include <algorithm>

#include "core/strings.h"
#include "src/text/jinja/engine.h"

namespace kvgauge::jinja {
namespace {

Value Signed(const Value& value, bool negative) {
  if (value.undefined()) FailRuntime(UndefinedMessage(value));
  if (!value.numeric()) {
    FailRuntime(
        StrCat("bad operand type for unary ", negative ? "-" : "+", ": '", TypeName(value), "'"));
  }
  if (value.Is(Kind::kFloat)) return negative ? Value::Float(-value.number()) : value;
  return BinaryOp(negative ? Op::kSub : Op::kAdd, Value::Int(0), value);
}

}  // namespace

Value Engine::Eval(const Expr& expr) {
  switch (expr.kind) {
    case ExprKind::kConstant:
      Meter::Step();
      return expr.constant;
    case ExprKind::kName:
      Meter::Step();
      return EvalName(expr);
    default:
      break;
  }
  Meter::Step();
  if (++depth_ > meter_.limits().depth) {
    --depth_;
    Fail(FaultKind::kLimit,
         StrCat("more than ", meter_.limits().depth,
                " levels within each other; it seems to call itself"),
         expr.line);
  }
  try {
    Value value = EvalKind(expr);
    --depth_;
    return value;
  } catch (Fault& fault) {
    --depth_;
    if (fault.line == 0) fault.line = expr.line;
    throw;
  }
}

Value Engine::EvalKind(const Expr& expr) {
  const auto part = [&](size_t i) { return Eval(*expr.parts[i]); };
  switch (expr.kind) {
    case ExprKind::kList:
    case ExprKind::kTuple: {
      std::vector<Value> items;
      items.reserve(expr.parts.size());
      for (const ExprPtr& item : expr.parts) items.push_back(Eval(*item));
      return expr.kind == ExprKind::kList ? Value::List(std::move(items))
                                          : Value::Tuple(std::move(items));
    }
    case ExprKind::kDict:
      return EvalDict(expr);
    case ExprKind::kAttribute:
      return GetAttribute(part(0), expr.constant);
    case ExprKind::kItem: {
      const Value of = part(0);
      const Expr& key = *expr.parts[1];
      if (key.kind != ExprKind::kSlice) return GetItem(of, Eval(key));
      const auto bound = [&](size_t i) {
        return key.parts[i] == nullptr ? Value::None() : Eval(*key.parts[i]);
      };
      const Value start = bound(0), stop = bound(1);
      return GetSlice(of, start, stop, bound(2));
    }
    case ExprKind::kCall:
      return EvalCall(expr);
    case ExprKind::kFilter:
      return ApplyFilter(expr, part(0));
    case ExprKind::kTest:
      return Value::Bool(EvalTest(expr));
    case ExprKind::kNot:
      return Value::Bool(!Truth(part(0)));
    case ExprKind::kNegate:
    case ExprKind::kPlus:
      return Signed(part(0), expr.kind == ExprKind::kNegate);
    case ExprKind::kAnd: {
      Value left = part(0);
      return Truth(left) ? part(1) : left;
    }
    case ExprKind::kOr: {
      Value left = part(0);
      return Truth(left) ? left : part(1);
    }
    case ExprKind::kConcat: {
      TextBuilder out;
      for (const ExprPtr& item : expr.parts) AppendText(Eval(*item), out);
      return Value::Text(out.Take());
    }
    case ExprKind::kBinary: {
      const Value left = part(0);
      return BinaryOp(expr.op, left, part(1));
    }
    case ExprKind::kCompare:
      return Value::Bool(EvalCompare(expr));
    default:
      return EvalConditional(expr);
  }
}

Value Engine::EvalName(const Expr& expr) {
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get()) {
    for (const auto& [symbol, value] : scope->variables) {
      if (symbol == expr.symbol) return value;
    }
  }
  const auto at = static_cast<size_t>(expr.symbol);
  if (root_set_[at]) return root_[at];
  for (const MethodSpec& global : Globals()) {
    if (global.name != expr.name) continue;
    auto* object = new FunctionObject;
    Value made = Value::Of(Kind::kFunction, object);
    object->method = &global;
    return made;
  }
  if (expr.name == "lipsum" || expr.name == "self") {
    Fail(FaultKind::kUnsupported, StrCat("'", expr.name, "' is not supported"), expr.line);
  }
  return Value::UndefinedName(expr.name);
}

Value Engine::EvalDict(const Expr& expr) {
  auto* dict = new DictObject;
  Value made = Value::Of(Kind::kDict, dict);
  for (size_t i = 0; i < expr.parts.size(); i += 2) {
    Value key = Eval(*expr.parts[i]);
    dict->Set(std::move(key), Eval(*expr.parts[i + 1]));
  }
  dict->Charge(128 + static_cast<int64_t>(dict->items().size()) * 64);
  return made;
}

Arguments Engine::EvalArguments(const Expr& expr, size_t first) {
  Arguments arguments;
  for (size_t i = first; i < expr.parts.size(); ++i) {
    arguments.positional.push_back(Eval(*expr.parts[i]));
  }
  for (const Keyword& keyword : expr.named) {
    arguments.named.emplace_back(keyword.name, Eval(*keyword.value));
  }
  if (expr.star != nullptr) {
    const Value items = Listed(Eval(*expr.star));
    arguments.positional.insert(arguments.positional.end(), items.items().begin(),
                                items.items().end());
  }
  if (expr.double_star != nullptr) {
    const Value dict = Eval(*expr.double_star);
    if (!dict.Is(Kind::kDict)) {
      FailRuntime(StrCat("argument after ** must be a mapping, not ", TypeName(dict)));
    }
    for (const auto& [name, value] : dict.as<DictObject>().items()) {
      if (!name.text()) FailRuntime("keywords must be strings");
      arguments.named.emplace_back(name.str(), value);
    }
  }
  return arguments;
}

Value Engine::EvalCall(const Expr& expr) {
  const Expr& callee = *expr.parts[0];
  if (callee.kind != ExprKind::kAttribute) {
    const Value function = Eval(callee);
    Arguments arguments = EvalArguments(expr, 1);
    return Call(function, arguments);
  }
  // A method is called without being made a value first.
  const Value self = Eval(*callee.parts[0]);
  const MethodSpec* method = FindMethod(self, callee.name);
  const Value function = method == nullptr ? GetAttribute(self, callee.constant) : Value();
  Arguments arguments = EvalArguments(expr, 1);
  if (method == nullptr) return Call(function, arguments);
  StepOver(self);
  return method->run(*this, self, Given(method->name, method->parameters, arguments));
}

// Filters a block: the innermost filter of a chain gets the block's text.
Value Engine::FilterText(const Expr& expr, const Value& text) {
  if (expr.parts[0] == nullptr) return ApplyFilter(expr, text);
  return ApplyFilter(expr, FilterText(*expr.parts[0], text));
}

Value Engine::ApplyFilter(const Expr& expr, const Value& value) {
  if (expr.filter == nullptr) FailRuntime(StrCat("No filter named '", expr.name, "' found."));
  Arguments arguments = EvalArguments(expr, 1);
  StepOver(value);
  return expr.filter->run(*this, value,
                          Given(expr.filter->name, expr.filter->parameters, arguments));
}

bool Engine::EvalTest(const Expr& expr) {
  const Value value = Eval(*expr.parts[0]);
  if (expr.test == nullptr) FailRuntime(StrCat("No test named '", expr.name, "' found."));
  Arguments arguments = EvalArguments(expr, 1);
  return expr.test->run(*this, value, Given(expr.test->name, expr.test->parameters, arguments));
}

namespace {

bool Holds(Op op, const Value& a, const Value& b) {
  switch (op) {
    case Op::kEq:
      return Equal(a, b);
    case Op::kNe:
      return !Equal(a, b);
    case Op::kLt:
      return Less(a, b, "<");
    case Op::kGt:
      return Less(b, a, ">");
    case Op::kLe:
      return Less(a, b, "<=") || Equal(a, b);
    case Op::kGe:
      return Less(b, a, ">=") || Equal(a, b);
    case Op::kIn:
      return Contains(b, a);
    default:
      return !Contains(b, a);
  }
}

}  // namespace

bool Engine::EvalCompare(const Expr& expr) {
  Value left = Eval(*expr.parts[0]);
  for (size_t i = 0; i < expr.operators.size(); ++i) {
    Value right = Eval(*expr.parts[i + 1]);
    if (!Holds(expr.operators[i], left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value Engine::EvalConditional(const Expr& expr) {
  if (Truth(Eval(*expr.parts[0]))) return Eval(*expr.parts[1]);
  if (expr.parts.size() > 2 && expr.parts[2] != nullptr) return Eval(*expr.parts[2]);
  return Value::Undefined(StrCat("the inline if-expression on line ", expr.line,
                                 " evaluated to false and no else section was defined."));
}

}  // namespace kvgauge::jinja
