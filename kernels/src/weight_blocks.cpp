// SPDX-License-Identifier: Apache-2.0
#include "kernels/weight_blocks.h"

#include <algorithm>
#include <cmath>

#include "core/dtype.h"

namespace kvgauge {
namespace {

constexpr int64_t kSmallBlock = 32;   // elements of a block of the plain types
constexpr int64_t kLargeBlock = 256;  // of those with two levels of scales

constexpr BlockShape kBlockShapes[kBlockFormats] = {{"q8_0", kSmallBlock, 34},
                                                    {"q4_0", kSmallBlock, 18},
                                                    {"q4_k", kLargeBlock, 144},
                                                    {"q6_k", kLargeBlock, 210}};

float HalfAt(const uint8_t* at) { return F16ToF32(static_cast<uint16_t>(at[0] | at[1] << 8)); }
float FloatOf(int value) { return static_cast<float>(value); }

void ReadBlockQ80(const uint8_t* in, float* out) {
  const float d = HalfAt(in);
  for (int i = 0; i < kSmallBlock; ++i) out[i] = FloatOf(static_cast<int8_t>(in[2 + i])) * d;
}

// Low halves of 16 bytes are elements 0-15, high halves 16-31.
void ReadBlockQ40(const uint8_t* in, float* out) {
  const float d = HalfAt(in);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * FloatOf((in[2 + i] & 15) - 8);
    out[16 + i] = d * FloatOf((in[2 + i] >> 4) - 8);
  }
}

// Runs of 32 bytes hold 64 elements, the first 32 of them low.
void ReadBlockQ4K(const uint8_t* in, float* out) {
  const float d = HalfAt(in), m = HalfAt(in + 2);
  for (int part = 0; part < 8; ++part) {
    const SixBitPair six = SixBitsAt(in + 4, part);
    const float scale = d * FloatOf(six.scale), least = m * FloatOf(six.least);
    const uint8_t* codes = in + 16 + part / 2 * 32;
    for (int i = 0; i < 32; ++i) {
      out[part * 32 + i] = scale * FloatOf(codes[i] >> (part % 2 * 4) & 15) - least;
    }
  }
}

// Runs of 64 bytes hold the low halves of 128 elements, the first 64 of them low; runs of 32 bytes
// their two high bits, the first 32 of them lowest.
void ReadBlockQ6K(const uint8_t* in, float* out) {
  const uint8_t *low = in, *high = in + 128, *scales = in + 192;
  const float d = HalfAt(in + 208);
  for (int i = 0; i < kLargeBlock; ++i) {
    const int nibble = low[i / 128 * 64 + i % 64] >> (i % 128 / 64 * 4) & 15;
    const int pair = high[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
    const int value = (nibble | pair << 4) - 32;
    out[i] = d * FloatOf(static_cast<int8_t>(scales[i / 16])) * FloatOf(value);
  }
}

// The largest size of a number of the block; NaN or infinite where a scale is.
float LargestSize(BlockFormat format, const uint8_t* block) {
  switch (format) {
    case BlockFormat::kQ80:
      return std::abs(HalfAt(block)) * 128.0f;
    case BlockFormat::kQ40:
      return std::abs(HalfAt(block)) * 8.0f;
    case BlockFormat::kQ4K:
      return std::abs(HalfAt(block)) * (63.0f * 15.0f) + std::abs(HalfAt(block + 2)) * 63.0f;
    case BlockFormat::kQ6K:
      return std::abs(HalfAt(block + 208)) * (128.0f * 32.0f);
  }
  return 0.0f;
}

}  // namespace

SixBitPair SixBitsAt(const uint8_t* packed, int part) {
  if (part < 4) return {packed[part] & 63, packed[part + 4] & 63};
  return {(packed[part + 4] & 15) | (packed[part - 4] >> 6) << 4,
          packed[part + 4] >> 4 | (packed[part] >> 6) << 4};
}

const BlockShape& BlockShapeOf(BlockFormat format) {
  return kBlockShapes[static_cast<int>(format)];
}

void ReadBlock(BlockFormat format, const uint8_t* block, float* out) {
  switch (format) {
    case BlockFormat::kQ80:
      return ReadBlockQ80(block, out);
    case BlockFormat::kQ40:
      return ReadBlockQ40(block, out);
    case BlockFormat::kQ4K:
      return ReadBlockQ4K(block, out);
    case BlockFormat::kQ6K:
      return ReadBlockQ6K(block, out);
  }
}

void ReadBlockCodes(BlockFormat format, const uint8_t* block, BlockCodes& out) {
  // The codes are the numbers of the same block with scales of 1 and least values of 0.
  constexpr uint16_t kOne = 0x3c00;
  const auto elements = static_cast<int>(BlockShapeOf(format).elements);
  std::fill_n(out.least, elements / 32, 0.0f);
  uint8_t plain[210];
  std::copy_n(block, BlockShapeOf(format).bytes, plain);
  const auto put_half = [&](int at, uint16_t half) {
    plain[at] = static_cast<uint8_t>(half & 255);
    plain[at + 1] = static_cast<uint8_t>(half >> 8);
  };
  if (format == BlockFormat::kQ6K) {
    const float d = HalfAt(block + 208);
    for (int i = 0; i < 16; ++i) out.scale[i] = d * FloatOf(static_cast<int8_t>(block[192 + i]));
    std::fill_n(plain + 192, 16, uint8_t{1});
    put_half(208, kOne);
  } else if (format == BlockFormat::kQ4K) {
    const float d = HalfAt(block), m = HalfAt(block + 2);
    for (int part = 0; part < 8; ++part) {
      const SixBitPair six = SixBitsAt(block + 4, part);
      out.scale[2 * part] = out.scale[2 * part + 1] = d * FloatOf(six.scale);
      out.least[part] = m * FloatOf(six.least);
    }
    std::fill_n(plain + 4, 4, uint8_t{1});  // the first four scales, then least values
    std::fill_n(plain + 8, 4, uint8_t{0});
    std::fill_n(plain + 12, 4, uint8_t{1});  // low halves: the other scales
    put_half(0, kOne);
    put_half(2, 0);
  } else {
    out.scale[0] = out.scale[1] = HalfAt(block);
    put_half(0, kOne);
  }
  float numbers[kMostBlockElements];
  ReadBlock(format, plain, numbers);
  for (int i = 0; i < elements; ++i) out.codes[i] = static_cast<int>(numbers[i]);
}

bool SurelyFinite(BlockFormat format, const uint8_t* blocks, int64_t count, DType store) {
  const int64_t bytes = BlockShapeOf(format).bytes;
  bool finite = true;
  if (store == DType::kF16) {
    constexpr float kMost = 65504.0f;
    for (int64_t i = 0; i < count; ++i) finite &= LargestSize(format, blocks + i * bytes) <= kMost;
    return finite;
  }
  // f32 and bf16 reach far beyond what finite halves times small integers can be.
  const int64_t at = format == BlockFormat::kQ6K ? 208 : 0;
  const int64_t also = format == BlockFormat::kQ4K ? 2 : at;
  const auto is_finite = [](const uint8_t* half) { return (half[1] & 0x7c) != 0x7c ? 1 : 0; };
  int all = 1;
  for (int64_t i = 0; i < count; ++i, blocks += bytes) {
    all &= is_finite(blocks + at) & is_finite(blocks + also);
  }
  return all == 1;
}

}  // namespace kvgauge
