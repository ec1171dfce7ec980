// SPDX-License-Identifier: Apache-2.0
// From codes to numbers, over lanes.h; included by codec_impl.h.
#pragma once

#include "cpu/codec/code_lanes.h"
#include "cpu/codec/codec_kernels.h"

namespace kvgauge {
namespace {

constexpr int kParts = kCodeLanes / kLanes;  // registers of a vector of 16 lanes

// Fields of codes whose top bit lies in a plane of its own.
template <int kBits>
constexpr int kFieldOf = kBits == 3 || kBits == 5 ? kBits - 1 : kBits;

// put(pair, vector, even, odd) for every slot of a page, in order; the codes are the low bits of
// even[part], odd[part], with other codes above them.
//
// Four slots at a time, where pairs have a multiple of four: all shifts are constants then.
template <int kBits, class Put>
KVG_INLINE void ForQuads(const CodedLayout& layout, const uint8_t* page, Put& put) {
  constexpr int kField = kFieldOf<kBits>;
  constexpr uint32_t kLow = (1u << kField) - 1;
  constexpr int kSlots = 16 / kField;
  const uint8_t* high = page + layout.high_offset;
  for (int pair = 0, first = 0; 2 * pair < layout.steps; ++pair) {
    for (int vector = 0; vector < layout.vectors; vector += 4, first += 4) {
      const uint8_t* block = page + first / kSlots * kCodeBlockBytes;
      const uint8_t* top_block = high + first / 16 * kCodeBlockBytes;
      U words[kParts], tops[kParts];
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) {
        U even[kParts], odd[kParts];
#pragma GCC unroll 4
        for (int part = 0; part < kParts; ++part) {
          if (v % kSlots == 0) {
            words[part] = LoadAs<U>(block + v / kSlots * kCodeBlockBytes + part * 4 * kLanes) >>
                          (first % kSlots * kField);
          }
          even[part] = words[part] >> (v % kSlots * kField);
          odd[part] = words[part] >> (v % kSlots * kField + 16);
          if constexpr (kField < kBits) {
            if (v == 0) tops[part] = LoadAs<U>(top_block + part * 4 * kLanes) >> (first % 16);
            const U top = v < kField ? tops[part] << (kField - v) : tops[part] >> (v - kField);
            even[part] = (even[part] & kLow) | (top & ~kLow);
            odd[part] = (odd[part] & kLow) | (tops[part] >> (16 - kField + v) & ~kLow);
          }
        }
        put(pair, vector + v, even, odd);
      }
    }
  }
}

// Any layout.
template <int kBits, class Put>
KVG_INLINE void ForSlots(const CodedLayout& layout, const uint8_t* page, Put& put) {
  constexpr int kField = kFieldOf<kBits>;
  constexpr uint32_t kLow = (1u << kField) - 1;
  constexpr int kSlots = 16 / kField;
  const uint8_t* high = page + layout.high_offset;
  int pair = 0, vector = 0;
  for (int block = 0, left = layout.slots; left > 0; ++block, left -= kSlots) {
    U words[kParts], tops[kParts] = {};
    for (int part = 0; part < kParts; ++part) {
      words[part] = LoadAs<U>(page + block * kCodeBlockBytes + part * 4 * kLanes);
      if constexpr (kField < kBits) {
        constexpr int kPerTop = 16 / kSlots;  // blocks to a block of top bits
        tops[part] = LoadAs<U>(high + block / kPerTop * kCodeBlockBytes + part * 4 * kLanes) >>
                     (block % kPerTop * kSlots);
      }
    }
    const int count = left < kSlots ? left : kSlots;
    for (int slot = 0; slot < count; ++slot) {
      U even[kParts], odd[kParts];
      for (int part = 0; part < kParts; ++part) {
        even[part] = words[part];
        odd[part] = words[part] >> 16;
        if constexpr (kField < kBits) {
          even[part] = (even[part] & kLow) | (tops[part] & 1u) << kField;
          odd[part] = (odd[part] & kLow) | (tops[part] >> 16 & 1u) << kField;
          tops[part] >>= 1;
        }
        words[part] >>= kField;
      }
      put(pair, vector, even, odd);
      if (++vector == layout.vectors) {
        vector = 0;
        ++pair;
      }
    }
  }
}

// What codes of kBits <= 4 bits stand for; bits above the code are ignored.
template <int kBits>
struct TableOf {
#if defined(__AVX2__)
  // A group's scale and zero can go into its table: fewer operations than on the numbers, which
  // are the same.
  static constexpr bool kCanScale = true;
  template <class Scales>
  KVG_INLINE TableOf Scaled(const Scales& scales) const {
    TableOf t = *this;
    t.table = scales.Apply(table, 0);
#if !defined(__AVX512F__)
    if constexpr (kBits == 4) t.upper = scales.Apply(upper, 0);
#endif
    return t;
  }
#else
  static constexpr bool kCanScale = false;
#endif
  explicit TableOf(const CodecPlan& plan) {
#if defined(__AVX512F__)
    table = LoadAs<F>(plan.table);
#elif defined(__AVX2__)
    table = LoadAs<F>(plan.table);
    upper = LoadAs<F>(plan.table + kLanes);
#else
    table = plan.table;
#endif
  }
  KVG_INLINE F operator()(U index) const {
#if defined(__AVX512F__)
    return (F)_mm512_maskz_permutexvar_ps(kAllLanes, (__m512i)index, (__m512)table);
#elif defined(__AVX2__)
    const __m256 low = _mm256_permutevar8x32_ps((__m256)table, (__m256i)index);
    if constexpr (kBits < 4) return (F)low;
    const __m256 high = _mm256_permutevar8x32_ps((__m256)upper, (__m256i)index);
    return (F)_mm256_blendv_ps(low, high, (__m256)(index << 28));
#else
    F v;
    for (int i = 0; i < kLanes; ++i) v[i] = table[index[i] & ((1u << kBits) - 1)];
    return v;
#endif
  }
#if defined(__AVX512F__)
  F table;
#elif defined(__AVX2__)
  F table, upper;
#else
  const float* table;
#endif
};

// Codes of more bits stand for themselves, less an offset.
template <int kBits>
struct CountedOf {
  static constexpr bool kCanScale = false;
  explicit CountedOf(const CodecPlan& plan) : offset(plan.offset) {}
  KVG_INLINE F operator()(U index) const { return IntsAsF(index & ((1u << kBits) - 1)) - offset; }
  float offset;
};
template <>
struct TableOf<5> : CountedOf<5> {
  using CountedOf<5>::CountedOf;
};
template <>
struct TableOf<8> : CountedOf<8> {
  using CountedOf<8>::CountedOf;
};

#if defined(__AVX512F__)
constexpr __mmask32 kAllWords = 0xffffffffu;
alignas(64) constexpr uint16_t kEvenBeforeOdd[32] = {0,  2,  4,  6,  8,  10, 12, 14, 16, 18, 20,
                                                     22, 24, 26, 28, 30, 1,  3,  5,  7,  9,  11,
                                                     13, 15, 17, 19, 21, 23, 25, 27, 29, 31};
#endif

// Sign, exponent, mantissa of so many bits.
template <int kMantissa, int kBias>
struct Float8 {
  static constexpr bool kCanScale = false, kIsFloat8 = true;
#if defined(__AVX512F__)
  // Sixteen words of codes as halves, those of the first or second vector, even steps before odd
  // ones: a number is kUnit times its half, which has the same subnormals.
  static constexpr float kUnit = kMantissa == 3 ? 0x1p8f : 1.0f;
  KVG_INLINE static __m512i Halves(U words, int vector) {
    __m512i codes = (__m512i)words;
    if (vector == 0) codes = _mm512_maskz_slli_epi16(kAllWords, codes, 8);
    if constexpr (kMantissa == 3) codes = _mm512_maskz_srai_epi16(kAllWords, codes, 1);
    constexpr int16_t kKept = kMantissa == 3 ? static_cast<int16_t>(0xbf80u) : int16_t{-256};
    const __m512i halves = _mm512_and_si512(codes, _mm512_set1_epi16(kKept));
    return _mm512_maskz_permutexvar_epi16(kAllWords, LoadAs<__m512i>(kEvenBeforeOdd), halves);
  }
#endif
  static constexpr float kStep = kMantissa == 3 ? 0x1p-9f : 0x1p-16f;  // of subnormals
  explicit Float8(const CodecPlan&) {}
  KVG_INLINE F operator()(U index) const {
    const U magnitude = index & 0x7fu;
    const F normal = (F)((magnitude << (23 - kMantissa)) + ((127u - kBias) << 23));
    const F subnormal = IntsAsF(magnitude) * kStep;
    const F value = magnitude < (1u << kMantissa) ? subnormal : normal;
    return (F)((U)value | (index & 0x80u) << 24);
  }
};

// ---- Where scales come from. Begin(step, vector) is called before Apply(number, part), for the
// vectors of a step in order. kShared: lanes of a vector share a scale, that of group
// layout.group lanes; only Begin at the first vector of a group changes it. ----

struct Unscaled {
  static constexpr bool kShared = false;
  Unscaled(const CodecPlan&, const uint8_t*, const uint16_t*) {}
  KVG_INLINE void Begin(int, int) {}
  KVG_INLINE F Apply(F number, int) const { return number; }
};

KVG_INLINE F HalfLanes(const uint16_t* p) { return Widen(LoadAs<U16>(p), DType::kF16); }
KVG_INLINE F SplatHalf(const uint16_t* p) {
#if defined(__AVX512F__)
  return (F)_mm512_maskz_cvtph_ps(kAllLanes, _mm256_set1_epi16(static_cast<int16_t>(*p)));
#elif defined(__AVX2__)
  return (F)_mm256_cvtph_ps(_mm_set1_epi16(static_cast<int16_t>(*p)));
#else
  return Splat(F16ToF32(*p));
#endif
}

// n / divisor for n * divisor < 2^32.
struct Divider {
  explicit Divider(int divisor)
      : reciprocal((uint64_t{1} << 32) / static_cast<uint64_t>(divisor) + 1) {}
  KVG_INLINE int operator()(int n) const {
    return static_cast<int>(static_cast<uint64_t>(n) * reciprocal >> 32);
  }
  uint64_t reciprocal;
};

// e4m3 that is not negative.
KVG_INLINE float FromE4M3(uint8_t code) {
  if (code < 8) return static_cast<float>(code) * 0x1p-9f;
  const uint32_t bits = (uint32_t{code} << 20) + (120u << 23);
  return __builtin_bit_cast(float, bits);
}
// 2^(code - 127).
KVG_INLINE float FromE8M0(uint8_t code) {
  const uint32_t bits = code == 0 ? 0x00400000u : uint32_t{code} << 23;
  return __builtin_bit_cast(float, bits);
}
KVG_INLINE F FromE8M0(U codes) { return (F)(codes == 0u ? codes + 0x00400000u : codes << 23); }

// Scales of a page as halves or as f32; zeros are always halves.
KVG_INLINE F ScaleLanes(const uint16_t* p) { return HalfLanes(p); }
KVG_INLINE F ScaleLanes(const float* p) { return LoadAs<F>(p); }
KVG_INLINE F SplatScale(const uint16_t* p) { return SplatHalf(p); }
KVG_INLINE F SplatScale(const float* p) { return Splat(*p); }

template <class Number>
struct PageScales {
  static constexpr bool kShared = false;
  PageScales(const CodecPlan& plan, const uint8_t* page, const Number* page_scales)
      : layout(plan.layout),
        group_of(layout.group),
        scales(page_scales),
        zeros(reinterpret_cast<const uint16_t*>(page + layout.zero_offset)),
        has_zero(layout.zero_offset != 0) {}
  const CodedLayout& layout;
  const Divider group_of;
  const Number* scales;
  const uint16_t* zeros;
  const bool has_zero;
};

// Every lane has its own: keys along kToken, values along kChannel. Both steps of a pair have the
// same where groups are even.
template <class Number>
struct LaneScales : PageScales<Number> {
  LaneScales(const CodecPlan& plan, const uint8_t* page, const Number* page_scales)
      : PageScales<Number>(plan, page, page_scales), paired(plan.layout.group % 2 == 0) {}
  KVG_INLINE void Begin(int step, int vector) {
    if (paired && step % 2 == 1) return;
    const int64_t at =
        int64_t{this->group_of(step)} * this->layout.scale_stride + vector * kCodeLanes;
    for (int part = 0; part < kParts; ++part) {
      scale[part] = ScaleLanes(this->scales + at + part * kLanes);
      if (this->has_zero) zero[part] = HalfLanes(this->zeros + at + part * kLanes);
    }
  }
  KVG_INLINE F Apply(F number, int part) const {
    const F product = number * scale[part];
    return this->has_zero ? product + zero[part] : product;
  }
  const bool paired;
  F scale[kParts] = {}, zero[kParts] = {};
};

// Keys along kChannel, values along kToken whose groups are whole vectors.
template <class Number>
struct StepScales : PageScales<Number> {
  static constexpr bool kShared = true;
  using PageScales<Number>::PageScales;
  KVG_INLINE void Begin(int step, int vector) {
    const int at = this->group_of(vector * kCodeLanes) * this->layout.scale_stride + step;
    scale = SplatScale(this->scales + at);
    if (this->has_zero) zero = SplatHalf(this->zeros + at);
  }
  KVG_INLINE F Apply(F number, int) const {
    const F product = number * scale;
    return this->has_zero ? product + zero : product;
  }
  F scale = {}, zero = {};
};

// Values along kToken with groups of any size.
template <class Number>
struct GatheredScales : PageScales<Number> {
  using PageScales<Number>::PageScales;
  KVG_INLINE void Begin(int step, int vector) {
    for (int i = 0; i < kCodeLanes; ++i) {
      const int lane = vector * kCodeLanes + i;
      const int dim = lane < this->layout.dim ? lane : this->layout.dim - 1;
      const int at = this->group_of(dim) * this->layout.scale_stride + step;
      scale[i] = this->scales[at];
      zero[i] = this->has_zero ? this->zeros[at] : uint16_t{0};
    }
  }
  KVG_INLINE F Apply(F number, int part) const {
    const F product = number * ScaleLanes(scale + part * kLanes);
    return this->has_zero ? product + HalfLanes(zero + part * kLanes) : product;
  }
  Number scale[kCodeLanes];
  uint16_t zero[kCodeLanes];
};

// Ranges of channels, fixed ahead.
struct ChannelRanges {
  static constexpr bool kShared = false;
  ChannelRanges(const CodecPlan& plan, const uint8_t*, const uint16_t*)
      : low(plan.low), high(plan.high), dim(plan.layout.dim) {}
  const float *low, *high;
  const int dim;
};

struct KeyRanges : ChannelRanges {
  using ChannelRanges::ChannelRanges;
  KVG_INLINE void Begin(int step, int) {
    half = Splat(0.5f * high[step] - 0.5f * low[step]);
    middle = Splat(0.5f * low[step] + 0.5f * high[step]);
  }
  KVG_INLINE F Apply(F number, int) const { return number * half + middle; }
  F half = {}, middle = {};
};

struct ValueRanges : ChannelRanges {
  using ChannelRanges::ChannelRanges;
  KVG_INLINE void Begin(int, int vector) { first = vector * kCodeLanes; }
  KVG_INLINE F Apply(F number, int part) const {
    const F bottom = 0.5f * At(low, part), top = 0.5f * At(high, part);
    return number * (top - bottom) + (bottom + top);
  }
  KVG_INLINE F At(const float* range, int part) const {
    const int lane = first + part * kLanes;
    if (lane + kLanes <= dim) return Load(range + lane, Whole{});
    return lane < dim ? Load(range + lane, Part{dim - lane}) : F{};
  }
  int first = 0;
};

// Scales of dims, fixed ahead.
template <KvSide kSide>
struct FixedScales {
  static constexpr bool kShared = false;
  FixedScales(const CodecPlan& plan, const uint8_t*, const uint16_t*) : scales(plan.fixed_scales) {}
  KVG_INLINE void Begin(int step, int vector) {
    for (int part = 0; part < kParts; ++part) {
      scale[part] = kSide == KvSide::kKeys
                        ? Splat(scales[step])
                        : LoadAs<F>(scales + vector * kCodeLanes + part * kLanes);
    }
  }
  KVG_INLINE F Apply(F number, int part) const { return number * scale[part]; }
  const float* scales;
  F scale[kParts] = {};
};

template <class Table, class Scales>
struct TileWriter {
  // Whether numbers come out of tables with the scale of their group in them.
  static constexpr bool kScaledTables = Scales::kShared && Table::kCanScale;

  template <class Number>
  TileWriter(const CodecPlan& plan, const uint8_t* page, const Number* page_scales, float* to)
      : table(plan),
        even_table(plan),
        odd_table(plan),
        scales(plan, page, page_scales),
        steps(plan.layout.steps),
        group_vectors(plan.layout.groups == 1 ? plan.layout.vectors
                                              : plan.layout.group / kCodeLanes),
        row(plan.layout.vectors * kCodeLanes),
        tile(to) {}
  KVG_INLINE void operator()(int pair, int vector, const U* even, const U* odd) {
    const int step = 2 * pair;
    const bool both = step + 1 < steps;
    if (vector == 0) out = tile + int64_t{step} * row;
    if constexpr (kScaledTables) {
      if (vector == 0 || --vectors_left == 0) {
        vectors_left = group_vectors;
        scales.Begin(step, vector);
        even_table = table.Scaled(scales);
        if (both) scales.Begin(step + 1, vector);
        odd_table = table.Scaled(scales);
      }
      Put(even_table, even, out);
      if (both) Put(odd_table, odd, out + row);
    } else {
      scales.Begin(step, vector);
      Put(table, even, out);
      if (both) {
        scales.Begin(step + 1, vector);
        Put(table, odd, out + row);
      }
    }
    out += kCodeLanes;
  }
  KVG_INLINE void Put(const Table& from, const U* codes, float* to) const {
    for (int part = 0; part < kParts; ++part) {
      const F number = from(codes[part]);
      if constexpr (kScaledTables) {
        StoreAs(to + part * kLanes, number);
      } else {
        StoreAs(to + part * kLanes, scales.Apply(number, part));
      }
    }
  }
  const Table table;
  Table even_table, odd_table;
  Scales scales;
  const int steps, group_vectors, row;
  int vectors_left = 0;
  float *const tile, *out = nullptr;
};

#if defined(__AVX512F__)
// Float8 by way of halves, two vectors at a time: a third of the operations.
template <class Table, class Scales, class Number>
void DecodeHalves(const CodecPlan& plan, const uint8_t* page, const Number* page_scales,
                  float* tile) {
  const CodedLayout& layout = plan.layout;
  const int row = layout.vectors * kCodeLanes;
  Scales scales(plan, page, page_scales);
  for (int step = 0; step < layout.steps; step += 2) {
    float* out = tile + int64_t{step} * row;
    for (int vector = 0; vector < layout.vectors; vector += 2, page += kCodeBlockBytes) {
      const U words = LoadAs<U>(page);
      alignas(64) uint16_t halves[2][2][kLanes];
      StoreAs(halves[0], Table::Halves(words, 0));
      StoreAs(halves[1], Table::Halves(words, 1));
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i, out += i % 2 == 0 ? kLanes : 0) {
        F number = HalfLanes(halves[i / 2][i % 2]);
        if constexpr (Table::kUnit != 1.0f) number = number * Table::kUnit;
        scales.Begin(step + i % 2, vector + i / 2);
        StoreAs(out + i % 2 * row, scales.Apply(number, 0));
      }
    }
  }
}
#endif

template <int kBits, class Table, class Scales, class Number>
void DecodeWith(const CodecPlan& plan, const uint8_t* page, const Number* scales, float* tile) {
  const CodedLayout& layout = plan.layout;
#if defined(__AVX512F__)
  if constexpr (requires { Table::kIsFloat8; }) {
    if (layout.vectors % 2 == 0 && layout.steps % 2 == 0) {
      return DecodeHalves<Table, Scales>(plan, page, scales, tile);
    }
  }
#endif
  TileWriter<Table, Scales> write(plan, page, scales, tile);
  if (layout.vectors % 4 == 0 && layout.steps % 2 == 0) {
    ForQuads<kBits>(layout, page, write);
  } else {
    ForSlots<kBits>(layout, page, write);
  }
}

// Scales of groups, wherever they run.
template <int kBits, class Table, class Number>
void DecodeGroups(const CodecPlan& plan, const uint8_t* page, const Number* scales, float* tile) {
  const CodedLayout& layout = plan.layout;
  const bool keys = layout.side == KvSide::kKeys, by_token = layout.axis == CodeAxis::kToken;
  if (keys == by_token) {
    return DecodeWith<kBits, Table, LaneScales<Number>>(plan, page, scales, tile);
  }
  if (keys || layout.groups == 1 || layout.group % kCodeLanes == 0) {
    return DecodeWith<kBits, Table, StepScales<Number>>(plan, page, scales, tile);
  }
  DecodeWith<kBits, Table, GatheredScales<Number>>(plan, page, scales, tile);
}

template <int kBits>
void DecodeBits(const CodecPlan& plan, const uint8_t* page, float* tile) {
  using Table = TableOf<kBits>;
  const CodedLayout& layout = plan.layout;
  const auto* scales = reinterpret_cast<const uint16_t*>(page + layout.scale_offset);
  if constexpr (kBits <= 4) {
    if (plan.low != nullptr) {
      return layout.side == KvSide::kKeys
                 ? DecodeWith<kBits, Table, KeyRanges>(plan, page, scales, tile)
                 : DecodeWith<kBits, Table, ValueRanges>(plan, page, scales, tile);
    }
  }
  DecodeGroups<kBits, Table>(plan, page, scales, tile);
}

template <class Scale>
KVG_INLINE void ForScales(const CodedLayout& layout, float* out, Scale scale) {
  const int count = layout.groups * layout.scale_stride;
  for (int i = 0; i < count; i += kLanes) StoreAs(out + i, scale(i));
}

void ReadScales(const CodecPlan& plan, const void* codes, float* out) {
  const CodedLayout& layout = plan.layout;
  const auto* bytes = static_cast<const uint8_t*>(codes) + layout.scale_offset;
  const auto* halves = reinterpret_cast<const uint16_t*>(bytes);
  const auto* floats = reinterpret_cast<const float*>(bytes);
  const float unit = 0x1p8f * plan.fixed_scale;
  switch (layout.scale) {
    case ScaleType::kNone:
      return;
    case ScaleType::kF16:
      return ForScales(layout, out, [&](int i) KVG_INLINE_LAMBDA { return HalfLanes(halves + i); });
    case ScaleType::kF32:
      return ForScales(layout, out, [&](int i) KVG_INLINE_LAMBDA { return LoadAs<F>(floats + i); });
    case ScaleType::kE8M0:
      return ForScales(layout, out, [&](int i) KVG_INLINE_LAMBDA {
        return FromE8M0(WidenCodes(LoadAs<U8>(bytes + i)));
      });
    case ScaleType::kE4M3:
      return ForScales(layout, out, [&](int i) KVG_INLINE_LAMBDA {
        // Not negative, so as halves that are 2^-8 times the number.
        return Widen(WidenToWords(LoadAs<U8>(bytes + i)) << 7, DType::kF16) * unit;
      });
  }
}

// Scales of one byte, as f32.
void DecodeByteScales(const CodecPlan& plan, const uint8_t* page, float* tile) {
  constexpr int kLeastGroup = 16, kMostDims = 1024;
  alignas(64) float scales[kMostDims / kLeastGroup * kCodePageEntries];
  ReadScales(plan, page, scales);
  DecodeGroups<4, TableOf<4>>(plan, page, scales, tile);
}

template <class Table>
void DecodeFloats(const CodecPlan& plan, const uint8_t* page, float* tile) {
  const auto* scales = reinterpret_cast<const uint16_t*>(page + plan.layout.scale_offset);
  if (plan.layout.scale == ScaleType::kF32) {
    return DecodeGroups<8, Table>(plan, page, reinterpret_cast<const float*>(scales), tile);
  }
  if (plan.fixed_scales == nullptr) {
    return DecodeWith<8, Table, Unscaled>(plan, page, scales, tile);
  }
  if (plan.layout.side == KvSide::kKeys) {
    return DecodeWith<8, Table, FixedScales<KvSide::kKeys>>(plan, page, scales, tile);
  }
  DecodeWith<8, Table, FixedScales<KvSide::kValues>>(plan, page, scales, tile);
}

void DecodePage(const CodecPlan& plan, const void* codes, float* tile) {
  const auto* page = static_cast<const uint8_t*>(codes);
  if (plan.kind == KvCodecKind::kFp8E4M3) return DecodeFloats<Float8<3, 7>>(plan, page, tile);
  if (plan.kind == KvCodecKind::kFp8E5M2) return DecodeFloats<Float8<2, 15>>(plan, page, tile);
  if (plan.layout.scale == ScaleType::kE8M0 || plan.layout.scale == ScaleType::kE4M3) {
    return DecodeByteScales(plan, page, tile);
  }
  switch (plan.layout.bits) {
    case 1:
      return DecodeBits<1>(plan, page, tile);
    case 2:
      return DecodeBits<2>(plan, page, tile);
    case 3:
      return DecodeBits<3>(plan, page, tile);
    case 4:
      return DecodeBits<4>(plan, page, tile);
    case 5:
      return DecodeBits<5>(plan, page, tile);
    default:
      return DecodeBits<8>(plan, page, tile);
  }
}

void CorrectTile(const CodecPlan& plan, const void* latents, const void* basis, float* tile) {
  constexpr int kRanks = 8;  // at a time
  const CodedLayout& layout = plan.layout;
  const auto* a = static_cast<const uint16_t*>(latents);
  const auto* b = static_cast<const uint16_t*>(basis);
  const int rank = plan.rank, dim = layout.dim;
  float columns[kRanks][kCodePageEntries];
  for (int first = 0; first < rank; first += kRanks) {
    const int ranks = rank - first < kRanks ? rank - first : kRanks;
    for (int e = 0; e < kCodePageEntries; ++e) {
      float lanes[kLanes];
      for (int r = 0; r < ranks; r += kLanes) {
        const int count = ranks - r < kLanes ? ranks - r : kLanes;
        StoreAs(lanes, LoadAny(a, DType::kF16, int64_t{e} * rank + first + r, Part{count}));
        for (int i = 0; i < count; ++i) columns[r + i][e] = lanes[i];
      }
    }
    if (layout.side == KvSide::kKeys) {
      for (int c = 0; c < dim; ++c) {
        F factors[kRanks];
        for (int r = 0; r < ranks; ++r) factors[r] = SplatHalf(b + int64_t{first + r} * dim + c);
        float* out = tile + int64_t{c} * kCodePageEntries;
        for (int e = 0; e < kCodePageEntries; e += kLanes) {
          F value = LoadAs<F>(out + e);
          for (int r = 0; r < ranks; ++r) value = value + LoadAs<F>(columns[r] + e) * factors[r];
          StoreAs(out + e, value);
        }
      }
      continue;
    }
    ForLanes(dim, [&](int64_t c, auto count) {
      F factors[kRanks];
      for (int r = 0; r < ranks; ++r) {
        factors[r] = LoadAny(b + int64_t{first + r} * dim, DType::kF16, c, count);
      }
      for (int e = 0; e < kCodePageEntries; ++e) {
        float* out = tile + int64_t{e} * layout.width + c;
        F value = Load(out, count);
        for (int r = 0; r < ranks; ++r) value = value + factors[r] * columns[r][e];
        Store(out, value, count);
      }
    });
  }
}

}  // namespace
}  // namespace kvgauge
