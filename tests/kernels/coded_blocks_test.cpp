// SPDX-License-Identifier: Apache-2.0
// Products of blocks of few bits with rows that are rounded to 8 bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/strings.h"
#include "cpu/cpu.h"
#include "kernels/block_matrix.h"
#include "reference/reference.h"
#include "support/compare.h"

namespace kvgauge {
namespace {

constexpr DType kBlockStores[] = {DType::kF32, DType::kF16, DType::kBF16};

std::unique_ptr<PackedMatrix> PackForInt8(LinearOps& ops, std::span<const StoredRows> parts,
                                          int64_t k, DType store) {
  return BlockProducts::Of(ops)->PackStored(parts, k, store, nullptr, ProductRows::kInt8);
}

class CodedBlocksTest : public ::testing::TestWithParam<Isa> {
 protected:
  std::unique_ptr<LinearOps> Tested(int threads = 2) const {
    return MakeCpuLinear(GetParam(), {.threads = threads});
  }
};

INSTANTIATE_TEST_SUITE_P(Isas, CodedBlocksTest, ::testing::ValuesIn(SupportedIsas()),
                         [](const auto& test) { return std::string(NameOf(test.param)); });

TEST_P(CodedBlocksTest, HaveTheBitsOfTheSlowTwin) {
  struct Shape {
    int64_t m, n, k;
  };
  // Every height of a tile, and rows behind whole ones; panels that end early. Many rows, also with
  // more than is made of a panel at once.
  const Shape shapes[] = {{1, 64, 256},   {2, 130, 512},  {3, 1, 256},
                          {11, 65, 1280}, {130, 70, 256}, {70, 65, 1280}};
  const Shape short_ones[] = {{1, 64, 32}, {5, 70, 96}, {9, 64, 416}};
  uint64_t seed = 80;
  const auto check = [&](const Shape& s, BlockFormat format) {
    const BlockMatrix w(format, s.n, s.k, ++seed);
    auto x = RandomValues(s.m * s.k, ++seed);
    for (int64_t i = 0; i < std::min<int64_t>(s.k, 256); ++i)
      x[static_cast<size_t>(i)] *= i == 7 ? 1e-38f : 1e-39f;
    const auto bias = RandomValues(s.n, ++seed), before = RandomValues(s.m * s.n, ++seed);
    for (const DType store : kBlockStores) {
      SCOPED_TRACE(
          StrCat(s.m, "x", s.n, "x", s.k, " ", BlockShapeOf(format).name, " ", NameOf(store)));
      const auto fast = Tested(), twin = MakeReferenceLinear();
      const auto got = PackForInt8(*fast, {&w.rows, 1}, s.k, store);
      const auto want = PackForInt8(*twin, {&w.rows, 1}, s.k, store);
      EXPECT_TRUE(SameBits(Times(*fast, x, s.m, *got), Times(*twin, x, s.m, *want)));
      std::vector<float> got_sum = before, want_sum = before;
      const Tensor rows = View(x, {s.m, s.k}), biases = View(bias, {s.n});
      fast->MatMul(rows, *got, biases, MatMulMode::kAdd, View(got_sum, {s.m, s.n}));
      twin->MatMul(rows, *want, biases, MatMulMode::kAdd, View(want_sum, {s.m, s.n}));
      EXPECT_TRUE(SameBits(got_sum, want_sum));
    }
  };
  for (const BlockFormat format : kFormats) {
    for (const Shape& s : shapes) check(s, format);
    if (BlockShapeOf(format).elements > 32) continue;
    for (const Shape& s : short_ones) check(s, format);
  }
}

TEST_P(CodedBlocksTest, AreCloseToTheProductOfTheNumbers) {
  constexpr int64_t m = 4, n = 64, k = 1024;
  for (const BlockFormat format : kFormats) {
    SCOPED_TRACE(BlockShapeOf(format).name);
    const BlockMatrix w(format, n, k, 5);
    const auto x = RandomValues(m * k, 6);
    const auto ops = Tested();
    const Tensor part = w.Values();
    const auto exact = Times(*ops, x, m, *ops->Pack({&part, 1}, DType::kF32));
    const auto coded = Times(*ops, x, m, *PackForInt8(*ops, {&w.rows, 1}, k, DType::kF32));
    EXPECT_FALSE(SameBits(coded, exact));  // rows are rounded
    // A number is wrong by half a step of its block at most, and sums are those of floats.
    for (int64_t row = 0; row < m; ++row) {
      for (int64_t column = 0; column < n; ++column) {
        double most = 0;
        for (int64_t i = 0; i < k; i += 256) {
          double step = 0, weights = 0, products = 0;
          for (int64_t j = i; j < i + 256; ++j) {
            const double value = std::abs(x[static_cast<size_t>(row * k + j)]);
            const double weight = std::abs(w.values[static_cast<size_t>(column * k + j)]);
            step = std::max(step, value / 127);
            weights += weight;
            products += value * weight;
          }
          most += step / 2 * weights * 1.001 + products * 1e-5;
        }
        const auto at = static_cast<size_t>(row * n + column);
        EXPECT_NEAR(coded[at], exact[at], most);
      }
    }
  }
}

TEST_P(CodedBlocksTest, ARowsBitsDependOnNothingElse) {
  constexpr int64_t m = 100, n = 300, k = 512;
  for (const BlockFormat format : kFormats) {
    SCOPED_TRACE(BlockShapeOf(format).name);
    const BlockMatrix w(format, n, k, 9);
    const auto x = RandomValues(m * k, 10);
    const auto ops = Tested(), alone = Tested(1);
    const auto packed = PackForInt8(*ops, {&w.rows, 1}, k, DType::kBF16);
    const auto all = Times(*ops, x, m, *packed);
    EXPECT_TRUE(
        SameBits(all, Times(*alone, x, m, *PackForInt8(*alone, {&w.rows, 1}, k, DType::kBF16))));
    for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 1}, {5, 7}, {37, 100}}) {
      const std::vector<float> some(x.begin() + begin * k, x.begin() + end * k);
      const std::vector<float> want(all.begin() + begin * n, all.begin() + end * n);
      EXPECT_TRUE(SameBits(Times(*ops, some, end - begin, *packed), want));
    }
  }
}

// Rows of bf16 have the bits of the floats they came from; panels of several formats, or of
// floats, take rows of the weights' type.
TEST_P(CodedBlocksTest, MixedPanelsTakeRowsOfTheirOwn) {
  constexpr int64_t m = 9, k = 512;
  const BlockMatrix a(BlockFormat::kQ4K, 128, k, 1), b(BlockFormat::kQ6K, 40, k, 2);
  const auto floats = RandomValues(64 * k, 3);
  const StoredRows parts[] = {a.rows, b.rows, {.floats = View(floats, {64, k}), .format = {}}};
  const auto x = RandomValues(m * k, 4);
  for (const DType store : kBlockStores) {
    SCOPED_TRACE(NameOf(store));
    const auto ops = Tested();
    const auto packed = PackForInt8(*ops, parts, k, store);
    const auto got = Times(*ops, x, m, *packed);
    const auto coded = Times(*ops, x, m, *PackForInt8(*ops, {&a.rows, 1}, k, store));
    const auto plain = Times(*ops, x, m, *BlockProducts::Of(*ops)->PackStored(parts, k, store));
    for (size_t row = 0; row < m; ++row) {
      const auto at = static_cast<std::ptrdiff_t>(row * 232);
      const std::vector<float> first(got.begin() + at, got.begin() + at + 128),
          rest(got.begin() + at + 128, got.begin() + at + 232);
      EXPECT_TRUE(SameBits(first, {coded.begin() + static_cast<std::ptrdiff_t>(row * 128),
                                   coded.begin() + static_cast<std::ptrdiff_t>(row * 128 + 128)}));
      EXPECT_TRUE(SameBits(rest, {plain.begin() + at + 128, plain.begin() + at + 232}));
    }
    if (store == DType::kF32) continue;
    std::vector<uint16_t> bits;
    for (const float value : x) {
      bits.push_back(store == DType::kF16 ? F32ToF16(value) : F32ToBf16(value));
    }
    std::vector<float> of_bits(static_cast<size_t>(m * 232));
    Tensor rows = View(x, {m, k});
    rows.data = bits.data();
    rows.dtype = store;
    ops->MatMul(rows, *packed, {}, MatMulMode::kSet, View(of_bits, {m, 232}));
    EXPECT_TRUE(SameBits(of_bits, got));
  }
}

TEST_P(CodedBlocksTest, NumbersThatAreNotFiniteStaySo) {
  constexpr int64_t k = 256;
  const BlockMatrix w(BlockFormat::kQ80, 64, k, 1);
  const auto ops = Tested();
  const auto packed = PackForInt8(*ops, {&w.rows, 1}, k, DType::kF32);
  for (const float value : {kNan, std::numeric_limits<float>::infinity()}) {
    auto x = RandomValues(2 * k, 2);
    x[40] = value;
    const auto got = Times(*ops, x, 2, *packed);
    EXPECT_TRUE(std::isnan(got[0]));
    EXPECT_TRUE(std::isfinite(got[64]));
  }
}

}  // namespace
}  // namespace kvgauge
