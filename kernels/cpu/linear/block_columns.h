// SPDX-License-Identifier: Apache-2.0
// bf16 products with panels of codes that lie by column (block_layout.h), over the tile registers
// of tiles_amx.h.
//
// 32 numbers of one column share a scale, or 16. Those of four bits are 16 different ones: these
// are made once, and one lookup gives 32 numbers in a row; those of six and eight bits come out of
// the conversion to bf16 in a row. They are the rows of a left tile. So for few rows the tiles
// multiply weights by rows, and the sums of 16 columns and 16 rows come out the other way round;
// what a tile product adds up, and in which order, is the same for both operands. For more rows the
// numbers are turned into the pairs of panel.h, once for all of them.
//
// The numbers are those of block_panel.h to the bit: the same operations make them.
#pragma once

#include "cpu/isa/vector_math_avx512.h"
#include "cpu/linear/block_layout.h"
#include "cpu/linear/linear_finish.h"
#include "cpu/linear/linear_kernels.h"
#include "cpu/linear/panel_tiles.h"

namespace kvgauge {
namespace {

template <class Engine>
class BlockColumns {
 public:
  // Multiply of linear_multiply.h. Precondition: LiesByColumn of the whole matrix.
  template <BlockFormat kFormat>
  static void Multiply(const PanelProduct& p) {
    float* const sums = p.sums != nullptr ? p.sums : p.scratch + kWidenedFloats;
    if (p.rows <= kTileRows) {
      Few<kFormat>(p, sums);
    } else {
      Many<kFormat>(p, sums);
    }
    if (p.last) Finish<Avx512Vector>(p, sums);
  }

 private:
  using Format = Bf16TilePanel<Engine>;
  static constexpr int kTileRows = 16, kPairs = 16, kParts = 4;  // parts of 32 k of a unit
  static constexpr int64_t kPartK = 32;
  static_assert(kParts * kPartK == kUnitK);

  static constexpr int kQuarter = kGroupColumns / kParts;  // columns

  struct alignas(64) Numbers {
    uint16_t values[kParts][kGroupColumns][kPartK];
  };
  // One of each for a part of a unit; q6_k has one for each 16 k.
  struct alignas(64) Scales {
    float scale[2 * kParts][kGroupColumns], less[2 * kParts][kGroupColumns];
  };
  struct alignas(64) Pairs {
    int32_t values[kParts][kPairs][kTileRows] = {};
  };

  KVG_INLINE static __m512 Halves(const uint8_t* at) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
  }
  KVG_INLINE static __m512 Bytes(const uint8_t* at) {
    return _mm512_cvtepi32_ps(
        _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at))));
  }

  KVG_INLINE static __m512 SignedBytes(const uint8_t* at) {
    return _mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at))));
  }

  // A number is scale * what its code counts for + less.
  static __m512 Counted(BlockFormat format) {
    const __m512 codes = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return format == BlockFormat::kQ40 ? _mm512_add_ps(codes, _mm512_set1_ps(16)) : codes;
  }

  // Scales of the unit at `k`; gives its codes.
  template <BlockFormat kFormat>
  static const uint8_t* ReadScales(const uint8_t* group, int64_t k, Scales& scales) {
    if constexpr (kFormat == BlockFormat::kQ6K) {
      constexpr int64_t kScalesAt = kGroupColumns * 2, kCodesAt = kScalesAt + 16 * kGroupColumns;
      const int64_t unit = k / kUnitK % 2;
      const __m512 d = Halves(group);
      for (int i = 0; i < 2 * kParts; ++i) {
        const uint8_t* const at = group + kScalesAt + (unit * 2 * kParts + i) * kGroupColumns;
        const __m512 scale = _mm512_mul_ps(d, SignedBytes(at));
        _mm512_store_ps(scales.scale[i], scale);
        _mm512_store_ps(scales.less[i], _mm512_mul_ps(scale, _mm512_set1_ps(-96)));
      }
      return group + kCodesAt + unit * kGroupColumns * UnitBytes(kFormat);
    } else if constexpr (kFormat != BlockFormat::kQ4K) {
      const __m512 middle = _mm512_set1_ps(kFormat == BlockFormat::kQ40 ? -24 : -384);
      for (int s = 0; s < kParts; ++s) {
        const __m512 d = Halves(group + s * kGroupColumns * 2);
        _mm512_store_ps(scales.scale[s], d);
        _mm512_store_ps(scales.less[s], _mm512_mul_ps(d, middle));
      }
      return group + kParts * kGroupColumns * 2;
    } else {
      constexpr int64_t kScalesAt = 2 * kGroupColumns * 2, kLeastAt = kScalesAt + 8 * kGroupColumns;
      constexpr int64_t kCodesAt = kLeastAt + 8 * kGroupColumns;
      const int64_t unit = k / kUnitK % 2;
      const __m512 d = Halves(group);
      const __m512 m = _mm512_mul_ps(Halves(group + kGroupColumns * 2), _mm512_set1_ps(-1));
      for (int s = 0; s < kParts; ++s) {
        const int64_t at = (unit * kParts + s) * kGroupColumns;
        _mm512_store_ps(scales.scale[s], _mm512_mul_ps(d, Bytes(group + kScalesAt + at)));
        _mm512_store_ps(scales.less[s], _mm512_mul_ps(m, Bytes(group + kLeastAt + at)));
      }
      return group + kCodesAt + unit * kGroupColumns * UnitBytes(kFormat);
    }
  }

  // The numbers of a group of columns, of the unit at `k`. between(constant s), s < kParts, is
  // called after each quarter of the columns.
  template <BlockFormat kFormat, class Between>
  KVG_INLINE static void Make(const uint8_t* panel, int64_t k, int64_t group, Numbers& to,
                              const Between& between) {
    constexpr BlockLayout kLayout = LayoutOf(kFormat);
    constexpr int64_t kStride = kLayout.block_k < kUnitK ? kUnitK : kLayout.block_k;
    constexpr int64_t kBytes = kStride / kLayout.block_k * kLayout.block_bytes;
    constexpr int64_t kColumnBytes = UnitBytes(kFormat);
    Scales scales;
    const uint8_t* codes =
        ReadScales<kFormat>(panel + k / kStride * kBytes + group * (kBytes / kGroups), k, scales);
    const __m512 counted = Counted(kFormat);
    Unroll<kParts>([&](auto s) KVG_INLINE_LAMBDA {
      constexpr int kFirst = decltype(s)::value * kQuarter;
      for (int c = kFirst; c < kFirst + kQuarter; c += 2, codes += 2 * kColumnBytes) {
        for (int64_t i = 0; i < 2 * kColumnBytes; i += 64) FetchFrom(codes + i);
        if constexpr (kFormat == BlockFormat::kQ80) {
          MakeOfBytes(codes, scales, c, to);
          MakeOfBytes(codes + kColumnBytes, scales, c + 1, to);
        } else if constexpr (kFormat == BlockFormat::kQ6K) {
          MakeOfSixBits(codes, scales, c, to);
          MakeOfSixBits(codes + kColumnBytes, scales, c + 1, to);
        } else {
          MakeOfNibbles(codes, scales, counted, c, to);
        }
      }
      between(s);
    });
  }

  // Columns c and c + 1, whose numbers lie in one table: bit 4 of an index says of which.
  KVG_INLINE static void MakeOfNibbles(const uint8_t* codes, const Scales& scales, __m512 counted,
                                       int c, Numbers& to) {
    constexpr int kBytes = 64;
    const __m512i low = _mm512_set1_epi16(0x000f), second = _mm512_set1_epi16(0x0010);
    const __m512i a = _mm512_loadu_si512(codes), b = _mm512_loadu_si512(codes + kBytes);
    Unroll<kParts>([&](auto s) KVG_INLINE_LAMBDA {
      const auto sixteen = [&](int column) KVG_INLINE_LAMBDA {
        return _mm512_fmadd_ps(_mm512_set1_ps(scales.scale[s][column]), counted,
                               _mm512_set1_ps(scales.less[s][column]));
      };
      const auto table = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(sixteen(c + 1), sixteen(c)));
      const __m512i of_a = _mm512_and_si512(Moved<s>(a), low);
      const __m512i of_b = _mm512_ternarylogic_epi32(Moved<s>(b), low, second, kAndOr);
      _mm512_store_si512(to.values[s][c], _mm512_permutexvar_epi16(of_a, table));
      _mm512_store_si512(to.values[s][c + 1], _mm512_permutexvar_epi16(of_b, table));
    });
  }

  static constexpr int kAndOr = 0xea;  // (x & y) | z

  // 2^kBits + a code that lies in the highest kBits of each lane's fraction.
  template <int kBits>
  KVG_INLINE static __m512 Raised(__m512i moved) {
    return _mm512_castsi512_ps(
        _mm512_ternarylogic_epi32(moved, _mm512_set1_epi32(((1 << kBits) - 1) << (23 - kBits)),
                                  _mm512_set1_epi32((127 + kBits) << 23), kAndOr));
  }

  // first and second of 16 numbers each, in the rows of `scales` that are given.
  KVG_INLINE static void Put(__m512 first, __m512 second, const Scales& scales, int first_row,
                             int second_row, int c, uint16_t* to) {
    const auto scaled = [&](__m512 raised, int row) KVG_INLINE_LAMBDA {
      return _mm512_fmadd_ps(raised, _mm512_set1_ps(scales.scale[row][c]),
                             _mm512_set1_ps(scales.less[row][c]));
    };
    _mm512_store_si512(to, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(
                               scaled(second, second_row), scaled(first, first_row))));
  }

  // Code kCode of the four bytes of each lane.
  template <int kCode>
  KVG_INLINE static __m512 RaisedByte(__m512i words) {
    static_assert(kByteFrom == 15);  // where the fraction wants the first ones
    if constexpr (kCode == 1) words = _mm512_srli_epi32(words, 8);
    if constexpr (kCode == 2) words = _mm512_rol_epi32(words, 16);
    if constexpr (kCode == 3) words = _mm512_slli_epi32(words, 8);
    return Raised<8>(words);
  }

  KVG_INLINE static void MakeOfBytes(const uint8_t* codes, const Scales& scales, int c,
                                     Numbers& to) {
    Unroll<kParts>([&](auto s) KVG_INLINE_LAMBDA {
      constexpr int kPart = decltype(s)::value, kFirst = kPart % 2 * 2;
      const __m512i words = _mm512_loadu_si512(codes + kPart / 2 * 64);
      Put(RaisedByte<kFirst>(words), RaisedByte<kFirst + 1>(words), scales, kPart, kPart, c,
          to.values[kPart][c]);
    });
  }

  // Code kCode of eight: five of them in words, the others in halves and in the words' last bits.
  template <int kCode>
  KVG_INLINE static __m512 RaisedSixBits(const uint8_t* codes) {
    constexpr int kTo = 17;
    if constexpr (kCode < kSixBitsInWords) {
      constexpr int kFrom = SixBitsFrom(kCode);
      const __m512i words = _mm512_loadu_si512(codes);
      if constexpr (kFrom > kTo) return Raised<6>(_mm512_srli_epi32(words, kFrom - kTo));
      if constexpr (kFrom < kTo) return Raised<6>(_mm512_slli_epi32(words, kTo - kFrom));
      return Raised<6>(words);
    } else {
      const __m512i halves =
          _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + 64)));
      const __m512i moved = _mm512_slli_epi32(halves, kTo - SixBitsFrom(kCode));
      if constexpr (kCode + 1 < kSixBitCodes) {
        return Raised<6>(moved);
      } else {  // the halves end after four bits
        const __m512i last = _mm512_srli_epi32(_mm512_loadu_si512(codes), 30 - (kTo + 4));
        return Raised<6>(
            _mm512_ternarylogic_epi32(last, _mm512_set1_epi32(3 << (kTo + 4)), moved, kAndOr));
      }
    }
  }

  KVG_INLINE static void MakeOfSixBits(const uint8_t* codes, const Scales& scales, int c,
                                       Numbers& to) {
    Unroll<kParts>([&](auto s) KVG_INLINE_LAMBDA {
      constexpr int kCode = 2 * decltype(s)::value;
      Put(RaisedSixBits<kCode>(codes), RaisedSixBits<kCode + 1>(codes), scales, kCode, kCode + 1, c,
          to.values[s][c]);
    });
  }

  template <int kPart>
  KVG_INLINE static __m512i Moved(__m512i codes) {
    if constexpr (kPart == 0) {
      return codes;
    } else {
      return _mm512_srli_epi16(codes, 4 * kPart);
    }
  }

  KVG_INLINE static void FetchFrom(const uint8_t* p) {
    constexpr uintptr_t kAhead = 4096;
    __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(p) + kAhead));
  }

  // to[j][i] = from[i][j]
  static void Transpose(const __m512i (&from)[16], __m512i (&to)[16]) {
    __m512i a[16], b[16];
    Unroll<8>([&](auto i) KVG_INLINE_LAMBDA {
      a[2 * i] = _mm512_unpacklo_epi32(from[2 * i], from[2 * i + 1]);
      a[2 * i + 1] = _mm512_unpackhi_epi32(from[2 * i], from[2 * i + 1]);
    });
    Unroll<4>([&](auto i) KVG_INLINE_LAMBDA {
      b[4 * i] = _mm512_unpacklo_epi64(a[4 * i], a[4 * i + 2]);
      b[4 * i + 1] = _mm512_unpackhi_epi64(a[4 * i], a[4 * i + 2]);
      b[4 * i + 2] = _mm512_unpacklo_epi64(a[4 * i + 1], a[4 * i + 3]);
      b[4 * i + 3] = _mm512_unpackhi_epi64(a[4 * i + 1], a[4 * i + 3]);
    });
    constexpr int kEven = 0x88, kOdd = 0xdd;  // of the 128-bit parts of both
    Unroll<4>([&](auto j) KVG_INLINE_LAMBDA {
      const __m512i even_low = _mm512_shuffle_i32x4(b[j], b[4 + j], kEven);
      const __m512i odd_low = _mm512_shuffle_i32x4(b[j], b[4 + j], kOdd);
      const __m512i even_high = _mm512_shuffle_i32x4(b[8 + j], b[12 + j], kEven);
      const __m512i odd_high = _mm512_shuffle_i32x4(b[8 + j], b[12 + j], kOdd);
      to[j] = _mm512_shuffle_i32x4(even_low, even_high, kEven);
      to[4 + j] = _mm512_shuffle_i32x4(odd_low, odd_high, kEven);
      to[8 + j] = _mm512_shuffle_i32x4(even_low, even_high, kOdd);
      to[12 + j] = _mm512_shuffle_i32x4(odd_low, odd_high, kOdd);
    });
  }

  // Pairs of rows' elements, of the unit at `k`. Rows that there are not stay 0.
  static void PutRows(const PanelProduct& p, int64_t k, Pairs& to) {
    constexpr int64_t kRowsByNumber = 4;
    const auto* a = static_cast<const uint16_t*>(p.a) + k;
    if (p.rows <= kRowsByNumber) {
      for (int64_t r = 0; r < p.rows; ++r) {
        for (int s = 0; s < kParts; ++s) {
          for (int i = 0; i < kPairs; ++i) {
            std::memcpy(&to.values[s][i][r], a + r * p.a_stride + s * kPartK + 2 * i, 4);
          }
        }
      }
      return;
    }
    for (int s = 0; s < kParts; ++s) {
      __m512i rows[16], pairs[16];
      for (int64_t r = 0; r < kTileRows; ++r) {
        rows[r] = r < p.rows ? _mm512_loadu_si512(a + r * p.a_stride + s * kPartK)
                             : _mm512_setzero_si512();
      }
      Transpose(rows, pairs);
      for (int i = 0; i < kPairs; ++i) _mm512_store_si512(to.values[s][i], pairs[i]);
    }
  }

  struct alignas(64) Turned {
    float values[kGroupColumns][kTileRows] = {};
  };

  // Tile g holds the sums of group g: [16 columns][16 rows].
  template <int kGroup>
  static void LoadSums(const PanelProduct& p, const float* sums) {
    if (p.begin == 0) {
      Engine::template Zero<kGroup>();
      return;
    }
    Turned turned;
    for (int64_t r = 0; r < p.rows; ++r) {
      for (int64_t c = 0; c < kGroupColumns; ++c) {
        turned.values[c][r] = sums[r * kPanelColumns + kGroup * kGroupColumns + c];
      }
    }
    Engine::template Load<kGroup>(turned.values, 64);
  }

  template <int kGroup>
  static void StoreSums(const PanelProduct& p, float* sums) {
    Turned turned;
    Engine::template Store<kGroup>(turned.values, 64);
    for (int64_t r = 0; r < p.rows; ++r) {
      for (int64_t c = 0; c < kGroupColumns; ++c) {
        sums[r * kPanelColumns + kGroup * kGroupColumns + c] = turned.values[c][r];
      }
    }
  }

  // Up to 16 rows: tiles 0-3 sums, 4-5 weights, 6-7 rows. A group is multiplied while the next one
  // is made: a tile waits until what it loads has left the store buffer, and a product for the one
  // before it.
  template <BlockFormat kFormat>
  [[gnu::noinline]] static void Few(const PanelProduct& p, float* sums) {
    const auto* panel = static_cast<const uint8_t*>(p.panel);
    Pairs pairs[2];
    Numbers made[2];
    Unroll<kGroups>([&](auto g) KVG_INLINE_LAMBDA { LoadSums<g>(p, sums); });
    const auto dot = [&](auto group, auto s, const Pairs& rows) KVG_INLINE_LAMBDA {
      Engine::template Load<4 + s % 2>(made[group % 2].values[s], 64);
      Engine::template Load<6 + s % 2>(rows.values[s], 64);
      Engine::template Dot<group, 4 + s % 2, 6 + s % 2>();
    };
    using Last = std::integral_constant<int, kGroups - 1>;
    for (int64_t k = p.begin; k < p.k; k += kUnitK) {
      const Pairs& before = pairs[(k / kUnitK + 1) % 2];
      Pairs& now = pairs[k / kUnitK % 2];
      PutRows(p, k, now);
      Unroll<kGroups>([&](auto g) KVG_INLINE_LAMBDA {
        constexpr int kGroup = decltype(g)::value;
        Make<kFormat>(panel, k, kGroup, made[kGroup % 2], [&](auto s) KVG_INLINE_LAMBDA {
          if constexpr (kGroup > 0) {
            dot(std::integral_constant<int, kGroup - 1>{}, s, now);
          } else {
            if (k > p.begin) dot(Last{}, s, before);
          }
        });
      });
    }
    if (p.k > p.begin) {
      const Pairs& last = pairs[(p.k / kUnitK + 1) % 2];
      Unroll<kParts>([&](auto s) KVG_INLINE_LAMBDA { dot(Last{}, s, last); });
    }
    Unroll<kGroups>([&](auto g) KVG_INLINE_LAMBDA { StoreSums<g>(p, sums); });
  }

  // The pairs of panel.h, [k / 2][64][2], of the unit at `k`.
  template <BlockFormat kFormat>
  static void Turn(const uint8_t* panel, int64_t k, uint16_t* to) {
    for (int64_t group = 0; group < kGroups; ++group) {
      Numbers numbers;
      Make<kFormat>(panel, k, group, numbers, [](auto) {});
      for (int s = 0; s < kParts; ++s) {
        __m512i columns[16], pairs[16];
        for (int c = 0; c < kGroupColumns; ++c) {
          columns[c] = _mm512_load_si512(numbers.values[s][c]);
        }
        Transpose(columns, pairs);
        for (int i = 0; i < kPairs; ++i) {
          _mm512_storeu_si512(to + (s * kPairs + i) * 2 * kPanelColumns + group * kGroupColumns * 2,
                              pairs[i]);
        }
      }
    }
  }

  template <BlockFormat kFormat>
  [[gnu::noinline]] static void Many(const PanelProduct& p, float* sums) {
    constexpr int64_t kBlockK = Format::kBlockBytes / (kPanelColumns * 2);
    static_assert(kBlockK % kUnitK == 0);
    const auto* panel = static_cast<const uint8_t*>(p.panel);
    const auto* a = static_cast<const uint16_t*>(p.a);
    auto* const made = reinterpret_cast<uint16_t*>(p.scratch);
    for (int64_t done = p.begin; done < p.k; done += kBlockK) {
      const int64_t count = p.k - done < kBlockK ? p.k - done : kBlockK;
      for (int64_t k = 0; k < count; k += kUnitK) {
        Turn<kFormat>(panel, done + k, made + k * kPanelColumns);
      }
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
  }
};

}  // namespace
}  // namespace kvgauge
