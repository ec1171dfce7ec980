// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4), for fingerprints of weights, files and canonical JSON.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kvgauge {

class Sha256 {
 public:
  // Whether the processor's own instructions do it, where it has some. The digest is the same.
  enum class By { kFastest, kPlainCode };
  explicit Sha256(By by = By::kFastest);

  void Update(const void* data, size_t size_bytes);
  // Lower-case hex digest. The object must not be used afterwards.
  std::string Finish();

 private:
  void Blocks(const uint8_t* blocks, size_t count);

  bool by_instructions_;
  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> buffer_ = {};
  size_t buffered_ = 0;
  uint64_t total_bytes_ = 0;
};

std::string Sha256Hex(std::string_view data);

}  // namespace kvgauge
