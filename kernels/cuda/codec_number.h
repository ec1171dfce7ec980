// SPDX-License-Identifier: Apache-2.0
// Device functions: one number of a coded page.
#pragma once

#include "cuda/codec_view.h"
#include "cuda/device/simt.h"

namespace kvgauge::cuda {

KVG_DEVICE float Clamp(float v, float low, float high) {
  return v < low ? low : (high < v ? high : v);
}
KVG_DEVICE uint16_t ClampedHalf(float v) { return FloatToHalf(Clamp(v, -65504.0f, 65504.0f)); }
KVG_DEVICE float AsStored(float v) { return HalfToFloat(ClampedHalf(v)); }

// e4m3: nearest, ties to even, saturating.
KVG_DEVICE int ToFloat8(float v) {
  const float size = Least(Abs(v), 448.0f);
  const int sign = static_cast<int>(BitsOf(v) >> 31) << 7;
  constexpr float kSmallestNormal = 0.015625f;  // 2^-6
  if (size < kSmallestNormal) return sign | static_cast<int>(RoundEven(size * 512.0f));
  const int exponent = static_cast<int>(BitsOf(size) >> 23) - 127;
  // In [8, 16]; 16 carries into the exponent.
  const float eighths = size * FloatOf(static_cast<uint32_t>(127 + 3 - exponent) << 23);
  return sign | (((exponent + 7) << 3) + static_cast<int>(RoundEven(eighths)) - 8);
}
KVG_DEVICE float FromFloat8(int code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  const float size = exponent == 0 ? static_cast<float>(mantissa) * 0.001953125f
                                   : FloatOf(static_cast<uint32_t>(exponent + 120) << 23 |
                                             static_cast<uint32_t>(mantissa) << 20);
  return code & 0x80 ? -size : size;
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
  const auto* scales = reinterpret_cast<const uint16_t*>(codes + CodeBytes(c));
  return {HalfToFloat(scales[index]), c.has_zeros ? HalfToFloat(scales[c.scales + index]) : 0.0f};
}

// What a code stands for, without correction and outliers.
KVG_DEVICE float CodedNumber(const CodecView& c, const uint8_t* codes, int entry, int dim) {
  const int code = CodeAt(c, codes, entry, dim);
  if (c.kind == KvCodecKind::kFp8E4M3) return FromFloat8(code);
  const CodeRangeOf range =
      c.fixed_range ? FixedRange(c, dim) : StoredRange(c, codes, ScaleIndex(c, entry, dim));
  const float number =
      c.kind == KvCodecKind::kCodebook ? c.levels[code] : static_cast<float>(code - c.shift);
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
