// SPDX-License-Identifier: Apache-2.0
// Rows rounded to numbers that codes of 8 bits stand for, alone and on their way to a product.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/rounding.h"
#include "core/strings.h"
#include "cpu/cpu.h"
#include "kernels/rounded_products.h"
#include "reference/reference.h"
#include "support/compare.h"
#include "support/test_device.h"

namespace kvgauge {
namespace {

using Codes = RowRounding::Codes;

std::vector<float> Made(const RowRounding& rounding, std::vector<float> row) {
  RoundRow(rounding, row.data(), std::ssize(row), row.data());
  return row;
}

void ExpectMade(const RowRounding& rounding, const std::vector<float>& row,
                const std::vector<float>& want) {
  EXPECT_TRUE(SameBits(Made(rounding, row), want));
}

// Every number that is not negative and that a code stands for.
std::vector<float> NumbersOf(Codes codes) {
  std::vector<float> numbers;
  if (codes == Codes::kInt8) {
    for (int i = 0; i <= 127; ++i) numbers.push_back(static_cast<float>(i));
    return numbers;
  }
  for (int bits = 0; bits < 127; ++bits) {  // 127 is NaN
    const int exponent = bits >> 3, mantissa = bits & 7;
    numbers.push_back(exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                    : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10));
  }
  return numbers;
}

TEST(RowRoundingTest, TakesTheNearestNumberAndOfTwoThatOfTheEvenCode) {
  for (const Codes codes : {Codes::kInt8, Codes::kE4m3}) {
    const RowRounding rounding{.codes = codes, .scale = 1.0f};
    const std::vector<float> numbers = NumbersOf(codes);
    for (size_t i = 0; i + 1 < numbers.size(); ++i) {
      const float low = numbers[i], high = numbers[i + 1], middle = (low + high) / 2;
      const float even = i % 2 == 0 ? low : high;
      const std::vector<float> row = {low, middle, std::nextafter(middle, 0.0f),
                                      std::nextafter(middle, high), -middle};
      ExpectMade(rounding, row, {low, even, low, high, even == 0 ? 0 : -even});
    }
  }
  ExpectMade({.codes = Codes::kInt8, .scale = 1.0f}, {200, 127.5f, -128, -1e30f},
             {127, 127, -128, -128});
  ExpectMade({.codes = Codes::kE4m3, .scale = 1.0f}, {449, 1e30f, -kInf}, {448, 448, -448});
}

TEST(RowRoundingTest, ScalesAreThoseOfTheLargestSize) {
  EXPECT_EQ(RowScale({.codes = Codes::kInt8}, 255.0f), 2.0f);
  EXPECT_EQ(RowScale({.codes = Codes::kE4m3}, 896.0f), 2.0f);
  EXPECT_EQ(RowScale({.codes = Codes::kE4m3, .powers = true}, 896.0f), 2.0f);
  EXPECT_EQ(RowScale({.codes = Codes::kE4m3, .powers = true}, 897.0f), 4.0f);
  EXPECT_EQ(RowScale({.codes = Codes::kInt8}, 0.0f), 1.0f);
  // Groups of two columns, the last one narrower.
  ExpectMade({.codes = Codes::kE4m3, .group = 2}, {448, 1.0625f, -896, 2.5f, 7},
             {448, 1, -896, 2.5f, 7});
  ExpectMade({.codes = Codes::kInt8, .group = 2}, {0, -0.0f, 127.5f, 1.5f}, {0, 0, 127, 2});
}

TEST(RowRoundingTest, SpansReachFromTheLeastNumberToTheLargest) {
  const auto is = [](ScaleAndZero codes, float scale, float zero) {
    return codes.scale == scale && codes.zero == zero;
  };
  EXPECT_TRUE(is(SpanCodes(0, 510), 2, -128));
  EXPECT_TRUE(is(SpanCodes(255, 0), 1, 127));
  EXPECT_TRUE(is(SpanCodes(126.5f, 128.5f), 1, -2));  // of two codes the even one
  EXPECT_TRUE(is(SpanCodes(127.5f, 127.5f), 1, 0));
  EXPECT_TRUE(is(SpanCodes(0, 0), 1, 0));
  EXPECT_TRUE(is(SpanCodes(0x178p-149f, 0), 0x1p-149f, 127));  // 376 / 255 is no such number
  const RowRounding spans{.spans = true};
  ExpectMade(spans, {-27, 228, 0.5f, 1.5f, -0.0f, -0.25f}, {-27, 228, 1, 1, 0, 0});
  ExpectMade(spans, {256, 510, 1, 3}, {256, 510, 0, 4});  // 0 is in each span
  ExpectMade(spans, {-2, -510, -7}, {-2, -510, -6});
  ExpectMade({.group = 2, .spans = true}, {-255, -1.25f, 3, 510, 255}, {-255, -1, 4, 510, 255});
  // Given ones cut what is outside. Sums with the zero point are rounded before the code is.
  ExpectMade({.scale = 0.5f, .zero = 100}, {20, -150, 0.25f, -0.25f}, {13.5f, -114, 0, 0});
  ExpectMade({.scale = 1, .zero = 101}, {0.5f, -0.5f, 0.49999997f}, {1, -1, 1});
}

class RoundedProductsTest : public ::testing::TestWithParam<Isa> {
 protected:
  static std::unique_ptr<LinearOps> Tested(int threads) {
    return OnDevice() ? std::move(MakeHostedDevice()->linear)
                      : MakeCpuLinear(GetParam(), {.threads = threads});
  }
};

// The machine's instruction sets have no part in a device.
INSTANTIATE_TEST_SUITE_P(Isas, RoundedProductsTest,
                         ::testing::ValuesIn(OnDevice() ? std::vector<Isa>{Isa::kPortable}
                                                        : SupportedIsas()),
                         [](const auto& test) { return std::string(NameOf(test.param)); });

// Rows of m x k as a product with weights of that type and rounding takes them.
std::vector<float> RoundedBefore(std::vector<float> x, int64_t k, DType store,
                                 const RowRounding& rounding) {
  for (float& number : x) number = Rounded(store, number);
  for (size_t i = 0; i < x.size(); i += static_cast<size_t>(k)) {
    RoundRow(rounding, x.data() + i, k, x.data() + i);
  }
  return x;
}

// A product by rows that were rounded before, which is what the rounding of a matrix must give.
TEST_P(RoundedProductsTest, HaveTheBitsOfProductsByRowsOfTheSlowTwin) {
  const RowRounding roundings[] = {{.codes = Codes::kInt8},
                                   {.codes = Codes::kInt8, .scale = 0.02f},
                                   {.codes = Codes::kInt8, .spans = true},
                                   {.codes = Codes::kInt8, .group = 48, .spans = true},
                                   {.codes = Codes::kInt8, .scale = 0.02f, .zero = -37.0f},
                                   {.codes = Codes::kE4m3},
                                   {.codes = Codes::kE4m3, .scale = 0.003f},
                                   {.codes = Codes::kE4m3, .group = 48},
                                   {.codes = Codes::kE4m3, .group = 128, .powers = true}};
  const int64_t apart = OnDevice() ? 43 : 1;  // of the rows that are multiplied alone
  struct Shape {
    int64_t m, n, k;
  };
  const Shape shapes[] = {{1, 64, 256}, {3, 70, 333}, {130, 130, 640}};
  uint64_t seed = 900;
  for (const Shape& s : shapes) {
    const auto w = RandomValues(s.n * s.k, ++seed);
    auto x = RandomValues(s.m * s.k, ++seed);
    for (size_t i = 0; i < x.size(); i += 7) x[i] *= 1e-4f;
    x[5] *= 40.0f;
    const Tensor part = View(w, {s.n, s.k});
    for (const DType store : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (const RowRounding& rounding : roundings) {
        SCOPED_TRACE(StrCat(s.m, "x", s.n, "x", s.k, " ", NameOf(store), " ", rounding.group, " ",
                            rounding.scale, " ", rounding.codes == Codes::kInt8, " ", rounding.zero,
                            " ", rounding.spans));
        const std::vector<float> rounded = RoundedBefore(x, s.k, store, rounding);
        const auto ops = Tested(2);
        const auto plain = ops->Pack({&part, 1}, store), by = ops->Pack({&part, 1}, store);
        RoundedProducts::Of(*ops)->RoundRowsOf(*by, rounding);
        std::vector<float> want(static_cast<size_t>(s.m * s.n)), got = want, alone = want;
        ops->MatMul(View(rounded, {s.m, s.k}), *plain, {}, MatMulMode::kSet,
                    View(want, {s.m, s.n}));
        ops->MatMul(View(x, {s.m, s.k}), *by, {}, MatMulMode::kSet, View(got, {s.m, s.n}));
        EXPECT_TRUE(SameBits(got, want));
        if (store != DType::kF32) {  // rows of the type itself
          std::vector<uint16_t> halves;
          for (const float number : x) {
            halves.push_back(store == DType::kF16 ? F32ToF16(number) : F32ToBf16(number));
          }
          std::fill(got.begin(), got.end(), kNan);
          ops->MatMul(Tensor(halves.data(), store, {s.m, s.k}), *by, {}, MatMulMode::kSet,
                      View(got, {s.m, s.n}));
          EXPECT_TRUE(SameBits(got, want));
        }
        // A row's result does not depend on the rows beside it.
        alone = got;
        for (int64_t i = 0; i < s.m; i += apart) {
          const Tensor to = View(alone, {s.m, s.n}).Slice(i, i + 1);
          std::fill_n(to.f32(), s.n, kNan);
          ops->MatMul(View(x, {s.m, s.k}).Slice(i, i + 1), *by, {}, MatMulMode::kSet, to);
        }
        EXPECT_TRUE(SameBits(alone, got));
        if (s.m > 3) continue;  // the twin is slow
        const auto twin = MakeReferenceLinear();
        const auto slow_plain = twin->Pack({&part, 1}, store), slow = twin->Pack({&part, 1}, store);
        RoundedProducts::Of(*twin)->RoundRowsOf(*slow, rounding);
        twin->MatMul(View(rounded, {s.m, s.k}), *slow_plain, {}, MatMulMode::kSet,
                     View(want, {s.m, s.n}));
        twin->MatMul(View(x, {s.m, s.k}), *slow, {}, MatMulMode::kSet, View(got, {s.m, s.n}));
        EXPECT_TRUE(SameBits(got, want));
      }
    }
  }
}

// Experts whose rows are rounded alike, each with a scale of its own, and some not at all.
TEST_P(RoundedProductsTest, ChosenMatricesRoundRowsAsEachOfThem) {
  using Roundings = std::vector<std::optional<RowRounding>>;
  const RowRounding groups{.codes = Codes::kE4m3, .group = 32, .powers = true};
  const Roundings sets[] = {{groups, groups, groups},
                            {RowRounding{.scale = 0.02f}, RowRounding{.scale = 0.05f}, groups},
                            {RowRounding{.spans = true}, RowRounding{.scale = 0.02f, .zero = 9.0f},
                             RowRounding{.group = 16, .spans = true}},
                            {std::nullopt, RowRounding{.codes = Codes::kE4m3}, std::nullopt}};
  constexpr int64_t n = 40, k = 100;
  uint64_t seed = 700;
  for (const DType store : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const Roundings& roundings : sets) {
      const auto ops = Tested(2);
      std::vector<std::unique_ptr<PackedMatrix>> packed;
      std::vector<const PackedMatrix*> pointers;
      for (const auto& rounding : roundings) {
        const auto w = RandomValues(n * k, ++seed);
        const Tensor part = View(w, {n, k});
        packed.push_back(ops->Pack({&part, 1}, store));
        if (rounding) RoundedProducts::Of(*ops)->RoundRowsOf(*packed.back(), *rounding);
        pointers.push_back(packed.back().get());
      }
      const auto set = ops->Collect(pointers);
      // A few rows, tiles of few rows, and tiles of many.
      for (const int64_t m : {2, 40, 110}) {
        for (const int64_t share : {1, 2}) {
          SCOPED_TRACE(StrCat(NameOf(store), " ", m, " rows x ", share));
          const auto x = RandomValues(m * k, ++seed);
          const int64_t chosen = m * share;
          std::vector<int32_t> choice;
          for (int64_t i = 0; i < chosen; ++i) choice.push_back(static_cast<int32_t>(i * i % 3));
          std::vector<float> got(static_cast<size_t>(chosen * n), kNan), alone(n);
          ops->MatMulChosen(View(x, {m, k}), *set, View(choice, {chosen}), View(got, {chosen, n}));
          for (int64_t i = 0; i<chosen; i += m> 2 ? 7 : 1) {
            ops->MatMul(View(x, {m, k}).Slice(i / share, i / share + 1),
                        *pointers[static_cast<size_t>(choice[i])], {}, MatMulMode::kSet,
                        View(alone, {1, n}));
            ASSERT_TRUE(SameBits(std::span(got).subspan(static_cast<size_t>(i * n), n), alone));
          }
        }
      }
    }
  }
}

// Scales so small that powers of two are no normal numbers, in groups longer than a warp's row.
TEST_P(RoundedProductsTest, ScalesMayBeAnyNumber) {
  constexpr int64_t k = 2500;
  const std::vector<float> ones(k, 1.0f);
  const Tensor part = View(ones, {1, k});
  const auto ops = Tested(1);
  for (const float size : {1e-36f, 3e-37f, 1e-29f, 1e-28f, 0.0f, 1e30f}) {
    auto x = RandomValues(k, 77);
    for (float& number : x) number *= size;
    for (const int64_t group : {0, 100, 1100}) {
      for (RowRounding rounding :
           {RowRounding{.powers = true}, RowRounding{.codes = Codes::kE4m3, .powers = true},
            RowRounding{.spans = true}, RowRounding{.scale = 0x1p-126f},
            RowRounding{.codes = Codes::kE4m3, .scale = 0x1p-124f}}) {
        rounding.group = group;
        SCOPED_TRACE(
            StrCat(size, " ", group, " ", rounding.codes == Codes::kInt8, " ", rounding.spans));
        for (const DType store : {DType::kF32, DType::kBF16}) {
          const auto rounded = RoundedBefore(x, k, store, rounding);
          const auto plain = ops->Pack({&part, 1}, store), by = ops->Pack({&part, 1}, store);
          RoundedProducts::Of(*ops)->RoundRowsOf(*by, rounding);
          std::vector<float> want(1), got(1);
          ops->MatMul(View(rounded, {1, k}), *plain, {}, MatMulMode::kSet, View(want, {1, 1}));
          ops->MatMul(View(x, {1, k}), *by, {}, MatMulMode::kSet, View(got, {1, 1}));
          EXPECT_TRUE(SameBits(got, want)) << NameOf(store);
        }
      }
    }
  }
}

TEST_P(RoundedProductsTest, KeepNumbersThatAreNotFinite) {
  const auto ops = Tested(1);
  const std::vector<float> w(96, 1.0f);
  const Tensor part = View(w, {1, 96});
  for (const float bad : {kNan, -kNan, kInf, -kInf}) {
    std::vector<float> x(96, 1.0f);
    x[50] = bad;
    for (RowRounding rounding :
         {RowRounding{}, RowRounding{.codes = Codes::kE4m3}, RowRounding{.spans = true}}) {
      for (const int64_t group : {0, 32}) {
        rounding.group = group;
        const auto by = ops->Pack({&part, 1}, DType::kF32);
        RoundedProducts::Of(*ops)->RoundRowsOf(*by, rounding);
        std::vector<float> out(1);
        ops->MatMul(View(x, {1, 96}), *by, {}, MatMulMode::kSet, View(out, {1, 1}));
        EXPECT_TRUE(std::isnan(out[0]));
        const auto row = Made(rounding, x);
        EXPECT_TRUE(std::isnan(row[40]) && std::isnan(row[0]) == (group == 0));
      }
    }
  }
}

// A span of finite numbers may be no finite number. Its scale is then infinite, and its rows are no
// numbers, as those of an infinite one; other groups are as ever.
TEST_P(RoundedProductsTest, SpansBeyondAllFloatsHaveNoNumbers) {
  const ScaleAndZero beyond = SpanCodes(0x1p127f, 0x1p127f);
  EXPECT_TRUE(beyond.scale == kInf && beyond.zero == -128.0f);
  EXPECT_TRUE(std::isfinite(SpanCodes(0x1p127f, 0x1.fffffcp126f).scale));
  const auto ops = Tested(1);
  const std::vector<float> w(96, 1.0f);
  const Tensor part = View(w, {1, 96});
  std::vector<float> x(96, 1.0f);
  x[40] = 0x1p127f;
  x[50] = -0x1p127f;
  for (const DType store : {DType::kF32, DType::kBF16}) {
    for (const int64_t group : {0, 32}) {
      SCOPED_TRACE(StrCat(NameOf(store), " ", group));
      const RowRounding rounding{.group = group, .spans = true};
      const auto row = Made(rounding, x);
      EXPECT_TRUE(std::isnan(row[40]) && std::isnan(row[50]) && std::isnan(row[60]));
      EXPECT_EQ(std::isnan(row[0]), group == 0);
      EXPECT_EQ(std::isnan(row[95]), group == 0);
      const auto by = ops->Pack({&part, 1}, store);
      RoundedProducts::Of(*ops)->RoundRowsOf(*by, rounding);
      std::vector<float> out(1);
      ops->MatMul(View(x, {1, 96}), *by, {}, MatMulMode::kSet, View(out, {1, 1}));
      EXPECT_TRUE(std::isnan(out[0]));
      // The largest span that is a number.
      std::vector<float> wide = x, want(1);
      wide[40] = 0x1.fep126f;
      const auto rounded = RoundedBefore(wide, 96, store, rounding);
      EXPECT_TRUE(std::isfinite(rounded[50]));
      const auto plain = ops->Pack({&part, 1}, store);
      ops->MatMul(View(rounded, {1, 96}), *plain, {}, MatMulMode::kSet, View(want, {1, 1}));
      ops->MatMul(View(wide, {1, 96}), *by, {}, MatMulMode::kSet, View(out, {1, 1}));
      EXPECT_TRUE(SameBits(out, want));
    }
  }
}

}  // namespace
}  // namespace kvgauge
