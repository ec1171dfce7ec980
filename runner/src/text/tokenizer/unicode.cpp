// SPDX-License-Identifier: Apache-2.0
#include "src/text/tokenizer/unicode.h"

#include <algorithm>
#include <vector>

#include "core/strings.h"
#include "core/utf8.h"

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

}  // namespace

const uint8_t* CharClasses() {
  static const std::vector<uint8_t> table = ExpandRuns();
  return table.data();
}

void TakeUtf8(std::string& bytes, bool last, std::string& out) {
  const std::string_view view = bytes;
  size_t at = 0;
  while (at < view.size()) {
    const Utf8Start prefix = ReadUtf8(view.substr(at));
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
