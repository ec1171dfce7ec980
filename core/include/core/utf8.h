// SPDX-License-Identifier: Apache-2.0
// Walking over bytes that should be UTF-8.
#pragma once

#include <cstddef>
#include <string_view>

namespace kvgauge {

// How the bytes at the front of a text relate to one character. Ill-formed bytes are cut into
// maximal parts of characters, as the Unicode standard recommends and as Python's
// bytes.decode("utf-8", "replace") does: each part becomes one U+FFFD.
struct Utf8Start {
  size_t width;   // bytes that belong together
  bool complete;  // they are a character
  bool open;      // the bytes ended before the character did
};
// Precondition: `bytes` is not empty.
Utf8Start ReadUtf8(std::string_view bytes);

}  // namespace kvgauge
