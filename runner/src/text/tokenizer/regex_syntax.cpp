// SPDX-License-Identifier: Apache-2.0
// Oniguruma's Ruby syntax into PCRE2's.
//
// Rewritten: \s (PCRE2 adds U+180E), \w \d \h \v, Unicode categories (with what came after the
// Unicode version of PCRE2 10.42), script names (PCRE2 reads a bare one as Script_Extensions),
// \uHHHH, {,n}, x{n,m}+ (not possessive in Ruby), and the options m and i.
#include <cctype>
#include <cstdio>
#include <optional>
#include <vector>

#include "core/strings.h"
#include "src/text/tokenizer/regex.h"
#include "src/text/tokenizer/unicode.h"

namespace kvgauge {
namespace {

constexpr size_t kMaxPatternBytes = 64 << 10;

constexpr std::string_view kSpaceItems =
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"
    "\\x{205f}\\x{3000}";
constexpr std::string_view kNotSpaceItems =
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}"
    "\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{"
    "10ffff}";
constexpr std::string_view kHexItems = "0-9A-Fa-f";

struct LongName {
  std::string_view name, category;
};
constexpr LongName kLongNames[] = {
    {"letter", "L"},
    {"uppercaseletter", "Lu"},
    {"lowercaseletter", "Ll"},
    {"titlecaseletter", "Lt"},
    {"modifierletter", "Lm"},
    {"otherletter", "Lo"},
    {"mark", "M"},
    {"nonspacingmark", "Mn"},
    {"spacingmark", "Mc"},
    {"enclosingmark", "Me"},
    {"number", "N"},
    {"decimalnumber", "Nd"},
    {"digit", "Nd"},
    {"letternumber", "Nl"},
    {"othernumber", "No"},
    {"punctuation", "P"},
    {"punct", "P"},
    {"symbol", "S"},
    {"separator", "Z"},
    {"other", "C"},
    {"control", "Cc"},
    {"cntrl", "Cc"},
    {"mathsymbol", "Sm"},
    {"currencysymbol", "Sc"},
};
constexpr std::string_view kCategories =
    " L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl Zp C Cc "
    "Cf Co Cs Cn ";
constexpr std::string_view kBinaryProperties =
    " alphabetic alpha lowercase uppercase emoji ideographic any ";

// The range items of a category, newer members included.
std::string CategoryItems(std::string_view category) {
  std::string items = StrCat("\\p{", category, "}");
  for (size_t i = 0; i < kLaterRangeCount; ++i) {
    const LaterRange& range = kLaterRanges[i];
    if (range.category[0] != category[0]) continue;
    if (category.size() > 1 && range.category[1] != category[1]) continue;
    char text[40];
    std::snprintf(text, sizeof(text), "\\x{%x}-\\x{%x}", static_cast<unsigned>(range.first),
                  static_cast<unsigned>(range.last));
    items += text;
  }
  return items;
}

std::string WordItems() {
  return StrCat(CategoryItems("L"), CategoryItems("M"), CategoryItems("Nd"), CategoryItems("Nl"),
                CategoryItems("Pc"), "\\p{Alphabetic}\\xb2\\xb3\\xb9\\xbc-\\xbe");
}

std::string Squeezed(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c == ' ' || c == '_' || c == '-') continue;
    out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

class Translator {
 public:
  Translator(std::string_view pattern, std::string_view where) : in_(pattern), where_(where) {}

  Result<std::string> Run() {
    if (in_.size() > kMaxPatternBytes) {
      return Unsupported(StrCat(where_, ": a regular expression of ", in_.size(),
                                " bytes; at most ", kMaxPatternBytes, " are read"));
    }
    if (const size_t bad = FindInvalidUtf8(in_); bad != std::string_view::npos) {
      return BadInput(StrCat(where_, ": the pattern is not UTF-8 at byte ", bad));
    }
    while (at_ < in_.size()) KVG_TRY(One());
    return out_;
  }

 private:
  Error Refuse(std::string_view what) const {
    return Unsupported(StrCat(where_, ": the regular expression ", Quoted(in_, 200), " uses ", what,
                              " at byte ", at_, ", which this build cannot run"));
  }
  char Peek(size_t ahead = 0) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }
  bool Ahead(std::string_view text) const { return in_.substr(at_).starts_with(text); }

  // Where the atom that a following quantifier applies to begins in out_.
  void BeginAtom() { atom_ = out_.size(); }

  Status One() {
    switch (Peek()) {
      case '\\':
        BeginAtom();
        return Escape(false);
      case '[':
        BeginAtom();
        return Class();
      case '(':
        return Group();
      case ')':
        atom_ = groups_.empty() ? out_.size() : groups_.back();
        if (!groups_.empty()) groups_.pop_back();
        break;
      case '{':
        return Interval();
      case '*':
      case '+':
      case '?':
      case '|':
        break;
      default:
        BeginAtom();
    }
    const size_t width = Utf8Width(in_[at_]);
    out_ += in_.substr(at_, width);
    at_ += width;
    return {};
  }

  Status Group() {
    if (Ahead("(*")) return Refuse("(*");
    groups_.push_back(out_.size());
    if (!Ahead("(?")) {
      out_ += '(';
      ++at_;
      return {};
    }
    for (const std::string_view opening : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"}) {
      if (!Ahead(opening)) continue;
      out_ += opening;
      at_ += opening.size();
      return {};
    }
    // Options: i means the same; m is what PCRE2 calls s. A bare (?i) reaches over the alternatives
    // that follow it in Ruby, so it is taken at the very beginning only, where both agree.
    const size_t start = at_;
    size_t end = at_ + 2;
    std::string options;
    while (end < in_.size() && (in_[end] == 'i' || in_[end] == 'm' || in_[end] == '-')) {
      options += in_[end] == 'm' ? 's' : in_[end];
      ++end;
    }
    const bool scoped = end < in_.size() && in_[end] == ':';
    const bool whole = end < in_.size() && in_[end] == ')' && start == 0;
    if (options.empty() || !(scoped || whole)) return Refuse(Quoted(in_.substr(at_, 4)));
    out_ += StrCat("(?", options, scoped ? ":" : ")");
    if (whole) groups_.pop_back();
    at_ = end + 1;
    return {};
  }

  Status Interval() {
    size_t end = at_ + 1;
    std::string low, high;
    bool comma = false;
    for (; end < in_.size() && in_[end] != '}'; ++end) {
      if (in_[end] == ',' && !comma) {
        comma = true;
      } else if (in_[end] >= '0' && in_[end] <= '9') {
        (comma ? high : low) += in_[end];
      } else {
        break;
      }
    }
    const bool quantifier =
        end < in_.size() && in_[end] == '}' && (!low.empty() || !high.empty()) && atom_.has_value();
    if (!quantifier) {
      BeginAtom();
      out_ += "\\{";
      ++at_;
      return {};
    }
    at_ = end + 1;
    if (!comma && Peek() == '?') return Refuse("{n}?");
    out_ += StrCat("{", low.empty() ? "0" : low, comma ? "," : "", high, "}");
    if (Peek() == '+') {
      out_.insert(*atom_, "(?:");
      out_ += ")+";
      ++at_;
    }
    return {};
  }

  // A set of characters given by class items: as it is inside [...], in brackets outside.
  void PutSet(std::string_view items, bool negated, bool in_class) {
    if (in_class) {
      out_ += items;
    } else {
      out_ += StrCat(negated ? "[^" : "[", items, "]");
    }
  }

  Status Escape(bool in_class) {
    const char c = Peek(1);
    if (c == '\0') return Refuse("a backslash at the end");
    const auto set = [&](std::string_view items, bool negated) -> Status {
      if (negated && in_class) return Refuse(StrCat("\\", c, " inside [...]"));
      PutSet(items, negated, in_class);
      at_ += 2;
      return {};
    };
    switch (c) {
      case 's':
        return set(kSpaceItems, false);
      case 'S':
        return set(kNotSpaceItems, false);
      case 'd':
        return set(CategoryItems("Nd"), false);
      case 'D':
        return set(CategoryItems("Nd"), true);
      case 'w':
        return set(WordItems(), false);
      case 'W':
        return set(WordItems(), true);
      case 'h':
        return set(kHexItems, false);
      case 'H':
        return set(kHexItems, true);
      case 'v':
        out_ += "\\x0b";
        at_ += 2;
        return {};
      case 'p':
      case 'P':
        return Property(in_class);
      case 'u':
        return HexDigits(4);
      default:
        break;
    }
    if (std::isalnum(static_cast<unsigned char>(c))) {
      constexpr std::string_view kSameEverywhere = "tnrfaexb";
      constexpr std::string_view kSameOutside = "ABzZGRX123456789";
      const bool same = kSameEverywhere.find(c) != std::string_view::npos ||
                        (!in_class && kSameOutside.find(c) != std::string_view::npos);
      if (!same) return Refuse(StrCat("\\", c));
    }
    const size_t width = 1 + Utf8Width(c);
    out_ += in_.substr(at_, width);
    at_ += width;
    return {};
  }

  Status HexDigits(size_t count) {
    const std::string_view digits = in_.substr(at_ + 2, count);
    if (digits.size() < count ||
        digits.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos) {
      return Refuse(StrCat("\\u without ", count, " hexadecimal digits"));
    }
    out_ += StrCat("\\x{", digits, "}");
    at_ += 2 + count;
    return {};
  }

  Status Property(bool in_class) {
    const size_t close = in_.find('}', at_);
    if (Peek(2) != '{' || close == std::string_view::npos) return Refuse("\\p without {name}");
    std::string_view name = in_.substr(at_ + 3, close - at_ - 3);
    bool negated = Peek(1) == 'P';
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    const std::string squeezed = Squeezed(name);
    std::string category;
    for (const LongName& entry : kLongNames) {
      if (entry.name == squeezed) category = entry.category;
    }
    if (!squeezed.empty() && squeezed.size() <= 2) {
      std::string cased = squeezed;
      cased[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(cased[0])));
      if (kCategories.find(StrCat(" ", cased, " ")) != std::string_view::npos) category = cased;
    }
    if (!category.empty() && !(negated && in_class)) {
      PutSet(CategoryItems(category), negated, in_class);
    } else {
      // Inside a class a negated set cannot be given as items; the few characters that PCRE2's
      // Unicode version lacks then stay in it.
      const bool plain = !category.empty() || kBinaryProperties.find(StrCat(" ", squeezed, " ")) !=
                                                  std::string_view::npos;
      if (squeezed.empty() ||
          squeezed.find_first_not_of("abcdefghijklmnopqrstuvwxyz") != std::string::npos) {
        if (category.empty()) return Refuse(StrCat("\\p{", name, "}"));
      }
      out_ += StrCat(negated ? "\\P{" : "\\p{",
                     plain ? "" : "sc:", category.empty() ? squeezed : category, "}");
    }
    at_ = close + 1;
    return {};
  }

  Status Class() {
    out_ += '[';
    ++at_;
    if (Peek() == '^') {
      out_ += '^';
      ++at_;
    }
    bool first = true;
    while (true) {
      if (at_ >= in_.size()) return Refuse("a [ that is not closed");
      const char c = Peek();
      if (c == ']' && !first) break;
      first = false;
      if (Ahead("&&")) return Refuse("&& inside [...]");
      if (Ahead("[:")) {
        const size_t close = in_.find(":]", at_);
        if (close == std::string_view::npos) return Refuse("[: without :]");
        out_ += in_.substr(at_, close + 2 - at_);
        at_ = close + 2;
      } else if (c == '[') {
        return Refuse("a set inside [...]");
      } else if (c == '\\') {
        KVG_TRY(Escape(true));
      } else if (c == ']') {
        out_ += "\\]";
        ++at_;
      } else {
        const size_t width = Utf8Width(c);
        out_ += in_.substr(at_, width);
        at_ += width;
      }
    }
    out_ += ']';
    ++at_;
    return {};
  }

  std::string_view in_, where_;
  size_t at_ = 0;
  std::string out_;
  std::optional<size_t> atom_;
  std::vector<size_t> groups_;
};

}  // namespace

Result<std::string> TranslateRegex(std::string_view pattern, std::string_view where) {
  return Translator(pattern, where).Run();
}

}  // namespace kvgauge
