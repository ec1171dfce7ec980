// SPDX-License-Identifier: Apache-2.0
#include "metrics/math_values.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "metrics/math_cleaned.h"

namespace kvgauge::metrics {
namespace {

using Number = std::complex<double>;

// At so many points letters are given values.
constexpr size_t kPoints = 4;
using Values = std::array<Number, kPoints>;

constexpr size_t kLongestAnswer = 2000;
constexpr int kDeepest = 48;

bool IsLetterByte(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool IsDigitByte(char c) { return c >= '0' && c <= '9'; }

// The value of a letter at the points: the same for the same name, none that is special, and every
// second one below 0, so that |x| is not x.
Values ValueOfLetter(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  Values values;
  for (size_t i = 0; i < kPoints; ++i) {
    hash = (hash ^ (hash >> 31)) * 0x9E3779B97F4A7C15u;
    const double size = 0.6 + 1.7 * static_cast<double>(hash >> 11) / 9007199254740992.0;
    values[i] = i % 2 == 0 ? size : -size;
  }
  return values;
}

// An expression and whether letters and decimals were read in it.
struct Read {
  Values values = {};
  bool letters = false, decimals = false;
};

// Recursive descent over what CleanedMath left. A fault sets `ok` to false, and the rest does not
// count.
class Expression {
 public:
  explicit Expression(std::string_view text) : text_(text) {}

  std::optional<Read> Whole() {
    const Values values = Sum();
    Blanks();
    if (!ok_ || at_ != text_.size()) return std::nullopt;
    return Read{values, letters_, decimals_};
  }

 private:
  static Values Constant(Number number) {
    Values values;
    values.fill(number);
    return values;
  }
  template <class Body>
  static Values Each(const Values& a, const Values& b, const Body& body) {
    Values out;
    for (size_t i = 0; i < kPoints; ++i) out[i] = body(a[i], b[i]);
    return out;
  }
  template <class Body>
  static Values Each(const Values& a, const Body& body) {
    return Each(a, a, [&](Number x, Number) { return body(x); });
  }
  Values Fault() {
    ok_ = false;
    return Constant(0);
  }

  void Blanks() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool Take(std::string_view token) {
    Blanks();
    if (!text_.substr(at_).starts_with(token)) return false;
    // A command ends where its letters end.
    const size_t end = at_ + token.size();
    if (token[0] == '\\' && IsLetterByte(token.back()) && end < text_.size() &&
        IsLetterByte(text_[end])) {
      return false;
    }
    at_ = end;
    return true;
  }
  char Next() {
    Blanks();
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  Values Sum() {
    if (++depth_ > kDeepest) return Fault();
    Values sum = Product();
    while (ok_) {
      if (Take("+")) {
        sum = Each(sum, Product(), [](Number a, Number b) { return a + b; });
      } else if (Take("-")) {
        sum = Each(sum, Product(), [](Number a, Number b) { return a - b; });
      } else {
        break;
      }
    }
    --depth_;
    return sum;
  }

  // Whether another factor follows without a sign.
  bool FactorFollows() {
    const char c = Next();
    if (IsLetterByte(c) || c == '(' || c == '{' || c == '[') return true;
    if (c != '\\') return false;
    for (const char* command :
         {"\\frac",   "\\sqrt",   "\\pi",     "\\ln",     "\\log",  "\\sin",   "\\cos",
          "\\tan",    "\\exp",    "\\theta",  "\\alpha",  "\\beta", "\\gamma", "\\lambda",
          "\\mu",     "\\phi",    "\\omega",  "\\binom",  "\\cot",  "\\sec",   "\\csc",
          "\\arcsin", "\\arccos", "\\arctan", "\\lfloor", "\\lceil"}) {
      const size_t before = at_;
      const bool follows = Take(command);
      at_ = before;
      if (follows) return true;
    }
    return false;
  }

  Values Product() {
    Values product = Signed();
    while (ok_) {
      if (Take("*") || Take("\\cdot") || Take("\\times")) {
        product = Each(product, Signed(), [](Number a, Number b) { return a * b; });
      } else if (Take("/") || Take("\\div")) {
        product = Each(product, Signed(), [](Number a, Number b) { return a / b; });
      } else if (FactorFollows()) {
        product = Each(product, Power(), [](Number a, Number b) { return a * b; });
      } else {
        break;
      }
    }
    return product;
  }

  Values Signed() {
    if (Take("+")) return Signed();
    if (!Take("-")) return Power();
    return Each(Signed(), [](Number a) { return -a; });
  }

  static Number PowerOf(Number base, Number exponent) {
    // Whole powers of real numbers stay real.
    const double whole = std::abs(exponent.real());
    if (exponent.imag() != 0 || whole != std::floor(whole) || whole > 1024) {
      return std::pow(base, exponent);
    }
    Number power = 1;
    for (int i = 0; i < static_cast<int>(whole); ++i) power *= base;
    return exponent.real() < 0 ? 1.0 / power : power;
  }

  Values Power() {
    if (++depth_ > kDeepest) return Fault();
    Values base = Atom();
    while (ok_ && Take("!")) {
      base = Each(base, [](Number a) { return Number(std::tgamma(a.real() + 1)); });
    }
    if (ok_ && Take("^")) {
      base = Each(base, Next() == '{' ? Group() : Power(), PowerOf);
    }
    --depth_;
    return base;
  }

  // "{...}", or the one sign that follows.
  Values Group() {
    if (Take("{")) {
      const Values inside = Sum();
      return Take("}") ? inside : Fault();
    }
    const char c = Next();
    if (IsDigitByte(c)) {
      ++at_;
      return Constant(c - '0');
    }
    return Atom();
  }

  Values Decimal() {
    const size_t begin = at_;
    while (at_ < text_.size() && IsDigitByte(text_[at_])) ++at_;
    const size_t whole = at_ - begin;
    if (at_ < text_.size() && text_[at_] == '.' &&
        (whole > 0 || (at_ + 1 < text_.size() && IsDigitByte(text_[at_ + 1])))) {
      ++at_;
      const size_t from = at_;
      while (at_ < text_.size() && IsDigitByte(text_[at_])) ++at_;
      decimals_ = decimals_ || at_ > from;
    }
    if (at_ == begin) return Fault();
    const double number =
        std::strtod(std::string(text_.substr(begin, at_ - begin)).c_str(), nullptr);
    return at_ - begin == whole ? Mixed(number) : Constant(number);
  }

  // 3\frac{1}{2} is 3.5, not 1.5.
  Values Mixed(double whole) {
    const size_t before = at_;
    if (Take("\\frac") && Next() == '{') {
      const size_t over_end = MathGroupEnd(text_, at_);
      const size_t under_end = over_end < text_.size() && text_[over_end] == '{'
                                   ? MathGroupEnd(text_, over_end)
                                   : std::string::npos;
      if (under_end != std::string::npos) {
        const std::string over(text_.substr(at_ + 1, over_end - at_ - 2));
        const std::string under(text_.substr(over_end + 1, under_end - over_end - 2));
        const auto plain = [](const std::string& text) {
          return !text.empty() && text.size() < 10 &&
                 std::all_of(text.begin(), text.end(), IsDigitByte);
        };
        if (plain(over) && plain(under)) {
          const double part = std::stod(over) / std::stod(under);
          if (part < 1) {
            at_ = under_end;
            return Constant(whole + part);
          }
        }
      }
    }
    at_ = before;
    // The same in a line, 3 1/2.
    size_t at = at_;
    while (at < text_.size() && text_[at] == ' ') ++at;
    const auto digits = [&] {
      const size_t from = at;
      while (at < text_.size() && at < from + 10 && IsDigitByte(text_[at])) ++at;
      return at == from ? -1.0 : std::stod(std::string(text_.substr(from, at - from)));
    };
    if (at == at_) return Constant(whole);
    const double over = digits();
    if (over < 0 || at >= text_.size() || text_[at] != '/') return Constant(whole);
    ++at;
    const double under = digits();
    if (under <= over) return Constant(whole);
    at_ = at;
    return Constant(whole + over / under);
  }

  Values Root() {
    Values degree = Constant(2);
    if (Take("[")) {
      degree = Sum();
      if (!Take("]")) return Fault();
    }
    return Each(Group(), degree, [](Number a, Number n) {
      // The real root of a negative number, where there is one.
      const double whole = n.real();
      if (a.imag() == 0 && a.real() < 0 && std::fmod(whole, 2) != 0 && n.imag() == 0) {
        return Number(-std::pow(-a.real(), 1 / whole));
      }
      return whole == 2 ? std::sqrt(a) : std::pow(a, 1.0 / n);
    });
  }

  // Behind the name of a function: its argument, in brackets or not, and a power before it.
  template <class Body>
  Values Function(const Body& body) {
    const bool powered = Take("^");
    const Values power = powered ? Group() : Constant(1);
    const Values of = Next() == '(' || Next() == '{' ? Power() : Product();
    const Values values = Each(of, body);
    return powered ? Each(values, power, PowerOf) : values;
  }

  Values Between(std::string_view close) {
    const Values inside = Sum();
    return Take(close) ? inside : Fault();
  }

  Values Atom() {
    if (!ok_) return Fault();
    if (Take("(")) return Between(")");
    if (Take("[")) return Between("]");
    if (Take("{")) return Between("}");
    if (Take("|")) {
      return Each(Between("|"), [](Number a) { return Number(std::abs(a)); });
    }
    if (Take("\\lfloor")) {
      return Each(Between("\\rfloor"), [](Number a) { return Number(std::floor(a.real())); });
    }
    if (Take("\\lceil")) {
      return Each(Between("\\rceil"), [](Number a) { return Number(std::ceil(a.real())); });
    }
    if (Take("\\frac")) {
      const Values over = Group();
      return Each(over, Group(), [](Number a, Number b) { return a / b; });
    }
    if (Take("\\binom")) {
      const Values over = Group();
      return Each(over, Group(), [](Number a, Number b) {
        const double n = a.real(), k = b.real();
        return Number(std::exp(std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1)));
      });
    }
    if (Take("\\sqrt")) return Root();
    if (Take("\\pi") || Take("\u03c0")) return Constant(M_PI);
    if (Take("\\infty")) return Constant(HUGE_VAL);
    if (Take("\\ln")) return Function([](Number a) { return std::log(a); });
    if (Take("\\exp")) return Function([](Number a) { return std::exp(a); });
    if (Take("\\log")) {
      if (!Take("_")) return Function([](Number a) { return std::log(a); });
      const Values base = Group();
      return Each(Function([](Number a) { return std::log(a); }), base,
                  [](Number a, Number b) { return a / std::log(b); });
    }
    if (Take("\\arcsin")) return Function([](Number a) { return std::asin(a); });
    if (Take("\\arccos")) return Function([](Number a) { return std::acos(a); });
    if (Take("\\arctan")) return Function([](Number a) { return std::atan(a); });
    if (Take("\\sin")) return Function([](Number a) { return std::sin(a); });
    if (Take("\\cos")) return Function([](Number a) { return std::cos(a); });
    if (Take("\\tan")) return Function([](Number a) { return std::tan(a); });
    if (Take("\\cot")) return Function([](Number a) { return 1.0 / std::tan(a); });
    if (Take("\\sec")) return Function([](Number a) { return 1.0 / std::cos(a); });
    if (Take("\\csc")) return Function([](Number a) { return 1.0 / std::sin(a); });
    const char c = Next();
    if (IsDigitByte(c) || c == '.') return Decimal();
    return Letter();
  }

  Values Letter() {
    const size_t begin = at_;
    if (Next() == '\\') {
      ++at_;
      while (at_ < text_.size() && IsLetterByte(text_[at_])) ++at_;
      static constexpr std::string_view kGreek[] = {"\\theta",  "\\alpha", "\\beta", "\\gamma",
                                                    "\\lambda", "\\mu",    "\\phi",  "\\omega"};
      const std::string_view name = text_.substr(begin, at_ - begin);
      if (std::find(std::begin(kGreek), std::end(kGreek), name) == std::end(kGreek)) {
        return Fault();
      }
    } else if (IsLetterByte(Next())) {
      ++at_;
    } else {
      return Fault();
    }
    std::string name(text_.substr(begin, at_ - begin));
    if (Take("_")) {
      const size_t from = at_;
      const size_t end = Next() == '{' ? MathGroupEnd(text_, at_) : at_ + 1;
      if (end == std::string::npos || end > text_.size()) return Fault();
      name += text_.substr(from, end - from);
      at_ = end;
    } else if (name == "i") {
      return Constant(Number(0, 1));
    } else if (name == "e") {
      return Constant(M_E);
    }
    letters_ = true;
    return ValueOfLetter(name);
  }

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
  bool ok_ = true, letters_ = false, decimals_ = false;
};

bool Near(Number a, Number b, double least) {
  if (a == b) return true;  // infinities, too
  if (!std::isfinite(std::abs(a)) || !std::isfinite(std::abs(b))) return false;
  const double size = std::max({least, std::abs(a), std::abs(b)});
  return std::abs(a - b) <= 1e-9 * size;
}

std::optional<bool> EqualExpressions(std::string_view one, std::string_view other) {
  const std::optional<Read> a = Expression(one).Whole(), b = Expression(other).Whole();
  if (!a || !b) return std::nullopt;
  for (size_t i = 0; i < kPoints; ++i) {
    const Number x = a->values[i], y = b->values[i];
    if (std::isnan(x.real()) || std::isnan(x.imag()) || std::isnan(y.real()) ||
        std::isnan(y.imag())) {
      return std::nullopt;
    }
    if (a->letters || b->letters) {
      if (!Near(x, y, 1e-3)) return false;
      continue;
    }
    const bool rounded = a->decimals || b->decimals;
    const auto round = [](double v) { return std::round(1e6 * v); };
    const bool same =
        rounded && round(x.real()) == round(y.real()) && round(x.imag()) == round(y.imag());
    if (!same && !Near(x, y, 1e-12)) return false;
  }
  return true;
}

// Where `mark` stands outside all brackets; npos: nowhere.
size_t FindOutside(std::string_view text, std::string_view mark, size_t from = 0) {
  int depth = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    if (depth == 0 && at >= from && text.substr(at).starts_with(mark)) return at;
    if (text[at] == '(' || text[at] == '[' || text[at] == '{') ++depth;
    if (text[at] == ')' || text[at] == ']' || text[at] == '}') --depth;
  }
  return std::string::npos;
}

std::string Bare(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of(' '), text.size());
  const size_t end = text.find_last_not_of(' ');
  return end == std::string::npos ? "" : std::string(text.substr(begin, end + 1 - begin));
}

std::vector<std::string> SplitOutside(std::string_view text, std::string_view mark) {
  std::vector<std::string> parts;
  for (size_t from = 0;;) {
    const size_t at = FindOutside(text, mark, from);
    parts.push_back(Bare(text.substr(from, at - from)));
    if (at == std::string::npos) return parts;
    from = at + mark.size();
  }
}

std::optional<bool> EqualParts(std::string_view one, std::string_view other, int depth);

std::optional<bool> EqualInOrder(const std::vector<std::string>& a,
                                 const std::vector<std::string>& b, int depth) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    const std::optional<bool> same = EqualParts(a[i], b[i], depth);
    if (!same || !*same) return same;
  }
  return true;
}

// Each of one has an equal in the other, and none is left.
std::optional<bool> EqualInAnyOrder(const std::vector<std::string>& a, std::vector<std::string> b,
                                    int depth) {
  if (a.size() != b.size()) return false;
  for (const std::string& part : a) {
    bool found = false;
    for (size_t i = 0; i < b.size() && !found; ++i) {
      const std::optional<bool> same = EqualParts(part, b[i], depth);
      if (!same) return std::nullopt;
      if (!*same) continue;
      b.erase(b.begin() + static_cast<std::ptrdiff_t>(i));
      found = true;
    }
    if (!found) return false;
  }
  return true;
}

// The rows of a matrix, each a list of entries; empty: it is none.
std::vector<std::vector<std::string>> MatrixOf(std::string_view text) {
  std::vector<std::vector<std::string>> rows;
  if (!text.starts_with("\\begin{") || !text.ends_with("}")) return rows;
  const size_t open = text.find('}'), close = text.rfind("\\end{");
  if (close == std::string::npos || close <= open) return rows;
  for (const std::string& row : SplitOutside(text.substr(open + 1, close - open - 1), "\\\\")) {
    if (!row.empty()) rows.push_back(SplitOutside(row, "&"));
  }
  return rows;
}

// A list whose parts have no order: "1, 2", "\{1, 2\}", "1 \pm 2"; empty: it is none.
std::vector<std::string> ListOf(const std::string& text) {
  if (text.starts_with("\\{") && text.ends_with("\\}")) {
    const std::string inside = text.substr(2, text.size() - 4);
    return SplitOutside(inside, ",");
  }
  std::vector<std::string> parts = SplitOutside(text, ",");
  if (parts.size() == 1 && FindOutside(text, "\\pm") != std::string::npos &&
      FindOutside(text, "\\pm", FindOutside(text, "\\pm") + 1) == std::string::npos) {
    std::string plus = text, minus = text;
    ReplaceEach(plus, "\\pm", "+");
    ReplaceEach(minus, "\\pm", "-");
    return {plus, minus};
  }
  return parts.size() > 1 ? parts : std::vector<std::string>();
}

// "(a, b]": its parts, and its brackets.
struct Bracketed {
  char open = 0, close = 0;
  std::vector<std::string> parts;
};
Bracketed BracketedOf(const std::string& text) {
  if (text.size() < 3 || (text.front() != '(' && text.front() != '[') ||
      (text.back() != ')' && text.back() != ']')) {
    return {};
  }
  // The brackets are one pair.
  int depth = 0;
  for (size_t i = 0; i + 1 < text.size(); ++i) {
    if (text[i] == '(' || text[i] == '[' || text[i] == '{') ++depth;
    if (text[i] == ')' || text[i] == ']' || text[i] == '}') --depth;
    if (depth == 0) return {};
  }
  std::vector<std::string> parts = SplitOutside(text.substr(1, text.size() - 2), ",");
  if (parts.size() < 2) return {};
  return {text.front(), text.back(), std::move(parts)};
}

struct Relation {
  std::string sign;  // "=", "<", "<="
  std::string left, right;
};
std::optional<Relation> RelationOf(const std::string& text) {
  static constexpr std::pair<std::string_view, std::string_view> kSigns[] = {
      {"\\leq", "<="}, {"\\geq", ">="}, {"\\le", "<="}, {"\\ge", ">="}, {"\\lt", "<"},
      {"\\gt", ">"},   {"<", "<"},      {">", ">"},     {"=", "="}};
  for (const auto& [sign, meaning] : kSigns) {
    const size_t at = FindOutside(text, sign);
    if (at == std::string::npos) continue;
    const size_t end = at + sign.size();
    if (sign[0] == '\\' && end < text.size() && IsLetterByte(text[end])) continue;
    Relation relation = {std::string(meaning), Bare(text.substr(0, at)), Bare(text.substr(end))};
    if (relation.sign[0] == '>') {
      relation.sign[0] = '<';
      std::swap(relation.left, relation.right);
    }
    return relation;
  }
  return std::nullopt;
}

std::optional<bool> EqualRelations(const Relation& a, const Relation& b, int depth) {
  if (a.sign != b.sign) return false;
  std::optional<bool> same = EqualInOrder({a.left, a.right}, {b.left, b.right}, depth);
  if (!same || *same || a.sign != "=") return same;
  same = EqualInOrder({a.left, a.right}, {b.right, b.left}, depth);
  if (!same || *same) return same;
  // One side moved over: the same difference, or its opposite.
  const std::string left = "(" + a.left + ")-(" + a.right + ")";
  const std::string right = "(" + b.left + ")-(" + b.right + ")";
  same = EqualExpressions(left, right);
  return !same || *same ? same : EqualExpressions(left, "-(" + right + ")");
}

// "x", "f(x)", "x_1": what an answer may be named by.
bool IsName(std::string_view text) {
  return !text.empty() && IsLetterByte(text[0]) && text.size() <= 5 &&
         (text.size() == 1 || text[1] == '(' || text[1] == '_');
}

std::optional<bool> EqualParts(std::string_view one, std::string_view other, int depth) {
  if (depth > kDeepest) return std::nullopt;
  const std::string a = Bare(one), b = Bare(other);
  if (a == b) return true;
  const auto rows = MatrixOf(a), other_rows = MatrixOf(b);
  if (rows.empty() != other_rows.empty()) return std::nullopt;
  if (!rows.empty()) {
    if (rows.size() != other_rows.size()) return false;
    for (size_t i = 0; i < rows.size(); ++i) {
      const std::optional<bool> same = EqualInOrder(rows[i], other_rows[i], depth + 1);
      if (!same || !*same) return same;
    }
    return true;
  }
  const std::vector<std::string> unions = SplitOutside(a, "\\cup"),
                                 other_unions = SplitOutside(b, "\\cup");
  if (unions.size() > 1 || other_unions.size() > 1) {
    return EqualInAnyOrder(unions, other_unions, depth + 1);
  }
  const Bracketed tuple = BracketedOf(a), other_tuple = BracketedOf(b);
  if (!tuple.parts.empty() && !other_tuple.parts.empty()) {
    if (tuple.open != other_tuple.open || tuple.close != other_tuple.close) return false;
    return EqualInOrder(tuple.parts, other_tuple.parts, depth + 1);
  }
  const std::vector<std::string> list = ListOf(a), other_list = ListOf(b);
  // A list that is asked for may be answered in round brackets.
  if (tuple.open == '(' && tuple.close == ')' && !other_list.empty()) {
    return EqualInAnyOrder(tuple.parts, other_list, depth + 1);
  }
  if (tuple.parts.empty() != other_tuple.parts.empty()) return false;
  if (!list.empty() || !other_list.empty()) {
    return EqualInAnyOrder(list.empty() ? std::vector{a} : list,
                           other_list.empty() ? std::vector{b} : other_list, depth + 1);
  }
  const std::optional<Relation> relation = RelationOf(a), other_relation = RelationOf(b);
  if (relation && other_relation) return EqualRelations(*relation, *other_relation, depth + 1);
  for (const auto& [named, plain] : {std::pair(relation, b), std::pair(other_relation, a)}) {
    if (!named) continue;
    if (named->sign != "=" || !IsName(named->left)) return std::nullopt;
    return EqualParts(named->right, plain, depth + 1);
  }
  return EqualExpressions(a, b);
}

}  // namespace

std::optional<bool> EqualMathValues(std::string_view answer, std::string_view right) {
  if (answer.size() > kLongestAnswer || right.size() > kLongestAnswer) return std::nullopt;
  const std::string a = CleanedMath(answer), b = CleanedMath(right);
  if (a.empty() || b.empty()) return std::nullopt;
  return EqualParts(a, b, 0);
}

std::optional<double> MathNumber(std::string_view answer) {
  if (answer.size() > kLongestAnswer) return std::nullopt;
  const std::optional<Read> read = Expression(CleanedMath(answer)).Whole();
  if (!read || read->letters || read->values[0].imag() != 0) return std::nullopt;
  const double number = read->values[0].real();
  return std::isfinite(number) ? std::optional(number) : std::nullopt;
}

}  // namespace kvgauge::metrics
