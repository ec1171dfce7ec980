// SPDX-License-Identifier: Apache-2.0
// Device functions: pages of affine codes as operands of tensor cores, for bf16 caches. Codes are
// small integers and halves, which bf16 holds exactly; scales are folded into the rows that meet
// them (rounded to bf16, as attention.h allows), and what codes are counted from is summed in f32.
//
// Keys whose groups run over entries: a warp's sixteenth of a page has one scale for each dim.
// Values whose groups run over dims: 8 dims have one scale for each entry.
#pragma once

#include "cuda/attention_values.h"

namespace kvgauge::cuda {

KVG_DEVICE bool HasPlainCodes(const CodecView& c) {
  return c.kind == KvCodecKind::kAffine && (c.bits == 2 || c.bits == 4 || c.bits == 8) &&
         c.rank == 0 && !c.has_outliers && c.dim == c.width;
}
template <DType type>
KVG_DEVICE bool KeysAsCodes(const SegmentView& segment, int page) {
  if (type != DType::kBF16 || segment.numbers) return false;
  if ((page + 1) * kPageEntries > segment.keys.coded_entries) return false;
  const CodecView& c = *segment.keys.codec;
  return HasPlainCodes(c) && !c.by_token && c.dim % 64 == 0;
}
template <DType type>
KVG_DEVICE bool ValuesAsCodes(const SegmentView& segment, int page) {
  if (type != DType::kBF16 || segment.values_in_keys) return false;
  if ((page + 1) * kPageEntries > segment.values.coded_entries) return false;
  const CodecView& c = *segment.values.codec;
  return HasPlainCodes(c) && c.by_token && c.group % 8 == 0;
}

// What codes are counted from: the middle of their range.
KVG_DEVICE float MiddleOf(const CodecView& c) {
  if (c.symmetric || c.bits == 8) return static_cast<float>(1 << (c.bits - 1));
  return 0.5f * static_cast<float>((1 << c.bits) - 1);
}
// scale * code + zero = scale * (code - middle) + Offset.
KVG_DEVICE float OffsetOf(const CodecView& c, float scale, float zero) {
  return c.symmetric ? 0.0f : Fma(scale, MiddleOf(c), zero);
}

// a + b of two bf16 pairs, exact for what is added here.
KVG_DEVICE uint32_t AddBf16x2(uint32_t a, uint32_t b) {
#ifdef __CUDACC__
  uint32_t sum;
  constexpr uint32_t kOnes = 0x3f803f80u;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(kOnes), "r"(b));
  return sum;
#else
  const auto half = [](uint32_t x) { return Bf16ToFloat(static_cast<uint16_t>(x)); };
  return PackBf16x2(half(a) + half(b), half(a >> 16) + half(b >> 16));
#endif
}

// A string of 8 codes as four pairs of code - middle in bf16. `bits` is the same for all lanes.
KVG_DEVICE void UnpackCodes(int bits, uint32_t low, uint32_t high, float middle,
                            uint32_t (&pairs)[4]) {
  if (bits == 8) {
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      pairs[p] = PackBf16x2(static_cast<float>(low >> 8 * p & 255u) - middle,
                            static_cast<float>(high >> 8 * p & 255u) - middle);
    }
    return;
  }
  // 2^bits + code: the code below an exponent.
  const int room = 7 - bits;
  const uint32_t codes = bits == 4 ? low : low | low << 8;
  const uint32_t mask = ((1u << bits) - 1u) * 0x00010001u;
  const uint32_t exponent = static_cast<uint32_t>(127 + bits) << 7;
  const uint32_t base = exponent | exponent << 16;
  const float less = -(static_cast<float>(1 << bits) + middle);
  const uint32_t subtract = PackBf16x2(less, less);
#pragma unroll
  for (int p = 0; p < 4; ++p) {
    pairs[p] = AddBf16x2((codes >> bits * p & mask) << room | base, subtract);
  }
}

// Four strings that follow each other.
struct FourStrings {
  uint32_t low[4], high[4];
};
KVG_DEVICE FourStrings LoadStrings(const uint8_t* at, int bits) {
  if (bits == 2) {
    const Uint2 w = *reinterpret_cast<const Uint2*>(at);
    return {{w.x & 0xffffu, w.x >> 16, w.y & 0xffffu, w.y >> 16}, {}};
  }
  const Uint4 w = *reinterpret_cast<const Uint4*>(at);
  if (bits == 4) return {{w.x, w.y, w.z, w.w}, {}};
  const Uint4 v = *reinterpret_cast<const Uint4*>(at + 16);
  return {{w.x, w.z, v.x, v.z}, {w.y, w.w, v.y, v.w}};
}

KVG_DEVICE float LowBf16(uint32_t pair) { return FloatOf(pair << 16); }
KVG_DEVICE float HighBf16(uint32_t pair) { return FloatOf(pair & 0xffff0000u); }

// Scales and offsets of a page of keys: [group][dim] of {scale, offset}. Reached by all threads.
KVG_DEVICE void ExpandKeyScales(const CodecView& c, const uint8_t* codes, Float2* table) {
  for (int i = Thread(); i < c.scales; i += BlockThreads()) {
    const CodeRangeOf range = StoredRange(c, codes, i);
    table[i] = {range.scale, OffsetOf(c, range.scale, range.zero)};
  }
}

// Products of this warp's rows with its sixteenth of a page of codes.
template <int tiles>
KVG_DEVICE void MultiplyKeyCodes(const CodecView& c, const uint8_t* codes, const Float2* table,
                                 const Uint4* queries, int sixteenth, int first_tile, int tile_step,
                                 float (&scores)[tiles][2][4]) {
  const int chunks = c.width / 16;
  const float middle = MiddleOf(c);
  const uint8_t* const mine = codes + (sixteenth * kWarp + Lane()) * chunks * c.bits;
  const Float2* const scales = table + sixteenth * 16 / c.group * c.dim + Lane() % 4 * 2;
  float offsets[tiles][2] = {};
  for (int c0 = 0; c0 < chunks; c0 += 4) {
    const FourStrings strings = LoadStrings(mine + c0 * c.bits, c.bits);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      uint32_t pairs[4];
      UnpackCodes(c.bits, strings.low[k], strings.high[k], middle, pairs);
      // Holds dims 2t, 2t + 1 and 8 more: scale, offset, scale, offset.
      const auto* const at = reinterpret_cast<const Float4*>(scales + (c0 + k) * 16);
      const Float4 near = at[0], far = at[4];
#pragma unroll
      for (int m = 0; m < tiles; ++m) {
        if (m % tile_step != first_tile) continue;
        const Uint4 q = queries[(m * chunks + c0 + k) * kWarp + Lane()];
        const auto fold = [&](uint32_t pair, const Float4& by, float& offset) {
          const float a = LowBf16(pair), b = HighBf16(pair);
          offset = Fma(b, by.w, Fma(a, by.y, offset));
          return PackBf16x2(a * by.x, b * by.z);
        };
        const Uint4 folded = {fold(q.x, near, offsets[m][0]), fold(q.y, near, offsets[m][1]),
                              fold(q.z, far, offsets[m][0]), fold(q.w, far, offsets[m][1])};
        MultiplyAdd<DType::kBF16>(scores[m][0], folded, pairs[0], pairs[1]);
        MultiplyAdd<DType::kBF16>(scores[m][1], folded, pairs[2], pairs[3]);
      }
    }
  }
#pragma unroll
  for (int m = 0; m < tiles; ++m) {
    if (m % tile_step != first_tile) continue;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float offset = QuadSum(offsets[m][h]);
#pragma unroll
      for (int j = 2 * h; j < 2 * h + 2; ++j) {
        scores[m][0][j] = scores[m][0][j] + offset;
        scores[m][1][j] = scores[m][1][j] + offset;
      }
    }
  }
}

// The weights of a lane, as its warp's left operands will need them: Float4 [8 entries] of two of
// row g and two of row g + 8. weights: [tile][sixteenth][lane][2].
KVG_DEVICE void StoreLaneWeights(const float (&w)[2][4], Float4* weights) {
  weights[0] = {w[0][0], w[0][1], w[0][2], w[0][3]};
  weights[1] = {w[1][0], w[1][1], w[1][2], w[1][3]};
}

// sums of `count` blocks of 8 dims from block `first` on += weights times a page of codes.
template <int tiles, int blocks>
KVG_DEVICE void AddValueCodes(const CodecView& c, const uint8_t* codes, const Float4* weights,
                              int first, int count, float (&sums)[tiles][blocks][4]) {
  const float middle = MiddleOf(c);
  const auto* const scales = reinterpret_cast<const uint16_t*>(codes + CodeBytes(c));
  Uint4 folded[tiles][kSixteenths];
  float offsets[tiles][2] = {};
  int group = -1;
  FourStrings strings;
#pragma unroll
  for (int b = 0; b < blocks; ++b) {
    if (b >= count) continue;
    const int dim = (first + b) * 8;
    if (dim / c.group != group) {  // weights meet other scales
      group = dim / c.group;
#pragma unroll
      for (int m = 0; m < tiles; ++m) offsets[m][0] = offsets[m][1] = 0.0f;
#pragma unroll
      for (int s = 0; s < kSixteenths; ++s) {
        const int index = group * kPageEntries + s * 16 + Lane() % 4 * 2;
        float scale[4], offset[4];  // of entries 2t, 2t + 1, 2t + 8, 2t + 9
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int at = index + i / 2 * 8 + i % 2;
          scale[i] = HalfToFloat(scales[at]);
          const float zero = c.has_zeros ? HalfToFloat(scales[c.scales + at]) : 0.0f;
          offset[i] = OffsetOf(c, scale[i], zero);
        }
#pragma unroll
        for (int m = 0; m < tiles; ++m) {
          const Float4* const w = weights + ((m * kSixteenths + s) * kWarp + Lane()) * 2;
          const Float4 near = w[0], far = w[1];
          folded[m][s] = {PackBf16x2(near.x * scale[0], near.y * scale[1]),
                          PackBf16x2(near.z * scale[0], near.w * scale[1]),
                          PackBf16x2(far.x * scale[2], far.y * scale[3]),
                          PackBf16x2(far.z * scale[2], far.w * scale[3])};
          offsets[m][0] = Fma(
              far.y, offset[3],
              Fma(far.x, offset[2], Fma(near.y, offset[1], Fma(near.x, offset[0], offsets[m][0]))));
          offsets[m][1] = Fma(
              far.w, offset[3],
              Fma(far.z, offset[2], Fma(near.w, offset[1], Fma(near.z, offset[0], offsets[m][1]))));
        }
      }
#pragma unroll
      for (int m = 0; m < tiles; ++m) {
        offsets[m][0] = QuadSum(offsets[m][0]);
        offsets[m][1] = QuadSum(offsets[m][1]);
      }
    }
    if (b % 2 == 0) {  // `first` is even: 16 dims lie together
      strings = LoadStrings(codes + ((first + b) / 2 * kWarp + Lane()) * 4 * c.bits, c.bits);
    }
    uint32_t near[4], far[4];  // of entries 0 .. 31, 32 .. 63
    UnpackCodes(c.bits, strings.low[b % 2 * 2], strings.high[b % 2 * 2], middle, near);
    UnpackCodes(c.bits, strings.low[b % 2 * 2 + 1], strings.high[b % 2 * 2 + 1], middle, far);
#pragma unroll
    for (int m = 0; m < tiles; ++m) {
      float(&sum)[4] = sums[m][b];
      MultiplyAdd<DType::kBF16>(sum, folded[m][0], near[0], near[1]);
      MultiplyAdd<DType::kBF16>(sum, folded[m][1], near[2], near[3]);
      MultiplyAdd<DType::kBF16>(sum, folded[m][2], far[0], far[1]);
      MultiplyAdd<DType::kBF16>(sum, folded[m][3], far[2], far[3]);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        sum[2 * h] = sum[2 * h] + offsets[m][h];
        sum[2 * h + 1] = sum[2 * h + 1] + offsets[m][h];
      }
    }
  }
}

// Whether a page's keys are expanded to f32, and so met by expanded queries.
template <DType type>
KVG_DEVICE bool KeysAsNumbers(const SegmentView& segment, int page) {
  return !KeysAsTheyLie<type>(segment, page) && !KeysAsCodes<type>(segment, page);
}

// Finished scores of a page. Reached by all threads of a block; scores of tiles that other warps
// take are not written. `room`: 2 * kChunk * 64 floats for expanded keys. plain: all keys are
// 16-bit pages that are multiplied as they lie.
template <DType type, int tiles, bool plain = false>
KVG_DEVICE void ScorePage(const AttendCall& call, const SegmentView& segment, const RowTile& tile,
                          bool all_seen, int page, const Uint4* queries16, const float* queries32,
                          float* room, float (&scores)[tiles][2][4]) {
  const int sixteenth = WarpIndex() % kSixteenths, first_tile = WarpIndex() / kSixteenths;
  const int tile_step = BlockThreads() / kWarp / kSixteenths;
#pragma unroll
  for (int m = 0; m < tiles; ++m) {
#pragma unroll
    for (int i = 0; i < 4; ++i) scores[m][0][i] = scores[m][1][i] = 0.0f;
  }
  bool done = false;
  if constexpr (type != DType::kF32) {
    done = plain || KeysAsTheyLie<type>(segment, page);
    if (done && first_tile < tiles) {
      MultiplyKeys<type>(segment.keys.pages[page], (call.key_dim + 15) / 16, queries16, sixteenth,
                         first_tile, tile_step, scores);
    }
  }
  if constexpr (type == DType::kBF16 && !plain) {
    if (KeysAsCodes<type>(segment, page)) {
      done = true;
      auto* const scales = reinterpret_cast<Float2*>(room);
      const uint8_t* const codes = segment.keys.coded[page].codes;
      SyncBlock();  // who read `room` before is done
      ExpandKeyScales(*segment.keys.codec, codes, scales);
      SyncBlock();
      if (first_tile < tiles) {
        MultiplyKeyCodes(*segment.keys.codec, codes, scales, queries16, sixteenth, first_tile,
                         tile_step, scores);
      }
    }
  }
  if constexpr (!plain) {
    const int dims = done ? 0 : ExpandedDims(call, segment);
    for (int begin = 0; begin < dims; begin += kChunk) {
      const int count = Least(kChunk, dims - begin);
      SyncBlock();  // who read `room` before is done
      ExpandKeys(call, segment, page, begin, count, room, room + kChunk * kPageEntries);
      SyncBlock();
      if (first_tile < tiles) {
        MultiplyNumbers(room, count, queries32 + begin * tiles * 16, sixteenth, first_tile,
                        tile_step, scores);
      }
    }
  }
  FinishScores(call, segment, tile, 0, all_seen, page, sixteenth, scores);
}

}  // namespace kvgauge::cuda
