// SPDX-License-Identifier: Apache-2.0
#include "src/text/jinja/parser.h"

#include <algorithm>
#include <utility>

#include "core/strings.h"
#include "src/text/jinja/by_character.h"
#include "src/text/jinja/expression_parser.h"

namespace kvgauge::jinja {
namespace {

class Parser : private ExpressionParser {
 public:
  explicit Parser(std::string_view source) : ExpressionParser(source) {}

  Document Run() {
    document_.loop = SymbolOf("loop");
    Subparse({}, document_.body);
    for (const Unknown& unknown : unknown_) {
      if (!unknown.soft) FailAt(unknown.line, unknown.message);
    }
    return std::move(document_);
  }

 private:
  bool AtEndTag(const std::vector<std::string_view>& ends) const {
    return std::any_of(ends.begin(), ends.end(),
                       [&](std::string_view end) { return Now().Name(end); });
  }

  // Up to one of the tags, which becomes the current token; without tags up to the end.
  void Subparse(const std::vector<std::string_view>& ends, Body& body) {
    const Deeper deeper(*this);
    while (Now().kind != TokenKind::kEnd) {
      const int line = Now().line;
      if (Now().kind == TokenKind::kData) {
        auto node = MakeNode(NodeKind::kData, line);
        node->text = Next().text;
        body.push_back(std::move(node));
      } else if (Now().kind == TokenKind::kVariableBegin) {
        Next();
        auto node = MakeNode(NodeKind::kPrint, line);
        node->exprs.push_back(ParseTuple(true, false, ""));
        Expect(TokenKind::kVariableEnd, "'}}'");
        body.push_back(std::move(node));
      } else {
        Expect(TokenKind::kBlockBegin, "a tag");
        if (AtEndTag(ends)) return;
        body.push_back(ParseStatement(ends));
        Expect(TokenKind::kBlockEnd, "'%}'");
      }
    }
    if (!ends.empty()) {
      std::vector<std::string> names(ends.begin(), ends.end());
      FailAt(Now().line, StrCat("unexpected end of the template; looked for the tag ",
                                kvgauge::Join(names, " or "), " of line ", open_line_));
    }
  }

  // The inside of a block: "%}" of its tag to the tag that ends it.
  void Statements(const std::vector<std::string_view>& ends, Body& body, bool soft = false) {
    const int line = std::exchange(open_line_, Now().line);
    SkipOperator(":");
    Expect(TokenKind::kBlockEnd, "'%}'");
    const bool was_soft = std::exchange(soft_, soft);
    Subparse(ends, body);
    open_line_ = line;
    soft_ = was_soft;
  }

  static NodePtr MakeNode(NodeKind kind, int line) {
    auto node = std::make_unique<Node>();
    node->kind = kind;
    node->line = line;
    return node;
  }

  NodePtr ParseStatement(const std::vector<std::string_view>& ends) {
    const int line = Now().line;
    const std::string tag = AnyName();
    if (tag == "if") return ParseIf(line);
    if (tag == "for") return ParseFor(line);
    if (tag == "set") return ParseSet(line);
    if (tag == "macro") return ParseMacro(line);
    if (tag == "call") return ParseCallBlock(line);
    if (tag == "filter") return ParseFilterBlock(line);
    if (tag == "with") return ParseWith(line);
    if (tag == "break" || tag == "continue") {
      if (loops_ == 0) FailAt(line, StrCat("'", tag, "' outside of a loop"));
      return MakeNode(tag == "break" ? NodeKind::kBreak : NodeKind::kContinue, line);
    }
    if (tag == "generation") {
      NodePtr node = MakeNode(NodeKind::kScope, line);
      Statements({"endgeneration"}, node->body);
      Next();
      return node;
    }
    if (tag == "print") return ParsePrint(line);
    for (const std::string_view file : {"include", "import", "from", "extends", "block"}) {
      if (tag == file) {
        Fail(FaultKind::kRefused,
             StrCat("{% ", tag, " %} joins templates from files; a chat template is one text"),
             line);
      }
    }
    if (tag == "autoescape" || tag == "do" || tag == "trans" || tag == "debug") {
      Fail(FaultKind::kUnsupported, StrCat("{% ", tag, " %} is not supported"), line);
    }
    std::vector<std::string> names(ends.begin(), ends.end());
    FailAt(line,
           StrCat("unknown tag ", Quoted(tag),
                  names.empty() ? "" : StrCat("; looked for ", kvgauge::Join(names, " or "))));
  }

  NodePtr ParseIf(int line) {
    NodePtr node = MakeNode(NodeKind::kIf, line);
    while (true) {
      Branch& branch = node->branches.emplace_back();
      const bool was_soft = std::exchange(soft_, true);
      branch.test = ParseTuple(false, false, "");
      soft_ = was_soft;
      Statements({"elif", "else", "endif"}, branch.body, true);
      const std::string end = Next().text;
      if (end == "elif") continue;
      if (end == "else") {
        Statements({"endif"}, node->branches.emplace_back().body, true);
        Next();
      }
      return node;
    }
  }

  NodePtr ParseFor(int line) {
    NodePtr node = MakeNode(NodeKind::kFor, line);
    const bool was_soft = std::exchange(soft_, false);
    node->targets.push_back(ParseTarget("in", false));
    ExpectName("in");
    node->exprs.push_back(ParseTuple(false, false, "recursive"));
    node->exprs.push_back(SkipName("if") ? ParseExpression() : nullptr);
    node->recursive = SkipName("recursive");
    if (node->recursive) {
      Fail(FaultKind::kUnsupported, "a recursive loop is not supported", line);
    }
    ++loops_;
    Statements({"endfor", "else"}, node->body);
    --loops_;
    node->by_item = PrintsByItemAlone(*node, document_.loop);
    if (Next().text == "else") {
      Statements({"endfor"}, node->otherwise);
      Next();
    }
    soft_ = was_soft;
    return node;
  }

  NodePtr ParseSet(int line) {
    Target target = ParseTarget("", true);
    if (SkipOperator("=")) {
      NodePtr node = MakeNode(NodeKind::kSet, line);
      node->targets.push_back(std::move(target));
      node->exprs.push_back(ParseTuple(true, false, ""));
      return node;
    }
    NodePtr node = MakeNode(NodeKind::kSetBlock, line);
    node->targets.push_back(std::move(target));
    ExprPtr filter;
    while (Now().Operator("|")) filter = ParseFilter(std::move(filter), false);
    node->exprs.push_back(std::move(filter));
    Statements({"endset"}, node->body);
    Next();
    return node;
  }

  NodePtr ParseWith(int line) {
    NodePtr node = MakeNode(NodeKind::kWith, line);
    while (Now().kind != TokenKind::kBlockEnd) {
      if (!node->targets.empty()) ExpectOperator(",");
      node->targets.push_back(ParseTarget("", false));
      ExpectOperator("=");
      node->exprs.push_back(ParseExpression());
    }
    Statements({"endwith"}, node->body);
    Next();
    return node;
  }

  NodePtr ParsePrint(int line) {
    NodePtr node = MakeNode(NodeKind::kPrint, line);
    while (Now().kind != TokenKind::kBlockEnd) {
      if (!node->exprs.empty()) ExpectOperator(",");
      node->exprs.push_back(ParseExpression());
    }
    return node;
  }

  void ParseSignature(Signature& signature) {
    ExpectOperator("(");
    while (!Now().Operator(")")) {
      if (!signature.parameters.empty()) ExpectOperator(",");
      const int line = Now().line;
      Parameter& parameter = signature.parameters.emplace_back();
      parameter.name = StoredName();
      parameter.symbol = SymbolOf(parameter.name);
      if (SkipOperator("=")) {
        parameter.fallback = ParseExpression();
      } else if (signature.parameters.size() > 1 &&
                 signature.parameters[signature.parameters.size() - 2].fallback != nullptr) {
        FailAt(line, "non-default argument follows default argument");
      }
    }
    ExpectOperator(")");
  }

  // The body of a macro; what it names of "caller", "kwargs" and "varargs" it is given.
  void ParseMacroBody(std::string_view end, Signature& signature) {
    const size_t before = reads_.size();
    const int loops = std::exchange(loops_, 0);
    Statements({end}, signature.body);
    loops_ = loops;
    const auto named = [&](const char* name) {
      const Symbol symbol = SymbolOf(name);
      const bool parameter =
          std::any_of(signature.parameters.begin(), signature.parameters.end(),
                      [&](const Parameter& known) { return known.symbol == symbol; });
      const bool read = std::find(reads_.begin() + static_cast<std::ptrdiff_t>(before),
                                  reads_.end(), symbol) != reads_.end();
      return read && !parameter ? symbol : -1;
    };
    signature.caller = named("caller");
    signature.kwargs = named("kwargs");
    signature.varargs = named("varargs");
    Next();
  }

  NodePtr ParseMacro(int line) {
    NodePtr node = MakeNode(NodeKind::kMacro, line);
    node->signature = std::make_unique<Signature>();
    node->signature->name = StoredName();
    node->symbol = SymbolOf(node->signature->name);
    ParseSignature(*node->signature);
    ParseMacroBody("endmacro", *node->signature);
    return node;
  }

  NodePtr ParseCallBlock(int line) {
    NodePtr node = MakeNode(NodeKind::kCallBlock, line);
    node->signature = std::make_unique<Signature>();
    node->signature->name = "caller";
    if (Now().Operator("(")) ParseSignature(*node->signature);
    ExprPtr call = ParseExpression();
    if (call->kind != ExprKind::kCall) FailAt(line, "expected call");
    node->exprs.push_back(std::move(call));
    ParseMacroBody("endcall", *node->signature);
    return node;
  }

  NodePtr ParseFilterBlock(int line) {
    NodePtr node = MakeNode(NodeKind::kFilterBlock, line);
    ExprPtr filter = ParseFilter(nullptr, true);
    while (Now().Operator("|")) filter = ParseFilter(std::move(filter), false);
    node->exprs.push_back(std::move(filter));
    Statements({"endfilter"}, node->body);
    Next();
    return node;
  }

  std::string StoredName() {
    const int line = Now().line;
    std::string name = AnyName();
    for (const std::string_view constant : {"true", "false", "none", "True", "False", "None"}) {
      if (name == constant) FailAt(line, StrCat("can't assign to '", name, "'"));
    }
    return name;
  }

  Target ParseOneTarget(bool with_attribute, std::string_view end) {
    const Deeper deeper(*this);
    if (SkipOperator("(")) {
      Target target = ParseTarget(end, with_attribute);
      ExpectOperator(")");
      return target;
    }
    Target target;
    target.name = StoredName();
    target.symbol = SymbolOf(target.name);
    if (with_attribute && SkipOperator(".")) target.attribute = AnyName();
    return target;
  }

  Target ParseTarget(std::string_view end, bool with_attribute) {
    Target target = ParseOneTarget(with_attribute, end);
    if (!Now().Operator(",")) return target;
    Target tuple;
    tuple.tuple = true;
    tuple.parts.push_back(std::move(target));
    while (SkipOperator(",")) {
      const bool ended = Now().kind == TokenKind::kBlockEnd || Now().Operator("=") ||
                         Now().Operator(")") || (!end.empty() && Now().Name(end));
      if (ended) break;
      tuple.parts.push_back(ParseOneTarget(with_attribute, end));
    }
    return tuple;
  }

  int loops_ = 0;
  int open_line_ = 1;
};

}  // namespace

Document ParseDocument(std::string_view source) { return Parser(source).Run(); }

}  // namespace kvgauge::jinja
