// SPDX-License-Identifier: Apache-2.0
#include "src/base64.h"

#include <array>

namespace kvgauge {
namespace {

constexpr int8_t kNone = -1, kBlank = -2, kPad = -3;

constexpr std::array<int8_t, 256> MakeValues() {
  std::array<int8_t, 256> values = {};
  for (int8_t& value : values) value = kNone;
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < kDigits.size(); ++i) {
    values[static_cast<uint8_t>(kDigits[i])] = static_cast<int8_t>(i);
  }
  for (const char blank : {' ', '\t', '\r', '\n'}) values[static_cast<uint8_t>(blank)] = kBlank;
  values[static_cast<uint8_t>('=')] = kPad;
  return values;
}

}  // namespace

bool Base64Decoder::Add(std::string_view piece, std::string* out) {
  static constexpr std::array<int8_t, 256> kValues = MakeValues();
  out->reserve(out->size() + piece.size() / 4 * 3 + 3);
  for (const char c : piece) {
    const int8_t value = kValues[static_cast<uint8_t>(c)];
    if (value == kNone) return false;
    ++taken_;
    if (value == kBlank) continue;
    const int64_t place = digits_ % 4;
    if (value == kPad ? place < 2 : padding_ > 0) return false;
    if (value == kPad) ++padding_;
    group_ = group_ << 6 | (value == kPad ? 0 : static_cast<uint32_t>(value));
    ++digits_;
    if (digits_ % 4 != 0) continue;
    for (int64_t byte = 0; byte < 3 - padding_; ++byte) {
      out->push_back(static_cast<char>(group_ >> (16 - 8 * byte)));
    }
    group_ = 0;
  }
  return true;
}

}  // namespace kvgauge
