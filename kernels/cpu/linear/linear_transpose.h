// SPDX-License-Identifier: Apache-2.0
// 64 rows of words into panel order, with the vectors of an instruction set (linear_pack.cpp has
// the rows beside each other in the first cache). In an unnamed namespace for the reason given in
// panel.h.
#pragma once

#include <cstdint>
#include <cstring>

#include "cpu/linear/linear_kernels.h"

namespace kvgauge {
namespace {

using FourWords = uint32_t __attribute__((vector_size(16)));
using SixteenWords = uint32_t __attribute__((vector_size(64)));

template <class Words>
inline void LoadWords(const uint32_t* from, Words& to) {
  std::memcpy(&to, from, sizeof(to));
}

// A square of 4 by 4 words; rows are kStageWords apart, and then kPackRows.
inline void TransposeFour(const uint32_t* from, uint32_t* to) {
  FourWords a, b, c, d;
  LoadWords(from, a);
  LoadWords(from + kStageWords, b);
  LoadWords(from + 2 * kStageWords, c);
  LoadWords(from + 3 * kStageWords, d);
  const FourWords ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  const FourWords ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const FourWords cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  const FourWords cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  const FourWords out[4] = {__builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5),
                            __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7),
                            __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5),
                            __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7)};
  for (int i = 0; i < 4; ++i) std::memcpy(to + i * kPackRows, &out[i], sizeof(out[i]));
}

// A square of 16 by 16: fours as above in each quarter of a vector, then the quarters.
template <class Words>
inline void TransposeSixteen(const uint32_t* from, uint32_t* to) {
  Words quarter[4][4];  // [word of four][four rows]
  for (int i = 0; i < 4; ++i) {
    Words a, b, c, d;
    LoadWords(from + 4 * i * kStageWords, a);
    LoadWords(from + (4 * i + 1) * kStageWords, b);
    LoadWords(from + (4 * i + 2) * kStageWords, c);
    LoadWords(from + (4 * i + 3) * kStageWords, d);
    const Words ab_low =
        __builtin_shufflevector(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
    const Words ab_high =
        __builtin_shufflevector(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
    const Words cd_low =
        __builtin_shufflevector(c, d, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
    const Words cd_high =
        __builtin_shufflevector(c, d, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
    quarter[0][i] = __builtin_shufflevector(ab_low, cd_low, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24,
                                            25, 12, 13, 28, 29);
    quarter[1][i] = __builtin_shufflevector(ab_low, cd_low, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26,
                                            27, 14, 15, 30, 31);
    quarter[2][i] = __builtin_shufflevector(ab_high, cd_high, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24,
                                            25, 12, 13, 28, 29);
    quarter[3][i] = __builtin_shufflevector(ab_high, cd_high, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11,
                                            26, 27, 14, 15, 30, 31);
  }
  for (int w = 0; w < 4; ++w) {
    const Words* const q = quarter[w];
    const Words ab_front =
        __builtin_shufflevector(q[0], q[1], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
    const Words ab_back = __builtin_shufflevector(q[0], q[1], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25,
                                                  26, 27, 28, 29, 30, 31);
    const Words cd_front =
        __builtin_shufflevector(q[2], q[3], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
    const Words cd_back = __builtin_shufflevector(q[2], q[3], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25,
                                                  26, 27, 28, 29, 30, 31);
    const Words out[4] = {__builtin_shufflevector(ab_front, cd_front, 0, 1, 2, 3, 8, 9, 10, 11, 16,
                                                  17, 18, 19, 24, 25, 26, 27),
                          __builtin_shufflevector(ab_front, cd_front, 4, 5, 6, 7, 12, 13, 14, 15,
                                                  20, 21, 22, 23, 28, 29, 30, 31),
                          __builtin_shufflevector(ab_back, cd_back, 0, 1, 2, 3, 8, 9, 10, 11, 16,
                                                  17, 18, 19, 24, 25, 26, 27),
                          __builtin_shufflevector(ab_back, cd_back, 4, 5, 6, 7, 12, 13, 14, 15, 20,
                                                  21, 22, 23, 28, 29, 30, 31)};
    for (int i = 0; i < 4; ++i) {
      std::memcpy(to + (4 * i + w) * kPackRows, &out[i], sizeof(out[i]));
    }
  }
}

// LinearKernels::transpose.
template <class V>
void Transpose(const uint32_t* stage, int64_t words, uint32_t* to) {
  int64_t w = 0;
  if constexpr (V::kLanes == 16) {
    for (; w + 16 <= words; w += 16) {
      for (int64_t c = 0; c < kPackRows; c += 16) {
        TransposeSixteen<SixteenWords>(stage + c * kStageWords + w, to + w * kPackRows + c);
      }
    }
  }
  for (; w < words; w += 4) {
    for (int64_t c = 0; c < kPackRows; c += 4) {
      TransposeFour(stage + c * kStageWords + w, to + w * kPackRows + c);
    }
  }
}

}  // namespace
}  // namespace kvgauge
