// SPDX-License-Identifier: Apache-2.0
// Device functions: one number of a coded page.
#pragma once

#include "cuda/codec_view.h"
#include "cuda/device/simt.h"
#include "src/record_code.h"

namespace kvgauge::cuda {

KVG_DEVICE float Clamp(float v, float low, float high) {
  return v < low ? low : (high < v ? high : v);
}
KVG_DEVICE uint16_t ClampedHalf(float v) { return FloatToHalf(Clamp(v, -65504.0f, 65504.0f)); }
KVG_DEVICE float AsStored(float v) { return HalfToFloat(ClampedHalf(v)); }

// Floats of 8 bits: nearest, ties to even, saturating.
struct Float8Form {
  int mantissa, bias;
  float largest, least_normal, per_step;  // of subnormals
};
KVG_DEVICE Float8Form FormOfFloat8(KvCodecKind kind) {
  if (kind == KvCodecKind::kFp8E5M2) return {2, 15, 57344.0f, 0x1p-14f, 0x1p16f};
  return {3, 7, 448.0f, 0x1p-6f, 0x1p9f};
}
KVG_DEVICE int ToFloat8(const Float8Form& form, float v) {
  const float size = Least(Abs(v), form.largest);
  const int sign = static_cast<int>(BitsOf(v) >> 31) << 7;
  if (size < form.least_normal) return sign | static_cast<int>(RoundEven(size * form.per_step));
  const int exponent = static_cast<int>(BitsOf(size) >> 23) - 127;
  // In [2^mantissa, 2^(mantissa + 1)]; the upper end carries into the exponent.
  const float parts = size * FloatOf(static_cast<uint32_t>(127 + form.mantissa - exponent) << 23);
  return sign | (((exponent + form.bias) << form.mantissa) + static_cast<int>(RoundEven(parts)) -
                 (1 << form.mantissa));
}
KVG_DEVICE float FromFloat8(const Float8Form& form, int code) {
  const int magnitude = code & 127, exponent = magnitude >> form.mantissa;
  const float size = exponent == 0
                         ? static_cast<float>(magnitude) / form.per_step
                         : FloatOf((static_cast<uint32_t>(magnitude) << (23 - form.mantissa)) +
                                   (static_cast<uint32_t>(127 - form.bias) << 23));
  return code & 0x80 ? -size : size;
}

// e2m1 likewise: each line is where a number ends.
KVG_DEVICE int ToFloat4(float v) {
  const float size = Abs(v);
  int code = static_cast<int>(BitsOf(v) >> 31) << 3;
  code += size > 0.25f ? 1 : 0;
  code += size >= 0.75f ? 1 : 0;
  code += size > 1.25f ? 1 : 0;
  code += size >= 1.75f ? 1 : 0;
  code += size > 2.5f ? 1 : 0;
  code += size >= 3.5f ? 1 : 0;
  code += size > 5.0f ? 1 : 0;
  return code;
}

// 2^(code - 127).
KVG_DEVICE float FromE8M0(int code) {
  return FloatOf(code == 0 ? 0x00400000u : static_cast<uint32_t>(code) << 23);
}

KVG_DEVICE int CodeAt(const CodecView& c, const uint8_t* codes, int entry, int dim) {
  const int bit = CodeIndex(c, entry, dim) * c.bits;
  uint32_t bytes = codes[bit >> 3];
  if ((bit & 7) + c.bits > 8) bytes |= static_cast<uint32_t>(codes[(bit >> 3) + 1]) << 8;
  return static_cast<int>(bytes >> (bit & 7) & ((1u << c.bits) - 1));
}

struct CodeRangeOf {
  float scale, zero;
};
KVG_DEVICE CodeRangeOf FixedRange(const CodecView& c, int dim) {
  const float low = 0.5f * c.low[dim], high = 0.5f * c.high[dim];
  return {high - low, low + high};
}
KVG_DEVICE CodeRangeOf StoredRange(const CodecView& c, const uint8_t* codes, int index) {
  const uint8_t* const stored = codes + CodeBytes(c);
  const auto* scales = reinterpret_cast<const uint16_t*>(stored);
  switch (c.scale) {
    case ScaleType::kF32:
      return {reinterpret_cast<const float*>(stored)[index], 0.0f};
    case ScaleType::kE4M3:
      return {FromFloat8(FormOfFloat8(KvCodecKind::kFp8E4M3), stored[index]) * c.scale_unit, 0.0f};
    case ScaleType::kE8M0:
      return {FromE8M0(stored[index]), 0.0f};
    default:
      return {HalfToFloat(scales[index]),
              c.has_zeros ? HalfToFloat(scales[c.scales + index]) : 0.0f};
  }
}
// What a float8 without stored scales is multiplied by.
KVG_DEVICE float FixedScale(const CodecView& c, int dim) {
  return c.fixed_scale == nullptr ? 1.0f : c.fixed_scale[dim];
}

// For records.
struct DeviceMath {
  KVG_MEMBER static uint32_t Bits(float v) { return BitsOf(v); }
  KVG_MEMBER static float Float(uint32_t bits) { return FloatOf(bits); }
  KVG_MEMBER static uint16_t ToHalf(float v) { return ClampedHalf(v); }
  KVG_MEMBER static float FromHalf(uint16_t bits) { return HalfToFloat(bits); }
  KVG_MEMBER static float Root(float v) { return Sqrt(v); }
  KVG_MEMBER static float Even(float v) { return RoundEven(v); }
  KVG_MEMBER static int Ones(uint32_t bits) { return PopCount(bits); }
  KVG_MEMBER static float Angle(float y, float x) {
    constexpr double kTurn = 6.283185307179586;
    const double angle = ::atan2(static_cast<double>(y), static_cast<double>(x));
    return static_cast<float>(angle < 0 ? angle + kTurn : angle);
  }
  KVG_MEMBER static float Cosine(float v) { return static_cast<float>(::cos(double{v})); }
  KVG_MEMBER static float Sine(float v) { return static_cast<float>(::sin(double{v})); }
};

// What a code stands for, without correction and outliers.
KVG_DEVICE float CodedNumber(const CodecView& c, const uint8_t* codes, int entry, int dim) {
  if (HoldsRecords(c)) return record::RecordNumber<DeviceMath>(c.record, codes, entry, dim);
  const int code = CodeAt(c, codes, entry, dim);
  const bool float8 = c.kind == KvCodecKind::kFp8E4M3 || c.kind == KvCodecKind::kFp8E5M2;
  if (float8 && c.scale == ScaleType::kNone) {
    return FixedScale(c, dim) * FromFloat8(FormOfFloat8(c.kind), code);
  }
  const CodeRangeOf range =
      c.fixed_range ? FixedRange(c, dim) : StoredRange(c, codes, ScaleIndex(c, entry, dim));
  const float number = float8         ? FromFloat8(FormOfFloat8(c.kind), code)
                       : c.has_levels ? c.levels[code]
                                      : static_cast<float>(code - c.shift);
  const float product = range.scale * number;
  return c.fixed_range || c.has_zeros ? product + range.zero : product;
}

KVG_DEVICE float CorrectedNumber(const CodecView& c, const CodedPage& page, int entry, int dim) {
  float value = CodedNumber(c, page.codes, entry, dim);
  for (int r = 0; r < c.rank; ++r) {
    value = value + HalfToFloat(page.latents[entry * c.rank + r]) *
                        HalfToFloat(page.basis[r * c.dim + dim]);
  }
  return value;
}

KVG_DEVICE int OutliersOf(const uint8_t* block) {
  return block == nullptr ? 0 : static_cast<int>(*reinterpret_cast<const uint32_t*>(block));
}
struct Outlier {
  int place;
  float value;
};
KVG_DEVICE Outlier OutlierAt(const uint8_t* block, int i) {
  const uint32_t pair = reinterpret_cast<const uint32_t*>(block)[1 + i];
  return {static_cast<int>(pair & 0xffff), HalfToFloat(static_cast<uint16_t>(pair >> 16))};
}
// The first outlier at `place` or behind it.
KVG_DEVICE int FirstOutlier(const uint8_t* block, int place) {
  int low = 0, high = OutliersOf(block);
  while (low < high) {
    const int middle = (low + high) / 2;
    if (OutlierAt(block, middle).place < place) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

KVG_DEVICE float DecodedNumber(const CodecView& c, const CodedPage& page, int entry, int dim) {
  if (page.outliers != nullptr) {
    const int place = dim * kPageEntries + entry;
    const int i = FirstOutlier(page.outliers, place);
    if (i < OutliersOf(page.outliers)) {
      const Outlier found = OutlierAt(page.outliers, i);
      if (found.place == place) return found.value;
    }
  }
  return CorrectedNumber(c, page, entry, dim);
}

}  // namespace kvgauge::cuda
