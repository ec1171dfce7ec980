// SPDX-License-Identifier: Apache-2.0
// Left rows rounded to 8 bits, for products of integers with panels in blocks (block_coded.h).
//
// 256 numbers share a scale, their largest size / 127; a code is the nearest integer to number /
// scale, the even one of two. So a row's codes depend on its own numbers alone.
#pragma once

#include <cstdint>

namespace kvgauge {

inline constexpr int64_t kCodedK = 256;     // numbers of a block; the last of a row may have fewer
inline constexpr int64_t kCodedPartK = 32;  // of a part, of which a row has a whole number
inline constexpr int64_t kCodedParts = kCodedK / kCodedPartK;

struct CodedBlock {
  int8_t codes[kCodedK];
  float scale;  // NaN where a number is not finite: its codes are 0
  // -1 times the sum of the codes of a part, and of each half of a part: what the codes of weights
  // have too much, their middle taken out.
  int32_t less[kCodedParts], half_less[2 * kCodedParts];
};
static_assert(sizeof(CodedBlock) == 356);

constexpr int64_t CodedBlocksOf(int64_t k) { return (k + kCodedK - 1) / kCodedK; }

// Blocks whose numbers are all smaller than this are zeros: 127 / it is finite.
inline constexpr float kLeastCoded = 0x1p-100f;

}  // namespace kvgauge
