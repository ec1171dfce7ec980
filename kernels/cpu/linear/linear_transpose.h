// SPDX-License-Identifier: Apache-2.0
// 64 rows of words into panel order, with the vectors of an instruction set (linear_pack.cpp has
// the rows beside each other in the first cache where vectors are short). In an unnamed namespace
// for the reason given in panel.h.
#pragma once

#include <cstdint>
#include <cstring>

#include "cpu/linear/linear_kernels.h"
#ifdef __AVX512F__
#include "cpu/isa/vector_math_avx512.h"
#endif

namespace kvgauge {
namespace {

using FourWords = uint32_t __attribute__((vector_size(16)));
using SixteenWords = uint32_t __attribute__((vector_size(64)));
using ManyHalves = uint16_t __attribute__((vector_size(64)));

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

// A square of 16 by 16: fours as above in each quarter of a vector, then the quarters. load(i, to)
// gives the words of row i, store(i, from) takes those of column i.
template <class Words, class Load, class Store>
inline void TransposeSixteen(const Load& load, const Store& store) {
  Words quarter[4][4];  // [word of four][four rows]
  for (int i = 0; i < 4; ++i) {
    Words a, b, c, d;
    load(4 * i, a);
    load(4 * i + 1, b);
    load(4 * i + 2, c);
    load(4 * i + 3, d);
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
    for (int i = 0; i < 4; ++i) store(4 * i + w, out[i]);
  }
}

// LinearKernels::transpose.
template <class V>
void Transpose(const uint32_t* stage, int64_t words, uint32_t* to) {
  int64_t w = 0;
  if constexpr (V::kLanes == 16) {
    for (; w + 16 <= words; w += 16) {
      for (int64_t c = 0; c < kPackRows; c += 16) {
        const uint32_t* const from = stage + c * kStageWords + w;
        uint32_t* const square = to + w * kPackRows + c;
        TransposeSixteen<SixteenWords>(
            [&](int i, SixteenWords& row) { LoadWords(from + i * kStageWords, row); },
            [&](int i, const SixteenWords& column) {
              std::memcpy(square + i * kPackRows, &column, sizeof(column));
            });
      }
    }
  }
  for (; w < words; w += 4) {
    for (int64_t c = 0; c < kPackRows; c += 4) {
      TransposeFour(stage + c * kStageWords + w, to + w * kPackRows + c);
    }
  }
}

#ifdef __AVX512F__
// LinearKernels::transpose_rows, of numbers that fill `Lanes`. What it writes is not read soon, so
// that it goes past the caches. Rows lie apart, so that the processor does not guess what is next.
template <class Lanes, class Bits>
bool TransposeRows(const char* const* rows, const char* const* next, int64_t words, Bits exponent,
                   uint32_t* to) {
  constexpr int64_t kNearBytes = 320;
  Lanes found = {};
  for (int64_t w = 0; w < words; w += 16) {
    for (int64_t c = 0; c < kPackRows; c += 16) {
      const char* const* const some = rows + c;
      uint32_t* const square = to + w * kPackRows + c;
      TransposeSixteen<SixteenWords>(
          [&](int i, SixteenWords& row) {
            Lanes numbers;
            std::memcpy(&numbers, some[i] + w * 4, sizeof(numbers));
            found |= Lanes((numbers & exponent) == exponent);
            std::memcpy(&row, &numbers, sizeof(row));
          },
          [&](int i, const SixteenWords& column) {
            _mm512_stream_si512(reinterpret_cast<__m512i*>(square + i * kPackRows),
                                reinterpret_cast<const __m512i&>(column));
          });
      for (int i = 0; i < 16; ++i) {
        __builtin_prefetch(some[i] + w * 4 + kNearBytes);
        if (next != nullptr) __builtin_prefetch(next[c + i] + w * 4, 0, 2);
      }
    }
  }
  _mm_sfence();
  Bits all = 0;
  for (size_t lane = 0; lane < sizeof(Lanes) / sizeof(Bits); ++lane) all |= found[lane];
  return all == 0;
}
#endif

// Squares of 16 take whole lines of rows that lie anywhere; smaller ones would fetch a line often.
template <class V>
constexpr auto TransposeRowsOf() {
  using Call = decltype(LinearKernels::transpose_rows);
#ifdef __AVX512F__
  if constexpr (V::kLanes == 16) {
    return Call([](const char* const* rows, const char* const* next, int64_t words, DType type,
                   uint32_t* to) {
      constexpr uint32_t kF32 = 0x7f800000u;
      constexpr uint16_t kBf16 = 0x7f80u;
      return type == DType::kF32 ? TransposeRows<SixteenWords>(rows, next, words, kF32, to)
                                 : TransposeRows<ManyHalves>(rows, next, words, kBf16, to);
    });
  }
#endif
  return Call(nullptr);
}

}  // namespace
}  // namespace kvgauge
