// SPDX-License-Identifier: Apache-2.0
// Runs a parsed template once.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/text/jinja/ast.h"
#include "src/text/jinja/functions.h"

namespace kvgauge::jinja {

class Engine {
 public:
  // `date`: what strftime_now says, "YYYY-MM-DD" at midnight. The document and the meter outlive
  // the engine, which outlives all values that it makes.
  Engine(const Document& document, const Meter& meter, std::string date);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  void Set(const std::string& name, Value value);
  std::string Run();

  // For filters, tests and methods.
  Value Call(const Value& callee, Arguments& arguments);
  Value MakeNamespace(std::vector<std::pair<std::string, Value>> attributes);
  const std::string& date() const { return date_; }

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };
  using ScopePtr = std::shared_ptr<Scope>;
  class Deeper;

  Flow Exec(const Body& body);
  Flow ExecNode(const Node& node);
  Flow ExecFor(const Node& node);
  // The body of a loop over a text that prints by item alone.
  void ExecCharacters(const Node& node, const Value& text);
  Flow ExecIf(const Node& node);
  void ExecCallBlock(const Node& node);
  Flow ExecScoped(const Node& node);
  void Assign(const Target& target, const Value& value);
  void Print(std::string_view text);
  // The text that a body prints, in a scope of its own.
  std::string Captured(const Body& body);
  Value Macro(const Signature& signature);
  Value CallMacro(const FunctionObject& macro, Arguments& arguments);

  Value Eval(const Expr& expr);
  Value EvalKind(const Expr& expr);
  Value EvalName(const Expr& expr);
  Value EvalDict(const Expr& expr);
  Value EvalCall(const Expr& expr);
  Value ApplyFilter(const Expr& expr, const Value& value);
  Value FilterText(const Expr& expr, const Value& text);
  bool EvalTest(const Expr& expr);
  bool EvalCompare(const Expr& expr);
  Value EvalConditional(const Expr& expr);
  Arguments EvalArguments(const Expr& expr, size_t first);

  const Document& document_;
  const Meter& meter_;
  const std::string date_;
  ScopePtr scope_;
  std::vector<Value> root_;  // by symbol
  std::vector<bool> root_set_;
  TextBuilder output_;
  TextBuilder* out_ = &output_;
  int depth_ = 0;
  // What could hold itself; emptied at the end.
  std::vector<Value> namespaces_;
  std::vector<ScopePtr> captured_;
};

}  // namespace kvgauge::jinja
