// SPDX-License-Identifier: Apache-2.0
// A block takes a row. Groups of few numbers are a warp's each, longer ones and whole rows one
// after the other the block's. The largest size and the rounding have the same bits in any order.
#include "cuda/elements.h"
#include "cuda/reduce.h"
#include "cuda/rounded_rows.h"

namespace kvgauge::cuda {
namespace {

constexpr uint32_t kInfinityBits = 0x7f800000u, kLeastNormalBits = 0x00800000u;
constexpr uint32_t kSizeBits = 0x7fffffffu;  // all but the sign

// RowScale.
KVG_DEVICE float ScaleOf(const RowRounding& rounding, float largest) {
  const float scale = largest / (rounding.codes == RowRounding::Codes::kInt8 ? 127.5f : 448.0f);
  if (scale == 0.0f) return 1.0f;
  const uint32_t bits = BitsOf(scale);
  if (!rounding.powers || bits >= kInfinityBits) return scale;
  if (bits >= kLeastNormalBits) {
    return FloatOf((bits + (kLeastNormalBits - 1)) & kInfinityBits);
  }
  uint32_t power = 1;
  while (power < bits) power *= 2;
  return FloatOf(power);
}

KVG_DEVICE float Held(float value, float least, float most) {
  const float above = value < least ? least : value;  // NaN stays
  return above > most ? most : above;
}

// SpanCodes.
KVG_DEVICE ScaleAndZero CodesOfSpan(float below, float above) {
  const float scale = (above + below) / 255.0f;
  if (scale == 0.0f) return {};
  return {scale, RoundEven(Held(below / scale - 128.0f, -128.0f, 127.0f))};
}

// What the nearest code stands for, by the scale. It is found by adding a number so large that the
// sum has no room for what is below the last bit, and taking it away; so no zero is negative.
KVG_DEVICE float Nearest(RowRounding::Codes codes, float value, float zero) {
  if (codes == RowRounding::Codes::kInt8) {
    constexpr float kWhole = 0x1.8p23f;  // here floats are whole numbers
    return (Held(value + zero, -128.0f, 127.0f) + kWhole) - (kWhole + zero);
  }
  // A power of two from 2^-6 to 2^8 times 1.5 * 2^20: floats there are an eighth of it apart.
  constexpr uint32_t kLeast = (127 - 6) << 23, kMost = (127 + 8) << 23;
  constexpr uint32_t kUp = (20 << 23) | 0x400000;
  const float held = Held(value, -448.0f, 448.0f);
  const uint32_t power = Least(Most(BitsOf(held) & kInfinityBits, kLeast), kMost);
  const float large = FloatOf(power + kUp);
  return (held + large) - large;
}

KVG_DEVICE float AsType(DType dtype, float value) {
  if (dtype == DType::kF16) return HalfToFloat(FloatToHalf(value));
  if (dtype == DType::kBF16) return Bf16ToFloat(FloatToBf16(value));
  return value;
}

// Numbers [begin, end) of a row, which share a scale.
template <class Team>
KVG_DEVICE void RoundGroup(const RoundedRows& p, const RowRounding& by, int64_t row, int64_t begin,
                           int64_t end) {
  const int64_t from = row / p.share * p.x_stride, to = row * p.padded_k;
  const auto number = [&](int64_t j) { return AsType(p.dtype, LoadAs(p.x_dtype, p.x, from + j)); };
  ScaleAndZero own{by.scale, by.zero};
  if (by.scale == 0.0f) {
    // Sizes in order of their bits, where NaN is behind all others. For a span also those below 0.
    uint32_t largest = 0, below = 0;
    for (int64_t j = begin + Team::index(); j < end; j += Team::kThreads) {
      const uint32_t bits = BitsOf(number(j)), size = bits & kSizeBits;
      if (by.spans && bits != size) {
        below = Most(below, size);
      } else {
        largest = Most(largest, size);
      }
    }
    const auto most = [](uint32_t a, uint32_t b) { return Most(a, b); };
    largest = Team::Reduce(largest, most);
    if (by.spans) {
      own = CodesOfSpan(FloatOf(Team::Reduce(below, most)), FloatOf(largest));
    } else {
      own = {ScaleOf(by, FloatOf(largest)), 0.0f};
    }
  }
  for (int64_t j = begin + Team::index(); j < end; j += Team::kThreads) {
    StoreAs(p.dtype, p.out, to + j, Nearest(by.codes, number(j) / own.scale, own.zero) * own.scale);
  }
}

KVG_KERNEL(kBlockThreads)
RoundRowKernel(RoundedRows p) {
  const int64_t row = BlockX(), count = row < p.m ? p.k : 0;
  for (int64_t j = count + Thread(); j < p.padded_k; j += kBlockThreads) {
    StoreAs(p.dtype, p.out, row * p.padded_k + j, 0.0f);
  }
  if (count == 0) return;  // the whole block
  const MatrixRounding how = p.of != nullptr ? p.of[p.choice[row]] : p.all;
  if (!how.rounds) {
    for (int64_t j = Thread(); j < count; j += kBlockThreads) {
      StoreAs(p.dtype, p.out, row * p.padded_k + j,
              LoadAs(p.x_dtype, p.x, row / p.share * p.x_stride + j));
    }
    return;
  }
  const int64_t group = how.by.group > 0 ? how.by.group : count;
  if (group < count && group <= kWarpRow) {
    for (int64_t i = WarpIndex() * group; i < count; i += kBlockWarps * group) {
      RoundGroup<WarpTeam>(p, how.by, row, i, Least(i + group, count));
    }
  } else {
    for (int64_t i = 0; i < count; i += group) {
      RoundGroup<BlockTeam>(p, how.by, row, i, Least(i + group, count));
    }
  }
}

}  // namespace

void RoundRowsToCodes(const RoundedRows& rows, Stream stream) {
  KVG_LAUNCH(RoundRowKernel, {.grid_x = rows.padded_m, .threads = kBlockThreads}, stream, rows);
}

}  // namespace kvgauge::cuda
