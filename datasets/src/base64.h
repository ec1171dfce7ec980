// SPDX-License-Identifier: Apache-2.0
// Base64 (RFC 4648), piece by piece. White space between its characters is passed over.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kvgauge {

class Base64Decoder {
 public:
  // Appends what the piece decodes to; false at a character that base64 does not have, or one
  // behind the padding.
  bool Add(std::string_view piece, std::string* out);
  // Whether what was added ends as base64 does: whole groups of four.
  bool Complete() const { return digits_ % 4 == 0; }
  int64_t taken() const { return taken_; }  // characters, up to the faulty one

 private:
  uint32_t group_ = 0;
  int64_t taken_ = 0, digits_ = 0, padding_ = 0;
};

}  // namespace kvgauge
