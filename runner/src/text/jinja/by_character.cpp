// SPDX-License-Identifier: Apache-2.0
#include "src/text/jinja/by_character.h"

#include <algorithm>

namespace kvgauge::jinja {
namespace {

bool Plain(const Expr& expr, Symbol loop);

bool PlainOrNone(const ExprPtr& expr, Symbol loop) { return expr == nullptr || Plain(*expr, loop); }

// Generators can be gone through once only, so whatever goes through a value is left out: calls,
// filters, tests with arguments, `in`.
bool Plain(const Expr& expr, Symbol loop) {
  switch (expr.kind) {
    case ExprKind::kName:
      return expr.symbol != loop;
    case ExprKind::kCall:
    case ExprKind::kFilter:
    case ExprKind::kBinary:
      return false;
    case ExprKind::kTest:
      if (expr.parts.size() > 1 || !expr.named.empty()) return false;
      break;
    case ExprKind::kCompare:
      if (std::any_of(expr.operators.begin(), expr.operators.end(),
                      [](Op op) { return op == Op::kIn || op == Op::kNotIn; })) {
        return false;
      }
      break;
    default:
      break;
  }
  if (expr.star != nullptr || expr.double_star != nullptr) return false;
  return std::all_of(expr.parts.begin(), expr.parts.end(),
                     [&](const ExprPtr& part) { return PlainOrNone(part, loop); });
}

bool Plain(const Body& body, Symbol loop);

bool Plain(const Node& node, Symbol loop) {
  switch (node.kind) {
    case NodeKind::kData:
      return true;
    case NodeKind::kPrint:
      return std::all_of(node.exprs.begin(), node.exprs.end(),
                         [&](const ExprPtr& expr) { return PlainOrNone(expr, loop); });
    case NodeKind::kIf:
      return std::all_of(node.branches.begin(), node.branches.end(), [&](const Branch& branch) {
        return PlainOrNone(branch.test, loop) && Plain(branch.body, loop);
      });
    default:
      return false;
  }
}

bool Plain(const Body& body, Symbol loop) {
  return std::all_of(body.begin(), body.end(),
                     [&](const NodePtr& node) { return Plain(*node, loop); });
}

}  // namespace

bool PrintsByItemAlone(const Node& loop_node, Symbol loop) {
  return !loop_node.targets[0].tuple && loop_node.exprs[1] == nullptr &&
         Plain(loop_node.body, loop);
}

}  // namespace kvgauge::jinja
