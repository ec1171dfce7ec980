// SPDX-License-Identifier: Apache-2.0
#include "src/text/jinja/engine.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "core/strings.h"
#include "src/text/jinja/by_character.h"

namespace kvgauge::jinja {
namespace {

constexpr int64_t kScopeBytes = 192;

Value FunctionOf(FunctionObject*& out) {
  auto* object = new FunctionObject;
  Value made = Value::Of(Kind::kFunction, object);
  object->Charge(kScopeBytes);
  out = object;
  return made;
}

}  // namespace

// Counts what runs within each other: each level takes some of the machine's stack.
class Engine::Deeper {
 public:
  explicit Deeper(Engine& engine) : engine_(engine) {
    Meter::Step();
    if (++engine_.depth_ > engine_.meter_.limits().depth) {
      --engine_.depth_;
      Fail(FaultKind::kLimit, StrCat("more than ", engine_.meter_.limits().depth,
                                     " levels within each other; it seems to call itself"));
    }
  }
  ~Deeper() { --engine_.depth_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  Engine& engine_;
};

Engine::Engine(const Document& document, const Meter& meter, std::string date)
    : document_(document),
      meter_(meter),
      date_(std::move(date)),
      root_(document.names.size()),
      root_set_(document.names.size(), false) {}

Engine::~Engine() {
  // Namespaces and scopes can hold each other; whoever is listed here outlives this loop.
  for (const Value& value : namespaces_) value.as<NamespaceObject>().attributes.clear();
  for (const ScopePtr& scope : captured_) scope->variables.clear();
}

void Engine::Set(const std::string& name, Value value) {
  const auto found = std::find(document_.names.begin(), document_.names.end(), name);
  if (found == document_.names.end()) return;  // the template does not name it
  const auto at = static_cast<size_t>(found - document_.names.begin());
  root_[at] = std::move(value);
  root_set_[at] = true;
}

std::string Engine::Run() {
  Exec(document_.body);
  return output_.Take();
}

void Engine::Print(std::string_view text) {
  out_->Add(text);
  if (out_ == &output_ && std::ssize(output_.text()) > meter_.limits().output_bytes) {
    Fail(FaultKind::kLimit,
         StrCat("the template writes more than ", HumanBytes(meter_.limits().output_bytes)));
  }
}

Value Engine::MakeNamespace(std::vector<std::pair<std::string, Value>> attributes) {
  auto* object = new NamespaceObject;
  Value made = Value::Of(Kind::kNamespace, object);
  object->Charge(kScopeBytes + static_cast<int64_t>(attributes.size()) * 64);
  object->attributes = std::move(attributes);
  namespaces_.push_back(made);
  return made;
}

Engine::Flow Engine::Exec(const Body& body) {
  for (const NodePtr& node : body) {
    Flow flow = Flow::kNext;
    try {
      flow = ExecNode(*node);
    } catch (Fault& fault) {
      if (fault.line == 0) fault.line = node->line;
      throw;
    }
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Engine::Flow Engine::ExecNode(const Node& node) {
  const Deeper deeper(*this);
  switch (node.kind) {
    case NodeKind::kData:
      Print(node.text);
      return Flow::kNext;
    case NodeKind::kPrint:
      for (const ExprPtr& expr : node.exprs) {
        const Value value = Eval(*expr);
        value.text() ? Print(value.str()) : Print(ToText(value));
      }
      return Flow::kNext;
    case NodeKind::kIf:
      return ExecIf(node);
    case NodeKind::kFor:
      return ExecFor(node);
    case NodeKind::kSet:
      Assign(node.targets[0], Eval(*node.exprs[0]));
      return Flow::kNext;
    case NodeKind::kSetBlock: {
      Value text = Value::Text(Captured(node.body));
      if (node.exprs[0] != nullptr) text = FilterText(*node.exprs[0], text);
      Assign(node.targets[0], text);
      return Flow::kNext;
    }
    case NodeKind::kFilterBlock:
      Print(ToText(FilterText(*node.exprs[0], Value::Text(Captured(node.body)))));
      return Flow::kNext;
    case NodeKind::kMacro: {
      Target target;
      target.symbol = node.symbol;
      Assign(target, Macro(*node.signature));
      return Flow::kNext;
    }
    case NodeKind::kCallBlock:
      ExecCallBlock(node);
      return Flow::kNext;
    case NodeKind::kWith:
    case NodeKind::kScope:
      return ExecScoped(node);
    case NodeKind::kBreak:
      return Flow::kBreak;
    default:
      return Flow::kContinue;
  }
}

Engine::Flow Engine::ExecIf(const Node& node) {
  for (const Branch& branch : node.branches) {
    if (branch.test == nullptr || Truth(Eval(*branch.test))) return Exec(branch.body);
  }
  return Flow::kNext;
}

namespace {

// Puts a scope in place of another while it lives.
class Within {
 public:
  Within(std::shared_ptr<Scope>& place, std::shared_ptr<Scope> scope)
      : place_(place), before_(std::exchange(place, std::move(scope))) {}
  ~Within() { place_ = std::move(before_); }
  Within(const Within&) = delete;
  Within& operator=(const Within&) = delete;

 private:
  std::shared_ptr<Scope>& place_;
  std::shared_ptr<Scope> before_;
};

std::shared_ptr<Scope> Below(const std::shared_ptr<Scope>& parent) {
  auto scope = std::make_shared<Scope>();
  scope->parent = parent;
  return scope;
}

}  // namespace

void Engine::ExecCharacters(const Node& node, const Value& text) {
  ByCharacter<std::string> printed;
  const ScopePtr scope = Below(scope_);
  ForEachCharacter(text.str(), [&](std::string_view character) {
    Meter::Step();
    const std::string* known = printed.Find(character);
    if (known == nullptr) {
      const Within within(scope_, scope);
      scope->variables.clear();
      Assign(node.targets[0], CharacterItem(character, text.safe()));
      std::string made = Captured(node.body);
      Meter::Room(std::ssize(made));
      known = &printed.Keep(character, std::move(made));
    }
    if (!known->empty()) Print(*known);
  });
}

Engine::Flow Engine::ExecFor(const Node& node) {
  const Value over = Eval(*node.exprs[0]);
  if (node.by_item && over.text() && !over.str().empty()) {
    ExecCharacters(node, over);
    return Flow::kNext;
  }
  Value items = Listed(over);
  const ScopePtr outer = scope_;
  if (node.exprs[1] != nullptr) {
    std::vector<Value> kept;
    for (const Value& item : items.items()) {
      const Within within(scope_, Below(outer));
      Assign(node.targets[0], item);
      if (Truth(Eval(*node.exprs[1]))) kept.push_back(item);
    }
    items = Value::List(std::move(kept));
  }
  auto* loop = new LoopObject;
  const Value loop_value = Value::Of(Kind::kLoop, loop);
  loop->Charge(kScopeBytes);
  loop->Holds(items);
  loop->items = items;
  ScopePtr scope;
  for (const Value& item : items.items()) {
    // A scope that nobody kept is used again.
    if (scope == nullptr || scope.use_count() > 1) {
      scope = Below(outer);
    } else {
      scope->variables.clear();
    }
    Flow flow = Flow::kNext;
    {
      const Within within(scope_, scope);
      scope->variables.emplace_back(document_.loop, loop_value);
      Assign(node.targets[0], item);
      flow = Exec(node.body);
    }
    ++loop->index0;
    if (flow == Flow::kBreak) break;
  }
  loop->changed.reset();
  if (!items.items().empty()) return Flow::kNext;
  const Within within(scope_, Below(outer));
  return Exec(node.otherwise);
}

Engine::Flow Engine::ExecScoped(const Node& node) {
  // The values of `with` are those of the outside.
  std::vector<Value> values;
  for (const ExprPtr& expr : node.exprs) values.push_back(Eval(*expr));
  const Within within(scope_, Below(scope_));
  for (size_t i = 0; i < values.size(); ++i) Assign(node.targets[i], values[i]);
  return Exec(node.body);
}

std::string Engine::Captured(const Body& body) {
  TextBuilder captured;
  TextBuilder* const before = std::exchange(out_, &captured);
  try {
    const Within within(scope_, Below(scope_));
    Exec(body);
  } catch (...) {
    out_ = before;
    throw;
  }
  out_ = before;
  return captured.Take();
}

void Engine::Assign(const Target& target, const Value& value) {
  if (target.tuple) {
    const Value items = Listed(value);
    const auto expected = std::ssize(target.parts), got = std::ssize(items.items());
    if (got > expected) {
      FailRuntime(StrCat("too many values to unpack (expected ", expected, ")"));
    }
    if (got < expected) {
      FailRuntime(StrCat("not enough values to unpack (expected ", expected, ", got ", got, ")"));
    }
    for (size_t i = 0; i < target.parts.size(); ++i) Assign(target.parts[i], items.items()[i]);
    return;
  }
  if (!target.attribute.empty()) {
    Expr name;
    name.symbol = target.symbol;
    name.name = target.name;
    const Value space = EvalName(name);
    if (!space.Is(Kind::kNamespace)) {
      FailRuntime("cannot assign attribute on non-namespace object");
    }
    auto& attributes = space.as<NamespaceObject>();
    if (Value* known = attributes.Find(target.attribute)) {
      *known = value;
    } else {
      Meter::Room(64);
      attributes.attributes.emplace_back(target.attribute, value);
    }
    return;
  }
  if (scope_ == nullptr) {
    root_[static_cast<size_t>(target.symbol)] = value;
    root_set_[static_cast<size_t>(target.symbol)] = true;
    return;
  }
  for (auto& [symbol, known] : scope_->variables) {
    if (symbol == target.symbol) {
      known = value;
      return;
    }
  }
  scope_->variables.emplace_back(target.symbol, value);
}

Value Engine::Macro(const Signature& signature) {
  FunctionObject* object = nullptr;
  Value made = FunctionOf(object);
  object->macro = &signature;
  object->closure = scope_;
  for (ScopePtr scope = scope_; scope != nullptr; scope = scope->parent) captured_.push_back(scope);
  return made;
}

void Engine::ExecCallBlock(const Node& node) {
  const Expr& call = *node.exprs[0];
  const Value callee = Eval(*call.parts[0]);
  Arguments arguments = EvalArguments(call, 1);
  arguments.named.emplace_back("caller", Macro(*node.signature));
  Print(ToText(Call(callee, arguments)));
}

Value Engine::Call(const Value& callee, Arguments& arguments) {
  if (callee.undefined()) FailRuntime(UndefinedMessage(callee));
  if (callee.Is(Kind::kJoiner)) {
    auto& joiner = callee.as<JoinerObject>();
    return std::exchange(joiner.used, true) ? joiner.separator : Value::Text("");
  }
  if (callee.Is(Kind::kLoop)) {
    FailRuntime("The loop must have the 'recursive' marker to be called recursively.");
  }
  if (!callee.Is(Kind::kFunction)) {
    FailRuntime(StrCat("'", TypeName(callee), "' object is not callable"));
  }
  const auto& function = callee.as<FunctionObject>();
  if (function.macro != nullptr) return CallMacro(function, arguments);
  const MethodSpec& method = *function.method;
  StepOver(function.self);
  return method.run(*this, function.self, Given(method.name, method.parameters, arguments));
}

namespace {

// Takes a named argument out; null where it is not given.
std::optional<Value> Taken(Arguments& arguments, std::string_view name) {
  const auto found = std::find_if(arguments.named.begin(), arguments.named.end(),
                                  [&](const auto& entry) { return entry.first == name; });
  if (found == arguments.named.end()) return std::nullopt;
  Value value = std::move(found->second);
  arguments.named.erase(found);
  return value;
}

}  // namespace

Value Engine::CallMacro(const FunctionObject& macro, Arguments& arguments) {
  const Deeper deeper(*this);
  const Signature& signature = *macro.macro;
  const size_t count = signature.parameters.size();
  const ScopePtr scope = Below(macro.closure);
  const Value itself = Value::Of(Kind::kFunction, const_cast<FunctionObject*>(&macro));
  bool explicit_caller = false;
  std::vector<std::optional<Value>> values(count);
  for (size_t i = 0; i < count; ++i) {
    const std::string& name = signature.parameters[i].name;
    if (i < arguments.positional.size()) {
      values[i] = arguments.positional[i];
    } else {
      values[i] = Taken(arguments, name);
    }
    explicit_caller = explicit_caller || name == "caller";
  }
  if (signature.caller >= 0 && !explicit_caller) {
    const std::optional<Value> caller = Taken(arguments, "caller");
    scope->variables.emplace_back(signature.caller, caller && !caller->none()
                                                        ? *caller
                                                        : Value::Undefined("No caller defined"));
  }
  if (signature.kwargs >= 0) {
    auto* dict = new DictObject;
    const Value kwargs = Value::Of(Kind::kDict, dict);
    for (auto& [name, value] : arguments.named) dict->Set(Value::Text(name), value);
    scope->variables.emplace_back(signature.kwargs, kwargs);
  } else if (!arguments.named.empty()) {
    FailRuntime(StrCat("macro '", signature.name, "' takes no keyword argument '",
                       arguments.named[0].first, "'"));
  }
  if (signature.varargs >= 0) {
    const size_t taken = std::min(count, arguments.positional.size());
    scope->variables.emplace_back(
        signature.varargs,
        Value::Tuple({arguments.positional.begin() + static_cast<std::ptrdiff_t>(taken),
                      arguments.positional.end()}));
  } else if (arguments.positional.size() > count) {
    FailRuntime(StrCat("macro '", signature.name, "' takes not more than ", count, " argument(s)"));
  }
  TextBuilder captured;
  TextBuilder* const before = std::exchange(out_, &captured);
  try {
    const Within within(scope_, scope);
    for (size_t i = 0; i < count; ++i) {
      const Parameter& parameter = signature.parameters[i];
      if (!values[i]) {
        values[i] =
            parameter.fallback != nullptr
                ? Eval(*parameter.fallback)
                : Value::Undefined(StrCat("parameter '", parameter.name, "' was not provided"));
      }
      scope->variables.emplace_back(parameter.symbol, *values[i]);
    }
    Exec(signature.body);
  } catch (...) {
    out_ = before;
    throw;
  }
  out_ = before;
  return Value::Text(captured.Take());
}

}  // namespace kvgauge::jinja
