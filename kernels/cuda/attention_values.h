// SPDX-License-Identifier: Apache-2.0
// Device functions: weights of a page, and the values they weigh.
#pragma once

#include "cuda/attention_tile.h"

namespace kvgauge::cuda {

// Weights of an f16 cache go in two halves, the second of which has what the first rounds away;
// those of a bf16 cache are rounded.
template <DType type>
inline constexpr int kWeightParts = type == DType::kF16 ? 2 : 1;

// Left operands of 16 weights, from four of each of rows g and g + 8: [part].
template <DType type>
KVG_DEVICE void PackWeights(const float (&w)[2][4], Uint4 (&packed)[kWeightParts<type>]) {
  packed[0] = {Pack<type>(w[0][0], w[0][1]), Pack<type>(w[0][2], w[0][3]),
               Pack<type>(w[1][0], w[1][1]), Pack<type>(w[1][2], w[1][3])};
  if constexpr (type == DType::kF16) {
    const auto rest = [](float a, float b) {
      return PackHalf2(a - HalfToFloat(FloatToHalf(a)), b - HalfToFloat(FloatToHalf(b)));
    };
    packed[1] = {rest(w[0][0], w[0][1]), rest(w[0][2], w[0][3]), rest(w[1][0], w[1][1]),
                 rest(w[1][2], w[1][3])};
  }
}

KVG_DEVICE void ScaleByValues(const SegmentView& segment, int page, int sixteenth,
                              float (&w)[2][4]) {
  if (segment.value_scale == nullptr) return;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int entry = page * kPageEntries + sixteenth * 16 + n * 8 + Lane() % 4 * 2 + j;
      const float scale = entry < segment.length ? segment.value_scale[entry] : 0.0f;
      w[n][j] = w[n][j] * scale;
      w[n][2 + j] = w[n][2 + j] * scale;
    }
  }
}

// What a lane multiplies of 8 dims of a page of values: right operands of four steps of 16 entries.
struct ValueBlock {
  uint32_t pairs[4][2];
};
KVG_DEVICE ValueBlock LoadValues(const void* page, int block) {
  const Uint4* const at = static_cast<const Uint4*>(page) + block * 2 * kWarp + Lane();
  const Uint4 a = at[0], b = at[kWarp];
  return {{{a.x, a.y}, {a.z, a.w}, {b.x, b.y}, {b.z, b.w}}};
}
// For values that are the first dims of 16-bit keys.
KVG_DEVICE void LoadValuesFromKeys(const void* page, int chunks, int chunk, ValueBlock& near,
                                   ValueBlock& far) {
  const Uint4* const at = static_cast<const Uint4*>(page) + chunk * kWarp + Lane();
#pragma unroll
  for (int s = 0; s < kSixteenths; ++s) {
    const Uint4 keys = at[s * chunks * kWarp];
    near.pairs[s][0] = Transposed(keys.x);
    near.pairs[s][1] = Transposed(keys.z);
    far.pairs[s][0] = Transposed(keys.y);
    far.pairs[s][1] = Transposed(keys.w);
  }
}

// sums += weights of one tile times 8 dims. weights: [sixteenth][part], `step` apart.
template <DType type>
KVG_DEVICE void AddValues(const Uint4* weights, int step, const ValueBlock& values,
                          float (&sums)[4]) {
#pragma unroll
  for (int s = 0; s < kSixteenths; ++s) {
#pragma unroll
    for (int part = 0; part < kWeightParts<type>; ++part) {
      MultiplyAdd<type>(sums, weights[(s * kWeightParts<type> + part) * step], values.pairs[s][0],
                        values.pairs[s][1]);
    }
  }
}

template <DType type>
KVG_DEVICE bool ValuesAsTheyLie(const SegmentView& segment, int page) {
  const SideView& side = segment.values_in_keys ? segment.keys : segment.values;
  return type != DType::kF32 && page * kPageEntries >= side.coded_entries;
}

inline constexpr int kValueEntries = 16;  // of values that are expanded at a time

// Entries [begin, begin + 16) of a page as f32 [16][width]; dims from `dim` on are 0.
KVG_DEVICE_CALL void ExpandValues(const SegmentView& segment, int page, int begin, int dim,
                                  int width, float* values) {
  for (int i = Thread(); i < kValueEntries * width; i += BlockThreads()) {
    const int d = i % width;
    values[i] =
        d < dim ? NumberOf(segment, segment.values_in_keys, page, begin + i / width, d) : 0.0f;
  }
}

}  // namespace kvgauge::cuda
