// SPDX-License-Identifier: Apache-2.0
// Outliers and the low-rank correction beside the codes.
#include <gtest/gtest.h>

#include <cmath>

#include "backends.h"
#include "codec_stream.h"
#include "core/rng.h"
#include "reference/reference.h"
#include "support/compare.h"

namespace kvgauge {
namespace {

class CodecSides : public ::testing::Test {
 protected:
  CodecSides() : twin(MakeReferenceCodec()), backends(CpuBackends(MakeCpuCodec, {1, 2, 4})) {}
  std::unique_ptr<CodecOps> twin;
  std::vector<Backend<CodecOps>> backends;
};

double SquaredError(const std::vector<float>& got, const std::vector<float>& want) {
  double error = 0;
  for (size_t i = 0; i < want.size(); ++i) error += std::pow(double{got[i]} - want[i], 2);
  return error;
}

std::vector<KvCodec> BothSides(const KvCodec& codec) {
  KvCodec values = codec;
  values.side = KvSide::kValues;
  return {codec, values};
}

TEST_F(CodecSides, OutliersAgreeWithTwinToTheBit) {
  const int64_t entries = 192;
  for (const int64_t dim : {5, 64, 80}) {
    std::vector<float> rows = RandomValues(entries * dim, 31 + dim);
    for (int64_t i = 0; i < 64; ++i) rows[i * dim + i % dim] = i % 2 == 0 ? 1.0f : 1e6f;
    for (int64_t i = 0; i < 4 * dim; ++i) rows[100 * dim + i] = static_cast<float>(i % 3);  // ties
    for (const CodeAxis axis : {CodeAxis::kToken, CodeAxis::kChannel}) {
      for (const double share : {0.005, 0.02, 0.1, 0.5, 1.0}) {
        KvCodec codec = AffineCodec(2, axis, axis == CodeAxis::kToken ? dim : 32, dim);
        codec.outlier_share = share;
        for (const KvCodec& side : BothSides(codec)) {
          CodecStream want(*twin, side, entries);
          want.Encode(rows);
          const std::vector<float> wanted = want.Decode();
          for (const auto& [name, ops] : backends) {
            SCOPED_TRACE(StrCat(name, " ", NameOf(side)));
            CodecStream got(*ops, side, entries);
            got.Encode(rows);
            ASSERT_TRUE(AllWithin(got.Decode(), wanted, 0));
            ASSERT_TRUE(got.Intact());
            int64_t declared = 0;
            for (int64_t p = 0; p < 3; ++p) {
              const int64_t count = ops->OutlierCount(got.pages().outliers[p]);
              ASSERT_EQ(count, twin->OutlierCount(want.pages().outliers[p]));
              if (count == 0) continue;
              declared += ops->OutlierBytes(count);
              ASSERT_EQ(std::memcmp(got.pages().outliers[p], want.pages().outliers[p],
                                    static_cast<size_t>(ops->OutlierBytes(count))),
                        0);
            }
            ASSERT_EQ(declared, got.requested(CodecOps::Block::kOutliers));
          }
        }
      }
    }
  }
}

TEST_F(CodecSides, OutliersHandWorked) {
  // 64 entries of one dim: 0 .. 63 with 1000 and -1000 in places 5 and 9. A share of 1/32 is one on
  // each side; what is left spans 0 .. 63, which 8 bits hold to a quarter of a step.
  KvCodec codec = AffineCodec(8, CodeAxis::kChannel, 64, 1);
  codec.outlier_share = 1.0 / 32;
  std::vector<float> rows;
  for (int i = 0; i < 64; ++i) rows.push_back(static_cast<float>(i));
  rows[5] = 1000;
  rows[9] = -1000;
  for (const auto& [name, ops] : backends) {
    CodecStream stream(*ops, codec, 64);
    stream.Encode(rows);
    EXPECT_TRUE(AllWithin(stream.Decode(), rows, 0.125)) << name;
    ASSERT_EQ(ops->OutlierCount(stream.pages().outliers[0]), 2) << name;
    uint16_t pairs[4];
    std::memcpy(pairs, static_cast<uint8_t*>(stream.pages().outliers[0]) + 4, sizeof pairs);
    EXPECT_EQ(pairs[0], 5) << name;
    EXPECT_EQ(F16ToF32(pairs[1]), 1000) << name;
    EXPECT_EQ(pairs[2], 9) << name;
    EXPECT_EQ(F16ToF32(pairs[3]), -1000) << name;
  }
}

TEST_F(CodecSides, ErrorFallsWithTheShare) {
  const int64_t dim = 64, entries = 128;
  const std::vector<float> rows = RandomValues(entries * dim, 8);
  for (const auto& [name, ops] : backends) {
    for (const CodeAxis axis : {CodeAxis::kToken, CodeAxis::kChannel}) {
      double last = 1e30;
      for (const double share : {0.0, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0}) {
        KvCodec codec = AffineCodec(2, axis, 64, dim);
        codec.outlier_share = share;
        CodecStream stream(*ops, codec, entries);
        stream.Encode(rows);
        const std::vector<float> got = stream.Decode();
        const double error = SquaredError(got, rows);
        EXPECT_LE(error, last) << name << " share " << share;
        last = error;
        if (share < 1) continue;
        for (size_t i = 0; i < rows.size(); ++i) ASSERT_EQ(got[i], F16ToF32(F32ToF16(rows[i])));
      }
    }
  }
}

TEST_F(CodecSides, FixedRangesKeepWhatIsOutside) {
  const int64_t dim = 80, entries = 128;
  const std::vector<float> rows = RandomValues(entries * dim, 9);
  std::vector<float> low, high;
  for (int64_t c = 0; c < dim; ++c) {
    low.push_back(-2.0f - 0.01f * static_cast<float>(c));
    high.push_back(c == 7 ? low[7] : 1.5f);  // an empty range: all but its value are outside
  }
  for (const int bits : {1, 2, 3, 4}) {
    std::vector<float> levels;
    for (int i = 0; i < 1 << bits; ++i) {
      levels.push_back(-1.0f + 2.0f * static_cast<float>(i) / static_cast<float>((1 << bits) - 1));
    }
    KvCodec codec = CodebookCodec(bits, CodeRange::kExtremes, 0, dim, levels);
    codec.axis = CodeAxis::kChannel;
    codec.channel_low = View(low, {dim});
    codec.channel_high = View(high, {dim});
    for (const KvCodec& side : BothSides(codec)) {
      CodecStream want(*twin, side, entries);
      want.Encode(rows);
      const std::vector<float> wanted = want.Decode();
      EXPECT_EQ(CodedBytes(side, 64).logical(), twin->PageBytes(side));
      for (const auto& [name, ops] : backends) {
        SCOPED_TRACE(StrCat(name, " ", NameOf(side)));
        CodecStream got(*ops, side, entries);
        got.Encode(rows);
        const std::vector<float> decoded = got.Decode();
        ASSERT_TRUE(AllWithin(decoded, wanted, 0));
        EXPECT_EQ(ops->PageBytes(side), twin->PageBytes(side));
        int64_t outside = 0;
        for (int64_t i = 0; i < entries * dim; ++i) {
          const int64_t c = i % dim;
          const bool kept = rows[i] < low[c] || rows[i] > high[c];
          outside += kept ? 1 : 0;
          const double half_step = (high[c] - low[c]) / ((1 << bits) - 1) / 2;
          const double bound = kept ? std::abs(rows[i]) / 2048 : half_step * 1.0001;
          ASSERT_LE(std::abs(decoded[i] - rows[i]), bound) << i;
        }
        EXPECT_EQ(
            ops->OutlierCount(got.pages().outliers[0]) + ops->OutlierCount(got.pages().outliers[1]),
            outside);
      }
    }
  }
}

TEST_F(CodecSides, ErrorFallsWithTheRank) {
  const int64_t dim = 32, entries = 128;
  std::vector<float> rows = RandomValues(entries * dim, 10);
  // Something of low rank in it, which uniform codes cannot see.
  for (int64_t i = 0; i < entries * dim; ++i) {
    rows[i] += 2.0f * static_cast<float>(i / dim % 7) * static_cast<float>(i % dim % 5);
  }
  for (const KvCodec& base : BothSides(AffineCodec(2, CodeAxis::kToken, 32, dim))) {
    std::vector<std::vector<float>> first;  // of the first backend
    for (const auto& [name, ops] : backends) {
      double last = 1e30;
      size_t step = 0;
      for (const int64_t rank : {0, 1, 2, 4, 8, 16, 32}) {
        SCOPED_TRACE(StrCat(name, " ", NameOf(base), " rank ", rank));
        KvCodec codec = base;
        codec.rank = rank;
        CodecStream stream(*ops, codec, entries);
        stream.Encode(rows);
        const std::vector<float> got = stream.Decode();
        const double error = SquaredError(got, rows);
        EXPECT_LE(error, last);
        last = error;
        EXPECT_EQ(
            stream.requested(CodecOps::Block::kLatents) + stream.requested(CodecOps::Block::kBasis),
            CodedBytes(codec, entries).low_rank);
        EXPECT_TRUE(stream.Intact());
        if (rank == dim) {
          EXPECT_LE(std::sqrt(error / static_cast<double>(rows.size())), 0.003);
        }
        // Threads and instruction sets do not show.
        if (first.size() <= step) first.push_back(got);
        EXPECT_TRUE(AllWithin(got, first[step++], 0));
      }
    }
  }
}

TEST_F(CodecSides, CorrectionAgreesWithTwin) {
  const int64_t dim = 80, entries = 192;
  const std::vector<float> rows = RandomValues(entries * dim, 12);
  for (KvCodec codec : BothSides(AffineCodec(2, CodeAxis::kChannel, 64, dim))) {
    codec.rank = 4;
    for (const double share : {0.0, 0.05}) {
      codec.outlier_share = share;
      CodecStream want(*twin, codec, entries);
      want.Encode(rows);
      const std::vector<float> wanted = want.Decode();
      for (const auto& [name, ops] : backends) {
        CodecStream got(*ops, codec, entries);
        got.Encode(rows);
        // Numbers of the correction are below 16; their factors have 11 bits.
        EXPECT_TRUE(AllWithin(got.Decode(), wanted, 16.0 / 1024)) << name << " " << share;
        EXPECT_NEAR(SquaredError(got.Decode(), rows) / SquaredError(wanted, rows), 1.0, 1e-3);
      }
    }
  }
}

TEST_F(CodecSides, NothingToCorrect) {
  const int64_t dim = 16;
  const std::vector<float> rows(64 * dim, 1.5f);
  KvCodec codec = AffineCodec(2, CodeAxis::kToken, 16, dim);
  codec.rank = 3;
  backends.push_back({"reference", MakeReferenceCodec()});
  for (const auto& [name, ops] : backends) {
    CodecStream stream(*ops, codec, 64);
    stream.Encode(rows);
    EXPECT_TRUE(AllWithin(stream.Decode(), rows, 0)) << name;
  }
}

}  // namespace
}  // namespace kvgauge
