// SPDX-License-Identifier: Apache-2.0
// Select kernels over lanes.h; each select_<isa>.cpp includes this once and exports the table.
#pragma once

#include "cpu/isa/lanes.h"
#include "cpu/rows/select_kernels.h"

namespace kvgauge {
namespace {

void OrderKeys(const float* x, int64_t n, uint32_t* keys) {
  ForLanes(n, [&](int64_t i, auto count) {
    const F v = Load(x + i, count) + 0.0f;  // -0 becomes +0
    const U bits = (U)v;
    // All bits of a negative value turn over, only the sign of a positive one.
    const U key = bits ^ ((U)((I)bits >> 31) | 0x80000000u);
    Store(reinterpret_cast<float*>(keys + i), (F)(v == v ? key : U{}), count);
  });
}

void Take(const uint32_t* keys, int64_t n, uint32_t threshold, int64_t ties, int32_t* out) {
  int64_t i = 0;
#if defined(__AVX512F__)
  const __m512i bound = _mm512_set1_epi32(static_cast<int>(threshold));
  __m512i lane = (__m512i)(I{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15});
  for (; i + kLanes <= n; i += kLanes, lane = (__m512i)((I)lane + kLanes)) {
    const __m512i key = _mm512_loadu_si512(keys + i);
    const __mmask16 above = _mm512_cmpgt_epu32_mask(key, bound);
    __mmask16 equal = _mm512_cmpeq_epu32_mask(key, bound);
    if ((above | equal) == 0) continue;
    if (equal != 0) {
      const int found = __builtin_popcount(equal);
      if (found > ties) {
        equal = static_cast<__mmask16>(_pdep_u32((1u << ties) - 1, equal));
        ties = 0;
      } else {
        ties -= found;
      }
    }
    const __mmask16 taken = above | equal;
    const int count = __builtin_popcount(taken);
    // Compressing in a register and storing part of it: the storing form is slow on some.
    _mm512_mask_storeu_epi32(out, static_cast<__mmask16>((1u << count) - 1),
                             _mm512_maskz_compress_epi32(taken, lane));
    out += count;
  }
#else
  for (; i + kLanes <= n; i += kLanes) {
    const U key = LoadAs<U>(keys + i);
    if (!AnyLane((I)(key >= threshold))) continue;
    int32_t taken[kLanes];
    int count = 0;
    for (int64_t j = i; j < i + kLanes; ++j) {
      const bool tie = keys[j] == threshold && ties > 0;
      ties -= tie;
      taken[count] = static_cast<int32_t>(j);
      count += keys[j] > threshold || tie;
    }
    for (int k = 0; k < count; ++k) out[k] = taken[k];
    out += count;
  }
#endif
  for (; i < n; ++i) {
    const bool tie = keys[i] == threshold && ties > 0;
    ties -= tie;
    if (keys[i] > threshold || tie) *out++ = static_cast<int32_t>(i);
  }
}

void AddScaled(const float* x, float weight, int64_t n, float* out) {
  ForLanes(n, [&](int64_t i, auto count) {
    Store(out + i, Fma(Load(x + i, count), Splat(weight), Load(out + i, count)), count);
  });
}

void PoolRow(const float* padded, int64_t n, int64_t kernel, Pooling mode, float* out) {
  if (mode == Pooling::kAverage) {
    const float size = static_cast<float>(kernel);
    ForLanes(n, [&](int64_t i, auto count) {
      F sum = Load(padded + i, count);
      for (int64_t k = 1; k < kernel; ++k) sum += Load(padded + i + k, count);
      Store(out + i, sum / size, count);
    });
    return;
  }
  ForLanes(n, [&](int64_t i, auto count) {
    F top = Load(padded + i, count);
    for (int64_t k = 1; k < kernel; ++k) {
      const F v = Load(padded + i + k, count);
      top = ((v > top) | (v != v)) ? v : top;  // a NaN gets in and stays
    }
    Store(out + i, top, count);
  });
}

constexpr SelectKernels kSelectKernels = {
    .order_keys = OrderKeys,
    .take = Take,
    .add_scaled = AddScaled,
    .pool = PoolRow,
};

}  // namespace
}  // namespace kvgauge
