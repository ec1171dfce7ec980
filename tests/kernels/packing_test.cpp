// SPDX-License-Identifier: Apache-2.0
#include "kernels/packing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends.h"
#include "core/rng.h"
#include "reference/reference.h"
#include "support/compare.h"

namespace kvgauge {
namespace {

class EveryPackingBackend : public ::testing::Test {
 protected:
  EveryPackingBackend()
      : twin(MakeReferencePacking()), backends(CpuBackends(MakeCpuPacking, {1, 2, 4})) {
    backends.push_back({"reference", MakeReferencePacking()});
  }
  std::unique_ptr<PackingOps> twin;
  std::vector<Backend<PackingOps>> backends;
};

Tensor Bytes(std::vector<uint8_t>& bytes, int64_t rows) {
  return {bytes.data(), DType::kU8, {rows, static_cast<int64_t>(bytes.size()) / rows}};
}

// The format, bit by bit: code i sits at bits [i * bits, (i + 1) * bits).
int Bit(const uint8_t* bytes, int64_t i) { return bytes[i / 8] >> (i % 8) & 1; }

TEST_F(EveryPackingBackend, PackHandWorked) {
  for (const auto& [name, ops] : backends) {
    std::vector<uint8_t> two = {1, 2, 3, 0, 2}, packed(2);
    ops->PackBits(Bytes(two, 1), 2, Bytes(packed, 1));
    EXPECT_THAT(packed, ::testing::ElementsAre(0b00111001, 0b10)) << name;
    std::vector<uint8_t> four = {1, 15, 7};
    ops->PackBits(Bytes(four, 1), 4, Bytes(packed, 1));
    EXPECT_THAT(packed, ::testing::ElementsAre(0xf1, 0x07)) << name;
    std::vector<uint8_t> three = {5, 1, 6};  // 110 001 101 from the top
    ops->PackBits(Bytes(three, 1), 3, Bytes(packed, 1));
    EXPECT_THAT(packed, ::testing::ElementsAre(0b10001101, 0b1)) << name;
  }
}

TEST_F(EveryPackingBackend, PackAndUnpackAgainstBitLoop) {
  Rng rng(1, 1);
  for (const int bits : {1, 2, 3, 4, 8}) {
    for (const int64_t n : {1, 2, 7, 8, 9, 15, 31, 32, 63, 64, 65, 127, 128, 129, 500, 3000}) {
      const int64_t m = 5, bytes = (n * bits + 7) / 8;
      Matrix codes(DType::kU8, m, n, 3);
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          codes.row<uint8_t>(i)[j] = static_cast<uint8_t>(rng.NextBelow(uint64_t{1} << bits));
        }
      }
      for (const auto& [name, ops] : backends) {
        Matrix packed(DType::kU8, m, bytes, 1), back(DType::kU8, m, n, 2);
        ops->PackBits(codes.view(), bits, packed.view());
        ASSERT_TRUE(packed.Intact()) << name << " bits " << bits << " n " << n;
        for (int64_t i = 0; i < m; ++i) {
          for (int64_t bit = 0; bit < bytes * 8; ++bit) {
            const int want =
                bit < n * bits ? codes.row<uint8_t>(i)[bit / bits] >> (bit % bits) & 1 : 0;
            ASSERT_EQ(Bit(packed.row<uint8_t>(i), bit), want) << name << " " << bits << " " << bit;
          }
        }
        ops->UnpackBits(packed.view(), bits, back.view());
        ASSERT_TRUE(back.Intact()) << name << " bits " << bits << " n " << n;
        ASSERT_EQ(back.FirstDifference(codes), -1) << name << " bits " << bits << " n " << n;
      }
    }
  }
}

struct Quantized {
  Matrix codes, scale, zero, back;
};

Quantized Through(PackingOps& ops, const Matrix& x, int bits, int64_t group,
                  GroupQuantization kind) {
  const int64_t m = x.view().shape[0], n = x.view().shape[1];
  Quantized q{Matrix(DType::kU8, m, n, 1), Matrix(DType::kF32, m, n / group, 2),
              Matrix(DType::kF32, m, n / group), Matrix(DType::kF32, m, n, 3)};
  const Tensor zero = kind == GroupQuantization::kSymmetric ? Tensor() : q.zero.view();
  ops.QuantizeGroups(x.view(), bits, group, kind, q.codes.view(), q.scale.view(), zero);
  ops.DequantizeGroups(q.codes.view(), q.scale.view(), zero, bits, group, kind, q.back.view());
  return q;
}

TEST_F(EveryPackingBackend, QuantizeHandWorked) {
  for (const auto& [name, ops] : backends) {
    // min -1, max 5, step 2; 1 is code 1, 2 is half way between codes 1 and 2: even.
    Quantized q =
        Through(*ops, Matrix::Rows({{-1, 5, 1, 2}}), 2, 4, GroupQuantization::kAsymmetric);
    EXPECT_THAT(q.codes.values(), ::testing::ElementsAre(0, 3, 1, 2)) << name;
    EXPECT_THAT(q.scale.values(), ::testing::ElementsAre(2)) << name;
    EXPECT_THAT(q.zero.values(), ::testing::ElementsAre(-1)) << name;
    EXPECT_THAT(q.back.values(), ::testing::ElementsAre(-1, 5, 1, 3)) << name;
    // 0 is half way between -1 and 1: even is code 0.
    q = Through(*ops, Matrix::Rows({{-1, 5, 0, 3}}), 2, 4, GroupQuantization::kAsymmetric);
    EXPECT_THAT(q.codes.values(), ::testing::ElementsAre(0, 3, 0, 2)) << name;
    // A constant group, then another.
    q = Through(*ops, Matrix::Rows({{7, 7, 0, 15}}), 4, 2, GroupQuantization::kAsymmetric);
    EXPECT_THAT(q.scale.values(), ::testing::ElementsAre(0, 1)) << name;
    EXPECT_THAT(q.back.values(), ::testing::ElementsAre(7, 7, 0, 15)) << name;
    // Largest 7, three bits less the sign: step 1.
    q = Through(*ops, Matrix::Rows({{-7, 3.5f, 2.5f, 0}}), 4, 4, GroupQuantization::kSymmetric);
    EXPECT_THAT(q.codes.values(), ::testing::ElementsAre(1, 12, 10, 8)) << name;
    EXPECT_THAT(q.back.values(), ::testing::ElementsAre(-7, 4, 2, 0)) << name;
    q = Through(*ops, Matrix::Rows({{0, 0, 0, 0}}), 2, 4, GroupQuantization::kSymmetric);
    EXPECT_THAT(q.scale.values(), ::testing::ElementsAre(0)) << name;
    EXPECT_THAT(q.back.values(), ::testing::Each(0.0f)) << name;
  }
}

TEST_F(EveryPackingBackend, QuantizeAgreesWithTwinToTheBit) {
  for (const int64_t group : {1, 2, 5, 16, 32, 37, 64, 128}) {
    const int64_t m = 9, groups = 6, n = group * groups;
    std::vector<float> data = RandomValues(m * n, 3 + group);
    for (int64_t j = 0; j < group; ++j) data[j] = 3.25f;                              // constant
    for (int64_t j = group; j < 2 * group; ++j) data[j] = static_cast<float>(j % 4);  // ties
    for (int64_t j = 2 * group; j < 3 * group; ++j) data[j] *= 1e-42f;                // denormal
    const Matrix x = Matrix::Of(data, n, 4);
    for (const GroupQuantization kind :
         {GroupQuantization::kAsymmetric, GroupQuantization::kSymmetric}) {
      for (const int bits : {1, 2, 3, 4, 8}) {
        if (bits == 1 && kind == GroupQuantization::kSymmetric) continue;
        Quantized want = Through(*twin, x, bits, group, kind);
        for (int64_t i = 0; i < m; ++i) {
          for (int64_t j = 0; j < n; ++j) {
            const double value = data[i * n + j], error = std::abs(want.back.row(i)[j] - value);
            // Half a step, and the roundings of the largest value on the way there and back; the
            // smallest number times the code where the step is so small that it was rounded to it.
            const double scale = want.scale.row(i)[j / group];
            const double roundings =
                (1 << bits) * (4 * kRound * scale + 1.5e-45) + 4 * kRound * std::abs(value);
            ASSERT_LE(error, scale * 0.5 + roundings) << bits << " " << group;
          }
        }
        for (const auto& [name, ops] : backends) {
          const Quantized got = Through(*ops, x, bits, group, kind);
          EXPECT_EQ(got.codes.FirstDifference(want.codes), -1)
              << name << " " << bits << " " << group;
          EXPECT_TRUE(AllWithin(got.scale.values(), want.scale.values(), 0)) << name;
          EXPECT_TRUE(AllWithin(got.back.values(), want.back.values(), 0)) << name;
          EXPECT_TRUE(got.codes.Intact() && got.scale.Intact() && got.back.Intact()) << name;
          if (kind == GroupQuantization::kAsymmetric) {
            EXPECT_TRUE(AllWithin(got.zero.values(), want.zero.values(), 0)) << name;
          }
        }
      }
    }
  }
}

// Long enough for threads to be woken; rows alone give the same bytes.
TEST_F(EveryPackingBackend, RowsDoNotDependOnCompany) {
  const int64_t n = 8192, group = 64;
  const Matrix x = Matrix::Of(RandomValues(64 * n, 2), n);
  for (const auto& [name, ops] : backends) {
    if (name == "reference") continue;
    const Quantized all = Through(*ops, x, 2, group, GroupQuantization::kAsymmetric);
    Matrix packed(DType::kU8, 64, n / 4), alone(DType::kU8, 64, n / 4);
    Matrix codes(DType::kU8, 64, n), scale(DType::kF32, 64, n / group),
        zero(DType::kF32, 64, n / group), back(DType::kF32, 64, n);
    ops->PackBits(all.codes.view(), 2, packed.view());
    for (int64_t i = 0; i < 64; ++i) {
      const auto one = [i](const Matrix& m) { return m.view().Slice(i, i + 1); };
      ops->QuantizeGroups(one(x), 2, group, GroupQuantization::kAsymmetric, one(codes), one(scale),
                          one(zero));
      ops->DequantizeGroups(one(codes), one(scale), one(zero), 2, group,
                            GroupQuantization::kAsymmetric, one(back));
      ops->PackBits(one(codes), 2, one(alone));
    }
    EXPECT_EQ(codes.FirstDifference(all.codes), -1) << name;
    EXPECT_EQ(scale.FirstDifference(all.scale), -1) << name;
    EXPECT_EQ(zero.FirstDifference(all.zero), -1) << name;
    EXPECT_EQ(back.FirstDifference(all.back), -1) << name;
    EXPECT_EQ(alone.FirstDifference(packed), -1) << name;
  }
}

TEST(PackingOpsDeathTest, RefusesWhatItCannotPack) {
  const auto ops = MakeReferencePacking();
  std::vector<uint8_t> codes(8), packed(8);
  EXPECT_DEATH(ops->PackBits(Bytes(codes, 1), 5, Bytes(packed, 1)), "PackBits: u8\\[1, 8\\]");
  EXPECT_DEATH(ops->PackBits(Bytes(codes, 1), 4, Bytes(packed, 1)), "PackBits");
}

}  // namespace
}  // namespace kvgauge
