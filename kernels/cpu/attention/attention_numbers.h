// SPDX-License-Identifier: Apache-2.0
// Rows times pages of codes that stand for numbers: float8, 8-bit integers, 4 bits by a table
// (codec_layout.h), as templates over a vector type; see attention_tiles.h. Codes become numbers in
// registers, right before they are multiplied. Where a scale belongs to a step, it is in the rows;
// where it belongs to a column, the sum over the steps that share it takes it.
#pragma once

#include <limits>

#include "cpu/attention/attention_kernels.h"
#include "cpu/attention/attention_lines.h"
#include "cpu/codec/codec_layout.h"
#include "cpu/isa/inline.h"

namespace kvgauge {

// Scales of bytes: what ReadScales would make of them, without going through memory.
template <class V>
[[gnu::always_inline]] inline typename V::F LoadScales(const ByteScales& bytes, int64_t at) {
  return V::Mul(V::LoadE4M3(bytes.codes + at), V::Set(bytes.unit));
}

template <class V>
void ScaleRowsByBytes(const ScaleRowsArgs& args) {
  constexpr int kMost = 4;  // vectors of scales at a time
  float* out = args.folded;
  for (int g = 0; g < args.groups; ++g, out += args.rows * args.steps) {
    for (int s = 0; s < args.steps; s += kMost * V::kLanes) {
      typename V::F scale[kMost];
#pragma GCC unroll 4
      for (int v = 0; v < kMost; ++v) {
        scale[v] = LoadScales<V>(args.bytes, g * args.scale_stride + s + v * V::kLanes);
      }
      for (int r = 0; r < args.rows; ++r) {
        const float* a = args.a + r * args.a_stride + s;
        float* to = out + r * args.steps + s;
#pragma GCC unroll 4
        for (int v = 0; v < kMost; ++v) {
          V::Store(to + v * V::kLanes, V::Mul(V::Load(a + v * V::kLanes), scale[v]));
        }
      }
    }
  }
}

template <class V>
void ScaleRows(const ScaleRowsArgs& args) {
  if constexpr (V::kLoadsE4M3) {
    if (args.scales == nullptr) return ScaleRowsByBytes<V>(args);
  }
  constexpr int kMost = 4;  // vectors of scales at a time
  float* out = args.folded;
  for (int g = 0; g < args.groups; ++g, out += args.rows * args.steps) {
    const float* scales = args.scales + g * args.scale_stride;
    int s = 0;
    for (; s + kMost * V::kLanes <= args.steps; s += kMost * V::kLanes) {
      typename V::F scale[kMost];
#pragma GCC unroll 4
      for (int v = 0; v < kMost; ++v) scale[v] = V::Load(scales + s + v * V::kLanes);
      for (int r = 0; r < args.rows; ++r) {
        const float* a = args.a + r * args.a_stride + s;
        float* to = out + r * args.steps + s;
#pragma GCC unroll 4
        for (int v = 0; v < kMost; ++v) {
          V::Store(to + v * V::kLanes, V::Mul(V::Load(a + v * V::kLanes), scale[v]));
        }
      }
    }
    for (int r = 0; r < args.rows; ++r) {
      const float* a = args.a + r * args.a_stride;
      for (int i = s; i < args.steps; ++i) out[r * args.steps + i] = a[i] * scales[i];
    }
  }
}

// How the words of a block become numbers, and meet a pair of rows' elements. A tile has kVectors
// vectors, whole blocks of them. Tables and bytes shift words by whole bytes where they load them,
// so what stands behind the codes is loaded, too: their scales.

// Float8 by way of halves, which are the numbers over kUnit: even and odd steps lie side by side in
// their word, so a sum has both in neighbouring lanes until the end.
template <class V, int kMantissa>
struct Float8Numbers {
  using F = typename V::F;
  using U = typename V::U;
  static constexpr int kField = 8, kVectors = 2, kSums = 2;
  static constexpr int kMostRows = V::kRegisters / 8;
  static constexpr float kUnit = kMantissa == 3 ? 0x1p8f : 1.0f;
  static constexpr bool kElementsFromMemory = false;
  struct Words {};
  struct Numbers {
    F first, second;  // of the first and the second half of the words
  };

  explicit Float8Numbers(const NumberProductArgs&) {}
  template <bool>
  [[gnu::always_inline]] static Words Load(const char*, int) {
    return {};
  }
  template <bool>
  [[gnu::always_inline]] Numbers Take(const char* block, const Words&, int vector) const {
    if constexpr (V::kHalvesInRegisters) {
      return {V::template FloatsOfFloat8<kMantissa>(block, vector),
              V::template FloatsOfFloat8<kMantissa>(block + 2 * V::kLanes, vector)};
    } else {
      const U words = V::LoadU(block);
      // Through the first-level cache: a shuffle more would cost what the others wait for.
      alignas(64) uint16_t halves[2 * V::kLanes];
      V::StoreU(halves, V::template HalvesOfFloat8<kMantissa>(words, vector));
      asm("" : "+m"(halves));  // else GCC keeps them in registers, and shuffles
      return {V::LoadF16(halves), V::LoadF16(halves + V::kLanes)};
    }
  }
  [[gnu::always_inline]] static void Add(const float* x, const Numbers& b, F (&sum)[kSums]) {
    const F pair = V::SetPair(x);
    sum[0] = V::Fma(pair, b.first, sum[0]);
    sum[1] = V::Fma(pair, b.second, sum[1]);
  }
  [[gnu::always_inline]] static F Join(const F (&sum)[kSums]) {
    return V::SumNeighbours(sum[0], sum[1]);
  }
};

// Rows for products with RaisedFloat8Numbers. False: some are too large for that.
template <class V>
bool RaiseRows(const RaiseRowsArgs& args) {
  using F = typename V::F;
  if (!V::TakesDenormals()) return false;
  const F factor = V::Set(0x1p112f);
  F largest = V::Set(0.0f);
  for (int r = 0; r < args.rows; ++r) {
    const float* a = args.a + r * args.a_stride;
    float* to = args.raised + int64_t{r} * args.steps;
    int s = 0;
    for (; s + V::kLanes <= args.steps; s += V::kLanes) {
      const F raised = V::Mul(V::Load(a + s), factor);
      largest = V::MaxSize(largest, raised);
      V::Store(to + s, raised);
    }
    for (; s < args.steps; ++s) {
      to[s] = a[s] * 0x1p112f;
      largest = V::MaxSize(largest, V::Set(to[s]));
    }
  }
  return V::MaxLanes(largest) <= std::numeric_limits<float>::max();
}

template <class V>
struct PairedNumbers {
  using F = typename V::F;
  using U = typename V::U;
  static constexpr int kVectors = 4, kSums = 1;
  static constexpr int kMostRows = V::kTileRows < 4 ? V::kTileRows : 4;
  static constexpr float kUnit = 1.0f;
  // Multiply-adds take them from there in the same operation.
  static constexpr bool kElementsFromMemory = true;
  struct Numbers {
    F even, odd;
  };
  [[gnu::always_inline]] static void Add(const float* x, const Numbers& b, F (&sum)[kSums]) {
    sum[0] = V::Fma(V::Set(x[0]), b.even, sum[0]);
    sum[0] = V::Fma(V::Set(x[1]), b.odd, sum[0]);
  }
  [[gnu::always_inline]] static F Join(const F (&sum)[kSums]) { return sum[0]; }
};

// Float8 with four bits of exponent, by no operation but shifts and masks: where a float's exponent
// ends, their bits are a float of 2^-120 times the number. The smallest are denormal, so products
// with raised rows are what those with halves are, at 2^-8 times the number.
template <class V>
struct RaisedFloat8Numbers {
  using F = typename V::F;
  using U = typename V::U;
  static constexpr int kField = 8, kVectors = 2, kSums = 2;
  static constexpr int kMostRows = 4;
  static constexpr float kUnit = 0x1p8f;
  static constexpr bool kElementsFromMemory = true;
  struct Words {
    U vectors[2];  // the numbers' upper halves: of even steps in low halves
  };
  struct Numbers {
    F even, odd;
  };

  explicit RaisedFloat8Numbers(const NumberProductArgs&) {}
  template <bool>
  [[gnu::always_inline]] static Words Load(const char* block, int) {
    const U words = V::LoadU(block);
    return {{V::RaisedHalves(words, 0), V::RaisedHalves(words, 1)}};
  }
  template <bool>
  [[gnu::always_inline]] static Numbers Take(const char*, const Words& words, int vector) {
    const U both = words.vectors[vector];
    return {(F)(both << 16), (F)(both & 0xffff0000u)};
  }
  [[gnu::always_inline]] static void Add(const float* x, const Numbers& b, F (&sum)[kSums]) {
    sum[0] = V::Fma(V::Set(x[0]), b.even, sum[0]);
    sum[1] = V::Fma(V::Set(x[1]), b.odd, sum[1]);
  }
  [[gnu::always_inline]] static F Join(const F (&sum)[kSums]) { return V::Add(sum[0], sum[1]); }
};

template <class V>
struct ByteNumbers : PairedNumbers<V> {
  using typename PairedNumbers<V>::F;
  using typename PairedNumbers<V>::U;
  static constexpr int kField = 8;
  struct Words {
    U even, odd;  // begin with the byte of the first vector
  };
  F offset, second_offset;
  explicit ByteNumbers(const NumberProductArgs& args)
      : offset(V::Set(0x1p23f + args.offset)), second_offset(V::Set(0x1p15f + args.offset)) {}
  template <bool kOnce>
  [[gnu::always_inline]] static Words Load(const char* block, int first) {
    Words words = {V::LoadU(block + first), V::LoadU(block + first + 2)};
    if constexpr (kOnce && V::kLanes == kCodeLanes) {
      asm("" : "+v"(words.even), "+v"(words.odd));  // else GCC loads them for every vector
    }
    return words;
  }
  template <bool>
  [[gnu::always_inline]] typename PairedNumbers<V>::Numbers Take(const char*, const Words& words,
                                                                 int v) const {
    // A tile of one vector begins with its byte.
    if (V::kLanes == kCodeLanes && v == 1) return {Second(words.even), Second(words.odd)};
    return {First(words.even), First(words.odd)};
  }
  // In the lowest bits of the fraction of 2^23 a code is 2^23 more than itself; the offset is
  // whole.
  [[gnu::always_inline]] F First(U word) const {
    return V::Sub((F)V::template PutByte<0>(U{} + 0x4b000000u, word), offset);
  }
  // So it is in the next byte of the fraction of 2^15.
  [[gnu::always_inline]] F Second(U word) const {
    return V::Sub((F)V::template PutByte<1>(U{} + 0x47000000u, word), second_offset);
  }
};

template <class V>
struct TableNumbers : PairedNumbers<V> {
  using typename PairedNumbers<V>::F;
  using typename PairedNumbers<V>::U;
  static constexpr int kField = 4;
  struct Words {};
  typename V::Table table;
  explicit TableNumbers(const NumberProductArgs& args) : table(V::LoadTable(args.table)) {}
  template <bool>
  [[gnu::always_inline]] static Words Load(const char*, int) {
    return {};
  }
  template <bool kLoads>
  [[gnu::always_inline]] typename PairedNumbers<V>::Numbers Take(const char* block, const Words&,
                                                                 int v) const {
    const int byte = kLoads ? v / 2 : 0, shift = 4 * v - 8 * byte;
    const U odd = kLoads ? V::LoadU(block + byte + 2) : V::LoadU(block) >> 16;
    return {Number(V::LoadU(block + byte) >> shift), Number(odd >> shift)};
  }
  [[gnu::always_inline]] F Number(U codes) const { return V::template Lookup<4>(table, codes); }
};

// Short tables. One shift serves both steps: the upper half of the odd one's float has its place
// where its code is.
template <class V>
struct ShortTableNumbers : PairedNumbers<V> {
  using typename PairedNumbers<V>::F;
  using typename PairedNumbers<V>::U;
  static constexpr int kField = 4;
  // As they lie, and from their second byte on: scales follow the codes of a page, so that one more
  // byte is there.
  struct Words {
    U word, behind;
  };
  typename V::Table table;
  U halves;
  explicit ShortTableNumbers(const NumberProductArgs& args)
      : table(V::LoadTable(args.table)), halves(V::UpperHalves(table)) {}
  template <bool>
  [[gnu::always_inline]] static Words Load(const char* block, int) {
    Words words = {V::LoadU(block), V::LoadU(block + 1)};
    asm("" : "+v"(words.word), "+v"(words.behind));  // else GCC loads them for every vector
    return words;
  }
  template <bool>
  [[gnu::always_inline]] typename PairedNumbers<V>::Numbers Take(const char*, const Words& words,
                                                                 int v) const {
    const U codes = (v < 2 ? words.word : words.behind) >> (v % 2 * 4);
    return {V::template Lookup<4>(table, codes), V::LookupUpper(halves, codes)};
  }
};

// Vectors of a tile, whole blocks of them: enough sums that they do not wait for one another.
template <class V, class P>
inline constexpr int kNumberVectors = V::kLanes == kCodeLanes ? P::kVectors : 1;

// kRows rows times a tile's vectors of every step. One output element is one chain over the steps
// of a group, or two that are joined, then one over the groups. kShared: all vectors meet the same
// rows, whose elements are then loaded once.
template <class V, class P, int kRows, bool kShared>
[[gnu::noinline]] void NumberTile(const NumberProductArgs& args, int row, int vector,
                                  const float* rows, const LineShare& lines) {
  using F = typename V::F;
  constexpr int kParts = kCodeLanes / V::kLanes;
  constexpr int kVectors = kNumberVectors<V, P>;
  constexpr int kSlots = 16 / P::kField;
  // Otherwise loads of rows' elements leave no time for more of codes, or shifts cost nothing.
  constexpr bool kLoads = kShared && kRows > 1;
  // Few multiply-adds leave no time to load words again, which saves operations with more.
  constexpr bool kOnce = kRows <= 2;
  const P numbers(args);
  // The first of its block; known here where tiles are whole blocks, for shifts by constants.
  const int first_vector = kVectors % kSlots == 0 ? 0 : vector % kSlots;
  ByteFeed<V> feed(lines);
  const int64_t a_stride = args.a_stride, out_stride = args.out_stride;
  const float* a[kShared ? 1 : kVectors];
  a[0] = rows + row * a_stride;
  if constexpr (!kShared) {
    int left = args.vectors_of_rows - vector % args.vectors_of_rows;
#pragma GCC unroll 4
    for (int v = 1; v < kVectors; ++v) {
      const bool same = --left > 0;
      a[v] = same ? a[v - 1] : a[v - 1] + args.rows_stride;
      if (!same) left = args.vectors_of_rows;
    }
  }
  float* const out = args.out + row * out_stride + vector * kCodeLanes;
  const float* scales = args.scales == nullptr ? nullptr : args.scales + vector * kCodeLanes;
  int64_t bytes_at = vector * kCodeLanes;
  bool adds = args.accumulate;
  // Sums over the groups stay in registers where they fit beside those of a group.
  constexpr bool kHolds = V::kRegisters >= 32 && P::kSums == 1 && kRows * kVectors * kParts <= 8;
  F held[kHolds ? kRows : 1][kVectors][kParts];
  const auto each_sum = [](auto take) KVG_INLINE_LAMBDA {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 4
      for (int p = 0; p < kParts; ++p) {
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) take(v, p, r);
      }
    }
  };
  const auto place = [&](int v, int p, int r) KVG_INLINE_LAMBDA {
    return out + r * out_stride + v * kCodeLanes + p * V::kLanes;
  };
  if constexpr (kHolds) {
    each_sum([&](int v, int p, int r) KVG_INLINE_LAMBDA {
      held[r][v][p] = adds ? V::Load(place(v, p, r)) : V::Set(0.0f);
    });
  }
  for (int first = 0; first < args.pairs; first += args.group_pairs) {
    const int last = first + args.group_pairs < args.pairs ? first + args.group_pairs : args.pairs;
    F sum[kRows][kVectors][kParts][P::kSums];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 4
        for (int p = 0; p < kParts; ++p) {
#pragma GCC unroll 2
          for (int i = 0; i < P::kSums; ++i) sum[r][v][p][i] = V::Set(0.0f);
        }
      }
    }
    const char* block =
        args.codes + (int64_t{first} * args.vectors + vector) / kSlots * kCodeBlockBytes;
    for (int pair = first; pair < last; ++pair) {
      feed.Step();
      int64_t stride = a_stride;
      // Else GCC keeps a pointer for every row of every vector, which are more than registers.
      if constexpr (!kShared) asm("" : "+r"(stride));
#pragma GCC unroll 4
      for (int p = 0; p < kParts; ++p) {
        typename P::Words words;
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          const char* of_vector = block + v / kSlots * kCodeBlockBytes + p * 4 * V::kLanes;
          if (v % kSlots == 0) words = P::template Load<kOnce>(of_vector, first_vector);
          const typename P::Numbers b =
              numbers.template Take<kLoads>(of_vector, words, first_vector + v % kSlots);
          const float* x = a[kShared ? 0 : v] + 2 * pair;
          // Else GCC loads elements into registers, once for all vectors.
          if constexpr (P::kElementsFromMemory && kShared) asm volatile("" : "+r"(x));
#pragma GCC unroll 4
          for (int r = 0; r < kRows; ++r) P::Add(x + r * stride, b, sum[r][v][p]);
        }
      }
      block += args.vectors / kSlots * kCodeBlockBytes;
    }
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 4
      for (int p = 0; p < kParts; ++p) {
        const int column = v * kCodeLanes + p * V::kLanes;
        F scale = V::Set(P::kUnit);
        if (scales != nullptr) {
          scale = V::Load(scales + column);
          if constexpr (P::kUnit != 1.0f) scale = V::Mul(scale, V::Set(P::kUnit));
        } else if constexpr (V::kLoadsE4M3 && P::kUnit == 1.0f) {
          if (args.bytes.codes != nullptr) scale = LoadScales<V>(args.bytes, bytes_at + column);
        }
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
          const F product = V::Mul(P::Join(sum[r][v][p]), scale);
          if constexpr (kHolds) {
            held[r][v][p] = adds ? V::Add(held[r][v][p], product) : product;
          } else {
            float* to = place(v, p, r);
            V::Store(to, adds ? V::Add(V::Load(to), product) : product);
          }
        }
      }
    }
    adds = true;
    if (scales != nullptr) scales += args.scale_stride;
    bytes_at += args.scale_stride;
  }
  if constexpr (kHolds) {
    each_sum([&](int v, int p, int r)
                 KVG_INLINE_LAMBDA { V::Store(place(v, p, r), held[r][v][p]); });
  }
}

template <class V, class P, int kRows>
void NumberTileOf(const NumberProductArgs& args, int row, int vector, const float* rows,
                  const LineShare& lines) {
  constexpr int kVectors = kNumberVectors<V, P>;
  args.vectors_of_rows % kVectors == 0
      ? NumberTile<V, P, kRows, true>(args, row, vector, rows, lines)
      : NumberTile<V, P, kRows, false>(args, row, vector, rows, lines);
}

template <class V, class P>
void NumberProduct(const NumberProductArgs& args) {
  constexpr int kVectors = kNumberVectors<V, P>;
  const int tiles = (args.rows + P::kMostRows - 1) / P::kMostRows;
  // Each tile of the first rows fetches its share of what comes next.
  const unsigned blocks = static_cast<unsigned>(args.vectors) / kVectors;
  const unsigned lines = static_cast<unsigned>(args.next_bytes) / 64, share = lines / blocks;
  const auto pairs = static_cast<unsigned>(args.pairs);
  const unsigned per_step = share / pairs;
  int row = 0;
  for (int t = 0; t < tiles; ++t) {
    const int left = args.rows - row, parts = tiles - t;
    const int rows = parts == 1 ? left : (left + parts - 1) / parts;
    LineShare of_tile = {};
    if (t == 0) of_tile = {args.next, share - per_step * pairs, per_step};
    const float* a = args.a;
    int of_rows = 0;  // vectors that had them
    for (int vector = 0; vector < args.vectors; vector += kVectors) {
      if (t == 0 && vector + kVectors == args.vectors) of_tile.first += lines - share * blocks;
      if (rows == 1) NumberTileOf<V, P, 1>(args, row, vector, a, of_tile);
      if (rows == 2) NumberTileOf<V, P, 2>(args, row, vector, a, of_tile);
      if constexpr (P::kMostRows > 2) {
        if (rows == 3) NumberTileOf<V, P, 3>(args, row, vector, a, of_tile);
        if (rows == 4) NumberTileOf<V, P, 4>(args, row, vector, a, of_tile);
      }
      of_tile.next += t == 0 ? share * 64 : 0;
      for (of_rows += kVectors; of_rows >= args.vectors_of_rows; of_rows -= args.vectors_of_rows) {
        a += args.rows_stride;
      }
    }
    row += rows;
  }
}

}  // namespace kvgauge
