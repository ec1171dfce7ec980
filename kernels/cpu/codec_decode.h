// SPDX-License-Identifier: Apache-2.0
// From codes to numbers, over lanes.h; included by codec_impl.h.
#pragma once

#include "cpu/code_lanes.h"
#include "cpu/codec_kernels.h"

namespace kvgauge {
namespace {

constexpr int kParts = kCodeLanes / kLanes;  // registers of a vector of 16 lanes

// put(pair, vector, even, odd) for every slot of a page, in order; the codes are the low bits of
// even[part], odd[part], with other codes above them.
template <int kBits, class Put>
KVG_INLINE void ForSlots(const CodedLayout& layout, const uint8_t* page, Put& put) {
  constexpr int kField = kBits == 3 ? 2 : kBits;
  constexpr int kSlots = 16 / kField;
  const uint8_t* high = page + layout.high_offset;
  int pair = 0, vector = 0;
  for (int block = 0, left = layout.slots; left > 0; ++block, left -= kSlots) {
    U words[kParts], tops[kParts] = {};
    for (int part = 0; part < kParts; ++part) {
      words[part] = LoadAs<U>(page + block * kCodeBlockBytes + part * 4 * kLanes);
      if constexpr (kBits == 3) {
        tops[part] = LoadAs<U>(high + block / 2 * kCodeBlockBytes + part * 4 * kLanes) >>
                     (block % 2 * 8);
      }
    }
    const int count = left < kSlots ? left : kSlots;
    for (int slot = 0; slot < count; ++slot) {
      U even[kParts], odd[kParts];
      for (int part = 0; part < kParts; ++part) {
        even[part] = words[part];
        odd[part] = words[part] >> 16;
        if constexpr (kBits == 3) {
          even[part] = (even[part] & 3u) | (tops[part] & 1u) << 2;
          odd[part] = (odd[part] & 3u) | (tops[part] >> 16 & 1u) << 2;
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

template <>
struct TableOf<8> {
  explicit TableOf(const CodecPlan& plan) : offset(plan.offset) {}
  KVG_INLINE F operator()(U index) const { return IntsAsF(index & 0xffu) - offset; }
  float offset;
};

// Sign, 4 bits of exponent with bias 7, 3 bits of mantissa.
struct Float8 {
  explicit Float8(const CodecPlan&) {}
  KVG_INLINE F operator()(U index) const {
    const U magnitude = index & 0x7fu;
    const F normal = (F)((magnitude << 20) + (120u << 23));
    const F subnormal = IntsAsF(magnitude) * 0x1p-9f;
    const F value = magnitude < 8u ? subnormal : normal;
    return (F)((U)value | (index & 0x80u) << 24);
  }
};

// ---- Where scales come from. Scales::Begin(step, vector) is called for each vector of a step in
// order, then At(part). ----

struct Unscaled {
  static constexpr bool kScaled = false;
  Unscaled(const CodecPlan&, const uint8_t*) {}
  KVG_INLINE void Begin(int, int) {}
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

struct PageScales {
  static constexpr bool kScaled = true;
  PageScales(const CodecPlan& plan, const uint8_t* page)
      : layout(plan.layout),
        group_of(layout.group),
        scales(reinterpret_cast<const uint16_t*>(page + layout.scale_offset)),
        zeros(reinterpret_cast<const uint16_t*>(page + layout.zero_offset)),
        has_zero(layout.zero_offset != 0) {}
  const CodedLayout& layout;
  const Divider group_of;
  const uint16_t *scales, *zeros;
  const bool has_zero;
};

// Every lane has its own: keys along kToken, values along kChannel.
struct LaneScales : PageScales {
  using PageScales::PageScales;
  KVG_INLINE void Begin(int step, int vector) {
    at = group_of(step) * layout.scale_stride + vector * kCodeLanes;
  }
  KVG_INLINE F Scale(int part) const { return HalfLanes(scales + at + part * kLanes); }
  KVG_INLINE F Zero(int part) const { return HalfLanes(zeros + at + part * kLanes); }
  int at = 0;
};

// The lanes of a vector share one: keys along kChannel, values along kToken whose groups are whole
// vectors.
struct StepScales : PageScales {
  using PageScales::PageScales;
  KVG_INLINE void Begin(int step, int vector) {
    const int at = group_of(vector * kCodeLanes) * layout.scale_stride + step;
    scale = SplatHalf(scales + at);
    if (has_zero) zero = SplatHalf(zeros + at);
  }
  KVG_INLINE F Scale(int) const { return scale; }
  KVG_INLINE F Zero(int) const { return zero; }
  F scale = {}, zero = {};
};

// Values along kToken with groups of any size.
struct GatheredScales : PageScales {
  using PageScales::PageScales;
  KVG_INLINE void Begin(int step, int vector) {
    for (int i = 0; i < kCodeLanes; ++i) {
      const int lane = vector * kCodeLanes + i;
      const int dim = lane < layout.dim ? lane : layout.dim - 1;
      const int at = group_of(dim) * layout.scale_stride + step;
      scale[i] = scales[at];
      zero[i] = has_zero ? zeros[at] : uint16_t{0};
    }
  }
  KVG_INLINE F Scale(int part) const { return HalfLanes(scale + part * kLanes); }
  KVG_INLINE F Zero(int part) const { return HalfLanes(zero + part * kLanes); }
  uint16_t scale[kCodeLanes], zero[kCodeLanes];
};

// Ranges of channels, fixed ahead.
struct ChannelRanges {
  static constexpr bool kScaled = true;
  ChannelRanges(const CodecPlan& plan, const uint8_t*)
      : low(plan.low), high(plan.high), dim(plan.layout.dim) {}
  const float *low, *high;
  const int dim;
  static constexpr bool has_zero = true;
};

struct KeyRanges : ChannelRanges {
  using ChannelRanges::ChannelRanges;
  KVG_INLINE void Begin(int step, int) {
    scale = Splat(0.5f * high[step] - 0.5f * low[step]);
    zero = Splat(0.5f * low[step] + 0.5f * high[step]);
  }
  KVG_INLINE F Scale(int) const { return scale; }
  KVG_INLINE F Zero(int) const { return zero; }
  F scale = {}, zero = {};
};

struct ValueRanges : ChannelRanges {
  using ChannelRanges::ChannelRanges;
  KVG_INLINE void Begin(int, int vector) { first = vector * kCodeLanes; }
  KVG_INLINE F Scale(int part) const { return 0.5f * At(high, part) - 0.5f * At(low, part); }
  KVG_INLINE F Zero(int part) const { return 0.5f * At(low, part) + 0.5f * At(high, part); }
  KVG_INLINE F At(const float* range, int part) const {
    const int lane = first + part * kLanes;
    if (lane + kLanes <= dim) return Load(range + lane, Whole{});
    return lane < dim ? Load(range + lane, Part{dim - lane}) : F{};
  }
  int first = 0;
};

template <class Table, class Scales>
struct TileWriter {
  TileWriter(const CodecPlan& plan, const uint8_t* page, float* out)
      : table(plan),
        scales(plan, page),
        steps(plan.layout.steps),
        row(plan.layout.vectors * kCodeLanes),
        tile(out) {}
  KVG_INLINE void operator()(int pair, int vector, const U* even, const U* odd) {
    Put(2 * pair, vector, even);
    if (2 * pair + 1 < steps) Put(2 * pair + 1, vector, odd);
  }
  KVG_INLINE void Put(int step, int vector, const U* codes) {
    scales.Begin(step, vector);
    float* out = tile + int64_t{step} * row + vector * kCodeLanes;
    for (int part = 0; part < kParts; ++part) {
      F value = table(codes[part]);
      if constexpr (Scales::kScaled) {
        value = value * scales.Scale(part);
        if (scales.has_zero) value = value + scales.Zero(part);
      }
      StoreAs(out + part * kLanes, value);
    }
  }
  const Table table;
  Scales scales;
  const int steps, row;
  float* tile;
};

template <int kBits, class Table, class Scales>
void DecodeWith(const CodecPlan& plan, const uint8_t* page, float* tile) {
  TileWriter<Table, Scales> write(plan, page, tile);
  ForSlots<kBits>(plan.layout, page, write);
}

template <int kBits>
void DecodeBits(const CodecPlan& plan, const uint8_t* page, float* tile) {
  using Table = TableOf<kBits>;
  const CodedLayout& layout = plan.layout;
  const bool keys = layout.side == KvSide::kKeys, by_token = layout.axis == CodeAxis::kToken;
  if (plan.low != nullptr) {
    return keys ? DecodeWith<kBits, Table, KeyRanges>(plan, page, tile)
                : DecodeWith<kBits, Table, ValueRanges>(plan, page, tile);
  }
  if (keys == by_token) return DecodeWith<kBits, Table, LaneScales>(plan, page, tile);
  if (keys || layout.groups == 1 || layout.group % kCodeLanes == 0) {
    return DecodeWith<kBits, Table, StepScales>(plan, page, tile);
  }
  DecodeWith<kBits, Table, GatheredScales>(plan, page, tile);
}

void DecodePage(const CodecPlan& plan, const void* codes, float* tile) {
  const auto* page = static_cast<const uint8_t*>(codes);
  if (plan.kind == KvCodecKind::kFp8E4M3) return DecodeWith<8, Float8, Unscaled>(plan, page, tile);
  switch (plan.layout.bits) {
    case 1:
      return DecodeBits<1>(plan, page, tile);
    case 2:
      return DecodeBits<2>(plan, page, tile);
    case 3:
      return DecodeBits<3>(plan, page, tile);
    case 4:
      return DecodeBits<4>(plan, page, tile);
    default:
      return DecodeBits<8>(plan, page, tile);
  }
}

void CorrectTile(const CodecPlan& plan, const void* latents, const void* basis, float* tile) {
  const CodedLayout& layout = plan.layout;
  const auto* a = static_cast<const uint16_t*>(latents);
  const auto* b = static_cast<const uint16_t*>(basis);
  const int rank = plan.rank, dim = layout.dim;
  for (int r = 0; r < rank; ++r, b += dim) {
    float column[kCodePageEntries];
    for (int e = 0; e < kCodePageEntries; ++e) column[e] = F16ToF32(a[e * rank + r]);
    if (layout.side == KvSide::kKeys) {
      for (int c = 0; c < dim; ++c) {
        const F x = Splat(F16ToF32(b[c]));
        float* out = tile + int64_t{c} * kCodePageEntries;
        for (int e = 0; e < kCodePageEntries; e += kLanes) {
          StoreAs(out + e, LoadAs<F>(out + e) + LoadAs<F>(column + e) * x);
        }
      }
      continue;
    }
    for (int e = 0; e < kCodePageEntries; ++e) {
      float* out = tile + int64_t{e} * layout.width;
      ForLanes(dim, [&](int64_t c, auto count) {
        const F product = LoadAny(b, DType::kF16, c, count) * column[e];
        Store(out + c, Load(out + c, count) + product, count);
      });
    }
  }
}

}  // namespace
}  // namespace kvgauge
