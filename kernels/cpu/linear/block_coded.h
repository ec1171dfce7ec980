// SPDX-License-Identifier: Apache-2.0
// Products of rows of 8-bit codes (coded_rows.h) with panels in blocks of few bits
// (block_layout.h), none of which lies by column. Four codes of a weight column lie in a lane as
// byte dot products take them, so that nothing is made of them but a mask and a shift.
//
// 256 k whose row codes share a scale add row scale * t to a sum. t adds up, each step rounded
// once, what 32 k give (16 of q6_k, which have a scale of their own),
//   scale * dot product of codes, and where a format has least values: - least value * sum of row
//   codes
// Integers are exact and steps follow each other along k, so that every instruction set has the
// same bits.
//
// In an unnamed namespace for the reason given in panel.h.
#pragma once

#include <cstring>
#include <type_traits>

#if defined(__AVX512BW__)
#include "cpu/isa/vector_math_avx512.h"
#elif defined(__AVX2__)
#include "cpu/isa/vector_math_avx2.h"
#endif
#include "cpu/linear/block_panel.h"
#include "cpu/linear/coded_rows.h"

namespace kvgauge {
namespace {

// Four codes of a row as the dot product takes them, for all lanes.
template <class V>
struct RowCodes {
  using U = typename V::U;
#if defined(__AVX512VNNI__)
  __m512i four;
  KVG_INLINE explicit RowCodes(const int8_t* codes) {
    int32_t word;
    std::memcpy(&word, codes, sizeof(word));
    four = _mm512_set1_epi32(word);
  }
  // sum + the dot product of unsigned bytes and these.
  KVG_INLINE U Dot(U sum, U bytes) const {
    return (U)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)bytes, four);
  }
#elif defined(__AVX512BW__)
  __m512i even, odd;
  KVG_INLINE explicit RowCodes(const int8_t* codes) {
    int32_t word;
    std::memcpy(&word, codes, sizeof(word));
    const __m512i four = _mm512_set1_epi32(word);
    even = _mm512_srai_epi16(_mm512_slli_epi16(four, 8), 8);
    odd = _mm512_srai_epi16(four, 8);
  }
  KVG_INLINE U Dot(U sum, U bytes) const {
    const U low = bytes & 0x00ff00ffu, high = bytes >> 8 & 0x00ff00ffu;
    return sum + (U)_mm512_madd_epi16((__m512i)low, even) +
           (U)_mm512_madd_epi16((__m512i)high, odd);
  }
#elif defined(__AVX2__)
  __m256i even, odd;
  KVG_INLINE explicit RowCodes(const int8_t* codes) {
    int32_t word;
    std::memcpy(&word, codes, sizeof(word));
    const __m256i four = _mm256_set1_epi32(word);
    even = _mm256_srai_epi16(_mm256_slli_epi16(four, 8), 8);
    odd = _mm256_srai_epi16(four, 8);
  }
  KVG_INLINE U Dot(U sum, U bytes) const {
    const U low = bytes & 0x00ff00ffu, high = bytes >> 8 & 0x00ff00ffu;
    return sum + (U)_mm256_madd_epi16((__m256i)low, even) +
           (U)_mm256_madd_epi16((__m256i)high, odd);
  }
#else
  uint32_t code[4];
  KVG_INLINE explicit RowCodes(const int8_t* codes) {
    for (int i = 0; i < 4; ++i) code[i] = static_cast<uint32_t>(int32_t{codes[i]});
  }
  KVG_INLINE U Dot(U sum, U bytes) const {
    return sum + (bytes & 0xffu) * code[0] + (bytes >> 8 & 0xffu) * code[1] +
           (bytes >> 16 & 0xffu) * code[2] + (bytes >> 24) * code[3];
  }
#endif
};

// What the codes of a format, as they lie, have too much, as a power of two; 0: nothing.
constexpr uint32_t MiddleShift(BlockFormat format) {
  if (format == BlockFormat::kQ80) return 7;
  if (format == BlockFormat::kQ40) return 3;
  return format == BlockFormat::kQ6K ? 5 : 0;
}

// a * b + c, rounded once.
template <class V>
KVG_INLINE typename V::F Fused(typename V::F a, typename V::F b, typename V::F c) {
  if constexpr (V::kLanes > 4) return V::Fma(a, b, c);
  for (int i = 0; i < V::kLanes; ++i) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return c;
}

// An integer in memory, for all lanes.
template <class V>
KVG_INLINE typename V::U SetInt(const int32_t& x) {
  float bits;  // which a broadcast takes from memory
  std::memcpy(&bits, &x, sizeof(bits));
  return (typename V::U)V::Set(bits);
}

// Parts of 32 k of a panel, for the lanes of a group from `column` on. Codes of kTogether parts,
// from a multiple of these on, lie together.
template <class V, BlockFormat kFormat>
struct CodedColumns {
  using U = typename V::U;
  using F = typename V::F;
  static constexpr BlockLayout kLayout = LayoutOf(kFormat);
  static constexpr bool kHasLeast = kFormat == BlockFormat::kQ4K;
  static constexpr int kUnits = kFormat == BlockFormat::kQ6K ? 2 : 1;  // that have a scale
  static constexpr int kTogether = static_cast<int>(kLayout.run_k / kCodedPartK);

  const uint8_t* block;
  const uint8_t* words;
  int64_t run;  // in the block
  int64_t column;

  // part: a multiple of kTogether.
  KVG_INLINE CodedColumns(const uint8_t* panel, int64_t part, int64_t at) : column(at) {
    constexpr int64_t kParts = kLayout.block_k / kCodedPartK;
    block = panel + part / kParts * kLayout.block_bytes;
    run = part % kParts / kTogether;
    words = WordsOf(block, kLayout.codes_at + run * kGroups * kLayout.run_words * kWordBytes,
                    kLayout.run_words, column);
  }

  // The lanes that lie `vectors` further on.
  KVG_INLINE CodedColumns Beside(int64_t vectors) const {
    CodedColumns beside = *this;
    beside.column += vectors * V::kLanes;
    beside.words +=
        (beside.column / kGroupColumns - column / kGroupColumns) * kLayout.run_words * kWordBytes +
        (beside.column % kGroupColumns - column % kGroupColumns) * 4;
    return beside;
  }

  // Asks for a share of the bytes that come kAheadBytes behind the block. The shares of all runs
  // and columns are all of them, in the order of memory.
  KVG_INLINE void FetchAhead() const {
    constexpr int64_t kVectors = kPanelColumns / V::kLanes;
    constexpr int64_t kShares = kLayout.block_k / kLayout.run_k * kVectors;
    constexpr int64_t kBytes = (kLayout.block_bytes + kShares - 1) / kShares;
    const auto from = reinterpret_cast<uintptr_t>(block) + static_cast<uintptr_t>(kAheadBytes) +
                      static_cast<uintptr_t>((run * kVectors + column / V::kLanes) * kBytes);
    for (uintptr_t i = 0; i < kBytes; i += 64) {
      __builtin_prefetch(reinterpret_cast<const void*>(from + i));
    }
  }

  // Codes 4j.. of part kPart of those that lie together, a byte each.
  template <int kPart>
  KVG_INLINE U Codes(int64_t j) const {
    if constexpr (kFormat == BlockFormat::kQ80) return CodeWord<V>(words, j);
    if constexpr (kFormat == BlockFormat::kQ40) {
      return Nibbles(CodeWord<V>(words, j % 4), static_cast<uint32_t>(j / 4 * 4));
    }
    if constexpr (kFormat == BlockFormat::kQ4K) return Nibbles(CodeWord<V>(words, j), kPart * 4);
    if constexpr (kFormat == BlockFormat::kQ6K) {
      U high = CodeWord<V>(words, j);
      if constexpr (kPart < 2) {
        high = high << (4 - 2 * kPart);
      } else {
        high = high >> (2 * kPart - 4);
      }
      const U low = CodeWord<V>(words, 8 + kPart % 2 * 8 + j);
      return V::AndOr(low >> (kPart / 2 * 4), 0x0f0f0f0fu, high & 0x30303030u);
    }
  }

  template <int kPart>
  KVG_INLINE F Scale([[maybe_unused]] int unit) const {
    const F d = HalvesAt<V>(block, 0, column);
    if constexpr (kFormat == BlockFormat::kQ4K) {
      return V::Mul(d, ByteAt(kScalesAt, 2, run * kTogether + kPart));
    }
    if constexpr (kFormat == BlockFormat::kQ6K) {
      const F scale = ByteAt(kHalvesBytes, 4, (run * kTogether + kPart) * 2 + unit);
      return V::Mul(d, V::Sub(scale, V::Set(128.0f)));
    }
    return d;
  }
  template <int kPart>
  KVG_INLINE F Least() const {
    return V::Mul(HalvesAt<V>(block, 1, column), ByteAt(kLeastAt, 2, run * kTogether + kPart));
  }

 private:
  static constexpr int64_t kAheadBytes = 8192;
  static constexpr int64_t kScalesAt = 2 * kHalvesBytes;
  static constexpr int64_t kLeastAt = kScalesAt + kGroups * 2 * kWordBytes;

  KVG_INLINE static U Nibbles(U x, uint32_t from) { return x >> from & 0x0f0f0f0fu; }
  // Byte `index` of a list that begins at `at`.
  KVG_INLINE F ByteAt(int64_t at, int64_t list, int64_t index) const {
    const U word = CodeWord<V>(WordsOf(block, at, list, column), index / 4);
    return V::IntsAsF(word >> static_cast<uint32_t>(index % 4 * 8) & 0xffu);
  }
};

// Columns as they lie in a panel, for rows that are few.
template <class V, BlockFormat kFormat>
struct PanelSource {
  using Columns = CodedColumns<V, kFormat>;
  static constexpr int kTogether = Columns::kTogether;
  static constexpr int kBeside = 1;  // memory is read in order
  const uint8_t* panel;
  int64_t column;

  struct Parts {
    Columns first;
    KVG_INLINE void FetchAhead(int v) const { first.Beside(v).FetchAhead(); }
    template <int kPart>
    KVG_INLINE typename V::U Codes(int64_t j, int v) const {
      return first.Beside(v).template Codes<kPart>(j);
    }
    template <int kPart>
    KVG_INLINE typename V::F Scale(int unit, int v) const {
      return first.Beside(v).template Scale<kPart>(unit);
    }
    template <int kPart>
    KVG_INLINE typename V::F Least(int v) const {
      return first.Beside(v).template Least<kPart>();
    }
  };
  KVG_INLINE Parts At(int64_t part) const { return {Columns(panel, part, column)}; }
};

// Columns of some blocks along k, their codes a byte each, that many rows are multiplied by while
// they stay in the first cache.
template <class V, BlockFormat kFormat, int kVectors>
struct MadeSource {
  using F = typename V::F;
  using U = typename V::U;
  using Columns = CodedColumns<V, kFormat>;
  static constexpr int kTogether = 1, kBeside = kVectors;
  static constexpr int64_t kParts = 2 * kCodedParts;

  struct alignas(64) Part {
    uint32_t codes[8][kVectors][V::kLanes];
    float scale[Columns::kUnits][kVectors][V::kLanes];
    float least[Columns::kHasLeast ? kVectors : 1][V::kLanes];

    KVG_INLINE void FetchAhead(int) const {}
    template <int>
    KVG_INLINE U Codes(int64_t j, int v) const {
      return V::LoadU(codes[j][v]);
    }
    template <int>
    KVG_INLINE F Scale(int unit, int v) const {
      return V::Load(scale[unit][v]);
    }
    template <int>
    KVG_INLINE F Least(int v) const {
      return V::Load(least[v]);
    }
  };
  Part parts[kParts];

  KVG_INLINE const Part& At(int64_t part) const { return parts[part]; }

  // Parts [begin, begin + count) of the panel.
  [[gnu::noinline]] void Make(const uint8_t* panel, int64_t begin, int64_t count, int64_t column) {
    for (int64_t i = 0; i < count; i += Columns::kTogether) {
      for (int v = 0; v < kVectors; ++v) {
        const Columns from(panel, begin + i, column + v * V::kLanes);
        from.FetchAhead();
        Unroll<Columns::kTogether>([&](auto part) KVG_INLINE_LAMBDA {
          constexpr int kPart = decltype(part)::value;
          Part& to = parts[i + kPart];
          for (int64_t j = 0; j < 8; ++j) {
            V::StoreU(to.codes[j][v], from.template Codes<kPart>(j));
          }
          for (int unit = 0; unit < Columns::kUnits; ++unit) {
            V::Store(to.scale[unit][v], from.template Scale<kPart>(unit));
          }
          if constexpr (Columns::kHasLeast) V::Store(to.least[v], from.template Least<kPart>());
        });
      }
    }
  }
};

// What part kPart of `parts` adds to vectors [kFirst, kFirst + kCount) of t[kRows][kVectors]; rows:
// [kRows], whose codes of it are those of `part`.
template <class V, BlockFormat kFormat, int kPart, int kFirst, int kCount, int kRows, int kVectors,
          class Parts>
KVG_INLINE void AddPart(const Parts& parts, const CodedBlock* const (&rows)[kRows], int64_t part,
                        typename V::F (&t)[kRows][kVectors]) {
  using U = typename V::U;
  using Columns = CodedColumns<V, kFormat>;
  constexpr int kWords = static_cast<int>(kCodedPartK) / 4 / Columns::kUnits;
  Unroll<Columns::kUnits>([&](auto unit) KVG_INLINE_LAMBDA {
    U dot[kRows][kCount];
    Unroll<kRows>([&](auto r) KVG_INLINE_LAMBDA {
      U start{};
      if constexpr (MiddleShift(kFormat) > 0) {
        start = SetInt<V>(Columns::kUnits == 1 ? rows[r]->less[part]
                                               : rows[r]->half_less[2 * part + unit])
                << MiddleShift(kFormat);
      }
      Unroll<kCount>([&](auto v) KVG_INLINE_LAMBDA { dot[r][v] = start; });
    });
    Unroll<kWords>([&](auto i) KVG_INLINE_LAMBDA {
      constexpr int kWord = decltype(unit)::value * kWords + decltype(i)::value;
      U w[kCount];
      Unroll<kCount>(
          [&](auto v) KVG_INLINE_LAMBDA { w[v] = parts.template Codes<kPart>(kWord, kFirst + v); });
      Unroll<kRows>([&](auto r) KVG_INLINE_LAMBDA {
        const RowCodes<V> x(rows[r]->codes + part * kCodedPartK + 4 * kWord);
        Unroll<kCount>([&](auto v) KVG_INLINE_LAMBDA { dot[r][v] = x.Dot(dot[r][v], w[v]); });
      });
    });
    Unroll<kCount>([&](auto v) KVG_INLINE_LAMBDA {
      const auto scale = parts.template Scale<kPart>(unit, kFirst + v);
      Unroll<kRows>([&](auto r) KVG_INLINE_LAMBDA {
        auto& to = t[r][kFirst + v];
        to = Fused<V>(scale, V::IntsAsF(dot[r][v]), to);
      });
    });
  });
  if constexpr (Columns::kHasLeast) {
    typename V::F less[kRows];
    Unroll<kRows>([&](auto r)
                      KVG_INLINE_LAMBDA { less[r] = V::IntsAsF(SetInt<V>(rows[r]->less[part])); });
    Unroll<kCount>([&](auto v) KVG_INLINE_LAMBDA {
      const auto least = parts.template Least<kPart>(kFirst + v);
      Unroll<kRows>([&](auto r) KVG_INLINE_LAMBDA {
        auto& to = t[r][kFirst + v];
        to = Fused<V>(least, less[r], to);
      });
    });
  }
}

// sums[kRows][64] of kVectors vectors of columns and `count` parts, after what was summed before.
template <class V, BlockFormat kFormat, int kRows, int kVectors, class Source>
[[gnu::noinline]] void CodedTile(const Source& source, int64_t count, const char* a, int64_t stride,
                                 bool resume, float* sums) {
  using F = typename V::F;
  constexpr int kBeside = Source::kBeside;
  for (int64_t done = 0; done < count; done += kCodedParts, a += sizeof(CodedBlock)) {
    const CodedBlock* rows[kRows];
    F t[kRows][kVectors];
    Unroll<kRows>([&](auto r) KVG_INLINE_LAMBDA {
      rows[r] = reinterpret_cast<const CodedBlock*>(a + r * stride);
      Unroll<kVectors>([&](auto v) KVG_INLINE_LAMBDA { t[r][v] = V::Set(0.0f); });
    });
    const int64_t parts = count - done < kCodedParts ? count - done : kCodedParts;
    for (int64_t part = 0; part < parts; part += Source::kTogether) {
      const auto& at = source.At(done + part);
      Unroll<kVectors / kBeside>([&](auto first) KVG_INLINE_LAMBDA {
        at.FetchAhead(first * kBeside);
        Unroll<Source::kTogether>([&](auto i) KVG_INLINE_LAMBDA {
          AddPart<V, kFormat, decltype(i)::value, decltype(first)::value * kBeside, kBeside>(
              at, rows, part + i, t);
        });
      });
    }
    Unroll<kRows * kVectors>([&](auto i) KVG_INLINE_LAMBDA {
      constexpr int kRow = i / kVectors, kVector = i % kVectors;
      float* const to = sums + kRow * kPanelColumns + kVector * V::kLanes;
      const F before = resume || done > 0 ? V::Load(to) : V::Set(0.0f);
      V::Store(to, Fused<V>(V::Set(rows[kRow]->scale), t[kRow][kVector], before));
    });
  }
}

template <class V, BlockFormat kFormat, int kRows>
void FewCodedRows(const PanelProduct& p, float* sums) {
  constexpr int kVectors = V::kLanes == 16 ? 4 : 2;
  for (int64_t column = 0; column < kPanelColumns; column += kVectors * V::kLanes) {
    const PanelSource<V, kFormat> source{static_cast<const uint8_t*>(p.panel), column};
    CodedTile<V, kFormat, kRows, kVectors>(source, p.k / kCodedPartK, static_cast<const char*>(p.a),
                                           p.a_stride, false, sums + column);
  }
}

// Asks for the blocks that are made next, those of the panel behind at the end, while rows are
// multiplied by those that were made: a share before each tile. Few rows leave too little time.
template <class V, BlockFormat kFormat>
class LaterBlocks {
 public:
  // parts: made at once.
  LaterBlocks(const PanelProduct& p, int64_t parts, int64_t tile, int64_t vectors) {
    constexpr BlockLayout kLayout = LayoutOf(kFormat);
    constexpr int64_t kLine = 64, kMostLines = 32;  // the latter: that memory takes at once
    const int64_t k = parts * kCodedPartK < p.k ? parts * kCodedPartK : p.k;
    const int64_t bytes = k / kLayout.block_k * kLayout.block_bytes;
    const int64_t tiles = p.rows / tile * (kPanelColumns / (vectors * V::kLanes));
    if (tiles == 0 || tiles * kMostLines * kLine < bytes) return;
    share_ = (bytes / kLine + tiles - 1) / tiles;
    next_ = reinterpret_cast<uintptr_t>(p.panel) + static_cast<uintptr_t>(bytes);
    end_ = next_ + static_cast<uintptr_t>(p.k / kLayout.block_k * kLayout.block_bytes);
  }

  KVG_INLINE void Fetch() {
    constexpr int kSecondCache = 2;
    for (int64_t i = 0; i < share_ && next_ < end_; ++i, next_ += 64) {
      __builtin_prefetch(reinterpret_cast<const void*>(next_), 0, kSecondCache);
    }
  }

 private:
  int64_t share_ = 0;  // lines
  uintptr_t next_ = 0, end_ = 0;
};

template <class V, BlockFormat kFormat>
void ManyCodedRows(const PanelProduct& p, float* sums) {
  constexpr int kTile = V::kLanes == 16 ? 6 : 2, kVectors = 2;
  using Source = MadeSource<V, kFormat, kVectors>;
  Source source;
  const int64_t parts = p.k / kCodedPartK;
  const auto* a = static_cast<const char*>(p.a);
  LaterBlocks<V, kFormat> later(p, Source::kParts, kTile, kVectors);
  for (int64_t done = 0; done < parts; done += Source::kParts) {
    const int64_t count = parts - done < Source::kParts ? parts - done : Source::kParts;
    for (int64_t column = 0; column < kPanelColumns; column += kVectors * V::kLanes) {
      source.Make(static_cast<const uint8_t*>(p.panel), done, count, column);
      int64_t r = 0;
      const auto take = [&](auto rows) KVG_INLINE_LAMBDA {
        constexpr int kRows = decltype(rows)::value;
        for (; p.rows - r >= kRows; r += kRows) {
          later.Fetch();
          CodedTile<V, kFormat, kRows, kVectors>(source, count, a + r * p.a_stride, p.a_stride,
                                                 done > 0, sums + r * kPanelColumns + column);
        }
      };
      take(std::integral_constant<int, kTile>{});
      if constexpr (kTile > 4) take(std::integral_constant<int, 4>{});
      if constexpr (kTile > 2) take(std::integral_constant<int, 2>{});
      take(std::integral_constant<int, 1>{});
    }
    a += Source::kParts / kCodedParts * static_cast<int64_t>(sizeof(CodedBlock));
  }
}

// LinearKernels::multiply_coded.
template <class V, BlockFormat kFormat>
void MultiplyCoded(const PanelProduct& p) {
  static_assert(kMostRowsInFlight == 2);
  float* const sums = p.scratch + kWidenedFloats;
  if (p.rows == 1) {
    FewCodedRows<V, kFormat, 1>(p, sums);
  } else if (p.rows == 2) {
    FewCodedRows<V, kFormat, 2>(p, sums);
  } else {
    ManyCodedRows<V, kFormat>(p, sums);
  }
  Finish<V>(p, sums);
}

// LinearKernels::code_block.
template <class V>
void CodeBlock(const float* from, int64_t count, CodedBlock* to) {
  using F = typename V::F;
  using U = typename V::U;
  constexpr int kHalf = 16, kVectors = kHalf / V::kLanes;
  constexpr float kMagic = 12582912.0f;           // its last bits are an integer's
  F largest = V::Set(0.0f), none = V::Set(0.0f);  // or NaN
  for (int64_t i = 0; i < count; i += V::kLanes) {
    const F x = V::Load(from + i);
    largest = V::Max(largest, V::Abs(x));
    none = V::Add(none, V::Mul(x, V::Set(0.0f)));
  }
  const float size = V::MaxLanes(largest), nothing = V::SumLanes(none);
  if (!(size >= kLeastCoded) || !(nothing == 0.0f)) {
    std::memset(to, 0, sizeof(*to));
    to->scale = nothing;
    return;
  }
  to->scale = size / 127.0f;
  const F by = V::Set(127.0f / size), magic = V::Set(kMagic);
  for (int64_t half = 0; half < count / kHalf; ++half) {
    int8_t* const codes = to->codes + half * kHalf;
    F sum = V::Set(0.0f);  // exact
    for (int i = 0; i < kVectors; ++i) {
      const F moved = V::Add(V::Mul(V::Load(from + half * kHalf + i * V::kLanes), by), magic);
      sum = V::Add(sum, V::Sub(moved, magic));
      const U words = (U)moved - 0x4b400000u;
#if defined(__AVX512BW__)
      _mm_storeu_si128(reinterpret_cast<__m128i*>(codes), _mm512_cvtepi32_epi8((__m512i)words));
#else
      for (int lane = 0; lane < V::kLanes; ++lane) {
        codes[i * V::kLanes + lane] = static_cast<int8_t>(words[lane] & 0xffu);
      }
#endif
    }
    to->half_less[half] = -static_cast<int32_t>(V::SumLanes(sum));
  }
  for (int64_t part = 0; part < count / kCodedPartK; ++part) {
    to->less[part] = to->half_less[2 * part] + to->half_less[2 * part + 1];
  }
}

}  // namespace
}  // namespace kvgauge
