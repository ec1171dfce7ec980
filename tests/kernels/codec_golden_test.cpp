// SPDX-License-Identifier: Apache-2.0
// Codes and scales worked out by hand or by an independent script, and the error that each format
// makes on normal data.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "backends.h"
#include "codec_stream.h"
#include "core/rng.h"
#include "reference/reference.h"
#include "support/compare.h"

namespace kvgauge {
namespace {

class CodecGolden : public ::testing::Test {
 protected:
  CodecGolden() : backends(CpuBackends(MakeCpuCodec)) {
    backends.push_back({"reference", MakeReferenceCodec()});
  }
  std::vector<Backend<CodecOps>> backends;
};

std::vector<float> Ramp(float step, float first, int n) {
  std::vector<float> x;
  for (int i = 0; i < n; ++i) x.push_back(step * static_cast<float>(i) + first);
  return x;
}

// What rows become on the way through a codec, each side of the cache.
std::vector<float> Through(CodecOps& ops, const KvCodec& codec, const std::vector<float>& rows) {
  CodecStream stream(ops, codec, static_cast<int64_t>(rows.size()) / codec.dim);
  stream.Encode(rows);
  return stream.Decode();
}

// value = scale * code + zero, for a run of codes.
std::vector<float> Values(const std::vector<int>& codes, float scale, float zero) {
  std::vector<float> values;
  for (const int code : codes) {
    const float product = scale * static_cast<float>(code);
    values.push_back(product + zero);
  }
  return values;
}

TEST_F(CodecGolden, AffineRamp) {
  const std::vector<float> x = Ramp(0.5f, -4.0f, 32);
  std::vector<int> two, four;
  for (const auto& [code, count] :
       std::vector<std::pair<int, int>>{{0, 6}, {1, 10}, {2, 10}, {3, 6}}) {
    two.insert(two.end(), count, code);
  }
  // Eight codes a word, first in the lowest bits.
  for (const uint32_t word : {0x33221100u, 0x77665544u, 0xbbaa9988u, 0xffeeddccu}) {
    for (int i = 0; i < 8; ++i) four.push_back(static_cast<int>(word >> (4 * i) & 15));
  }
  const std::vector<float> want_two = Values(two, 5.16796875f, -4.0f);
  const std::vector<float> want_four = Values(four, 1.033203125f, -4.0f);
  for (const auto& [name, ops] : backends) {
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      KvCodec token = AffineCodec(2, CodeAxis::kToken, 32, 32);
      token.side = side;
      EXPECT_TRUE(AllWithin(Through(*ops, token, x), want_two, 0)) << name;
      token.bits = 4;
      EXPECT_TRUE(AllWithin(Through(*ops, token, x), want_four, 0)) << name;
      // The same numbers as 32 entries of one dim.
      KvCodec channel = AffineCodec(2, CodeAxis::kChannel, 32, 1);
      channel.side = side;
      EXPECT_TRUE(AllWithin(Through(*ops, channel, x), want_two, 0)) << name;
      channel.bits = 4;
      EXPECT_TRUE(AllWithin(Through(*ops, channel, x), want_four, 0)) << name;
    }
  }
}

TEST_F(CodecGolden, LlamaBlocks) {
  const int q8[32] = {-127, -119, -111, -102, -94, -86, -78, -70, -61, -53, -45,
                      -37,  -29,  -20,  -12,  -4,  4,   12,  20,  29,  37,  45,
                      53,   61,   70,   78,   86,  94,  102, 111, 119, 127};
  const uint8_t q4[16] = {0x80, 0x91, 0x91, 0xa2, 0xa2, 0xb3, 0xb3, 0xc4,
                          0xc4, 0xd5, 0xd5, 0xe6, 0xe6, 0xf7, 0xf7, 0xf8};
  std::vector<float> x, negated, want8, want4, want4_negated;
  for (int i = 0; i < 32; ++i) {
    x.push_back((static_cast<float>(i) - 15.5f) / 8.0f);
    negated.push_back(-x.back());
    want8.push_back(0.0152587890625f * static_cast<float>(q8[i]));
    const int code =
        i < 16 ? q4[i] & 15 : q4[i - 16] >> 4;  // i in the low, i + 16 in the high half
    want4.push_back(0.2421875f * static_cast<float>(code - 8));
    want4_negated.push_back(-want4.back());
  }
  for (const auto& [name, ops] : backends) {
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      KvCodec codec = PlainCodec(KvCodecKind::kQ8_0, 32);
      codec.side = side;
      EXPECT_TRUE(AllWithin(Through(*ops, codec, x), want8, 0)) << name;
      codec.kind = KvCodecKind::kQ4_0;
      EXPECT_TRUE(AllWithin(Through(*ops, codec, x), want4, 0)) << name;
      EXPECT_TRUE(AllWithin(Through(*ops, codec, negated), want4_negated, 0)) << name;
    }
  }
}

// The same ramp. Five bits: the fifth of all 32 is 0 for the first half and 1 for the second.
TEST_F(CodecGolden, LlamaBlocksWithZerosAndOfFiveBits) {
  std::vector<float> x, want41, want50, want51;
  const uint8_t q41[16] = {0x80, 0x80, 0x91, 0x91, 0xa2, 0xa2, 0xb3, 0xb3,
                           0xc4, 0xc4, 0xd5, 0xd5, 0xe6, 0xe6, 0xf7, 0xf7};
  const uint8_t q50[16] = {0x10, 0x21, 0x32, 0x43, 0x54, 0x65, 0x76, 0x87,
                           0x98, 0xa9, 0xba, 0xcb, 0xdc, 0xed, 0xfe, 0xff};
  for (int i = 0; i < 32; ++i) {
    x.push_back((static_cast<float>(i) - 15.5f) / 8.0f);
    const auto nibble = [&](const uint8_t* codes) {
      return i < 16 ? codes[i] & 15 : codes[i - 16] >> 4;
    };
    want41.push_back(0.25830078125f * static_cast<float>(nibble(q41)) - 1.9375f);
    const int five = nibble(q50) + (i < 16 ? 0 : 16);
    want50.push_back(0.12109375f * static_cast<float>(five - 16));
    want51.push_back(0.125f * static_cast<float>(i) - 1.9375f);
  }
  for (const auto& [name, ops] : backends) {
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      KvCodec codec = PlainCodec(KvCodecKind::kQ4_1, 32);
      codec.side = side;
      EXPECT_TRUE(AllWithin(Through(*ops, codec, x), want41, 0)) << name;
      codec.kind = KvCodecKind::kQ5_0;
      EXPECT_TRUE(AllWithin(Through(*ops, codec, x), want50, 0)) << name;
      codec.kind = KvCodecKind::kQ5_1;
      EXPECT_TRUE(AllWithin(Through(*ops, codec, x), want51, 0)) << name;
    }
  }
}

TEST_F(CodecGolden, FourBitFloats) {
  // The block's largest number is 6: the scale is 1, and ties go to the even code.
  std::vector<float> x = {6, 0.25f, 0.75f, 1.25f, -1.75f, 2.5f, 3.5f, -5, 0.26f, 5.1f, -0.0f};
  std::vector<float> want = {6, 0, 1, 1, -2, 2, 4, -4, 0.5f, 6, 0};
  x.resize(16);
  want.resize(16);
  for (const auto& [name, ops] : backends) {
    EXPECT_TRUE(AllWithin(Through(*ops, PlainCodec(KvCodecKind::kNvFp4, 16), x), want, 0)) << name;
    EXPECT_TRUE(AllWithin(Through(*ops, PlainCodec(KvCodecKind::kMxFp4, 16), x), want, 0)) << name;
  }
  // A power of two below: the largest number, 7.9, stops at 6.
  x[0] = 7.9f;
  for (const auto& [name, ops] : backends) {
    EXPECT_TRUE(AllWithin(Through(*ops, PlainCodec(KvCodecKind::kMxFp4, 16), x), want, 0)) << name;
  }
  // The scale 1.3 / 6 becomes the e4m3 number 0.21875.
  std::vector<float> y(16), want_y(16);
  y[0] = 1.3f;
  want_y[0] = 6 * 0.21875f;
  y[1] = 0.4f;
  want_y[1] = 2 * 0.21875f;
  for (const auto& [name, ops] : backends) {
    EXPECT_TRUE(AllWithin(Through(*ops, PlainCodec(KvCodecKind::kNvFp4, 16), y), want_y, 0))
        << name;
  }
}

TEST_F(CodecGolden, Float8WithScales) {
  // 0x1p-16 is e5m2's smallest; 0x1p-17 a tie.
  const std::vector<float> x = {0.1f, -3.3f, 17, 60000, 0x1p-16f, 0x1p-17f, -1e30f, 1.125f};
  const std::vector<float> want = {0.09375f, -3.5f, 16, 57344, 0x1p-16f, 0, -57344, 1};
  const std::vector<float> three = {3, -896, 1.0f}, doubled = {3, -896, 1};
  const std::vector<float> halved = {3, -224, 1};
  const std::vector<float> half = {0.5f}, each = {1, 2, 0.25f};
  for (const auto& [name, ops] : backends) {
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      KvCodec codec = PlainCodec(KvCodecKind::kFp8E5M2, 8);
      codec.side = side;
      EXPECT_TRUE(AllWithin(Through(*ops, codec, x), want, 0)) << name;
      codec = PlainCodec(KvCodecKind::kFp8E4M3, 3);
      codec.side = side;
      codec.group = 3;  // the scale of the entry is 2
      EXPECT_TRUE(AllWithin(Through(*ops, codec, {3.1f, -896, 1}), doubled, 0)) << name;
      codec.group = 0;
      codec.fixed_scale = View(half, {1});
      EXPECT_TRUE(AllWithin(Through(*ops, codec, three), halved, 0)) << name;
      codec.fixed_scale = View(each, {3});
      EXPECT_TRUE(AllWithin(Through(*ops, codec, three), three, 0)) << name;
    }
  }
}

TEST_F(CodecGolden, BlocksRoundAwayFromZero) {
  // Scale 1: 0.5 becomes 1 and -2.5 becomes -3; the affine codes go to the even neighbour.
  std::vector<float> x = {127, 0.5f, -0.5f, 1.5f, -2.5f, 0.49999997f};
  x.resize(32);
  std::vector<float> want = {127, 1, -1, 2, -3, 0};
  want.resize(32);
  for (const auto& [name, ops] : backends) {
    EXPECT_TRUE(AllWithin(Through(*ops, PlainCodec(KvCodecKind::kQ8_0, 32), x), want, 0)) << name;
  }
  KvCodec even = AffineCodec(8, CodeAxis::kToken, 32, 32);
  even.symmetric = true;
  want[1] = want[2] = 0;
  want[4] = -2;
  for (const auto& [name, ops] : backends) {
    EXPECT_TRUE(AllWithin(Through(*ops, even, x), want, 0)) << name;
  }
}

TEST_F(CodecGolden, ExactScalesAreRoundedBehindTheCodes) {
  // 100 / 255 is 0.39215687, and 0.39208984 in f16: 74.31 is 189.49 steps of the first and 189.52
  // of the second, 42.94 is 109.497 and 109.516.
  const std::vector<float> x = {0, 100, 74.31f, 42.94f};
  const float scale = 0.39208984375f;
  KvCodec codec = AffineCodec(8, CodeAxis::kToken, 4, 4);
  for (const bool exact : {false, true}) {
    codec.exact_scale = exact;
    const float up = exact ? 0 : 1;
    const std::vector<float> want = {0, 255 * scale, (189 + up) * scale, (109 + up) * scale};
    for (const auto& [name, ops] : backends) {
      EXPECT_TRUE(AllWithin(Through(*ops, codec, x), want, 1e-5)) << name << exact;
    }
  }
}

TEST_F(CodecGolden, ClippedRangesGiveWhatIsBeyondThemTheFirstOrLastCode) {
  // From -3 and 6 the ends are -1.5 and 3, from 1 and 4 they are 0.5 and 2: below all numbers.
  const std::vector<float> x = {-3, -1.1f, 0.4f, 6, 1, 1.2f, 2, 4};
  const std::vector<float> want = {-1.5f, -1.5f, 0, 3, 1, 1, 2, 2};
  KvCodec codec = AffineCodec(2, CodeAxis::kToken, 4, 8);
  codec.clip = 0.5f;
  for (const bool exact : {false, true}) {
    codec.exact_scale = exact;
    for (const auto& [name, ops] : backends) {
      EXPECT_TRUE(AllWithin(Through(*ops, codec, x), want, 0)) << name << exact;
    }
  }
}

TEST_F(CodecGolden, Float8) {
  // 1d, 38, c5, 58, 7e, 7e, 00 (a tie to even), 01.
  const std::vector<float> x = {0.1f, 1.0625f, -3.3f, 17, 447, 500, 0x1p-10f, 0x1p-9f, -1e30f};
  const std::vector<float> want = {0.1015625f, 1, -3.25f, 16, 448, 448, 0, 0x1p-9f, -448};
  for (const auto& [name, ops] : backends) {
    EXPECT_TRUE(AllWithin(Through(*ops, PlainCodec(KvCodecKind::kFp8E4M3, 9), x), want, 0)) << name;
  }
  // Every number of the format comes back.
  std::vector<float> all;
  for (int sign : {1, -1}) {
    for (int code = 0; code < 127; ++code) {
      const int exponent = code >> 3, mantissa = code & 7;
      const double size =
          exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
      all.push_back(static_cast<float>(sign * size));
    }
  }
  for (const auto& [name, ops] : backends) {
    EXPECT_TRUE(AllWithin(Through(*ops, PlainCodec(KvCodecKind::kFp8E4M3, 127), all), all, 0))
        << name;
  }
}

TEST_F(CodecGolden, ConstantGroupsAndHugeNumbers) {
  for (const auto& [name, ops] : backends) {
    for (const CodeAxis axis : {CodeAxis::kToken, CodeAxis::kChannel}) {
      for (const int bits : {1, 2, 3, 4, 8}) {
        const KvCodec codec = AffineCodec(bits, axis, 16, 16);
        const std::vector<float> constant(16 * 16, -3.296875f);  // an f16 number
        EXPECT_TRUE(AllWithin(Through(*ops, codec, constant), constant, 0)) << name;
        const std::vector<float> zeros(16 * 16, 0.0f);
        EXPECT_TRUE(AllWithin(Through(*ops, codec, zeros), zeros, 0)) << name;
        // Scale and zero stop at the largest f16; nothing becomes infinite or NaN.
        std::vector<float> huge(16 * 16);
        for (size_t i = 0; i < huge.size(); ++i) {
          huge[i] = i % 2 == 0 ? std::numeric_limits<float>::max() : -1e6f;
        }
        for (const float v : Through(*ops, codec, huge)) {
          EXPECT_TRUE(std::abs(v) <= 65504.0f * 256) << name << " " << v;
        }
      }
    }
  }
}

TEST_F(CodecGolden, CodebookTakesTheNearestLevel) {
  const std::vector<float> levels = {-1, 0, 1, 2};
  const std::vector<float> x = {1, 1, -1, 1};  // root mean square 1
  // Middle 5, half range 2; 4 and 6 are half way between levels: the lower one.
  const std::vector<float> y = {3, 7, 4, 6}, near_y = {3, 7, 3, 5};
  for (const auto& [name, ops] : backends) {
    const KvCodec rms = CodebookCodec(2, CodeRange::kRms, 4, 4, levels);
    EXPECT_TRUE(AllWithin(Through(*ops, rms, x), x, 0)) << name;
    const KvCodec extremes = CodebookCodec(2, CodeRange::kExtremes, 4, 4, levels);
    EXPECT_TRUE(AllWithin(Through(*ops, extremes, y), near_y, 0)) << name;
  }
}

double RelativeError(const std::vector<float>& got, const std::vector<float>& want) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += std::pow(double{got[i]} - want[i], 2);
    norm += std::pow(want[i], 2);
  }
  return std::sqrt(error / norm);
}

TEST_F(CodecGolden, ErrorOnNormalData) {
  constexpr int64_t kDim = 128, kEntries = 640;
  Rng rng(21, 1);
  std::vector<float> x(kDim * kEntries);
  for (float& v : x) v = static_cast<float>(rng.NextGaussian());
  struct Row {
    KvCodec codec;
    double error;
  };
  std::vector<Row> rows = {{PlainCodec(KvCodecKind::kQ8_0, kDim), .00535},
                           {PlainCodec(KvCodecKind::kQ4_0, kDim), .0855},
                           {PlainCodec(KvCodecKind::kQ4_1, kDim), .0782},
                           {PlainCodec(KvCodecKind::kQ5_0, kDim), .0426},
                           {PlainCodec(KvCodecKind::kQ5_1, kDim), .0379},
                           {PlainCodec(KvCodecKind::kFp8E4M3, kDim), .0264},
                           {PlainCodec(KvCodecKind::kFp8E5M2, kDim), .0529}};
  const struct {
    int bits;
    int64_t group;
    double error;
  } affine[] = {{1, 32, 1.40},  {2, 16, .327},  {2, 32, .394},   {2, 64, .449},  {2, 128, .500},
                {3, 16, .139},  {3, 32, .168},  {3, 64, .191},   {3, 128, .213}, {4, 16, .0653},
                {4, 32, .0782}, {4, 64, .0897}, {4, 128, .0995}, {8, 32, .0046}, {8, 128, .0059}};
  for (const auto& a : affine) {
    rows.push_back({AffineCodec(a.bits, CodeAxis::kToken, a.group, kDim), a.error});
    if (a.group > 64) continue;
    rows.push_back({AffineCodec(a.bits, CodeAxis::kChannel, a.group, kDim), a.error});
  }
  std::vector<float> levels[4];
  const double lloyd_max[] = {.601, .341, .185, .0970};
  for (int b = 0; b < 4; ++b) {
    levels[b] = NormalLevels(b + 1);
    rows.push_back({CodebookCodec(b + 1, CodeRange::kRms, kDim, kDim, levels[b]), lloyd_max[b]});
  }
  for (const auto& [name, ops] : backends) {
    if (name == "reference") continue;  // equal to the bit, and slow
    for (const Row& row : rows) {
      EXPECT_NEAR(RelativeError(Through(*ops, row.codec, x), x) / row.error, 1.0, 0.03)
          << name << " " << NameOf(row.codec);
    }
  }
}

}  // namespace
}  // namespace kvgauge
