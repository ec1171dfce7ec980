// SPDX-License-Identifier: Apache-2.0
// Weights that stay in blocks of few bits: their products have the bits of products with the
// dequantised weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/rounding.h"
#include "core/strings.h"
#include "cpu/cpu.h"
#include "kernels/block_matrix.h"
#include "kernels/block_products.h"
#include "reference/reference.h"
#include "support/compare.h"

namespace kvgauge {
namespace {

constexpr DType kFloatTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
class BlocksTest : public ::testing::TestWithParam<Isa> {
 protected:
  std::unique_ptr<LinearOps> Tested(int threads = 2) const {
    return MakeCpuLinear(GetParam(), {.threads = threads});
  }
};

INSTANTIATE_TEST_SUITE_P(Isas, BlocksTest, ::testing::ValuesIn(SupportedIsas()),
                         [](const auto& test) { return std::string(NameOf(test.param)); });

TEST_P(BlocksTest, HaveTheBitsOfTheDequantisedProduct) {
  struct Shape {
    int64_t m, n, k;
  };
  // One row, a register tile and one more, one that AMX serves with whole tiles; panels that are
  // whole, end early, and of one column; steps of 128 elements and less; blocks of the caches.
  const Shape shapes[] = {{1, 64, 256},   {1, 1, 256},    {2, 130, 512},
                          {6, 63, 768},   {7, 65, 256},   {17, 128, 1280},
                          {40, 70, 2304}, {200, 65, 256}, {3, 600, 1024}};
  const Shape short_ones[] = {{1, 64, 32}, {5, 70, 96}, {9, 64, 160}, {33, 130, 416}};
  uint64_t seed = 50;
  const auto check = [&](const Shape& s, BlockFormat format) {
    const BlockMatrix w(format, s.n, s.k, ++seed);
    const auto x = RandomValues(s.m * s.k, ++seed), bias = RandomValues(s.n, ++seed);
    const auto before = RandomValues(s.m * s.n, ++seed);
    for (const DType store : kFloatTypes) {
      SCOPED_TRACE(
          StrCat(s.m, "x", s.n, "x", s.k, " ", BlockShapeOf(format).name, " ", NameOf(store)));
      const auto ops = Tested();
      const Tensor part = w.Values();
      const auto want = ops->Pack({&part, 1}, store);
      const auto got = BlockProducts::Of(*ops)->PackStored({&w.rows, 1}, s.k, store);
      ASSERT_EQ(got->out_features(), s.n);
      ASSERT_EQ(got->in_features(), s.k);
      EXPECT_TRUE(SameBits(Times(*ops, x, s.m, *got), Times(*ops, x, s.m, *want)));
      std::vector<float> got_sum = before, want_sum = before;
      const Tensor rows = View(x, {s.m, s.k}), biases = View(bias, {s.n});
      ops->MatMul(rows, *got, biases, MatMulMode::kAdd, View(got_sum, {s.m, s.n}));
      ops->MatMul(rows, *want, biases, MatMulMode::kAdd, View(want_sum, {s.m, s.n}));
      EXPECT_TRUE(SameBits(got_sum, want_sum));
    }
  };
  for (const BlockFormat format : kFormats) {
    for (const Shape& s : shapes) check(s, format);
    if (BlockShapeOf(format).elements > 32) continue;
    for (const Shape& s : short_ones) check(s, format);
  }
}

// The slow twin knows no panels: it multiplies what ReadBlock gives, in double.
// Products in parts, as rows that leave the second cache may be multiplied.
TEST_P(BlocksTest, LongRowsHaveTheBitsOfTheDequantisedProduct) {
  constexpr int64_t m = 70, n = 650, k = 6144;
  for (const BlockFormat format : {BlockFormat::kQ80, BlockFormat::kQ4K}) {
    const BlockMatrix w(format, n, k, 31);
    const auto x = RandomValues(m * k, 32);
    const auto ops = Tested();
    const Tensor part = w.Values();
    const auto want = ops->Pack({&part, 1}, DType::kBF16);
    const auto got = BlockProducts::Of(*ops)->PackStored({&w.rows, 1}, k, DType::kBF16);
    EXPECT_TRUE(SameBits(Times(*ops, x, m, *got), Times(*ops, x, m, *want)));
  }
}

// Panels of one format, of several and of floats beside blocks.
TEST_P(BlocksTest, AreDequantisedWhileTheyArePacked) {
  constexpr int64_t m = 3;
  for (const int64_t k : {32, 96, 256, 416, 768}) {
    const auto x = RandomValues(m * k, 52), plain = RandomValues(5 * k, 53);
    std::vector<BlockMatrix> matrices;
    for (const BlockFormat format : kFormats) {
      if (k % BlockShapeOf(format).elements == 0) matrices.emplace_back(format, 150, k, 54);
    }
    for (const DType store : kFloatTypes) {
      SCOPED_TRACE(StrCat("k ", k, " ", NameOf(store)));
      std::vector<StoredRows> parts = {{.floats = View(plain, {5, k}), .format = std::nullopt}};
      std::vector<Tensor> views = {parts[0].floats};
      for (const BlockMatrix& matrix : matrices) {
        parts.push_back(matrix.rows);
        views.push_back(matrix.Values());
      }
      const auto ops = Tested();
      bool finite = false;
      const auto got = BlockProducts::Of(*ops)->PackDequantised(parts, k, store, &finite);
      const auto want = ops->Pack(views, store);
      EXPECT_TRUE(finite);
      EXPECT_EQ(got->bytes(), want->bytes());
      EXPECT_TRUE(SameBits(Times(*ops, x, m, *got), Times(*ops, x, m, *want)));
    }
  }
}

// A scale that is not finite is seen, and nothing else is taken for one.
TEST_P(BlocksTest, PackingSeesScalesThatAreNotFinite) {
  constexpr int64_t n = 70, k = 512;
  const auto ops = Tested();
  BlockProducts* const products = BlockProducts::Of(*ops);
  for (const BlockFormat format : kFormats) {
    BlockMatrix w(format, n, k, 62);
    uint8_t* const last = w.bytes.data() + w.bytes.size() - BlockShapeOf(format).bytes;
    for (const int64_t at : HalvesOf(format)) {
      for (const float scale : {kInf, kNan, 0.01f}) {  // the next one finds the last
        const uint16_t half = F32ToF16(scale);
        std::memcpy(last + at, &half, 2);
        for (const DType store : kFloatTypes) {
          SCOPED_TRACE(StrCat(BlockShapeOf(format).name, " scale at ", at, " ", NameOf(store)));
          bool kept = false, dequantised = false;
          products->PackStored({&w.rows, 1}, k, store, &kept);
          products->PackDequantised({&w.rows, 1}, k, store, &dequantised);
          EXPECT_EQ(kept, scale == 0.01f);
          EXPECT_EQ(dequantised, scale == 0.01f);
        }
      }
    }
  }
}

// So long that even few of them leave the second cache.
TEST_P(BlocksTest, FewLongRowsHaveTheBitsOfTheDequantisedProduct) {
  constexpr int64_t m = 16, n = 512, k = 24832;
  const BlockMatrix w(BlockFormat::kQ4K, n, k, 41);
  const auto x = RandomValues(m * k, 42);
  const auto ops = Tested(1);
  const Tensor part = w.Values();
  const auto want = ops->Pack({&part, 1}, DType::kBF16);
  const auto got = BlockProducts::Of(*ops)->PackStored({&w.rows, 1}, k, DType::kBF16);
  EXPECT_TRUE(SameBits(Times(*ops, x, m, *got), Times(*ops, x, m, *want)));
}

TEST_P(BlocksTest, MatchTheReference) {
  constexpr int64_t m = 5, n = 70, k = 768;
  const auto reference = MakeReferenceLinear();
  uint64_t seed = 900;
  for (const BlockFormat format : kFormats) {
    const BlockMatrix w(format, n, k, ++seed);
    const auto x = RandomValues(m * k, ++seed);
    for (const DType store : kFloatTypes) {
      const auto ops = Tested();
      const auto got = BlockProducts::Of(*ops)->PackStored({&w.rows, 1}, k, store);
      const auto want = BlockProducts::Of(*reference)->PackStored({&w.rows, 1}, k, store);
      double bound = 1e-37;
      for (int64_t row = 0; row < m; ++row) {
        for (int64_t column = 0; column < n; ++column) {
          double sum = 0;
          for (int64_t i = 0; i < k; ++i) {
            sum += std::abs(double{x[static_cast<size_t>(row * k + i)]} *
                            w.values[static_cast<size_t>(column * k + i)]);
          }
          // A chain of k roundings, and rounded inputs that are a little larger.
          bound = std::max(bound, 2 * std::ldexp(1.0, -24) * static_cast<double>(k + 3) * sum);
        }
      }
      EXPECT_TRUE(AllWithin(Times(*ops, x, m, *got), Times(*reference, x, m, *want), bound))
          << BlockShapeOf(format).name << " " << NameOf(store);
    }
  }
}

TEST_P(BlocksTest, RowsAndThreadsChangeNoBit) {
  constexpr int64_t kMost = 100, n = 200, k = 1280;
  const auto x = RandomValues(kMost * k, 3);
  for (const BlockFormat format : kFormats) {
    const BlockMatrix w(format, n, k, 4);
    for (const DType store : {DType::kF32, DType::kBF16}) {
      const auto alone = Tested(1);
      const auto packed = BlockProducts::Of(*alone)->PackStored({&w.rows, 1}, k, store);
      const auto want = Times(*alone, x, kMost, *packed);
      for (const int threads : {1, 3}) {
        const auto ops = Tested(threads);
        const auto own = BlockProducts::Of(*ops)->PackStored({&w.rows, 1}, k, store);
        for (const int64_t m : {1, 2, 4, 5, 6, 7, 16, 17, 33}) {
          const auto rows = std::span(x).last(static_cast<size_t>(m * k));
          ASSERT_TRUE(SameBits(Times(*ops, rows, m, *own),
                               std::span(want).last(static_cast<size_t>(m * n))))
              << BlockShapeOf(format).name << " " << NameOf(store) << " rows " << m;
        }
      }
    }
  }
}

// Parts of several formats and of floats: panels that are not of one format are floats.
TEST_P(BlocksTest, PartsMayBeStoredDifferently) {
  constexpr int64_t m = 3, k = 512;
  const BlockMatrix a(BlockFormat::kQ4K, 100, k, 1), b(BlockFormat::kQ6K, 150, k, 2);
  const BlockMatrix c(BlockFormat::kQ80, 64, k, 3);
  const auto plain = RandomValues(5 * k, 4), x = RandomValues(m * k, 5);
  StoredRows floats{.floats = View(plain, {5, k}), .format = std::nullopt};
  // Rows in another order, too.
  StoredRows turned = b.rows;
  std::reverse(turned.blocks.begin(), turned.blocks.end());
  std::vector<float> reversed;
  for (int64_t row = 149; row >= 0; --row) {
    reversed.insert(reversed.end(), b.values.begin() + row * k, b.values.begin() + (row + 1) * k);
  }
  for (const DType store : kFloatTypes) {
    const auto ops = Tested();
    const StoredRows parts[] = {a.rows, turned, floats, c.rows};
    const Tensor views[] = {a.Values(), View(reversed, {150, k}), floats.floats, c.Values()};
    const auto got = BlockProducts::Of(*ops)->PackStored(parts, k, store),
               want = ops->Pack(views, store);
    ASSERT_EQ(got->out_features(), 319);
    EXPECT_TRUE(SameBits(Times(*ops, x, m, *got), Times(*ops, x, m, *want))) << NameOf(store);
  }
}

TEST_P(BlocksTest, ChosenMatricesGiveTheBitsOfEach) {
  constexpr int64_t m = 40, n = 70, k = 256;
  const auto x = RandomValues(m * k, 6);
  const auto ops = Tested();
  std::vector<std::unique_ptr<PackedMatrix>> packed;
  std::vector<const PackedMatrix*> pointers;
  for (const BlockFormat format : kFormats) {
    const BlockMatrix w(format, n, k, 7);
    packed.push_back(BlockProducts::Of(*ops)->PackStored({&w.rows, 1}, k, DType::kBF16));
    pointers.push_back(packed.back().get());
  }
  std::vector<int32_t> choice;
  for (int64_t i = 0; i < m; ++i) choice.push_back(static_cast<int32_t>(i * i % 4));
  std::vector<float> got(static_cast<size_t>(m * n));
  ops->MatMulChosen(View(x, {m, k}), *ops->Collect(pointers), View(choice, {m}), View(got, {m, n}));
  for (int64_t i = 0; i < m; ++i) {
    const auto row = std::span(x).subspan(static_cast<size_t>(i * k), k);
    const auto want = Times(*ops, row, 1, *pointers[static_cast<size_t>(choice[i])]);
    EXPECT_TRUE(SameBits(std::span(got).subspan(static_cast<size_t>(i * n), n), want)) << i;
  }
}

TEST_P(BlocksTest, TakeTheBytesOfTheFile) {
  const auto ops = Tested();
  for (const BlockFormat format : kFormats) {
    const BlockMatrix w(format, 256, 512, 8);
    const auto packed = BlockProducts::Of(*ops)->PackStored({&w.rows, 1}, 512, DType::kBF16);
    const auto stored = static_cast<double>(w.bytes.size() - 1);
    EXPECT_GE(static_cast<double>(packed->bytes()), stored);
    EXPECT_LE(static_cast<double>(packed->bytes()), 1.03 * stored) << BlockShapeOf(format).name;
  }
}

TEST_P(BlocksTest, TablesGiveTheRowsOfTheDequantisedOne) {
  const auto ops = Tested();
  const std::vector<int32_t> ids = {3, 0, 9, 3};
  for (const BlockFormat format : kFormats) {
    const BlockMatrix table(format, 10, 256, 9);
    for (const DType store : kFloatTypes) {
      std::vector<float> rounded = table.values;
      for (float& value : rounded) value = Rounded(store, value);
      std::vector<float> got(4 * 256), want(4 * 256);
      BlockProducts::Of(*ops)->EmbedBlocks(table.rows, store, View(ids, {4}), 1.5f,
                                           View(got, {4, 256}));
      ops->Embed(View(rounded, {10, 256}), View(ids, {4}), 1.5f, View(want, {4, 256}));
      EXPECT_TRUE(SameBits(got, want)) << BlockShapeOf(format).name << " " << NameOf(store);
    }
  }
}

TEST(Blocks, ScalesTellWhetherNumbersAreFinite) {
  for (const BlockFormat format : kFormats) {
    for (const int64_t at : HalvesOf(format)) {
      SCOPED_TRACE(StrCat(BlockShapeOf(format).name, " scale at ", at));
      BlockMatrix w(format, 1, 512, 10);
      uint8_t* const last = w.bytes.data() + w.bytes.size() - BlockShapeOf(format).bytes + at;
      const int64_t count = 512 / BlockShapeOf(format).elements;
      const auto finite = [&](float scale, DType store) {
        const uint16_t half = F32ToF16(scale);
        std::memcpy(last, &half, 2);
        return SurelyFinite(format, w.rows.blocks[0], count, store);
      };
      for (const DType store : kFloatTypes) {
        EXPECT_TRUE(finite(0.01f, store));
        EXPECT_FALSE(finite(kNan, store));
        EXPECT_FALSE(finite(kInf, store));
        EXPECT_FALSE(finite(-kInf, store));
        EXPECT_EQ(finite(60000.0f, store), store != DType::kF16);
      }
    }
  }
}

}  // namespace
}  // namespace kvgauge
