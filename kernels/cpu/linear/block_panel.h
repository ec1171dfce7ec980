// SPDX-License-Identifier: Apache-2.0
// Products with panels in blocks of few bits (block_layout.h): a part of the panel is brought into
// the form of panel.h, in memory that stays in the first or second cache, and multiplied by the
// same tiles as a panel of floats. So the bits are those of a product with the dequantised weights,
// and every promise about them holds.
//
// Codes become floats without conversions: those of b bits are put into the highest bits of the
// fraction of 2^b, which gives 2^b + code. Halves have 11 bits and integer scales at most 8, so
// that products of scales and codes are exact, and one fused operation gives the number of the
// reference dequantisation.
//
// In an unnamed namespace for the reason given in panel.h.
#pragma once

#include "core/dtype.h"
#ifdef __AVX512BF16__
#include "cpu/isa/vector_math_avx512.h"
#endif
#include "cpu/linear/block_layout.h"
#include "cpu/linear/linear_finish.h"
#include "cpu/linear/linear_kernels.h"
#include "cpu/linear/panel.h"

namespace kvgauge {
namespace {

// Codes of four bits as floats.
constexpr float kBlockCodes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
// How far ahead of the codes that are read memory is asked for.
constexpr int64_t kBlockPrefetchBytes = 4096;

// 2^kBits + the code whose lowest bit is bit kFrom of each lane.
template <class V, int kBits, int kFrom>
KVG_INLINE typename V::F Raised(typename V::U x) {
  constexpr int kTo = 23 - kBits;
  constexpr uint32_t kMask = ((1u << kBits) - 1) << kTo;
  const typename V::U one = typename V::U{} + (uint32_t{127 + kBits} << 23);
  if constexpr (kFrom < kTo) {
    return (typename V::F)V::AndOr(x << (kTo - kFrom), kMask, one);
  } else {
    return (typename V::F)V::AndOr(x >> (kFrom - kTo), kMask, one);
  }
}

// The byte at bit 8 * `byte`, more 256 - centre.
template <class V>
KVG_INLINE typename V::F ByteOf(typename V::U x, int byte, float centre) {
  return V::Sub(Raised<V, 8, 0>(x >> static_cast<uint32_t>(8 * byte)), V::Set(centre));
}

// Codes to numbers: (raised - centre) * scale, exactly.
template <class V>
struct Scaling {
  typename V::F scale, centre;  // the latter times -scale where operations are fused

  KVG_INLINE Scaling(typename V::F by, float middle)
      : scale(by), centre(kFused ? V::Mul(by, V::Set(-middle)) : V::Set(middle)) {}
  KVG_INLINE typename V::F Of(typename V::F raised) const {
    if constexpr (kFused) return V::Fma(raised, scale, centre);
    return V::Mul(V::Sub(raised, centre), scale);
  }

 private:
  static constexpr bool kFused = V::kLanes > 4;  // the portable vectors round products
};

// A word of codes along k at `words`, for the lanes of a group.
template <class V>
KVG_INLINE typename V::U CodeWord(const uint8_t* words, int64_t index) {
  return V::LoadU(words + index * kWordBytes);
}

KVG_INLINE void FetchAhead(const uint8_t* p) {
  __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(p) +
                                                   static_cast<uintptr_t>(kBlockPrefetchBytes)));
}

// The scales in front of the next large block: a share of them with each group of columns.
KVG_INLINE void FetchScales(const uint8_t* next_block, int64_t column) {
  for (int64_t i = 0; i < 5; ++i) {
    __builtin_prefetch(next_block + (column / kGroupColumns * 5 + i) * 64);
  }
}

template <class V>
KVG_INLINE typename V::F HalvesAt(const uint8_t* block, int64_t index, int64_t column) {
  return V::LoadF16(reinterpret_cast<const uint16_t*>(block + index * kHalvesBytes) + column);
}

// The bytes of a list of `words` words for the group of a column, whose first group's is at `at`.
KVG_INLINE const uint8_t* WordsOf(const uint8_t* block, int64_t at, int64_t words, int64_t column) {
  return block + at + column / kGroupColumns * words * kWordBytes + column % kGroupColumns * 4;
}

// Numbers of V::kLanes columns from `column` on, of `count` <= kBlockStepK elements from `k` on (a
// multiple of it), given to sink.Put(even, odd) in ascending order.
template <class V, class Sink>
KVG_INLINE void ReadStepQ80(const uint8_t* panel, int64_t k, int64_t count, int64_t column,
                            Sink& sink) {
  constexpr BlockLayout kLayout = LayoutOf(BlockFormat::kQ80);
  for (const int64_t end = k + count; k < end; k += kLayout.block_k) {
    const uint8_t* block = panel + k / kLayout.block_k * kLayout.block_bytes;
    const Scaling<V> scaling(HalvesAt<V>(block, 0, column), 384.0f);
    const uint8_t* words = WordsOf(block, kLayout.codes_at, 8, column);
    FetchAhead(block + column * 2);
    for (int64_t j = 0; j < 8; ++j) {
      FetchAhead(words + j * kWordBytes);
      const typename V::U x = CodeWord<V>(words, j);
      sink.Put(scaling.Of(Raised<V, 8, 0>(x)), scaling.Of(Raised<V, 8, 8>(x)));
      sink.Put(scaling.Of(Raised<V, 8, 16>(x)), scaling.Of(Raised<V, 8, 24>(x)));
    }
  }
}

// Four codes of four bits of each lane, the first at bit kFrom, the others eight bits apart.
template <class V, int kFrom, class Sink>
KVG_INLINE void PutNibbles(typename V::U x, const Scaling<V>& scaling, Sink& sink) {
  sink.Put(scaling.Of(Raised<V, 4, kFrom>(x)), scaling.Of(Raised<V, 4, kFrom + 8>(x)));
  sink.Put(scaling.Of(Raised<V, 4, kFrom + 16>(x)), scaling.Of(Raised<V, 4, kFrom + 24>(x)));
}

template <class V, class Sink>
KVG_INLINE void ReadStepQ40(const uint8_t* panel, int64_t k, int64_t count, int64_t column,
                            Sink& sink) {
  constexpr BlockLayout kLayout = LayoutOf(BlockFormat::kQ40);
  for (const int64_t end = k + count; k < end; k += kLayout.block_k) {
    const uint8_t* block = panel + k / kLayout.block_k * kLayout.block_bytes;
    const Scaling<V> scaling(HalvesAt<V>(block, 0, column), 24.0f);
    const uint8_t* words = WordsOf(block, kLayout.codes_at, 4, column);
    FetchAhead(block + column * 2);
    for (int64_t j = 0; j < 4; ++j) {
      FetchAhead(words + j * kWordBytes);
      PutNibbles<V, 0>(CodeWord<V>(words, j), scaling, sink);
    }
    for (int64_t j = 0; j < 4; ++j) PutNibbles<V, 4>(CodeWord<V>(words, j), scaling, sink);
  }
}

// The numbers of a run's low or high halves: code * scale - least, rounded once.
template <class V, int kFrom, class Sink>
KVG_INLINE void PutQ4KHalf(const uint8_t* words, typename V::F scale, typename V::F less,
                           Sink& sink) {
  for (int64_t j = 0; j < 8; ++j) {
    if constexpr (kFrom == 0) FetchAhead(words + j * kWordBytes);
    const typename V::U x = CodeWord<V>(words, j);
    if constexpr (V::kLanes == 16) {  // one lookup takes the low bits of a lane
      const auto table = V::LoadTable(kBlockCodes);
      const auto code = [&](typename V::U bits) KVG_INLINE_LAMBDA {
        return V::Fma(scale, V::template Lookup<4>(table, bits), less);
      };
      sink.Put(code(x >> kFrom), code(x >> (kFrom + 8)));
      sink.Put(code(x >> (kFrom + 16)), code(x >> (kFrom + 24)));
    } else {
      const auto number = [&](typename V::F raised) KVG_INLINE_LAMBDA {
        return V::Fma(scale, V::Sub(raised, V::Set(16.0f)), less);
      };
      sink.Put(number(Raised<V, 4, kFrom>(x)), number(Raised<V, 4, kFrom + 8>(x)));
      sink.Put(number(Raised<V, 4, kFrom + 16>(x)), number(Raised<V, 4, kFrom + 24>(x)));
    }
  }
}

template <class V, class Sink>
KVG_INLINE void ReadStepQ4K(const uint8_t* panel, int64_t k, int64_t count, int64_t column,
                            Sink& sink) {
  constexpr BlockLayout kLayout = LayoutOf(BlockFormat::kQ4K);
  constexpr int64_t kScalesAt = 2 * kHalvesBytes, kLeastAt = kScalesAt + kGroups * 2 * kWordBytes;
  const uint8_t* block = panel + k / kLayout.block_k * kLayout.block_bytes;
  const typename V::F d = HalvesAt<V>(block, 0, column), m = HalvesAt<V>(block, 1, column);
  const uint8_t* scales = WordsOf(block, kScalesAt, 2, column);
  const uint8_t* least = WordsOf(block, kLeastAt, 2, column);
  const int64_t first = k % kLayout.block_k / kLayout.run_k;
  if (first > 0) FetchScales(block + kLayout.block_bytes, column);
  for (int64_t run = first; run < first + count / kLayout.run_k; ++run) {
    const typename V::U s = CodeWord<V>(scales, run / 2), l = CodeWord<V>(least, run / 2);
    const uint8_t* words = WordsOf(
        block, kLayout.codes_at + run * kGroups * kLayout.run_words * kWordBytes, 8, column);
    const int byte = static_cast<int>(run % 2) * 2;
    const auto scale_of = [&](int i) KVG_INLINE_LAMBDA {
      return V::Mul(d, ByteOf<V>(s, byte + i, 256.0f));
    };
    const auto less_of = [&](int i) KVG_INLINE_LAMBDA {
      return V::Mul(V::Mul(m, V::Set(-1.0f)), ByteOf<V>(l, byte + i, 256.0f));
    };
    PutQ4KHalf<V, 0>(words, scale_of(0), less_of(0), sink);
    PutQ4KHalf<V, 4>(words, scale_of(1), less_of(1), sink);
  }
}

// A quarter of a run: 32 elements that share the places of their bits in the words.
template <class V, int kQuarter, class Sink>
KVG_INLINE void PutQ6KQuarter(const uint8_t* words, const Scaling<V>& first,
                              const Scaling<V>& second, Sink& sink) {
  using U = typename V::U;
  const uint8_t* low = words + (8 + kQuarter % 2 * 8) * kWordBytes;
  for (int64_t j = 0; j < 8; ++j) {
    if constexpr (kQuarter == 0) FetchAhead(words + j * kWordBytes);
    if constexpr (kQuarter < 2) FetchAhead(low + j * kWordBytes);
    const U high = CodeWord<V>(words, j), bits = CodeWord<V>(low, j);
    U moved;
    if constexpr (kQuarter < 2) {
      moved = high << (4 - 2 * kQuarter);
    } else {
      moved = high >> (2 * kQuarter - 4);
    }
    const U x = V::AndOr(bits >> (kQuarter / 2 * 4), 0x0f0f0f0fu, moved & 0x30303030u);
    const Scaling<V>& scaling = j < 4 ? first : second;
    sink.Put(scaling.Of(Raised<V, 6, 0>(x)), scaling.Of(Raised<V, 6, 8>(x)));
    sink.Put(scaling.Of(Raised<V, 6, 16>(x)), scaling.Of(Raised<V, 6, 24>(x)));
  }
}

template <class V, class Sink>
KVG_INLINE void ReadStepQ6K(const uint8_t* panel, int64_t k, int64_t, int64_t column, Sink& sink) {
  constexpr BlockLayout kLayout = LayoutOf(BlockFormat::kQ6K);
  const uint8_t* block = panel + k / kLayout.block_k * kLayout.block_bytes;
  const typename V::F d = HalvesAt<V>(block, 0, column);
  const uint8_t* scales = WordsOf(block, kHalvesBytes, 4, column);
  const int64_t run = k % kLayout.block_k / kLayout.run_k;
  if (run > 0) FetchScales(block + kLayout.block_bytes, column);
  const uint8_t* words =
      WordsOf(block, kLayout.codes_at + run * kGroups * kLayout.run_words * kWordBytes, 24, column);
  Unroll<4>([&](auto quarter) KVG_INLINE_LAMBDA {
    const typename V::U s = CodeWord<V>(scales, run * 2 + quarter / 2);
    const auto scaling = [&](int i) KVG_INLINE_LAMBDA {
      return Scaling<V>(V::Mul(d, ByteOf<V>(s, quarter % 2 * 2 + i, 384.0f)), 96.0f);
    };
    PutQ6KQuarter<V, quarter>(words, scaling(0), scaling(1), sink);
  });
}

template <class V, BlockFormat kFormat, class Sink>
KVG_INLINE void ReadStep(const uint8_t* panel, int64_t k, int64_t count, int64_t column,
                         Sink& sink) {
  if constexpr (kFormat == BlockFormat::kQ80) ReadStepQ80<V>(panel, k, count, column, sink);
  if constexpr (kFormat == BlockFormat::kQ40) ReadStepQ40<V>(panel, k, count, column, sink);
  if constexpr (kFormat == BlockFormat::kQ4K) ReadStepQ4K<V>(panel, k, count, column, sink);
  if constexpr (kFormat == BlockFormat::kQ6K) ReadStepQ6K<V>(panel, k, count, column, sink);
}

// A finite number after it was stored as kStore.
template <class V, DType kStore>
KVG_INLINE typename V::F RoundedTo(typename V::F x) {
  if constexpr (kStore == DType::kF16) {
    uint16_t bits[V::kLanes];
    V::StoreF16(bits, x);
    return V::LoadF16(bits);
  } else if constexpr (kStore == DType::kBF16) {  // to nearest even
    const typename V::U bits = (typename V::U)x;
    return (typename V::F)((bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u);
  } else {
    return x;
  }
}

// Steps of an f32 panel, [k][64], rounded to kStore.
template <class V, DType kStore>
struct WideSink {
  using F = typename V::F;
  float* to;

  WideSink(float* block, int64_t k, int64_t column) : to(block + k * kPanelColumns + column) {}
  KVG_INLINE void Put(F even, F odd) {
    V::Store(to, RoundedTo<V, kStore>(even));
    V::Store(to + kPanelColumns, RoundedTo<V, kStore>(odd));
    to += 2 * kPanelColumns;
  }
};

#ifdef __AVX512BF16__
// Pairs of bf16, the even numbers first. The conversion takes subnormal numbers as zero, as the
// product does with what it gets.
KVG_INLINE __m512i PairsOf(__m512 even, __m512 odd) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24,
                                         8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const auto halves = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(odd, even));
  return _mm512_permutexvar_epi16(order, halves);
}

// Steps of a bf16 panel, [k / 2][64][2].
struct PairSink {
  using F = Avx512Vector::F;
  uint16_t* to;

  PairSink(uint16_t* block, int64_t k, int64_t column)
      : to(block + k * kPanelColumns + column * 2) {}
  KVG_INLINE void Put(F even, F odd) {
    _mm512_storeu_si512(to, PairsOf(even, odd));
    to += 2 * kPanelColumns;
  }
};
#endif

// Sums of kRows rows, which take the numbers of V::kLanes columns as they are made: the chains of
// PanelTile.
template <class V, DType kStore, int kRows>
struct WideSums {
  using F = typename V::F;
  const float* a;
  int64_t a_stride;
  F sum[kRows];

  KVG_INLINE void Put(F even, F odd) {
    Link(RoundedTo<V, kStore>(even));
    Link(RoundedTo<V, kStore>(odd));
  }

 private:
  KVG_INLINE void Link(F w) {
    Unroll<kRows>([&](auto r)
                      KVG_INLINE_LAMBDA { sum[r] = V::Fma(V::Set(a[r * a_stride]), w, sum[r]); });
    ++a;
  }
};

#ifdef __AVX512BF16__
template <int kRows>
struct PairSums {
  using F = Avx512Vector::F;
  const uint16_t* a;
  int64_t a_stride;
  F sum[kRows];

  KVG_INLINE void Put(F even, F odd) {
    const __m512bh w = reinterpret_cast<__m512bh>(PairsOf(even, odd));
    Unroll<kRows>([&](auto r) KVG_INLINE_LAMBDA {
      int32_t pair;
      std::memcpy(&pair, a + r * a_stride, sizeof(pair));
      sum[r] = _mm512_dpbf16_ps(sum[r], reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair)), w);
    });
    a += 2;
  }
};
#endif

// How weights of a type are multiplied: as bf16 pairs in hardware, otherwise as f32.
template <class Panels, DType kStore>
struct BlockTarget {
  using Format = typename Panels::F32;
  using Sink = WideSink<typename Panels::Vec, kStore>;
  template <int kRows>
  using Sums = WideSums<typename Panels::Vec, kStore, kRows>;
};
#ifdef __AVX512BF16__
template <class Panels>
struct BlockTarget<Panels, DType::kBF16> {
  using Format = typename Panels::Bf16;
  using Sink = PairSink;
  template <int kRows>
  using Sums = PairSums<kRows>;
};
#endif

// Rows that are multiplied as numbers are made; for more it is better to make them once.
constexpr int64_t kMostRowsInFlight = 2;

// sums[kRows][64] of so few rows.
template <class Panels, DType kStore, BlockFormat kFormat, int kRows>
[[gnu::noinline]] void MultiplyInFlight(const PanelProduct& p, float* sums) {
  using V = typename Panels::Vec;
  using Target = BlockTarget<Panels, kStore>;
  const auto* panel = static_cast<const uint8_t*>(p.panel);
  const auto* a = static_cast<const typename Target::Format::A*>(p.a);
  for (int64_t done = 0; done < p.k; done += kBlockStepK) {
    const int64_t step = p.k - done < kBlockStepK ? p.k - done : kBlockStepK;
    for (int64_t column = 0; column < kPanelColumns; column += V::kLanes) {
      typename Target::template Sums<kRows> sink{a + done, p.a_stride, {}};
      float* const at = sums + column;
      Unroll<kRows>([&](auto r) KVG_INLINE_LAMBDA {
        sink.sum[r] = done == 0 ? V::Set(0.0f) : V::Load(at + r * kPanelColumns);
      });
      ReadStep<V, kFormat>(panel, done, step, column, sink);
      Unroll<kRows>([&](auto r)
                        KVG_INLINE_LAMBDA { V::Store(at + r * kPanelColumns, sink.sum[r]); });
    }
  }
}

// Elements [k, k + count) of the panel in the form of panel.h.
template <class V, BlockFormat kFormat, class Sink, class B>
[[gnu::noinline]] void ReadBlocks(const uint8_t* panel, int64_t k, int64_t count, B* block) {
  for (int64_t done = 0; done < count; done += kBlockStepK) {
    const int64_t step = count - done < kBlockStepK ? count - done : kBlockStepK;
    for (int64_t column = 0; column < kPanelColumns; column += V::kLanes) {
      Sink sink(block, done, column);
      ReadStep<V, kFormat>(panel, k + done, step, column, sink);
    }
  }
}

// Steps of a panel that is kept as kStore (panel.h): rows of numbers, or pairs of bf16.
template <class V, DType kStore>
struct KeptSink {
  using F = typename V::F;
  static constexpr int64_t kSize = kStore == DType::kF32 ? 4 : 2;
  uint8_t* to;

  KeptSink(uint8_t* block, int64_t k, int64_t column)
      : to(block + k * kPanelColumns * kSize + column * (kStore == DType::kBF16 ? 4 : kSize)) {}
  KVG_INLINE void Put(F even, F odd) {
    if constexpr (kStore == DType::kBF16) {
      using U = typename V::U;
      const U pair = (U)RoundedTo<V, kStore>(even) >> 16 | (U)RoundedTo<V, kStore>(odd);
      std::memcpy(to, &pair, sizeof(pair));
    } else if constexpr (kStore == DType::kF16) {
      V::StoreF16(reinterpret_cast<uint16_t*>(to), even);
      V::StoreF16(reinterpret_cast<uint16_t*>(to) + kPanelColumns, odd);
    } else {
      V::Store(reinterpret_cast<float*>(to), even);
      V::Store(reinterpret_cast<float*>(to) + kPanelColumns, odd);
    }
    to += 2 * kPanelColumns * kSize;
  }
};

// LinearKernels::floats_of_blocks.
template <class V, DType kStore, BlockFormat kFormat>
void FloatsOfBlocks(const uint8_t* blocks, int64_t k, void* to) {
  ReadBlocks<V, kFormat, KeptSink<V, kStore>>(blocks, 0, k, static_cast<uint8_t*>(to));
}

// Whether a set of panels has products with codes that lie by column.
template <class Panels>
constexpr bool kTakesColumns = requires {
  typename Panels::ByColumn;
};

// Multiply of linear_multiply.h for panels in blocks.
template <class Panels, DType kStore, BlockFormat kFormat>
void MultiplyBlocks(const PanelProduct& p) {
  [[maybe_unused]] const typename Panels::ThreadScope scope;
  if constexpr (kStore == DType::kBF16 && kTakesColumns<Panels>) {
    if (p.by_column) return Panels::ByColumn::template Multiply<kFormat>(p);
  }
  using V = typename Panels::Vec;
  using Target = BlockTarget<Panels, kStore>;
  using Format = typename Target::Format;
  using B = typename Format::B;
  constexpr int64_t kElementBytes = kPanelColumns * int64_t{sizeof(B)};  // of one k
  static_assert(Format::kBlockBytes <= kWidenedFloats * int64_t{sizeof(float)});
  static_assert(Format::kBlockBytes % (kElementBytes * kBlockStepK) == 0);
  // Few rows: what was made is read once, from the first cache.
  const int64_t block =
      p.rows <= Format::kOnePassRows ? kBlockStepK : Format::kBlockBytes / kElementBytes;
  auto* const made = reinterpret_cast<B*>(p.scratch);
  float* const sums = p.sums != nullptr ? p.sums : p.scratch + kWidenedFloats;
  if constexpr (Format::kOnePassRows == kPanelTileRows) {  // whose tiles are chains of one number
    static_assert(kMostRowsInFlight == 2);
    if (p.rows <= kMostRowsInFlight) {
      p.rows == 1 ? MultiplyInFlight<Panels, kStore, kFormat, 1>(p, sums)
                  : MultiplyInFlight<Panels, kStore, kFormat, 2>(p, sums);
      Finish<V>(p, sums);
      return;
    }
  }
  const auto* a = static_cast<const typename Format::A*>(p.a);
  for (int64_t done = p.begin; done < p.k; done += block) {
    const int64_t count = p.k - done < block ? p.k - done : block;
    ReadBlocks<V, kFormat, typename Target::Sink>(static_cast<const uint8_t*>(p.panel), done, count,
                                                  made);
    PanelRows<Format>({.a = a + done,
                       .a_stride = p.a_stride,
                       .panel = made,
                       .panel_stride = kPanelColumns * Format::kStepK,
                       .steps = count / Format::kStepK,
                       .acc = sums,
                       .acc_stride = kPanelColumns,
                       .resume = done > 0},
                      p.rows);
  }
  if (p.last) Finish<V>(p, sums);
}

}  // namespace
}  // namespace kvgauge
