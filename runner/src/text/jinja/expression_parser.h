// SPDX-License-Identifier: Apache-2.0
// Expressions of the template language; the base of the parser of statements, for parser.cpp alone.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/strings.h"
#include "src/text/jinja/ast.h"
#include "src/text/jinja/functions.h"
#include "src/text/jinja/lexer.h"

namespace kvgauge::jinja {

class ExpressionParser {
 protected:
  static constexpr int kMostNested = 150;  // parentheses, blocks, operators before a value
  static constexpr int kMostDepth = 500;   // of an expression's tree

  explicit ExpressionParser(std::string_view source) : tokens_(Tokenize(source)) {}

  // A filter or test that jinja2 does not know: an error of the template, but within an `if` only
  // of whoever reaches it.
  struct Unknown {
    int line = 0;
    std::string message;
    bool soft = false;
  };
  class Deeper {
   public:
    explicit Deeper(ExpressionParser& parser) : parser_(parser) {
      if (++parser_.nested_ > kMostNested) {
        Fail(FaultKind::kLimit, StrCat("nested more than ", kMostNested, " deep"),
             parser_.Now().line);
      }
    }
    ~Deeper() { --parser_.nested_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    ExpressionParser& parser_;
  };

  [[noreturn]] static void FailAt(int line, std::string message) {
    Fail(FaultKind::kSyntax, std::move(message), line);
  }
  const Token& Now() const { return tokens_[at_]; }
  const Token& Ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token Next() {
    Token token = tokens_[at_];
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool SkipOperator(std::string_view sign) {
    if (!Now().Operator(sign)) return false;
    Next();
    return true;
  }
  bool SkipName(std::string_view name) {
    if (!Now().Name(name)) return false;
    Next();
    return true;
  }
  [[noreturn]] void Expected(std::string_view what) const {
    FailAt(Now().line, StrCat("expected ", what, ", got ", Describe(Now())));
  }
  void ExpectOperator(std::string_view sign) {
    if (!SkipOperator(sign)) Expected(StrCat("'", sign, "'"));
  }
  void ExpectName(std::string_view name) {
    if (!SkipName(name)) Expected(StrCat("'", name, "'"));
  }
  void Expect(TokenKind kind, std::string_view what) {
    if (Now().kind != kind) Expected(what);
    Next();
  }
  std::string AnyName() {
    if (Now().kind != TokenKind::kName) Expected("a name");
    return Next().text;
  }

  Symbol SymbolOf(const std::string& name) {
    const auto [found, added] =
        symbols_.try_emplace(name, static_cast<Symbol>(document_.names.size()));
    if (added) {
      document_.names.push_back(name);
      document_.read.push_back(false);
    }
    return found->second;
  }

  static ExprPtr Make(ExprKind kind, int line) {
    auto expr = std::make_unique<Expr>();
    expr->kind = kind;
    expr->line = line;
    return expr;
  }
  static void Grow(Expr& expr, const Expr* part) {
    if (part == nullptr) return;
    expr.depth = std::max(expr.depth, part->depth + 1);
    if (expr.depth > kMostDepth) {
      Fail(FaultKind::kLimit, StrCat("an expression of more than ", kMostDepth, " levels"),
           expr.line);
    }
  }
  static void Append(Expr& expr, ExprPtr part) {
    Grow(expr, part.get());
    expr.parts.push_back(std::move(part));
  }
  static ExprPtr Make(ExprKind kind, int line, ExprPtr a, ExprPtr b = nullptr) {
    ExprPtr expr = Make(kind, line);
    Append(*expr, std::move(a));
    if (b != nullptr) Append(*expr, std::move(b));
    return expr;
  }

  ExprPtr ParseExpression() { return ParseConditional(); }

  bool AtTupleEnd(std::string_view end) const {
    return Now().kind == TokenKind::kVariableEnd || Now().kind == TokenKind::kBlockEnd ||
           Now().Operator(")") || (!end.empty() && Now().Name(end));
  }

  ExprPtr ParseTuple(bool conditional, bool parentheses, std::string_view end) {
    const int line = Now().line;
    std::vector<ExprPtr> items;
    bool tuple = false;
    while (true) {
      if (!items.empty()) ExpectOperator(",");
      if (AtTupleEnd(end)) break;
      items.push_back(conditional ? ParseConditional() : ParseOr());
      if (!Now().Operator(",")) break;
      tuple = true;
    }
    if (!tuple) {
      if (!items.empty()) return std::move(items[0]);
      if (!parentheses) {
        FailAt(Now().line, StrCat("Expected an expression, got ", Describe(Now())));
      }
    }
    ExprPtr expr = Make(ExprKind::kTuple, line);
    for (ExprPtr& item : items) Append(*expr, std::move(item));
    return expr;
  }

  ExprPtr ParseConditional() {
    const Deeper deeper(*this);
    const size_t unknown_before = unknown_.size();
    int line = Now().line;
    ExprPtr then = ParseOr();
    while (SkipName("if")) {
      ExprPtr test = ParseOr();
      ExprPtr otherwise = SkipName("else") ? ParseConditional() : nullptr;
      ExprPtr expr = Make(ExprKind::kConditional, line, std::move(test), std::move(then));
      Append(*expr, std::move(otherwise));
      then = std::move(expr);
      line = Now().line;
      for (size_t i = unknown_before; i < unknown_.size(); ++i) unknown_[i].soft = true;
    }
    return then;
  }

  ExprPtr ParseOr() {
    int line = Now().line;
    ExprPtr left = ParseAnd();
    while (SkipName("or")) {
      left = Make(ExprKind::kOr, line, std::move(left), ParseAnd());
      line = Now().line;
    }
    return left;
  }

  ExprPtr ParseAnd() {
    int line = Now().line;
    ExprPtr left = ParseNot();
    while (SkipName("and")) {
      left = Make(ExprKind::kAnd, line, std::move(left), ParseNot());
      line = Now().line;
    }
    return left;
  }

  ExprPtr ParseNot() {
    if (!Now().Name("not")) return ParseCompare();
    const Deeper deeper(*this);
    const int line = Next().line;
    return Make(ExprKind::kNot, line, ParseNot());
  }

  std::optional<Op> CompareOperator() {
    static constexpr std::pair<std::string_view, Op> kSigns[] = {{"==", Op::kEq}, {"!=", Op::kNe},
                                                                 {"<", Op::kLt},  {"<=", Op::kLe},
                                                                 {">", Op::kGt},  {">=", Op::kGe}};
    for (const auto& [sign, op] : kSigns) {
      if (SkipOperator(sign)) return op;
    }
    if (SkipName("in")) return Op::kIn;
    if (Now().Name("not") && Ahead().Name("in")) {
      Next();
      Next();
      return Op::kNotIn;
    }
    return std::nullopt;
  }

  ExprPtr ParseCompare() {
    const int line = Now().line;
    ExprPtr first = ParseSum();
    std::optional<Op> op = CompareOperator();
    if (!op) return first;
    ExprPtr expr = Make(ExprKind::kCompare, line, std::move(first));
    for (; op; op = CompareOperator()) {
      expr->operators.push_back(*op);
      Append(*expr, ParseSum());
    }
    return expr;
  }

  ExprPtr Binary(Op op, int line, ExprPtr left, ExprPtr right) {
    ExprPtr expr = Make(ExprKind::kBinary, line, std::move(left), std::move(right));
    expr->op = op;
    return expr;
  }

  ExprPtr ParseSum() {
    ExprPtr left = ParseConcat();
    while (Now().Operator("+") || Now().Operator("-")) {
      const int line = Now().line;
      const Op op = Next().text == "+" ? Op::kAdd : Op::kSub;
      left = Binary(op, line, std::move(left), ParseConcat());
    }
    return left;
  }

  ExprPtr ParseConcat() {
    const int line = Now().line;
    ExprPtr first = ParseProduct();
    if (!Now().Operator("~")) return first;
    ExprPtr expr = Make(ExprKind::kConcat, line, std::move(first));
    while (SkipOperator("~")) Append(*expr, ParseProduct());
    return expr;
  }

  ExprPtr ParseProduct() {
    static constexpr std::pair<std::string_view, Op> kSigns[] = {
        {"*", Op::kMul}, {"/", Op::kDiv}, {"//", Op::kFloorDiv}, {"%", Op::kMod}};
    ExprPtr left = ParsePower();
    while (true) {
      const auto* const found =
          std::find_if(std::begin(kSigns), std::end(kSigns),
                       [&](const auto& s) { return Now().Operator(s.first); });
      if (found == std::end(kSigns)) return left;
      const int line = Next().line;
      left = Binary(found->second, line, std::move(left), ParsePower());
    }
  }

  ExprPtr ParsePower() {
    ExprPtr left = ParseUnary(true);
    while (Now().Operator("**")) {
      const int line = Next().line;
      left = Binary(Op::kPow, line, std::move(left), ParseUnary(true));
    }
    return left;
  }

  ExprPtr ParseUnary(bool with_filter) {
    const Deeper deeper(*this);
    const int line = Now().line;
    ExprPtr expr;
    if (SkipOperator("-")) {
      expr = Make(ExprKind::kNegate, line, ParseUnary(false));
    } else if (SkipOperator("+")) {
      expr = Make(ExprKind::kPlus, line, ParseUnary(false));
    } else {
      expr = ParsePrimary();
    }
    expr = ParsePostfix(std::move(expr));
    if (!with_filter) return expr;
    while (true) {
      if (Now().Operator("|")) {
        expr = ParseFilter(std::move(expr), false);
      } else if (Now().Name("is")) {
        expr = ParseTest(std::move(expr));
      } else if (Now().Operator("(")) {
        expr = ParseCall(std::move(expr));
      } else {
        return expr;
      }
    }
  }

  static ExprPtr Constant(Value value, int line) {
    ExprPtr expr = Make(ExprKind::kConstant, line);
    expr->constant = std::move(value);
    return expr;
  }

  ExprPtr Number(const Token& token) const {
    if (token.kind == TokenKind::kFloat) {
      // Too large is infinity, as for Python.
      return Constant(Value::Float(std::strtod(token.text.c_str(), nullptr)), token.line);
    }
    int base = 10;
    std::string_view digits = token.text;
    if (digits.size() > 2 && digits[0] == '0' && digits[1] > '9') {
      base = digits[1] == 'x' ? 16 : digits[1] == 'o' ? 8 : 2;
      digits.remove_prefix(2);
    }
    int64_t value = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    if (error != std::errc() || end != digits.data() + digits.size()) {
      Fail(FaultKind::kUnsupported, StrCat("the number ", token.text, " is beyond 64 bits"),
           token.line);
    }
    return Constant(Value::Int(value), token.line);
  }

  ExprPtr ParsePrimary() {
    const Token token = Now();
    switch (token.kind) {
      case TokenKind::kName:
        Next();
        if (token.text == "true" || token.text == "True") {
          return Constant(Value::Bool(true), token.line);
        }
        if (token.text == "false" || token.text == "False") {
          return Constant(Value::Bool(false), token.line);
        }
        if (token.text == "none" || token.text == "None") {
          return Constant(Value::None(), token.line);
        }
        return Name(token);
      case TokenKind::kString: {
        std::string text;
        while (Now().kind == TokenKind::kString) text += Next().text;
        return Constant(Value::Text(std::move(text)), token.line);
      }
      case TokenKind::kInteger:
      case TokenKind::kFloat:
        Next();
        return Number(token);
      default:
        break;
    }
    if (SkipOperator("(")) {
      ExprPtr expr = ParseTuple(true, true, "");
      ExpectOperator(")");
      return expr;
    }
    if (SkipOperator("[")) return ParseList(token.line);
    if (SkipOperator("{")) return ParseDict(token.line);
    FailAt(token.line, StrCat("unexpected ", Describe(token)));
  }

  ExprPtr Name(const Token& token) {
    ExprPtr expr = Make(ExprKind::kName, token.line);
    expr->name = token.text;
    expr->symbol = SymbolOf(token.text);
    document_.read[static_cast<size_t>(expr->symbol)] = true;
    reads_.push_back(expr->symbol);
    return expr;
  }

  ExprPtr ParseList(int line) {
    ExprPtr expr = Make(ExprKind::kList, line);
    while (!Now().Operator("]")) {
      if (!expr->parts.empty()) ExpectOperator(",");
      if (Now().Operator("]")) break;
      Append(*expr, ParseExpression());
    }
    Next();
    return expr;
  }

  ExprPtr ParseDict(int line) {
    ExprPtr expr = Make(ExprKind::kDict, line);
    while (!Now().Operator("}")) {
      if (!expr->parts.empty()) ExpectOperator(",");
      if (Now().Operator("}")) break;
      Append(*expr, ParseExpression());
      ExpectOperator(":");
      Append(*expr, ParseExpression());
    }
    Next();
    return expr;
  }

  ExprPtr ParsePostfix(ExprPtr expr) {
    while (true) {
      if (Now().Operator(".") || Now().Operator("[")) {
        expr = ParseSubscript(std::move(expr));
      } else if (Now().Operator("(")) {
        expr = ParseCall(std::move(expr));
      } else {
        return expr;
      }
    }
  }

  ExprPtr ParseSubscript(ExprPtr of) {
    const int line = Now().line;
    if (SkipOperator(".")) {
      const Token token = Next();
      if (token.kind == TokenKind::kName) {
        ExprPtr expr = Make(ExprKind::kAttribute, line, std::move(of));
        expr->name = token.text;
        expr->constant = Value::Text(token.text);
        return expr;
      }
      if (token.kind != TokenKind::kInteger) FailAt(token.line, "expected name or number");
      return Make(ExprKind::kItem, line, std::move(of), Number(token));
    }
    ExpectOperator("[");
    std::vector<ExprPtr> items;
    while (!Now().Operator("]")) {
      if (!items.empty()) ExpectOperator(",");
      items.push_back(ParseSubscribed());
    }
    Next();
    if (items.size() == 1) return Make(ExprKind::kItem, line, std::move(of), std::move(items[0]));
    ExprPtr tuple = Make(ExprKind::kTuple, line);
    for (ExprPtr& item : items) {
      if (item->kind == ExprKind::kSlice) FailAt(line, "a slice must stand alone");
      Append(*tuple, std::move(item));
    }
    return Make(ExprKind::kItem, line, std::move(of), std::move(tuple));
  }

  ExprPtr ParseSubscribed() {
    const int line = Now().line;
    ExprPtr start;
    if (!Now().Operator(":")) {
      start = ParseExpression();
      if (!Now().Operator(":")) return start;
    }
    Next();
    const auto ended = [&] { return Now().Operator("]") || Now().Operator(","); };
    ExprPtr stop, step;
    if (!Now().Operator(":") && !ended()) stop = ParseExpression();
    if (SkipOperator(":") && !ended()) step = ParseExpression();
    ExprPtr slice = Make(ExprKind::kSlice, line);
    Append(*slice, std::move(start));
    Append(*slice, std::move(stop));
    Append(*slice, std::move(step));
    return slice;
  }

  void ParseArguments(Expr& call) {
    const int line = Now().line;
    ExpectOperator("(");
    const auto ensure = [&](bool fine) {
      if (!fine) FailAt(line, "invalid syntax for function call expression");
    };
    bool comma = false;
    while (!Now().Operator(")")) {
      if (comma) {
        ExpectOperator(",");
        if (Now().Operator(")")) break;
      }
      if (SkipOperator("*")) {
        ensure(call.star == nullptr && call.double_star == nullptr);
        call.star = ParseExpression();
        Grow(call, call.star.get());
      } else if (SkipOperator("**")) {
        ensure(call.double_star == nullptr);
        call.double_star = ParseExpression();
        Grow(call, call.double_star.get());
      } else if (Now().kind == TokenKind::kName && Ahead().Operator("=")) {
        ensure(call.double_star == nullptr);
        std::string name = Next().text;
        Next();
        ExprPtr value = ParseExpression();
        Grow(call, value.get());
        call.named.push_back({std::move(name), std::move(value)});
      } else {
        ensure(call.star == nullptr && call.double_star == nullptr && call.named.empty());
        Append(call, ParseExpression());
      }
      comma = true;
    }
    Next();
  }

  ExprPtr ParseCall(ExprPtr callee) {
    ExprPtr expr = Make(ExprKind::kCall, Now().line, std::move(callee));
    ParseArguments(*expr);
    return expr;
  }

  std::string DottedName() {
    std::string name = AnyName();
    while (SkipOperator(".")) name += StrCat(".", AnyName());
    return name;
  }

  ExprPtr ParseFilter(ExprPtr of, bool inline_name) {
    if (!inline_name) ExpectOperator("|");
    ExprPtr expr = Make(ExprKind::kFilter, Now().line);
    expr->name = DottedName();
    Append(*expr, std::move(of));
    if (Now().Operator("(")) ParseArguments(*expr);
    expr->filter = FindFilter(expr->name);
    if (expr->filter == nullptr) {
      if (IsUnsupportedFilter(expr->name)) {
        Fail(FaultKind::kUnsupported, StrCat("the filter '", expr->name, "' is not supported"),
             expr->line);
      }
      unknown_.push_back({expr->line, NoFilter(expr->name), soft_});
    }
    return expr;
  }

  ExprPtr ParseTest(ExprPtr of) {
    const int line = Next().line;
    const bool negated = SkipName("not");
    ExprPtr expr = Make(ExprKind::kTest, line, std::move(of));
    expr->name = DottedName();
    const TokenKind kind = Now().kind;
    const bool value = kind == TokenKind::kString || kind == TokenKind::kInteger ||
                       kind == TokenKind::kFloat || Now().Operator("[") || Now().Operator("{");
    const bool name =
        kind == TokenKind::kName && !Now().Name("else") && !Now().Name("or") && !Now().Name("and");
    if (Now().Operator("(")) {
      ParseArguments(*expr);
    } else if (value || name) {
      if (Now().Name("is")) FailAt(line, "You cannot chain multiple tests with is");
      Append(*expr, ParsePostfix(ParsePrimary()));
    }
    expr->test = FindTest(expr->name);
    if (expr->test == nullptr) unknown_.push_back({line, NoTest(expr->name), soft_});
    return negated ? Make(ExprKind::kNot, line, std::move(expr)) : std::move(expr);
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int nested_ = 0;
  bool soft_ = false;  // within an `if`
  Document document_;
  std::unordered_map<std::string, Symbol> symbols_;
  std::vector<Symbol> reads_;  // in the order of the text
  std::vector<Unknown> unknown_;
};

}  // namespace kvgauge::jinja
