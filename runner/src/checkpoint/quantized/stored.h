// SPDX-License-Identifier: Apache-2.0
// Reading stored tensors number by number.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "runner/weights.h"

namespace kvgauge {

// Reads number `i` of unaligned bytes.
using ReadNumber = float (*)(const uint8_t* bytes, int64_t i);

// For a type as safetensors names it; null where that is not read.
ReadNumber NumberReader(std::string_view type);

// The numbers that the 256 bytes of a one-byte type stand for; null for other types.
const float* ByteNumbers(std::string_view type);

inline uint32_t WordAt(const uint8_t* bytes, int64_t i) {
  uint32_t word;
  std::memcpy(&word, bytes + i * 4, 4);
  return word;
}

// Field `i` of `bits` bits in a stream of words, the lowest bits first.
inline uint32_t FieldAt(const uint8_t* words, int64_t i, int bits) {
  const int64_t at = i * bits;
  const int shift = static_cast<int>(at % 32);
  uint64_t two = WordAt(words, at / 32);
  if (shift + bits > 32) two |= uint64_t{WordAt(words, at / 32 + 1)} << 32;
  return static_cast<uint32_t>(two >> shift) & ((1u << bits) - 1);
}

// "[3, 64]".
std::string ShapeOfStored(std::span<const int64_t> shape);

// The stored tensor `name`, whose type must be one of `types`; an empty list takes any.
Result<RawTensor> StoredOf(const WeightSource& source, const std::string& name,
                           const std::vector<std::string_view>& types);
// The same with a shape that must be one of `shapes`; `because` says what wants it.
Result<RawTensor> StoredOf(const WeightSource& source, const std::string& name,
                           const std::vector<std::string_view>& types,
                           const std::vector<std::vector<int64_t>>& shapes,
                           std::string_view because);

// All numbers of a stored tensor, each finite.
Result<std::vector<float>> FiniteNumbers(const WeightSource& source, const std::string& name);
// All numbers of an I32 or I64 tensor, each from `least` to `most`.
Result<std::vector<int64_t>> IntegersWithin(const WeightSource& source, const std::string& name,
                                            int64_t least, int64_t most);

}  // namespace kvgauge
