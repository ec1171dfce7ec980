// SPDX-License-Identifier: Apache-2.0
// A template's text as tokens, with blanks and line breaks taken off as jinja2 does it when
// trim_blocks and lstrip_blocks are set.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kvgauge::jinja {

enum class TokenKind : uint8_t {
  kData,  // text outside of tags
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;  // of a string: its value; of a number: its digits without "_"
  int line = 1;

  bool Name(std::string_view name) const { return kind == TokenKind::kName && text == name; }
  bool Operator(std::string_view sign) const {
    return kind == TokenKind::kOperator && text == sign;
  }
};

// Throws a Fault. `source` is well-formed UTF-8. The last token is kEnd.
std::vector<Token> Tokenize(std::string_view source);

// How a message names a token.
std::string Describe(const Token& token);

inline bool AsciiDigit(char c) { return c >= '0' && c <= '9'; }
// Python's str.isspace and \s: white space and the four ASCII separators.
bool IsSpace(char32_t c);

}  // namespace kvgauge::jinja
