// SPDX-License-Identifier: Apache-2.0
// Rows in fixed point times pages of 2, 3 or 4 bit codes (codec_layout.h), as templates over a
// vector type; see attention_tiles.h. Rows of f16 and bf16 caches go this way, where there are
// instructions that multiply words.
//
// A row times its scales becomes 16-bit integers in units of its largest number. Codes are integers
// as they lie: a mask takes a field out of its word, times a power of two, which leaves the sum by
// a shift. Integer sums are exact, so their order is free, and a row's bits depend on the row
// alone.
//
// Codes count from 0 here, not from the middle of their range as rounding is to see them: the
// constant takes away what the rounded row times the middle is.
#pragma once

#include "cpu/attention/attention_kernels.h"
#include "cpu/attention/attention_lines.h"
#include "cpu/codec/codec_layout.h"
#include "cpu/isa/inline.h"

namespace kvgauge {

// Fields of a byte are masked where they stand, so what is summed is at most this.
template <int kBits>
inline constexpr int kLargestField = kBits == 2   ? 3 << 6
                                     : kBits == 3 ? 7 << 6
                                                  : 15 << 4;

template <class V, int kRows>
[[gnu::always_inline]] inline void FoldFixedRows(const FoldArgs& args, int row) {
  using F = typename V::F;
  using U = typename V::U;
  // Adding this rounds to an integer, which is then in the low bits: below 2^22 the sum is exact.
  constexpr float kRounding = 0x1.8p23f;
  constexpr uint32_t kRoundingBits = 0x4b400000u;
  const uint16_t *scales = args.scales, *zeros = args.zeros;
  const int steps = args.steps;
  const float* in[kRows];
  int16_t* out[kRows];
  F largest[4], sum[4];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    in[r] = args.a + (row + r) * args.a_stride;
    out[r] = static_cast<int16_t*>(args.folded) + (row + r) * args.folded_stride;
    largest[r] = sum[r] = V::Set(0.0f);
  }
  const F middle = V::Set(args.middle);
  for (int c = 0; c < steps; c += V::kLanes) {
    const F scale = V::LoadF16(scales + c);
    F zero = V::Mul(scale, middle);
    if (zeros != nullptr) zero = V::Add(zero, V::LoadF16(zeros + c));
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const F x = V::Load(in[r] + c);
      largest[r] = V::MaxSize(largest[r], V::Mul(x, scale));
      sum[r] = V::Fma(x, zero, sum[r]);
    }
  }
  const auto of_lanes = []([[maybe_unused]] auto one, [[maybe_unused]] auto four, F(&lanes)[4],
                           float* to) {
    if constexpr (kRows == 1) {
      *to = one(lanes[0]);
    } else {
#pragma GCC unroll 4
      for (int r = kRows; r < 4; ++r) lanes[r] = lanes[0];
      four(lanes[0], lanes[1], lanes[2], lanes[3], to);
    }
  };
  float most[4];
  of_lanes(V::MaxLanes, V::MaxLanesOf4, largest, most);
  F inverse[kRows];
  U total[kRows];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    // What is too small to have an inverse is nothing. A NaN that `largest` has lost is in the sum.
    const bool nothing = most[r] < 1e-30f;
    args.units[row + r] = nothing ? 0.0f : most[r] * args.unit;
    inverse[r] = V::Set(nothing ? 0.0f : args.largest / most[r]);
    total[r] = U{} - kRoundingBits * static_cast<uint32_t>(steps / V::kLanes);
  }
  const F rounding = V::Set(kRounding);
  const auto round = [&](int r, int c, F scale) KVG_INLINE_LAMBDA {
    const F x = V::Mul(V::Load(in[r] + c), scale);
    const U rounded = (U)V::Fma(x, inverse[r], rounding);
    total[r] += rounded;
    return rounded;
  };
  int c = 0;
  for (; c + 2 * V::kLanes <= steps; c += 2 * V::kLanes) {
    const F scale = V::LoadF16(scales + c), next_scale = V::LoadF16(scales + c + V::kLanes);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const U rounded = round(r, c, scale);
      V::StoreWords(out[r] + c, rounded, round(r, c + V::kLanes, next_scale));
    }
  }
  for (; c < steps; c += V::kLanes) {
    const F scale = V::LoadF16(scales + c);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) V::StoreWords(out[r] + c, round(r, c, scale));
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const F away = V::Set(-args.code_middle * args.units[row + r]);
    sum[r] = V::Fma(V::ShiftedInts(total[r], 0), away, sum[r]);
  }
  float constants[4];
  of_lanes(V::SumLanes, V::SumLanesOf4, sum, constants);
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) args.constants[row + r] = constants[r];
}

template <class V>
void FoldFixed(const FoldArgs& args) {
  int row = 0;
  for (; row + 4 <= args.rows; row += 4) FoldFixedRows<V, 4>(args, row);
  if (args.rows - row == 3) FoldFixedRows<V, 3>(args, row);
  if (args.rows - row == 2) FoldFixedRows<V, 2>(args, row);
  if (args.rows - row == 1) FoldFixedRows<V, 1>(args, row);
}

// The codes of 4 vectors in one word: `Field` is the v-th one's, shifted left by `Shift`.
template <class V, int kBits>
struct CodeFields {
  using U = typename V::U;
  static constexpr int kField = kBits == 3 ? 2 : kBits;
  static constexpr int Shift(int v) { return kBits == 3 ? v / 2 * 4 : v * kField % 8; }
  static constexpr uint32_t Both(int field) { return static_cast<uint32_t>(field) * 0x10001u; }

  // 2 bits: the fields; 4 bits: the first two. 3 bits: whole fields of vectors 0 and 2.
  U low;
  U high;  // the other two

  // `words` begins with the byte of the first field: what follows a block is loaded with it, and
  // masked away. `top_bits`: where that of the first field is in `tops`.
  [[gnu::always_inline]] static CodeFields Load(const char* words, const char* tops, U top_bits) {
    CodeFields fields;
    fields.low = fields.high = V::LoadU(words);
    if constexpr (kBits == 4) fields.high = fields.low >> 8;
    if constexpr (kBits == 3) {
      // Four top bits say where two of them go: to bits 2 and 6.
      const U four = (V::LoadU(tops) >> top_bits) & Both(15);
      const U of_even =
          V::ShuffleBytes(V::Repeat4(0x04000400u, 0x44404440u, 0x04000400u, 0x44404440u), four);
      const U of_odd =
          V::ShuffleBytes(V::Repeat4(0x04040000u, 0x04040000u, 0x44444040u, 0x44444040u), four);
      fields.high = V::Select(Both(0x33), fields.low >> 2, of_odd);
      fields.low = V::Select(Both(0x33), fields.low, of_even);
    }
    return fields;
  }
  [[gnu::always_inline]] U Field(int v) const {
    if constexpr (kBits == 4) return (v < 2 ? low : high) & Both(15 << Shift(v));
    if constexpr (kBits == 3) return (v % 2 == 0 ? low : high) & Both(7 << Shift(v));
    return low & Both(3 << Shift(v));
  }
};

// As CodedTile. kShared: one group has all four vectors.
template <class V, int kBits, int kRows, bool kShared>
[[gnu::noinline]] void FixedTile(const CodedProductArgs& args, int row) {
  using F = typename V::F;
  using U = typename V::U;
  using Fields = CodeFields<V, kBits>;
  constexpr int kParts = kCodeLanes / V::kLanes;
  constexpr int kVectors = V::kTileVectors / kParts > 0 ? V::kTileVectors / kParts : 1;
  // Few sums would wait for one another: then even and odd pairs have sums of their own.
  constexpr int kChains = kRows * kVectors * kParts < 8 ? 2 : 1;
  // A word holds the fields of two pairs of steps, or of one or half of one: where fields lie in a
  // word is the same every two pairs.
  constexpr int kSlots = 16 / Fields::kField;
  const char* words[2];
  U top_bits[2];
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const int slot = args.first_vector + i * args.vectors;
    words[i] = args.codes + slot / kSlots * kCodeBlockBytes + slot % kSlots * Fields::kField / 8;
    top_bits[i] = U{} + static_cast<uint32_t>(slot % 8);
  }
  const int64_t stride = 2 * args.vectors / kSlots * kCodeBlockBytes;
  ByteFeed<V> feed(args.next, row == 0 ? args.next_bytes : 0, args.pairs / 2 * (4 / kVectors));

#pragma GCC unroll 4
  for (int v0 = 0; v0 < 4; v0 += kVectors) {
    float* out = args.out + row * args.out_stride + v0 * kCodeLanes;
    const int16_t* a[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      a[v] = static_cast<const int16_t*>(args.a[v0 + v]) + row * args.a_stride;
    }
    U sum[kChains][kRows][kVectors][kParts];
#pragma GCC unroll 2
    for (int chain = 0; chain < kChains; ++chain) {
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 4
          for (int p = 0; p < kParts; ++p) sum[chain][r][v][p] = U{};
        }
      }
    }
    auto slot = static_cast<unsigned>(args.first_vector);
    int64_t at = 0;  // of words
    int pair = 0;
    do {
      feed.Step();
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i, slot += static_cast<unsigned>(args.vectors)) {
#pragma GCC unroll 4
        for (int p = 0; p < kParts; ++p) {
          const int64_t part = p * 4 * V::kLanes;
          const char* tops = args.top_codes + slot / 16 * kCodeBlockBytes + slot / 8 % 2;
          const Fields fields = Fields::Load(words[i] + at + part, tops + part, top_bits[i]);
          U codes[kVectors];
#pragma GCC unroll 4
          for (int v = 0; v < kVectors; ++v) codes[v] = fields.Field(v0 + v);
#pragma GCC unroll 4
          for (int r = 0; r < kRows; ++r) {
            const int64_t step = r * args.a_stride + 2 * (pair + i);
            U x = V::SetWords(a[0] + step);
#pragma GCC unroll 4
            for (int v = 0; v < kVectors; ++v) {
              if constexpr (!kShared) x = V::SetWords(a[v] + step);
              sum[i % kChains][r][v][p] = V::DotWords(sum[i % kChains][r][v][p], x, codes[v]);
            }
          }
        }
      }
      pair += 2;
      at += stride;
    } while (pair < args.pairs);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const F unit = V::Set(args.units[v0 + v][row + r]);
        const F constant = V::Set(args.constants[v0 + v][row + r]);
#pragma GCC unroll 4
        for (int p = 0; p < kParts; ++p) {
          U total = sum[0][r][v][p];
          if constexpr (kChains == 2) total += sum[1][r][v][p];
          float* to = out + r * args.out_stride + v * kCodeLanes + p * V::kLanes;
          F result = V::Fma(V::ShiftedInts(total, Fields::Shift(v0 + v)), unit, constant);
          if (args.accumulate) result = V::Add(V::Load(to), result);
          V::Store(to, result);
        }
      }
    }
  }
}

template <class V, int kBits, int kRows>
void FixedTileOf(const CodedProductArgs& args, int row) {
  const bool shared = args.a[0] == args.a[3];
  shared ? FixedTile<V, kBits, kRows, true>(args, row)
         : FixedTile<V, kBits, kRows, false>(args, row);
}

template <class V, int kBits>
void FixedProduct(const CodedProductArgs& args) {
  const int tiles = (args.rows + 3) / 4;
  int row = 0;
  for (int t = 0; t < tiles; ++t) {
    const int rows = (args.rows - row + tiles - t - 1) / (tiles - t);
    if (rows == 1) FixedTileOf<V, kBits, 1>(args, row);
    if (rows == 2) FixedTileOf<V, kBits, 2>(args, row);
    if (rows == 3) FixedTileOf<V, kBits, 3>(args, row);
    if (rows == 4) FixedTileOf<V, kBits, 4>(args, row);
    row += rows;
  }
}

}  // namespace kvgauge
