// SPDX-License-Identifier: Apache-2.0
// Markup that cannot be injected into: what is markup is a constant of the source, and everything
// else passes through one function that escapes it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace kvgauge::report {

// Markup with {} for each value. Only a literal converts.
class Markup {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): that a literal converts is its purpose.
  consteval Markup(const char* text) : text_(text) {}
  constexpr std::string_view text() const { return text_; }

 private:
  std::string_view text_;
};

// A coordinate or length of a drawing: written with one decimal at most.
struct Px {
  double value = 0;
};

class Html {
 public:
  // A value for a {}: a text (made visible and escaped), a number, or markup made before.
  class Value {
   public:
    Value(std::string_view text) : kind_(Kind::kText), text_(text) {}
    Value(const std::string& text) : Value(std::string_view(text)) {}
    Value(const char* text) : Value(std::string_view(text)) {}
    Value(const Html& html) : kind_(Kind::kHtml), text_(html.text()) {}
    Value(Markup markup) : kind_(Kind::kHtml), text_(markup.text()) {}
    Value(int64_t number) : kind_(Kind::kInteger), integer_(number) {}
    Value(int number) : Value(int64_t{number}) {}
    Value(size_t number) : Value(static_cast<int64_t>(number)) {}
    Value(double number) : kind_(Kind::kReal), real_(number) {}
    Value(Px length) : kind_(Kind::kLength), real_(length.value) {}

   private:
    friend class Html;
    enum class Kind { kText, kHtml, kInteger, kReal, kLength };
    Kind kind_;
    std::string_view text_;
    int64_t integer_ = 0;
    double real_ = 0;
  };

  // Precondition: as many values as there are {} in `markup`.
  Html& Put(Markup markup, std::initializer_list<Value> values = {});
  Html& Put(const Html& html);
  Html& Text(std::string_view text);
  // A block of JSON for scripts to read, under this id. Precondition: made by AppendScriptString
  // and numbers, so that nothing in it ends the block.
  Html& PutData(std::string_view id, std::string_view json);

  const std::string& text() const { return text_; }
  bool empty() const { return text_.empty(); }

 private:
  void Append(const Value& value);

  std::string text_;
};

// A name that may break after its separators, not within its words: "kivi_" "2bit".
Html Breakable(std::string_view name);

// Six significant digits, so that pages of two machines are equal; "nan" and "inf" are spelled so.
void AppendNumber(std::string& out, double value);
// One decimal at most, no "-0".
void AppendLength(std::string& out, double value);
// Escaped for element content and quoted attributes alike. Precondition: made visible.
void AppendEscaped(std::string& out, std::string_view text);
// A quoted JSON string that may stand inside a script element. Precondition: made visible.
void AppendScriptString(std::string& out, std::string_view text);
// Bytes as base64, for hashes in a content security policy.
std::string Base64(std::string_view bytes);

}  // namespace kvgauge::report
