// SPDX-License-Identifier: Apache-2.0
// From numbers to codes, over lanes.h; included by codec_impl.h. Each step is one f32 operation,
// rounded once, in the order that the reference backend has too.
#pragma once

#include "cpu/codec/code_lanes.h"
#include "cpu/codec/codec_kernels.h"

namespace kvgauge {
namespace {

constexpr float kLargestF16 = 65504.0f;
constexpr float kSmallestNormal = 0x1p-126f;  // whose reciprocal is finite
constexpr float kFar = __builtin_inff();      // a finite number divided by it is 0

KVG_INLINE float Clamped(float v) {
  return v > kLargestF16 ? kLargestF16 : v < -kLargestF16 ? -kLargestF16 : v;
}
KVG_INLINE F Clamped(F v) { return Min(Max(v, Splat(-kLargestF16)), Splat(kLargestF16)); }
KVG_INLINE float StoreHalf(uint16_t* p, float v) {
#if defined(__AVX2__)
  const U16 half = Narrow(Splat(Clamped(v)), DType::kF16);
  *p = half[0];
  return Widen(half, DType::kF16)[0];
#else
  *p = F32ToF16(Clamped(v));
  return F16ToF32(*p);
#endif
}

struct Extremes {
  float low, high;
  // In size.
  KVG_INLINE float Largest() const { return (high > -low ? high : -low) + 0.0f; }
};
KVG_INLINE Extremes ExtremesOf(const float* x, int64_t n) {
  F low = Splat(x[0]), high = low;
  ForLanes(n, [&](int64_t i, auto count) {
    const F v = KeepOr(Load(x + i, count), count, x[0]);
    low = Min(v, low);
    high = Max(v, high);
  });
  // No -0: which zero comes first depends on the number of lanes.
  return {0.0f - MaxLanes(-low), MaxLanes(high) + 0.0f};
}

template <class CodeOf>
KVG_INLINE void PutCodes(const float* x, int64_t n, uint8_t* codes, CodeOf code_of) {
  ForLanes(
      n, [&](int64_t i, auto count) { StoreCodes(codes + i, code_of(Load(x + i, count)), count); });
}

KVG_INLINE I ToInts(F v) { return __builtin_convertvector(v, I); }

KVG_INLINE float InverseOf(float d) {
  const float size = d < 0 ? -d : d;
  return size >= kSmallestNormal ? 1.0f / d : 0.0f;
}

// Nearest code to v, ties to even, clamped.
KVG_INLINE I NearestCode(F v, F top) { return ToInts(Round(Min(Max(v, F{}), top))); }

KVG_INLINE void CodeAffineGroup(const CodecPlan& plan, const float* x, int64_t n, uint8_t* codes,
                                uint16_t* scale, uint16_t* zero) {
  const Extremes of = ExtremesOf(x, n);
  const F top = Splat(static_cast<float>((1 << plan.layout.bits) - 1));
  if (plan.symmetric) {
    const float middle = plan.offset;
    const float step = StoreHalf(scale, of.Largest() / (middle - 1));
    const float divisor = step == 0 ? kFar : step;
    // Rounded before it is shifted: ties go to even distances from 0.
    PutCodes(x, n, codes, [&](F v) {
      const F near = Min(Max(v / divisor, Splat(-middle)), Splat(middle - 1));
      return ToInts(Round(near) + middle);
    });
    return;
  }
  const float low = of.low * plan.clip + 0.0f, high = of.high * plan.clip + 0.0f;
  const float exact = (high - low) / top[0];
  const float step = StoreHalf(scale, exact), shift = StoreHalf(zero, low);
  if (plan.exact_scale) {
    const float inverse = InverseOf(exact);
    return PutCodes(x, n, codes, [&](F v) { return NearestCode((v - low) * inverse, top); });
  }
  const float divisor = step == 0 ? kFar : step;
  PutCodes(x, n, codes, [&](F v) { return NearestCode((v - shift) / divisor, top); });
}

void CodeQ8(const float* x, int64_t n, uint8_t* codes, uint16_t* scale) {
  const Extremes of = ExtremesOf(x, n);
  const float d = of.Largest() / 127.0f;
  const float inverse = d >= kSmallestNormal ? 1.0f / d : 0.0f;
  StoreHalf(scale, d);
  PutCodes(x, n, codes, [&](F v) {
    const F scaled = v * inverse;
    const I whole = ToInts(scaled);  // towards 0
    const F rest = scaled - __builtin_convertvector(whole, F);
    // Half away from zero; a comparison that holds is -1.
    const I code = whole - (I)(rest >= 0.5f) + (I)(rest <= -0.5f);
    return code + 128;
  });
}

// The number that is largest in size, with its sign; of two, the first.
KVG_INLINE float SignedLargest(const float* x, int64_t n) {
  const Extremes of = ExtremesOf(x, n);
  if (of.high != -of.low) return of.high > -of.low ? of.high : of.low;
  int64_t i = 0;
  while (x[i] != of.high && x[i] != of.low) ++i;
  return x[i];
}

// Q4_0, Q5_0: codes count from `middle`.
void CodeFromMiddle(const CodecPlan& plan, const float* x, int64_t n, uint8_t* codes,
                    uint16_t* scale) {
  const float middle = plan.offset;
  const float d = SignedLargest(x, n) / -middle, inverse = InverseOf(d);
  StoreHalf(scale, d);
  const F top = Splat(middle + (middle - 1));
  PutCodes(x, n, codes, [&](F v) { return ToInts(Min(v * inverse + (middle + 0.5f), top)); });
}

// Q4_1, Q5_1.
void CodeFromLeast(const CodecPlan& plan, const float* x, int64_t n, uint8_t* codes,
                   uint16_t* scale, uint16_t* zero) {
  const Extremes of = ExtremesOf(x, n);
  const F top = Splat(static_cast<float>((1 << plan.layout.bits) - 1));
  const float d = (of.high - of.low) / top[0], inverse = InverseOf(d), low = of.low;
  StoreHalf(scale, d);
  StoreHalf(zero, low);
  PutCodes(x, n, codes, [&](F v) { return ToInts(Min((v - low) * inverse + 0.5f, top)); });
}

// Floats of 8 bits: of mantissa, the exponent's bias, and the largest of them.
template <int kMantissa, int kBias>
struct Float8Form {
  static constexpr int kShift = 23 - kMantissa;
  static constexpr float kLargest = kMantissa == 3 ? 448.0f : 57344.0f;
  static constexpr float kLeastNormal = kMantissa == 3 ? 0x1p-6f : 0x1p-14f;
  static constexpr float kPerStep = kMantissa == 3 ? 0x1p9f : 0x1p16f;  // of subnormals
  KVG_INLINE static I Code(F v) {
    const F size = Min(Abs(v), Splat(kLargest));
    const U bits = (U)size;
    constexpr uint32_t kHalf = (1u << (kShift - 1)) - 1;
    const U normal =
        ((bits + kHalf + (bits >> kShift & 1u)) >> kShift) - ((127u - kBias) << kMantissa);
    const I subnormal = ToInts(Round(size * kPerStep));
    const I magnitude = size < kLeastNormal ? subnormal : (I)normal;
    return magnitude | (I)((U)v >> 24 & 0x80u);
  }
};
using E4M3 = Float8Form<3, 7>;
using E5M2 = Float8Form<2, 15>;

// e4m3 of one number that is not negative.
KVG_INLINE uint8_t E4M3Of(float v) { return static_cast<uint8_t>(E4M3::Code(Splat(v))[0]); }

template <class Form>
void CodeFloats(const CodecPlan& plan, const float* x, int64_t n, int64_t first, uint8_t* codes,
                float* scale) {
  if (plan.layout.scale == ScaleType::kF32) {
    *scale = ExtremesOf(x, n).Largest() / Form::kLargest;
    const float divisor = *scale == 0 ? kFar : *scale;
    return PutCodes(x, n, codes, [&](F v) { return Form::Code(v / divisor); });
  }
  if (plan.fixed_scales == nullptr) {
    return PutCodes(x, n, codes, [](F v) { return Form::Code(v); });
  }
  const float* fixed = plan.fixed_scales + first;
  ForLanes(n, [&](int64_t i, auto count) {
    const F divisor = KeepOr(Load(fixed + i, count), count, 1.0f);
    StoreCodes(codes + i, Form::Code(Load(x + i, count) / divisor), count);
  });
}

// Nearest of e2m1, ties to the even code: its numbers end before these.
KVG_INLINE I Float4Of(F v) {
  const F size = Abs(v);
  I code = (I)((U)v >> 28 & 8u);
  code -= (I)(size > 0.25f);
  code -= (I)(size >= 0.75f);
  code -= (I)(size > 1.25f);
  code -= (I)(size >= 1.75f);
  code -= (I)(size > 2.5f);
  code -= (I)(size >= 3.5f);
  code -= (I)(size > 5.0f);
  return code;
}

void CodeMxFp4(const float* x, int64_t n, uint8_t* codes, uint8_t* scale) {
  const float largest = ExtremesOf(x, n).Largest();
  const uint32_t exponent = __builtin_bit_cast(uint32_t, largest) >> 23;
  *scale = static_cast<uint8_t>(exponent < 2 ? 0 : exponent - 2);
  const float power = FromE8M0(*scale);
  PutCodes(x, n, codes, [&](F v) { return Float4Of(v / power); });
}

void CodeNvFp4(const CodecPlan& plan, const float* x, int64_t n, uint8_t* codes, uint8_t* scale) {
  *scale = E4M3Of(ExtremesOf(x, n).Largest() / 6.0f / plan.fixed_scale);
  const float step = FromE4M3(*scale) * plan.fixed_scale;
  const float divisor = step == 0 ? kFar : step;
  PutCodes(x, n, codes, [&](F v) { return Float4Of(v / divisor); });
}

KVG_INLINE I LevelOf(const CodecPlan& plan, F v) {
  I code = {};
  for (int i = 0; i + 1 < 1 << plan.layout.bits; ++i) code -= (I)(v > plan.thresholds[i]);
  return code;
}

float Dot(const float* x, const float* y, int64_t n) {
  F sums[kParts] = {};
  int64_t i = 0;
  for (; i + kCodeLanes <= n; i += kCodeLanes) {
    for (int part = 0; part < kParts; ++part) {
      const int64_t at = i + part * kLanes;
      sums[part] = sums[part] + LoadAs<F>(x + at) * LoadAs<F>(y + at);
    }
  }
  float chains[kCodeLanes];
  for (int part = 0; part < kParts; ++part) StoreAs(chains + part * kLanes, sums[part]);
  for (int lane = 0; i < n; ++i, ++lane) chains[lane] = chains[lane] + x[i] * y[i];
  for (int half = kCodeLanes / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) chains[lane] = chains[lane] + chains[lane + half];
  }
  return chains[0];
}

// Codes by the scale that maps the largest number to the first level; stored is the scale that is
// best for these codes, numbers weighed by their squares.
void CodeUneven(const CodecPlan& plan, const float* x, int64_t n, uint8_t* codes, uint16_t* scale) {
  constexpr int kMost = 32;  // of a block
  const float d = SignedLargest(x, n) / plan.table[0], inverse = InverseOf(d);
  float scaled[kMost] = {}, levels[kMost] = {}, weighed[kMost] = {};
  ForLanes(n, [&](int64_t i, auto count) {
    const F v = Load(x + i, count) * inverse;
    I code = {};
    for (int t = 0; t < 15; ++t) code -= (I)(v >= plan.thresholds[t]);
    StoreCodes(codes + i, code, count);
    Store(scaled + i, v, count);
  });
  for (int64_t i = 0; i < n; ++i) {
    levels[i] = plan.table[codes[i]];
    weighed[i] = scaled[i] * scaled[i] * levels[i];
  }
  const float met = Dot(weighed, scaled, n), own = Dot(weighed, levels, n);
  StoreHalf(scale, own > 0 ? met / own * d : d);
}

void CodeLevelGroup(const CodecPlan& plan, const float* x, int64_t n, uint8_t* codes,
                    uint16_t* scale, uint16_t* zero) {
  float half = 0, middle = 0;
  if (plan.range == CodeRange::kRms) {
    half = StoreHalf(scale, __builtin_sqrtf(Dot(x, x, n) / static_cast<float>(n)));
  } else if (plan.range == CodeRange::kLargest) {
    half = StoreHalf(scale, ExtremesOf(x, n).Largest());
  } else {
    const Extremes of = ExtremesOf(x, n);
    half = StoreHalf(scale, 0.5f * of.high - 0.5f * of.low);
    middle = StoreHalf(zero, 0.5f * of.low + 0.5f * of.high);
  }
  const float divisor = half == 0 ? kFar : half;
  PutCodes(x, n, codes, [&](F v) { return LevelOf(plan, (v - middle) / divisor); });
}

void CodeFixedRange(const CodecPlan& plan, const float* x, uint8_t* codes) {
  ForLanes(plan.layout.dim, [&](int64_t i, auto count) {
    const F low = 0.5f * Load(plan.low + i, count), high = 0.5f * Load(plan.high + i, count);
    const F half = high - low, middle = low + high;
    const F divisor = half == 0.0f ? Splat(kFar) : half;
    StoreCodes(codes + i, LevelOf(plan, (Load(x + i, count) - middle) / divisor), count);
  });
}

void CodeEntry(const CodecPlan& plan, const float* x, uint8_t* codes, void* scales,
               uint16_t* zero) {
  const CodedLayout& layout = plan.layout;
  if (plan.low != nullptr) return CodeFixedRange(plan, x, codes);
  for (int at = 0, g = 0; at < layout.dim; at += layout.group, ++g) {
    const int n = layout.dim - at < layout.group ? layout.dim - at : layout.group;
    const int64_t index = int64_t{g} * layout.scale_stride;
    auto* const scale = static_cast<uint16_t*>(scales) + index;
    switch (plan.kind) {
      case KvCodecKind::kFp8E4M3:
        CodeFloats<E4M3>(plan, x + at, n, at, codes + at, static_cast<float*>(scales) + index);
        break;
      case KvCodecKind::kFp8E5M2:
        CodeFloats<E5M2>(plan, x + at, n, at, codes + at, static_cast<float*>(scales) + index);
        break;
      case KvCodecKind::kMxFp4:
        CodeMxFp4(x + at, n, codes + at, static_cast<uint8_t*>(scales) + index);
        break;
      case KvCodecKind::kNvFp4:
        CodeNvFp4(plan, x + at, n, codes + at, static_cast<uint8_t*>(scales) + index);
        break;
      case KvCodecKind::kQ8_0:
        CodeQ8(x + at, n, codes + at, scale);
        break;
      case KvCodecKind::kQ4_0:
      case KvCodecKind::kQ5_0:
        CodeFromMiddle(plan, x + at, n, codes + at, scale);
        break;
      case KvCodecKind::kQ4_1:
      case KvCodecKind::kQ5_1:
        CodeFromLeast(plan, x + at, n, codes + at, scale, zero);
        break;
      case KvCodecKind::kIq4Nl:
        CodeUneven(plan, x + at, n, codes + at, scale);
        break;
      case KvCodecKind::kCodebook:
        CodeLevelGroup(plan, x + at, n, codes + at, scale, zero);
        break;
      default:
        CodeAffineGroup(plan, x + at, n, codes + at, scale, zero);
    }
    zero += layout.scale_stride;
  }
}

template <class Count>
KVG_INLINE F StoreHalves(uint16_t* p, F v, Count count) {
  StoreAny(p, DType::kF16, 0, Clamped(v), count);
  return LoadAny(p, DType::kF16, 0, count);
}

void CodeChannels(const CodecPlan& plan, const float* x, int64_t stride, const RangedRows& ranged,
                  uint8_t* codes, uint16_t* scale, uint16_t* zero) {
  const CodedLayout& layout = plan.layout;
  const F top = Splat(static_cast<float>((1 << layout.bits) - 1));
  ForLanes(layout.dim, [&](int64_t c, auto count) {
    F low = Load(ranged.first + c, count), high = low;
    for (int64_t e = 1; e < ranged.count; ++e) {
      const F v = Load(ranged.first + e * ranged.stride + c, count);
      low = Min(v, low);
      high = Max(v, high);
    }
    low = low + 0.0f;
    high = high + 0.0f;
    const bool symmetric = plan.symmetric;
    const float middle = plan.offset;
    F step, shift = {};
    if (symmetric) {
      step = StoreHalves(scale + c, (Max(high, -low) + 0.0f) / (middle - 1), count);
    } else {
      step = StoreHalves(scale + c, (high - low) / top, count);
      shift = StoreHalves(zero + c, low, count);
    }
    const F divisor = step == 0.0f ? Splat(kFar) : step;
    for (int e = 0; e < layout.group; ++e) {
      const F ratio = (Load(x + e * stride + c, count) - shift) / divisor;
      I code;
      if (symmetric) {
        code = ToInts(Round(Min(Max(ratio, Splat(-middle)), Splat(middle - 1))) + middle);
      } else {
        code = NearestCode(ratio, top);
      }
      StoreCodes(codes + int64_t{e} * layout.width + c, code, count);
    }
  });
}

// ---- Codes to fields. ----

typedef uint8_t U8x16 __attribute__((vector_size(16)));

// to[j][i] = from[i][j], 16 by 16 bytes: four rounds that interleave rows i and i + 8.
KVG_INLINE void TransposeBytes(const uint8_t* from, int64_t from_row, uint8_t* to, int64_t to_row) {
  U8x16 a[16], b[16];
  for (int i = 0; i < 16; ++i) a[i] = LoadAs<U8x16>(from + i * from_row);
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 8; ++i) {
      b[2 * i] = __builtin_shufflevector(a[i], a[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21,
                                         6, 22, 7, 23);
      b[2 * i + 1] = __builtin_shufflevector(a[i], a[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28,
                                             13, 29, 14, 30, 15, 31);
    }
    for (int i = 0; i < 16; ++i) a[i] = b[i];
  }
  for (int i = 0; i < 16; ++i) StoreAs(to + i * to_row, a[i]);
}

// Codes of some steps: lane l of step s at codes + s * row + l. What may be written: all, or steps
// or lanes [begin, end).
struct CodeMatrix {
  const uint8_t* codes;
  int64_t row;
  int vectors, slots;
  int begin, end;
  enum { kAll, kSteps, kLaneRange } mask;
};

KVG_INLINE U InRange(const CodeMatrix& m, int step, int vector, int part) {
  if (m.mask == CodeMatrix::kSteps) {
    return step >= m.begin && step < m.end ? ~U{} : U{};
  }
  I lane;
  for (int i = 0; i < kLanes; ++i) lane[i] = i;
  lane += vector * kCodeLanes + part * kLanes;
  return (U)((lane >= m.begin) & (lane < m.end));
}

// Fields of kField bits: bits kShift and up of the codes.
template <int kField, int kShift>
void PackFields(const CodeMatrix& m, uint8_t* page) {
  constexpr int kSlots = 16 / kField;
  constexpr uint32_t kMask = (1u << kField) - 1;
  const bool masked = m.mask != CodeMatrix::kAll;
  // Blocks without a step in range stay as they are.
  int begin = 0, end = m.slots;
  if (m.mask == CodeMatrix::kSteps) {
    begin = m.begin / 2 * m.vectors / kSlots * kSlots;
    end = (m.end + 1) / 2 * m.vectors;
    page += int64_t{begin} / kSlots * kCodeBlockBytes;
  }
  for (int first = begin; first < end; first += kSlots, page += kCodeBlockBytes) {
    U words[kParts] = {}, kept[kParts] = {};
    for (int part = 0; part < kParts; ++part) {
      int pair = first / m.vectors, vector = first % m.vectors;
      const int count = m.slots - first < kSlots ? m.slots - first : kSlots;
      for (int slot = 0; slot < count; ++slot) {
        const uint8_t* even = m.codes + 2 * pair * m.row + vector * kCodeLanes + part * kLanes;
        const U low = WidenCodes(LoadAs<U8>(even)), high = WidenCodes(LoadAs<U8>(even + m.row));
        words[part] |= ((low | high << 16) >> kShift & (kMask | kMask << 16)) << (slot * kField);
        if (masked) {
          const U ours = (InRange(m, 2 * pair, vector, part) & kMask) |
                         (InRange(m, 2 * pair + 1, vector, part) & kMask << 16);
          kept[part] |= ours << (slot * kField);
        }
        if (++vector == m.vectors) {
          vector = 0;
          ++pair;
        }
      }
      uint8_t* to = page + part * 4 * kLanes;
      if (masked) words[part] |= LoadAs<U>(to) & ~kept[part];
      StoreAs(to, words[part]);
    }
  }
}

void PackMatrix(const CodecPlan& plan, const CodeMatrix& m, int first_slot, uint8_t* page) {
  const auto at = [&](int field) { return int64_t{first_slot} * field / 16 * kCodeBlockBytes; };
  switch (plan.layout.bits) {
    case 1:
      return PackFields<1, 0>(m, page + at(1));
    case 2:
      return PackFields<2, 0>(m, page + at(2));
    case 3:
      PackFields<2, 0>(m, page + at(2));
      return PackFields<1, 2>(m, page + plan.layout.high_offset + at(1));
    case 4:
      return PackFields<4, 0>(m, page + at(4));
    case 5:
      PackFields<4, 0>(m, page + at(4));
      return PackFields<1, 4>(m, page + plan.layout.high_offset + at(1));
    default:
      return PackFields<8, 0>(m, page + at(8));
  }
}

// One entry of keys, field by field.
template <int kField, int kShift>
void InsertFields(const CodedLayout& layout, const uint8_t* codes, int entry, uint8_t* page) {
  constexpr int kSlots = 16 / kField;
  constexpr uint32_t kMask = (1u << kField) - 1;
  page += entry % kCodeLanes * 4;
  for (int dim = 0; dim < layout.dim; ++dim) {
    const int slot = dim / 2 * (kCodePageEntries / kCodeLanes) + entry / kCodeLanes;
    uint8_t* at = page + int64_t{slot} / kSlots * kCodeBlockBytes;
    const int bit = slot % kSlots * kField + dim % 2 * 16;
    const uint32_t field = (uint32_t{codes[dim]} >> kShift & kMask) << bit;
    StoreAs(at, (LoadAs<uint32_t>(at) & ~(kMask << bit)) | field);
  }
}

void InsertKey(const CodedLayout& layout, const uint8_t* codes, int entry, uint8_t* page) {
  switch (layout.bits) {
    case 1:
      return InsertFields<1, 0>(layout, codes, entry, page);
    case 2:
      return InsertFields<2, 0>(layout, codes, entry, page);
    case 3:
      InsertFields<2, 0>(layout, codes, entry, page);
      return InsertFields<1, 2>(layout, codes, entry, page + layout.high_offset);
    case 4:
      return InsertFields<4, 0>(layout, codes, entry, page);
    case 5:
      InsertFields<4, 0>(layout, codes, entry, page);
      return InsertFields<1, 4>(layout, codes, entry, page + layout.high_offset);
    default:
      return InsertFields<8, 0>(layout, codes, entry, page);
  }
}

void Pack(const CodecPlan& plan, const uint8_t* codes, int begin, int end, void* to) {
  const CodedLayout& layout = plan.layout;
  auto* page = static_cast<uint8_t*>(to);
  const bool all = begin == 0 && end == kCodePageEntries;
  if (layout.side == KvSide::kValues) {
    return PackMatrix(plan,
                      {codes, layout.width, layout.vectors, layout.slots, begin, end,
                       all ? CodeMatrix::kAll : CodeMatrix::kSteps},
                      0, page);
  }
  constexpr int kFewEntries = 4;  // as one token after the other brings
  if (end - begin <= kFewEntries) {
    for (int e = begin; e < end; ++e) {
      InsertKey(layout, codes + int64_t{e} * layout.width, e, page);
    }
    return;
  }
  // 16 dims of all entries at a time, turned so that entries are the lanes.
  constexpr int kStripSlots = kCodeLanes / 2 * (kCodePageEntries / kCodeLanes);
  uint8_t strip[kCodeLanes * kCodePageEntries];
  for (int dim = 0, slot = 0; dim < layout.dim; dim += kCodeLanes, slot += kStripSlots) {
    for (int e = 0; e < kCodePageEntries; e += 16) {
      TransposeBytes(codes + int64_t{e} * layout.width + dim, layout.width, strip + e,
                     kCodePageEntries);
    }
    const int left = layout.slots - slot;
    PackMatrix(plan,
               {strip, kCodePageEntries, layout.vectors, left < kStripSlots ? left : kStripSlots,
                begin, end, all ? CodeMatrix::kAll : CodeMatrix::kLaneRange},
               slot, page);
  }
}

void AddScaled(float a, const float* x, int64_t n, float* y) {
  ForLanes(n, [&](int64_t i, auto count) {
    Store(y + i, Load(y + i, count) + Load(x + i, count) * a, count);
  });
}

void NearestWords(const float* rest, const float* words, int count, int width, int32_t* nearest) {
  constexpr int kVectors = 4;  // of entries; enough that no sum waits for itself
  for (int e = 0; e < kCodePageEntries; e += kVectors * kLanes) {
    F least[kVectors] = {};
    I best[kVectors] = {};
    for (int code = 0; code < count; ++code) {
      const float* const word = words + int64_t{code} * width;
      F distance[kVectors] = {};
      for (int d = 0; d < width; ++d) {
        const F number = Splat(word[d]);
        const float* const of_dim = rest + int64_t{d} * kCodePageEntries + e;
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          const F off = LoadAs<F>(of_dim + v * kLanes) - number;
          distance[v] = distance[v] + off * off;
        }
      }
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const I nearer = code == 0 ? I{} - 1 : distance[v] < least[v];
        least[v] = nearer ? distance[v] : least[v];
        best[v] = nearer ? I{} + code : best[v];
      }
    }
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) StoreAs(nearest + e + v * kLanes, best[v]);
  }
}

}  // namespace
}  // namespace kvgauge
