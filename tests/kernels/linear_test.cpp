// SPDX-License-Identifier: Apache-2.0
#include "kernels/linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/strings.h"
#include "cpu/cpu.h"
#include "kernels/block_products.h"
#include "reference/reference.h"
#include "support/compare.h"
#include "support/test_device.h"

namespace kvgauge {
namespace {

constexpr DType kStores[] = {DType::kF32, DType::kF16, DType::kBF16};

// A float matrix of any dtype in host memory, with `gap` unused elements behind every row and
// `offset_bytes` before the first.
struct HostMatrix {
  HostMatrix(std::span<const float> values, int64_t rows, int64_t columns, DType dtype,
             int64_t gap = 0, int64_t offset_bytes = 0)
      : memory(static_cast<size_t>(rows * (columns + gap) * SizeOf(dtype) + offset_bytes), 0x7f) {
    tensor = Tensor(memory.data() + offset_bytes, dtype, {rows, columns});
    tensor.stride[0] = columns + gap;
    for (int64_t i = 0; i < rows * columns; ++i) {
      char* to = memory.data() + offset_bytes +
                 (i / columns * tensor.stride[0] + i % columns) * SizeOf(dtype);
      const float value = values[static_cast<size_t>(i)];
      const uint16_t bits = dtype == DType::kF16 ? F32ToF16(value) : F32ToBf16(value);
      if (dtype == DType::kF32)
        std::memcpy(to, &value, sizeof(value));
      else
        std::memcpy(to, &bits, sizeof(bits));
    }
  }
  std::vector<char> memory;
  Tensor tensor;
};

std::unique_ptr<PackedMatrix> PackValues(LinearOps& ops, std::span<const float> w, int64_t n,
                                         int64_t k, DType store) {
  const Tensor part = View(w, {n, k});
  return ops.Pack({&part, 1}, store);
}

std::vector<float> Multiply(LinearOps& ops, const PackedMatrix& w, std::span<const float> x,
                            int64_t m) {
  std::vector<float> out(static_cast<size_t>(m * w.out_features()), kNan);
  ops.MatMul(View(x, {m, w.in_features()}), w, {}, MatMulMode::kSet,
             View(out, {m, w.out_features()}));
  return out;
}

double LargestRowNorm(std::span<const float> values, int64_t columns) {
  double largest = 0;
  for (size_t i = 0; i < values.size(); i += static_cast<size_t>(columns)) {
    largest = std::max(largest, Norm(values.subspan(i, static_cast<size_t>(columns))));
  }
  return largest;
}

// A chain of k f32 roundings is off by at most k u sum |x w| <= k u |x| |w|, u = 2^-24; one more
// rounding each for bias, addition and the reference's result. 2: rounding to f16 or bf16 can make
// the rows a little longer.
double Bound(std::span<const float> x, std::span<const float> w, int64_t k, double others) {
  const double u = std::ldexp(1.0, -24);
  return 2 * u * static_cast<double>(k + 3) *
             (LargestRowNorm(x, k) * LargestRowNorm(w, k) + others) +
         1e-37;  // bf16 hardware takes subnormals as zero
}

// The machine's instruction sets have no part in a device.
std::vector<Isa> TestedIsas() {
  return OnDevice() ? std::vector<Isa>{Isa::kPortable} : SupportedIsas();
}
std::unique_ptr<LinearOps> MakeTested(Isa isa, ThreadSettings threads) {
  return OnDevice() ? std::move(MakeHostedDevice()->linear) : MakeCpuLinear(isa, threads);
}

class LinearTest : public ::testing::TestWithParam<Isa> {
 protected:
  std::unique_ptr<LinearOps> Cpu(int threads = 2) const {
    return MakeTested(GetParam(), {.threads = threads});
  }
  std::unique_ptr<LinearOps> reference_ = MakeReferenceLinear();
};

INSTANTIATE_TEST_SUITE_P(Isas, LinearTest, ::testing::ValuesIn(TestedIsas()),
                         [](const auto& test) { return std::string(NameOf(test.param)); });

TEST_P(LinearTest, MatchesReference) {
  struct Shape {
    int64_t m, n, k;
  };
  // Edges of every block: one row, a register tile and one more, a product and one more; panels of
  // 64 columns; pairs; k blocks of 256, 512 and 1024; large enough for two threads.
  const Shape shapes[] = {{1, 1, 1},     {1, 64, 2},    {2, 65, 3},     {5, 63, 31},
                          {6, 128, 64},  {7, 70, 257},  {12, 10, 33},   {13, 129, 512},
                          {16, 64, 96},  {17, 33, 513}, {31, 100, 128}, {33, 90, 1030},
                          {193, 65, 80}, {1, 800, 640}, {400, 130, 40}};
  uint64_t seed = 1;
  for (const Shape& s : shapes) {
    const auto x = RandomValues(s.m * s.k, ++seed), w = RandomValues(s.n * s.k, ++seed, 0.1f);
    const auto bias = RandomValues(s.n, ++seed), before = RandomValues(s.m * s.n, ++seed);
    const double bound = Bound(x, w, s.k, 100.0);
    for (const DType store : kStores) {
      SCOPED_TRACE(StrCat(s.m, "x", s.n, "x", s.k, " ", NameOf(store)));
      const auto cpu = Cpu();
      const auto wc = PackValues(*cpu, w, s.n, s.k, store);
      const auto wr = PackValues(*reference_, w, s.n, s.k, store);
      EXPECT_GE(wc->bytes(), s.n * s.k * SizeOf(store));
      EXPECT_TRUE(
          AllWithin(Multiply(*cpu, *wc, x, s.m), Multiply(*reference_, *wr, x, s.m), bound));
      for (const bool with_bias : {false, true}) {
        const Tensor b = with_bias ? View(bias, {s.n}) : Tensor();
        std::vector<float> got = before, want = before;
        cpu->MatMul(View(x, {s.m, s.k}), *wc, b, MatMulMode::kAdd, View(got, {s.m, s.n}));
        reference_->MatMul(View(x, {s.m, s.k}), *wr, b, MatMulMode::kAdd, View(want, {s.m, s.n}));
        EXPECT_TRUE(AllWithin(got, want, bound)) << "bias " << with_bias;
      }
    }
  }
}

// The promise that everything above builds on: a row's bits do not depend on its company.
TEST_P(LinearTest, RowsAndThreadsChangeNoBit) {
  constexpr int64_t kMost = 200;
  for (const auto& [n, k] :
       {std::pair<int64_t, int64_t>{130, 1}, {200, 1031}, {64, 512}, {1000, 77}}) {
    const auto x = RandomValues(kMost * k, 3), w = RandomValues(n * k, 4);
    for (const DType store : kStores) {
      SCOPED_TRACE(StrCat("n ", n, " k ", k, " ", NameOf(store)));
      const auto alone = Cpu(1);
      const auto packed = PackValues(*alone, w, n, k, store);
      const auto want = Multiply(*alone, *packed, x, kMost);
      for (const int threads : {1, 2, 4}) {
        const auto cpu = Cpu(threads);
        const auto own = PackValues(*cpu, w, n, k, store);
        for (const int64_t m : {1, 2, 3, 6, 7, 8, 12, 13, 16, 17, 33, 64, 193}) {
          if (threads == 4 && m > 3 && m != 17) continue;
          // The last m rows: neighbours and position differ too.
          const auto rows = std::span(x).last(static_cast<size_t>(m * k));
          const auto expected = std::span(want).last(static_cast<size_t>(m * n));
          ASSERT_TRUE(SameBits(Multiply(*cpu, *own, rows, m), expected))
              << "rows " << m << " threads " << threads;
        }
      }
    }
  }
}

// Rows that leave the second cache may be multiplied in parts, by several panels in turn, and rows
// a multiple of a page apart may be copied before.
TEST_P(LinearTest, LongRowsHaveTheBitsOfEachAlone) {
  constexpr int64_t n = 650, k = 6144;  // 11 panels: more than a group, and no multiple of it
  const auto w = RandomValues(n * k, 9);
  for (const int64_t m : {70, 400}) {
    const auto x = RandomValues(m * k, 8);
    std::vector<uint16_t> bits;
    for (const float v : x) bits.push_back(F32ToBf16(v));
    for (const int threads : {1, 2}) {
      const auto cpu = Cpu(threads);
      const auto packed = PackValues(*cpu, w, n, k, DType::kBF16);
      const auto together = Multiply(*cpu, *packed, x, m);
      std::vector<float> of_bits(static_cast<size_t>(m * n));
      cpu->MatMul(Tensor(bits.data(), DType::kBF16, {m, k}), *packed, {}, MatMulMode::kSet,
                  View(of_bits, {m, n}));
      EXPECT_TRUE(SameBits(of_bits, together));
      for (const int64_t row : {int64_t{0}, int64_t{37}, m - 1}) {
        const auto alone =
            Multiply(*cpu, *packed,
                     std::span(x).subspan(static_cast<size_t>(row * k), static_cast<size_t>(k)), 1);
        EXPECT_TRUE(SameBits(alone, std::span(together).subspan(static_cast<size_t>(row * n),
                                                                static_cast<size_t>(n))))
            << "row " << row << " of " << m << ", threads " << threads;
      }
    }
  }
}

// With a matrix for each row: the bits of a product with that matrix, whoever else chose it. From a
// few rows to more than a tile of any size, with matrices that nobody chose and with one that
// everybody did.
TEST_P(LinearTest, ChosenMatricesGiveTheBitsOfEach) {
  constexpr int64_t kMatrices = 7, n = 70;
  uint64_t seed = 30;
  for (const int64_t k : {33, 1100}) {
    for (const DType store : kStores) {
      const auto cpu = Cpu();
      std::vector<std::unique_ptr<PackedMatrix>> packed;
      std::vector<const PackedMatrix*> pointers;
      for (int64_t i = 0; i < kMatrices; ++i) {
        packed.push_back(PackValues(*cpu, RandomValues(n * k, ++seed), n, k, store));
        pointers.push_back(packed.back().get());
      }
      const auto set = cpu->Collect(pointers);
      ASSERT_EQ(set->size(), kMatrices);
      struct Case {
        int64_t m, share;
        bool one;
      };
      for (const Case& c : {Case{1, 3, false}, Case{5, 1, false}, Case{32, 2, false},
                            Case{70, 3, false}, Case{150, 2, true}, Case{300, 1, false}}) {
        SCOPED_TRACE(StrCat("k ", k, " ", NameOf(store), " rows ", c.m, " x ", c.share));
        const auto x = RandomValues(c.m * k, ++seed);
        const HostMatrix rows(x, c.m, k, c.share == 3 ? DType::kF32 : store, 5);
        const int64_t chosen = c.m * c.share;
        std::vector<int32_t> choice;
        Rng rng(++seed, 0);
        for (int64_t i = 0; i < chosen; ++i) {
          choice.push_back(c.one ? 4 : 2 * static_cast<int32_t>(rng.NextBelow(4)));
        }
        std::vector<float> wide(static_cast<size_t>(chosen * (n + 3)), -1.0f);
        Tensor out = View(wide, {chosen, n + 3});
        out.shape[1] = n;
        cpu->MatMulChosen(rows.tensor, *set, View(choice, {chosen}), out);
        std::vector<float> alone(static_cast<size_t>(n));
        for (int64_t i = 0; i < chosen; ++i) {
          if (chosen > 100 && i % 7 != 0) continue;
          const Tensor row = rows.tensor.Slice(i / c.share, i / c.share + 1);
          cpu->MatMul(row, *pointers[static_cast<size_t>(choice[i])], {}, MatMulMode::kSet,
                      View(alone, {1, n}));
          const auto got = std::span(wide).subspan(static_cast<size_t>(i * (n + 3)), n + 3);
          ASSERT_TRUE(SameBits(got.first(n), alone)) << i;
          ASSERT_EQ(got[n], -1.0f);
        }
      }
    }
  }
}

TEST_P(LinearTest, PositionInTheMatrixChangesNoBit) {
  const int64_t k = 300;
  const auto w = RandomValues(130 * k, 5), x = RandomValues(9 * k, 6);
  const auto cpu = Cpu();
  for (const DType store : kStores) {
    const auto all = PackValues(*cpu, w, 130, k, store);
    const auto last = PackValues(*cpu, std::span(w).last(static_cast<size_t>(3 * k)), 3, k, store);
    const auto wide = Multiply(*cpu, *all, x, 9), narrow = Multiply(*cpu, *last, x, 9);
    for (int i = 0; i < 9; ++i) {
      EXPECT_TRUE(SameBits(std::span(narrow).subspan(static_cast<size_t>(i * 3), 3),
                           std::span(wide).subspan(static_cast<size_t>(i * 130 + 127), 3)));
    }
  }
}

// Products with unit vectors are the packed values themselves, so packing can be held exactly.
TEST_P(LinearTest, PacksAnyRowsExactly) {
  for (const int64_t k : {1, 2, 5, 63, 64, 130, 259}) {
    std::vector<float> unit(static_cast<size_t>(k * k));
    for (int64_t i = 0; i < k; ++i) unit[static_cast<size_t>(i * k + i)] = 1.0f;
    for (const DType store : kStores) {
      for (const DType from : kStores) {
        SCOPED_TRACE(StrCat("k ", k, " ", NameOf(from), " to ", NameOf(store)));
        // Three fused parts: strides, an odd address, one that is a single row.
        const HostMatrix a(RandomValues(5 * k, 8), 5, k, from, 3, 1);
        const HostMatrix b(RandomValues(k, 9), 1, k, DType::kBF16);
        const HostMatrix c(RandomValues(70 * k, 10), 70, k, from, 0, 2);
        const Tensor parts[] = {a.tensor, b.tensor, c.tensor};
        const auto cpu = Cpu();
        const auto wc = cpu->Pack(parts, store), wr = reference_->Pack(parts, store);
        ASSERT_EQ(wc->out_features(), 76);
        EXPECT_TRUE(SameBits(Multiply(*cpu, *wc, unit, k), Multiply(*reference_, *wr, unit, k)));
      }
    }
  }
}

// A number that is not finite is seen wherever it is, and nothing else is taken for one.
TEST_P(LinearTest, PackingSeesWhatIsNotFinite) {
  constexpr int64_t n = 70;
  const auto cpu = Cpu();
  BlockProducts* const products = BlockProducts::Of(*cpu);
  if (products == nullptr) GTEST_SKIP() << "the backend does not look";
  const auto seen = [&](std::span<const float> numbers, int64_t k, DType type, DType store) {
    const HostMatrix rows(numbers, n, k, type, 3, 1);
    const StoredRows part = {.floats = rows.tensor, .format = std::nullopt};
    bool finite = false;
    products->PackDequantised({&part, 1}, k, store, &finite);
    return finite;
  };
  for (const int64_t k : {1, 9, 130, 131}) {
    const std::vector<float> plain = RandomValues(n * k, 61);
    for (const DType type : kStores) {
      for (const DType store : kStores) {
        for (const int64_t at : {int64_t{0}, k - 1, 63 * k + k / 2, n * k - 1}) {
          for (const float value : {65504.0f, kInf, -kInf, kNan}) {
            std::vector<float> numbers = plain;
            numbers[static_cast<size_t>(at)] = value;
            EXPECT_EQ(seen(numbers, k, type, store), value == 65504.0f)
                << "k " << k << " " << NameOf(type) << " to " << NameOf(store) << ", " << value
                << " at " << at;
          }
        }
      }
    }
  }
}

TEST_P(LinearTest, RoundsLikeTheScalarConversions) {
  std::vector<float> values = {0.0f,     1.0f,     -1.5f,        65504.0f, 65519.9f, 65520.0f,
                               -7e4f,    6e-8f,    2.98e-8f,     2.99e-8f, 6.1e-5f,  6.09e-5f,
                               1.00391f, 1.01172f, -1.00390625f, 3.4e38f,  kInf,     -kInf};
  const auto random = RandomValues(200, 11, 1e-3f);
  values.insert(values.end(), random.begin(), random.end());
  const auto n = static_cast<int64_t>(values.size());
  const std::vector<float> one = {1.0f};
  const auto cpu = Cpu();
  for (const DType store : {DType::kF16, DType::kBF16}) {
    std::vector<float> want;
    for (const float v : values) {
      want.push_back(store == DType::kF16 ? F16ToF32(F32ToF16(v)) : Bf16ToF32(F32ToBf16(v)));
    }
    // Once as weights, once as rows.
    const auto weights = PackValues(*cpu, values, n, 1, store);
    EXPECT_TRUE(SameBits(Multiply(*cpu, *weights, one, 1), want)) << NameOf(store);
    const auto unit = PackValues(*cpu, one, 1, 1, store);
    EXPECT_TRUE(SameBits(Multiply(*cpu, *unit, values, n), want)) << NameOf(store);
  }
}

TEST_P(LinearTest, NanAndInfinityComeThrough) {
  const int64_t n = 70, k = 130;
  for (const int64_t m : {1, 3, 20}) {
    for (const DType store : kStores) {
      SCOPED_TRACE(StrCat("m ", m, " ", NameOf(store)));
      auto w = RandomValues(n * k, 12);
      const std::vector<float> x(static_cast<size_t>(m * k), 1.0f);
      w[static_cast<size_t>(3 * k + 129)] = kNan;
      w[static_cast<size_t>(66 * k + 5)] = kInf;
      w[static_cast<size_t>(67 * k)] = -kInf;
      const auto cpu = Cpu();
      const auto out = Multiply(*cpu, *PackValues(*cpu, w, n, k, store), x, m);
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          const float v = out[static_cast<size_t>(i * n + j)];
          if (j == 3)
            EXPECT_TRUE(std::isnan(v));
          else if (j == 66)
            EXPECT_EQ(v, kInf);
          else if (j == 67)
            EXPECT_EQ(v, -kInf);
          else
            EXPECT_TRUE(std::isfinite(v)) << j;
        }
      }
      // A NaN row stays alone.
      auto rows = std::vector<float>(static_cast<size_t>((m + 1) * k), 1.0f);
      rows[static_cast<size_t>(k - 1)] = kNan;
      const auto w2 = RandomValues(n * k, 13);
      const auto out2 = Multiply(*cpu, *PackValues(*cpu, w2, n, k, store), rows, m + 1);
      EXPECT_TRUE(
          std::all_of(out2.begin(), out2.begin() + n, [](float v) { return std::isnan(v); }));
      EXPECT_TRUE(
          std::all_of(out2.begin() + n, out2.end(), [](float v) { return std::isfinite(v); }));
    }
  }
}

TEST_P(LinearTest, StridedRowsAndStoredDtype) {
  const int64_t n = 90;
  for (const int64_t k : {64, 65}) {
    for (const int64_t m : {1, 9, 40}) {
      const auto x = RandomValues(m * k, 14), w = RandomValues(n * k, 15);
      for (const DType store : kStores) {
        SCOPED_TRACE(StrCat("m ", m, " k ", k, " ", NameOf(store)));
        const auto cpu = Cpu();
        const auto packed = PackValues(*cpu, w, n, k, store);
        const auto want = Multiply(*cpu, *packed, x, m);
        for (const DType type : {DType::kF32, store}) {
          const HostMatrix rows(x, m, k, type, 7);
          std::vector<float> wide(static_cast<size_t>(m * (n + 5)), -1.0f);
          Tensor out = View(wide, {m, n + 5});
          out.shape[1] = n;
          cpu->MatMul(rows.tensor, *packed, {}, MatMulMode::kSet, out);
          for (int64_t i = 0; i < m; ++i) {
            const auto row = std::span(wide).subspan(static_cast<size_t>(i * (n + 5)));
            EXPECT_TRUE(SameBits(
                row.first(static_cast<size_t>(n)),
                std::span(want).subspan(static_cast<size_t>(i * n), static_cast<size_t>(n))));
            for (int64_t j = n; j < n + 5; ++j) EXPECT_EQ(row[static_cast<size_t>(j)], -1.0f);
          }
        }
      }
    }
  }
}

TEST_P(LinearTest, BatchedProducts) {
  struct Shape {
    int64_t batch, m, n, k;
  };
  for (const Shape& s :
       {Shape{1, 1, 1, 1}, Shape{3, 5, 64, 16}, Shape{2, 7, 131, 67}, Shape{1, 200, 70, 33},
        Shape{4, 64, 300, 128}, Shape{1, 1301, 64, 40}, Shape{2, 900, 7, 64}}) {
    SCOPED_TRACE(StrCat(s.batch, " x ", s.m, "x", s.n, "x", s.k));
    const auto a = RandomValues(s.batch * s.m * s.k, 16), b = RandomValues(s.batch * s.n * s.k, 17);
    const auto size = static_cast<size_t>(s.batch * s.m * s.n);
    std::vector<float> got(size), want(size), alone(static_cast<size_t>(s.n));
    const Tensor ta = View(a, {s.batch, s.m, s.k});
    const double bound = 0.25 * Bound(a, b, s.k, 0.0), loose = 0.25 * Norm(a) * Norm(b) * 1e-6;
    const auto cpu = Cpu();

    const Tensor nt = View(b, {s.batch, s.n, s.k});
    cpu->MatMulNT(ta, nt, 0.25f, View(got, {s.batch, s.m, s.n}));
    reference_->MatMulNT(ta, nt, 0.25f, View(want, {s.batch, s.m, s.n}));
    EXPECT_TRUE(AllWithin(got, want, bound));
    const Tensor last_a = Tensor(ta[s.batch - 1][s.m - 1].data, DType::kF32, {1, 1, s.k});
    cpu->MatMulNT(last_a, nt.Slice(s.batch - 1, s.batch), 0.25f, View(alone, {1, 1, s.n}));
    EXPECT_TRUE(SameBits(alone, std::span(got).last(alone.size())));

    const Tensor nn = View(b, {s.batch, s.k, s.n});
    cpu->MatMulNN(ta, nn, 0.25f, View(got, {s.batch, s.m, s.n}));
    reference_->MatMulNN(ta, nn, 0.25f, View(want, {s.batch, s.m, s.n}));
    EXPECT_TRUE(AllWithin(got, want, loose));
    cpu->MatMulNN(last_a, nn.Slice(s.batch - 1, s.batch), 0.25f, View(alone, {1, 1, s.n}));
    EXPECT_TRUE(SameBits(alone, std::span(got).last(alone.size())));
  }
}

TEST_P(LinearTest, EmptyShapes) {
  const auto cpu = Cpu();
  const std::vector<float> none;
  const Tensor part(nullptr, DType::kF32, {3, 0});
  for (const DType store : kStores) {
    const auto w = cpu->Pack({&part, 1}, store);
    std::vector<float> out(6, kNan);
    cpu->MatMul(Tensor(nullptr, DType::kF32, {2, 0}), *w, {}, MatMulMode::kSet, View(out, {2, 3}));
    EXPECT_EQ(out, std::vector<float>(6, 0.0f));
    cpu->MatMul(View(none, {0, 0}), *w, {}, MatMulMode::kSet, View(none, {0, 3}));
  }
}

TEST_P(LinearTest, EmbedsRows) {
  const int64_t rows = 11;
  for (const int64_t d : {1, 70, 600}) {
    const auto values = RandomValues(rows * d, 18);
    for (const int64_t m : {1, 5, 700}) {
      std::vector<int32_t> ids(static_cast<size_t>(m));
      for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * 7 % rows);
      for (const DType type : kStores) {
        SCOPED_TRACE(StrCat("d ", d, " m ", m, " ", NameOf(type)));
        const HostMatrix table(values, rows, d, type, 2);
        std::vector<float> got(static_cast<size_t>(m * d)), want = got;
        Cpu()->Embed(table.tensor, View(ids, {m}), 0.3f, View(got, {m, d}));
        reference_->Embed(table.tensor, View(ids, {m}), 0.3f, View(want, {m, d}));
        EXPECT_TRUE(SameBits(got, want));
      }
    }
  }
}

TEST(LinearDeathTest, RejectsWhatDoesNotFit) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto cpu = MakeCpuLinear(Isa::kPortable, {.threads = 1});
  const auto reference = MakeReferenceLinear();
  std::vector<float> values(12), out(12);
  const Tensor part = View(values, {3, 4});
  const auto w = cpu->Pack({&part, 1}, DType::kF32);
  EXPECT_DEATH(cpu->MatMul(View(values, {4, 3}), *w, {}, MatMulMode::kSet, View(out, {4, 3})),
               "shapes do not fit");
  EXPECT_DEATH(
      reference->MatMul(part, *w, {}, MatMulMode::kSet, View(std::span(out).first(9), {3, 3})),
      "packed by another backend");
  const std::vector<int32_t> bad = {3};
  EXPECT_DEATH(cpu->Embed(part, View(bad, {1}), 1.0f, View(std::span(out).first(4), {1, 4})),
               "out of range");
}

}  // namespace
}  // namespace kvgauge
