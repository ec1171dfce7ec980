// SPDX-License-Identifier: Apache-2.0
#include "src/text/tokenizer/unicode.h"

#include <algorithm>
#include <vector>

#include "core/strings.h"

namespace kvgauge {
namespace {

constexpr char32_t kCodePoints = 0x110000;

std::vector<uint8_t> ExpandRuns() {
  std::vector<uint8_t> table(kCodePoints);
  for (size_t i = 0; i < kUnicodeRunCount; ++i) {
    const uint32_t first = kUnicodeRuns[i] & 0xffffff;
    const uint32_t end = i + 1 < kUnicodeRunCount ? kUnicodeRuns[i + 1] & 0xffffff : kCodePoints;
    std::fill(table.begin() + first, table.begin() + end,
              static_cast<uint8_t>(kUnicodeRuns[i] >> 24));
  }
  return table;
}

// How the bytes at the front relate to one character.
struct Prefix {
  size_t width;   // bytes that belong together
  bool complete;  // they are a character
  bool open;      // they ran out before the character did
};

Prefix ReadPrefix(std::string_view bytes) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {1, true, false};
  if (lead < 0xc2 || lead > 0xf4) return {1, false, false};
  const size_t width = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  uint8_t low = 0x80, high = 0xbf;
  if (lead == 0xe0) low = 0xa0;
  if (lead == 0xed) high = 0x9f;
  if (lead == 0xf0) low = 0x90;
  if (lead == 0xf4) high = 0x8f;
  for (size_t i = 1; i < width; ++i) {
    if (i == bytes.size()) return {i, false, true};
    if (byte(i) < low || byte(i) > high) return {i, false, false};
    low = 0x80;
    high = 0xbf;
  }
  return {width, true, false};
}

}  // namespace

const uint8_t* CharClasses() {
  static const std::vector<uint8_t> table = ExpandRuns();
  return table.data();
}

void TakeUtf8(std::string& bytes, bool last, std::string& out) {
  const std::string_view view = bytes;
  size_t at = 0;
  while (at < view.size()) {
    const Prefix prefix = ReadPrefix(view.substr(at));
    if (prefix.open && !last) break;
    if (prefix.complete) {
      out.append(view.substr(at, prefix.width));
    } else {
      AppendUtf8(out, 0xfffd);
    }
    at += prefix.width;
  }
  bytes.erase(0, at);
}

}  // namespace kvgauge
