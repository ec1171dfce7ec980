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

#include <type_traits>

#include "cpu/attention/attention_codes.h"
#include "cpu/attention/attention_kernels.h"
#include "cpu/attention/attention_lines.h"
#include "cpu/codec/codec_layout.h"
#include "cpu/isa/inline.h"

namespace kvgauge {

// Fields are summed where they lie in their word, so what is summed is at most this.
template <int kBits>
inline constexpr int kLargestField = kBits == 2   ? 3 << 6
                                     : kBits == 3 ? 7 << 6
                                                  : 15 << 4;

// kRows rows from `row` on that become integers, in steps between which other rows can take theirs:
// each waits for the largest of all lanes. kHeld: the vectors of a row, whose products stay in
// registers; 0: they are more, and go through memory.
template <class V, int kRows, int kHeld>
struct FixedRows {
  using F = typename V::F;
  using U = typename V::U;
  // Adding this rounds to an integer, which is then in the low bits: below 2^22 the sum is exact.
  static constexpr float kRounding = 0x1.8p23f;
  static constexpr uint32_t kRoundingBits = 0x4b400000u;

  const FoldArgs& args;
  const uint16_t *scales, *zeros;
  const float* in[kRows];
  int16_t* out[kRows];
  float* products[kRows];
  float *constants, *units;
  F held[kRows][kHeld > 0 ? kHeld : 1];
  F largest[4], sum[4], inverse[kRows];

  [[gnu::always_inline]] FixedRows(const FoldArgs& fold, int group, int row) : args(fold) {
    scales = args.scales + group * args.scale_stride;
    zeros = args.zeros == nullptr ? nullptr : args.zeros + group * args.scale_stride;
    constants = args.constants + group * args.rows + row;
    units = args.units + group * args.rows + row;
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      products[r] = args.products + r * Steps();
      in[r] = args.a + (row + r) * args.a_stride;
      out[r] = static_cast<int16_t*>(args.folded) + group * args.group_stride +
               (row + r) * args.folded_stride;
      largest[r] = sum[r] = V::Set(0.0f);
    }
  }
  [[gnu::always_inline]] int Steps() const { return kHeld > 0 ? kHeld * V::kLanes : args.steps; }

  [[gnu::always_inline]] void Multiply() {
    const int steps = Steps();
    const F middle = V::Set(args.middle);
#pragma GCC unroll 8
    for (int c = 0; c < steps; c += V::kLanes) {
      const F scale = V::LoadF16(scales + c);
      F zero = V::Mul(scale, middle);
      if (zeros != nullptr) zero = V::Add(zero, V::LoadF16(zeros + c));
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const F x = V::Load(in[r] + c);
        const F product = V::Mul(x, scale);
        if constexpr (kHeld > 0) {
          held[r][c / V::kLanes] = product;
        } else {
          V::Store(products[r] + c, product);
        }
        largest[r] = V::MaxSize(largest[r], product);
        sum[r] = V::Fma(x, zero, sum[r]);
      }
    }
  }

  [[gnu::always_inline]] void FindUnits() {
    float most[4];
    OfLanes(V::MaxLanes, V::MaxLanesOf2, V::MaxLanesOf4, largest, most);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      // What is too small to have an inverse is nothing. A NaN that `largest` has lost is in the
      // sum.
      const bool nothing = most[r] < 1e-30f;
      units[r] = nothing ? 0.0f : most[r] * args.unit;
      inverse[r] = V::Set(nothing ? 0.0f : args.largest / most[r]);
    }
  }

  [[gnu::always_inline]] void RoundRows() {
    const int steps = Steps();
    const F rounding = V::Set(kRounding);
    U total[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      total[r] = U{} - kRoundingBits * static_cast<uint32_t>(steps / V::kLanes);
    }
    const auto rounded_at = [&](int r, int c) KVG_INLINE_LAMBDA {
      const F product = kHeld > 0 ? held[r][c / V::kLanes] : V::Load(products[r] + c);
      return (U)V::Fma(product, inverse[r], rounding);
    };
    int c = 0;
#pragma GCC unroll 4
    for (; c + 2 * V::kLanes <= steps; c += 2 * V::kLanes) {
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const U rounded = rounded_at(r, c), next = rounded_at(r, c + V::kLanes);
        V::StoreU(out[r] + c, V::PackWords(rounded, next));
        total[r] += rounded;
        total[r] += next;
      }
    }
    for (; c < steps; c += V::kLanes) {
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const U rounded = rounded_at(r, c);
        V::StoreWords(out[r] + c, rounded);
        total[r] += rounded;
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const F away = V::Set(-args.code_middle * units[r]);
      sum[r] = V::Fma(V::ShiftedInts(total[r], 0), away, sum[r]);
    }
  }

  [[gnu::always_inline]] void PutConstants() {
    float of_rows[4];
    OfLanes(V::SumLanes, V::SumLanesOf2, V::SumLanesOf4, sum, of_rows);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) constants[r] = of_rows[r];
  }

 private:
  template <class One, class Two, class Four>
  [[gnu::always_inline]] static void OfLanes([[maybe_unused]] One one, [[maybe_unused]] Two two,
                                             [[maybe_unused]] Four four, F (&lanes)[4], float* to) {
    if constexpr (kRows == 1) {
      *to = one(lanes[0]);
    } else if constexpr (kRows == 2) {
      two(lanes[0], lanes[1], to);
    } else {
#pragma GCC unroll 4
      for (int r = kRows; r < 4; ++r) lanes[r] = lanes[0];
      four(lanes[0], lanes[1], lanes[2], lanes[3], to);
    }
  }
};

template <class V, int kRows, int kHeld>
[[gnu::always_inline]] inline void FoldFixedRows(const FoldArgs& args, int row) {
  int group = 0;
  if constexpr (kHeld > 0 && kHeld <= 4) {
    for (; group + 2 <= args.groups; group += 2) {
      FixedRows<V, kRows, kHeld> first(args, group, row), second(args, group + 1, row);
      first.Multiply();
      second.Multiply();
      first.FindUnits();
      second.FindUnits();
      first.RoundRows();
      second.RoundRows();
      first.PutConstants();
      second.PutConstants();
    }
  }
  for (; group < args.groups; ++group) {
    FixedRows<V, kRows, kHeld> rows(args, group, row);
    rows.Multiply();
    rows.FindUnits();
    rows.RoundRows();
    rows.PutConstants();
  }
}

template <class V, int kHeld>
void FoldFixedBy(const FoldArgs& args) {
  int row = 0;
  if constexpr (kHeld <= 4) {
    for (; row + 4 <= args.rows; row += 4) FoldFixedRows<V, 4, kHeld>(args, row);
    if (args.rows - row == 3) FoldFixedRows<V, 3, kHeld>(args, row);
  }
  if (args.rows - row == 2) FoldFixedRows<V, 2, kHeld>(args, row);
  if (args.rows - row == 1) FoldFixedRows<V, 1, kHeld>(args, row);
}

template <class V>
void FoldFixed(const FoldArgs& args) {
  if constexpr (V::kRegisters >= 32) {
    if (args.steps == 4 * V::kLanes) return FoldFixedBy<V, 4>(args);
    if (args.steps == 8 * V::kLanes && args.rows <= 2) return FoldFixedBy<V, 8>(args);
  }
  FoldFixedBy<V, 0>(args);
}

// The codes of 4 vectors in one word: `Field` is the v-th one's, shifted left by `Shift`.
template <class V, int kBits>
struct CodeFields {
  using U = typename V::U;
  static constexpr int kField = kBits == 3 ? 2 : kBits;
  static constexpr int Shift(int v) { return v * kField % 8; }
  // The vector whose field is still there, below v's, in `WithUnder`; or -1.
  static constexpr int Under(int v) { return kBits == 2 || v < 3 ? -1 : kBits == 3 ? 1 : 2; }
  static constexpr uint32_t Both(int field) { return static_cast<uint32_t>(field) * 0x10001u; }

  // 2 bits: the fields; 4 bits: the first two, the other two in `high`. 3 bits: whole fields of
  // vectors 0 and 2 and in `high` of 1 and 3, two bits where they lie and above them the top one.
  U low, high;

  // `words` begins with the byte of the first field: what follows a block is loaded with it, and
  // masked away. `top_bits`: where that of the first field is in `tops`.
  [[gnu::always_inline]] static CodeFields Load(const char* words, const char* tops, U top_bits) {
    U word = V::LoadU(words);
    asm("" : "+v"(word));  // else GCC loads it again for every field
    if constexpr (kBits == 3) {
      const U spread = V::SpreadBits(V::ShiftRight(V::LoadU(tops), top_bits));
      return {V::Select(Both(0x33), word, spread), V::Select(Both(0xcc), word, spread)};
    }
    return {word, kBits == 4 ? V::HighBytes(word) : word};
  }
  [[gnu::always_inline]] U Field(int v) const {
    if constexpr (kBits == 4) return (v < 2 ? low : high) & Both(15 << Shift(v));
    if constexpr (kBits == 3) return (v % 2 == 0 ? low : high) & Both(7 << Shift(v));
    return low & Both(3 << Shift(v));
  }
  [[gnu::always_inline]] U WithUnder(int v) const { return Under(v) < 0 ? Field(v) : high; }
};

// As CodedTile. kShared: one group has all four vectors.
template <class V, int kBits, int kRows, bool kShared>
[[gnu::noinline]] void FixedTile(const CodedProductArgs& args, const CodedStrip& strip, int row) {
  using F = typename V::F;
  using U = typename V::U;
  using Fields = CodeFields<V, kBits>;
  constexpr int kParts = kCodeLanes / V::kLanes;
  constexpr int kVectors = V::kTileVectors / kParts > 0 ? V::kTileVectors / kParts : 1;
  // Few sums would wait for one another: then even and odd pairs have sums of their own.
  constexpr int kChains = kRows * kVectors * kParts < 8 ? 2 : 1;
  // What lies below a field is subtracted once instead of masked away, where the sums of both are
  // at hand and of the same rows.
  constexpr bool kUnder = kVectors == 4 && kShared;
  // A word holds the fields of two pairs of steps, or of one or half of one: where fields lie in a
  // word is the same every two pairs.
  constexpr int kSlots = 16 / Fields::kField;
  int64_t words[2];  // where they are in codes
  U top_bits[2];
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const auto slot = static_cast<unsigned>(strip.first_vector + i * args.vectors);
    words[i] = slot / kSlots * kCodeBlockBytes + slot % kSlots * Fields::kField / 8;
    top_bits[i] = U{} + slot % 8;
  }
  const int64_t between = words[1] - words[0];
  const int64_t stride = args.vectors / (kSlots / 2) * kCodeBlockBytes;
  const int64_t out_stride = args.out_stride;
  const auto vectors = static_cast<unsigned>(args.vectors);
  const char* const top_codes = args.top_codes;
  ByteFeed<V> feed(row == 0 ? strip.lines : LineShare{});

#pragma GCC unroll 4
  for (int v0 = 0; v0 < 4; v0 += kVectors) {
    float* const out = args.out + row * out_stride + (strip.first_vector + v0) * kCodeLanes;
    // One group for each vector, or one for all.
    constexpr int kGroups = kShared ? 1 : kVectors;
    const int16_t* a[kGroups];
    const float *units[kGroups], *constants[kGroups];
#pragma GCC unroll 4
    for (int v = 0; v < kGroups; ++v) {
      const int group = (strip.first_vector + v0 + v) / args.group_vectors;
      a[v] = static_cast<const int16_t*>(args.a) + group * args.group_stride + row * args.a_stride;
      units[v] = args.units + group * args.rows + row;
      constants[v] = args.constants + group * args.rows + row;
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
    auto slot = static_cast<unsigned>(strip.first_vector);
    const char* at = args.codes + words[0];
    const int16_t* rows[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) rows[r] = a[0] + r * args.a_stride;
    const int64_t steps = 2 * args.pairs;
    int64_t step = 0;
    do {
      feed.Step();
      // Else GCC keeps pointers for both pairs: it has no registers for them, and bringing them
      // from those of vectors takes the place of products.
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) asm("" : "+r"(rows[r]));
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i, slot += vectors) {
#pragma GCC unroll 4
        for (int p = 0; p < kParts; ++p) {
          const int64_t part = p * 4 * V::kLanes;
          const char* tops = top_codes + slot / 16 * kCodeBlockBytes + slot / 8 % 2;
          const Fields fields = Fields::Load(at + i * between + part, tops + part, top_bits[i]);
          U codes[kVectors];
#pragma GCC unroll 4
          for (int v = 0; v < kVectors; ++v) {
            codes[v] = kUnder ? fields.WithUnder(v) : fields.Field(v0 + v);
          }
#pragma GCC unroll 4
          for (int r = 0; r < kRows; ++r) {
            U x = V::SetWords(rows[r] + step + 2 * i);
#pragma GCC unroll 4
            for (int v = 0; v < kVectors; ++v) {
              if constexpr (!kShared) x = V::SetWords(a[v] + (rows[r] - rows[0]) + step + 2 * i);
              sum[i % kChains][r][v][p] = V::DotWords(sum[i % kChains][r][v][p], x, codes[v]);
            }
          }
        }
      }
      step += 4;
      at += stride;
    } while (step < steps);
    const auto put = [&](auto adds) KVG_INLINE_LAMBDA {
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        F unit = V::Set(units[0][r]), constant = V::Set(constants[0][r]);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          if constexpr (!kShared) {
            unit = V::Set(units[v][r]);
            constant = V::Set(constants[v][r]);
          }
#pragma GCC unroll 4
          for (int p = 0; p < kParts; ++p) {
            const auto total = [&](int of) KVG_INLINE_LAMBDA {
              U both = sum[0][r][of][p];
              if constexpr (kChains == 2) both += sum[1][r][of][p];
              return both;
            };
            U own = total(v);
            if (kUnder && Fields::Under(v) >= 0) own -= total(Fields::Under(v));
            float* to = out + r * out_stride + v * kCodeLanes + p * V::kLanes;
            F result = V::Fma(V::ShiftedInts(own, Fields::Shift(v0 + v)), unit, constant);
            if constexpr (decltype(adds)::value) result = V::Add(V::Load(to), result);
            V::Store(to, result);
          }
        }
      }
    };
    args.accumulate ? put(std::true_type{}) : put(std::false_type{});
  }
}

template <class V, int kBits>
struct FixedTiles {
  template <int kRows>
  [[gnu::always_inline]] void Multiply(const CodedProductArgs& args, const CodedStrip& strip,
                                       int row) const {
    args.group_vectors % 4 == 0 ? FixedTile<V, kBits, kRows, true>(args, strip, row)
                                : FixedTile<V, kBits, kRows, false>(args, strip, row);
  }
};

template <class V, int kBits>
void FixedProduct(const CodedProductArgs& args) {
  constexpr int kParts = kCodeLanes / V::kLanes;
  constexpr int kVectors = V::kTileVectors / kParts > 0 ? V::kTileVectors / kParts : 1;
  ForCodedTiles<4>(args, args.pairs / 2 * (4 / kVectors), FixedTiles<V, kBits>());
}

}  // namespace kvgauge
