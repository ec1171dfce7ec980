// SPDX-License-Identifier: Apache-2.0
#include "kernels/select.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "backends.h"
#include "core/rng.h"
#include "reference/reference.h"
#include "support/compare.h"

namespace kvgauge {
namespace {

class EverySelectBackend : public ::testing::Test {
 protected:
  EverySelectBackend()
      : twin(MakeReferenceSelect()), backends(CpuBackends(MakeCpuSelect, {1, 2, 4})) {
    backends.push_back({"reference", MakeReferenceSelect()});
  }
  std::unique_ptr<SelectOps> twin;
  std::vector<Backend<SelectOps>> backends;
};

std::vector<int32_t> TopK(SelectOps& ops, const std::vector<float>& scores,
                          const std::vector<int32_t>& counts, int64_t width) {
  const auto rows = static_cast<int64_t>(counts.size());
  const auto n = static_cast<int64_t>(scores.size()) / rows;
  std::vector<int32_t> out(rows * width, 77);
  ops.TopK(View(scores, {rows, n}), View(counts, {rows}), View(out, {rows, width}));
  return out;
}

TEST_F(EverySelectBackend, TopKHandWorked) {
  struct Example {
    std::vector<float> scores;
    int32_t count;
    std::vector<int32_t> want;
  };
  const Example examples[] = {
      {{5}, 1, {0}},
      {{5}, 0, {}},
      {{1, 9, 3, 7}, 2, {1, 3}},
      {{1, 9, 3, 7}, 4, {0, 1, 2, 3}},
      {{2, 2, 2, 2}, 2, {0, 1}},          // ties: the lower index
      {{2, 3, 2, 3, 2}, 3, {0, 1, 3}},    // ties at the edge only
      {{-0.0f, 0.0f, -1}, 1, {0}},        // both zeros are equal
      {{0.0f, -0.0f, 1}, 2, {0, 2}},      //
      {{kNan, -kInf, 1}, 2, {1, 2}},      // NaN is behind -inf
      {{kNan, -kInf, kNan}, 2, {0, 1}},   //
      {{3, kInf, kNan, kInf}, 1, {1}},    //
      {{-1, -2, -3, -4}, 2, {0, 1}},      // negatives the right way round
      {{1e-40f, -1e-40f, 0}, 2, {0, 2}},  // denormals count
      {{-kNan, kNan, -5}, 1, {2}},        // whatever the sign of the NaN
  };
  for (const auto& [name, ops] : backends) {
    for (const Example& e : examples) {
      const auto width = static_cast<int64_t>(e.want.size()) + 2;
      std::vector<int32_t> want = e.want;
      want.insert(want.end(), 2, -1);
      EXPECT_EQ(TopK(*ops, e.scores, {e.count}, width), want) << name;
    }
  }
}

TEST_F(EverySelectBackend, TopKAgreesWithTwin) {
  for (const int64_t n : {1, 2, 15, 16, 17, 100, 1000, 20000}) {
    const int64_t rows = 7;
    std::vector<float> plain = RandomValues(rows * n, 41), ties(plain), special(plain);
    for (float& v : ties) v = std::round(v);
    for (size_t i = 0; i < special.size(); i += 3) {
      special[i] = std::array<float, 5>{kNan, kInf, -kInf, 0.0f, -0.0f}[i / 3 % 5];
    }
    const auto size = static_cast<int32_t>(n);
    const std::vector<int32_t> counts = {
        0, size, 1, size / 2, std::max(size - 1, 0), size / 10, std::min(size, 33)};
    for (const std::vector<float>& scores : {plain, ties, special}) {
      const std::vector<int32_t> want = TopK(*twin, scores, counts, n + 1);
      for (const auto& [name, ops] : backends) {
        ASSERT_EQ(TopK(*ops, scores, counts, n + 1), want) << name << " n " << n;
      }
    }
  }
}

TEST_F(EverySelectBackend, TopKOfAMillion) {
  const int64_t n = 1 << 20;
  std::vector<float> scores(n);
  Rng rng(4, 4);
  for (float& v : scores) v = static_cast<float>(rng.NextBelow(50000));
  std::vector<int32_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  const int32_t count = 70000;
  std::nth_element(order.begin(), order.begin() + count, order.end(), [&](int32_t a, int32_t b) {
    return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
  });
  order.resize(count);
  std::sort(order.begin(), order.end());
  for (const auto& backend : CpuBackends(MakeCpuSelect)) {
    EXPECT_EQ(TopK(*backend.ops, scores, {count}, count), order) << backend.name;
  }
}

TEST_F(EverySelectBackend, MovesRowsOfAnyType) {
  for (const DType type : {DType::kF32, DType::kBF16, DType::kU8, DType::kI32}) {
    for (const int64_t d : {1, 5, 64, 333}) {
      const std::vector<int32_t> index = {3, 0, 3, 6};
      Matrix source(type, 7, d, 2);
      for (int64_t i = 0; i < 7; ++i) {
        auto* row = source.row<uint8_t>(0) + i * (d + 2) * SizeOf(type);
        for (int64_t b = 0; b < d * SizeOf(type); ++b) row[b] = static_cast<uint8_t>(31 * i + b);
      }
      for (const auto& [name, ops] : backends) {
        Matrix got(type, 4, d, 1);
        ops->Gather(source.view(), View(index, {4}), got.view());
        EXPECT_TRUE(got.Intact());
        for (int64_t i = 0; i < 4; ++i) {
          const Tensor from = source.view()[index[i]], to = got.view()[i];
          EXPECT_EQ(std::memcmp(from.data, to.data, d * SizeOf(type)), 0) << name;
        }
        // Back to where they came from, the others untouched.
        Matrix back(type, 7, d, 2);
        const std::vector<int32_t> distinct = {3, 0, 6};
        ops->Scatter(got.view().Slice(1, 4), View(std::vector<int32_t>{0, 3, 6}, {3}), back.view());
        for (const int32_t i : distinct) {
          EXPECT_EQ(std::memcmp(back.view()[i].data, source.view()[i].data, d * SizeOf(type)), 0)
              << name;
        }
        EXPECT_EQ(static_cast<uint8_t*>(back.view()[1].data)[0], 0xa5) << name;
      }
    }
  }
}

TEST_F(EverySelectBackend, GatherOfNothingIsZero) {
  const std::vector<float> table = {1, 2, 3, 4};
  for (const auto& [name, ops] : backends) {
    std::vector<float> out(6, 9.0f);
    ops->Gather(View(table, {2, 2}), View(std::vector<int32_t>{1, -1, 0}, {3}), View(out, {3, 2}));
    EXPECT_THAT(out, ::testing::ElementsAre(3, 4, 0, 0, 1, 2)) << name;
  }
}

TEST_F(EverySelectBackend, FollowingHandWorked) {
  const std::vector<int32_t> sorted = {0, 3, 4, 9}, value = {-5, 0, 3, 5, 9};
  for (const auto& [name, ops] : backends) {
    std::vector<int32_t> out(10, 77);
    ops->Following(View(sorted, {4}), View(value, {5}), View(out, {2, 5}));
    EXPECT_THAT(out, ::testing::ElementsAre(0, 3, 4, 9, -1, 3, 4, 9, -1, -1)) << name;
  }
}

TEST_F(EverySelectBackend, FollowingAgreesWithTwin) {
  for (const int64_t size : {1, 2, 50, 700}) {
    std::vector<int32_t> sorted(size), value(333);
    for (int64_t i = 0; i < size; ++i) sorted[i] = static_cast<int32_t>(3 * i + i % 3);
    for (int64_t i = 0; i < 333; ++i) value[i] = static_cast<int32_t>(i * 17 % 2200 - 50);
    std::vector<int32_t> want(9 * 333), got(9 * 333);
    twin->Following(View(sorted, {size}), View(value, {333}), View(want, {9, 333}));
    for (const auto& [name, ops] : backends) {
      ops->Following(View(sorted, {size}), View(value, {333}), View(got, {9, 333}));
      EXPECT_EQ(got, want) << name;
    }
  }
}

std::vector<uint64_t> Marks(SelectOps& ops, const std::vector<int32_t>& index, int64_t rows,
                            int64_t run, int64_t n) {
  const int64_t count = (n + 63) / 64;
  std::vector<uint64_t> words(rows * count);
  ops.MarkRuns(View(index, {rows, static_cast<int64_t>(index.size()) / rows}), run, n,
               Tensor(words.data(), DType::kI64, {rows, count}));
  return words;
}

TEST_F(EverySelectBackend, MarkRunsHandWorked) {
  for (const auto& [name, ops] : backends) {
    // Runs of 4: entries 4..7 and 68..69 of 70; the second row marks nothing but entry 0..3.
    EXPECT_THAT(Marks(*ops, {1, 17, -1, 0}, 2, 4, 70), ::testing::ElementsAre(0xf0, 0x30, 0xf, 0))
        << name;
    EXPECT_THAT(Marks(*ops, {1}, 1, 64, 130), ::testing::ElementsAre(0, ~uint64_t{0}, 0)) << name;
    EXPECT_THAT(Marks(*ops, {0}, 1, 100, 130),
                ::testing::ElementsAre(~uint64_t{0}, (uint64_t{1} << 36) - 1, 0))
        << name;
  }
}

TEST_F(EverySelectBackend, MarkRunsAgreesWithTwin) {
  for (const int64_t run : {1, 3, 16, 48, 200}) {
    for (const int64_t n : {1, 63, 64, 65, 1000}) {
      const int64_t runs = (n + run - 1) / run;
      std::vector<int32_t> index;
      for (int64_t i = 0; i < 4 * 9; ++i)
        index.push_back(static_cast<int32_t>(i * 31 % (runs + 1)) - 1);
      const std::vector<uint64_t> want = Marks(*twin, index, 4, run, n);
      for (const auto& [name, ops] : backends) {
        EXPECT_EQ(Marks(*ops, index, 4, run, n), want) << name << " run " << run << " n " << n;
      }
    }
  }
}

TEST_F(EverySelectBackend, ColumnRangesAgreesWithTwin) {
  for (const int64_t n : {1, 2, 3, 64, 1001}) {
    for (const int64_t trim : {int64_t{0}, int64_t{1}, n / 3}) {
      if (2 * trim >= n) continue;
      const int64_t d = 37;
      std::vector<float> values = RandomValues(n * d, 8);
      values[0] = kNan;
      const Matrix x = Matrix::Of(values, d, 2);
      std::vector<float> low(d), high(d), want_low(d), want_high(d);
      twin->ColumnRanges(x.view(), trim, View(want_low, {d}), View(want_high, {d}));
      if (n == 1001 && trim == 0) {
        float least = kInf;
        for (int64_t i = 0; i < n; ++i) least = std::min(least, values[i * d + 5]);
        EXPECT_EQ(want_low[5], least);
      }
      for (const auto& [name, ops] : backends) {
        ops->ColumnRanges(x.view(), trim, View(low, {d}), View(high, {d}));
        EXPECT_TRUE(AllWithin(low, want_low, 0)) << name << " n " << n << " trim " << trim;
        EXPECT_TRUE(AllWithin(high, want_high, 0)) << name << " n " << n << " trim " << trim;
      }
    }
  }
}

TEST_F(EverySelectBackend, ScatterAddHandWorked) {
  const std::vector<float> source = {1, 2, 10, 20, 100, 200}, weight = {1, 0.5f, 2};
  for (const auto& [name, ops] : backends) {
    std::vector<float> out = {7, 7, 0, 0};
    ops->ScatterAdd(View(source, {3, 2}), View(std::vector<int32_t>{1, -1, 1}, {3}),
                    View(weight, {3}), View(out, {2, 2}));
    EXPECT_THAT(out, ::testing::ElementsAre(7, 7, 201, 402)) << name;
    ops->ScatterAdd(View(source, {3, 2}), View(std::vector<int32_t>{0, 0, 1}, {3}), {},
                    View(out, {2, 2}));
    EXPECT_THAT(out, ::testing::ElementsAre(18, 29, 301, 602)) << name;
  }
}

TEST_F(EverySelectBackend, ScatterAddAgreesWithTwin) {
  for (const int64_t d : {1, 17, 64, 200, 4100}) {
    const int64_t m = 40, n = 6;
    const std::vector<float> source = RandomValues(m * d, 3), weight = RandomValues(m, 4);
    std::vector<int32_t> index(m);
    for (int64_t i = 0; i < m; ++i) index[i] = static_cast<int32_t>(i * 5 % 7) - 1;
    const std::vector<float> start = RandomValues(n * d, 5);
    std::vector<float> want = start, first;
    twin->ScatterAdd(View(source, {m, d}), View(index, {m}), View(weight, {m}), View(want, {n, d}));
    double largest = 0;
    for (const float v : source) largest = std::max<double>(largest, std::abs(v));
    for (const auto& [name, ops] : backends) {
      std::vector<float> got = start;
      ops->ScatterAdd(View(source, {m, d}), View(index, {m}), View(weight, {m}), View(got, {n, d}));
      // At most seven terms of |weight * value| in an element, each add and product rounded.
      EXPECT_TRUE(AllWithin(got, want, 2 * 8 * kRound * 8 * Norm(weight) * largest)) << name;
      if (name == "reference") continue;
      // Column by column the same bits: threads cut columns.
      std::vector<float> again = start;
      for (int64_t j = 0; j < d; j += 5) {
        Tensor from = View(source, {m, d}), to = View(again, {n, d});
        from.data = from.f32() + j;
        to.data = to.f32() + j;
        from.shape[1] = to.shape[1] = std::min<int64_t>(5, d - j);
        ops->ScatterAdd(from, View(index, {m}), View(weight, {m}), to);
      }
      EXPECT_TRUE(SameBits(got, again)) << name;
    }
  }
}

TEST_F(EverySelectBackend, PoolHandWorked) {
  const std::vector<float> x = {3, -6, 9, 0};
  for (const auto& [name, ops] : backends) {
    std::vector<float> out(4);
    ops->Pool(View(x, {1, 4}), 3, Pooling::kAverage, View(out, {1, 4}));
    EXPECT_THAT(out, ::testing::ElementsAre(-1, 2, 1, 3)) << name;  // zeros count at the ends
    ops->Pool(View(x, {1, 4}), 3, Pooling::kMax, View(out, {1, 4}));
    EXPECT_THAT(out, ::testing::ElementsAre(3, 9, 9, 9)) << name;
    const std::vector<float> low = {-3, -5};
    std::vector<float> two(2);
    ops->Pool(View(low, {1, 2}), 7, Pooling::kMax, View(two, {1, 2}));
    EXPECT_THAT(two, ::testing::ElementsAre(-3, -3)) << name;  // the padding does not
    const std::vector<float> with_nan = {1, kNan, 2, 3, 5};
    std::vector<float> five(5);
    ops->Pool(View(with_nan, {1, 5}), 3, Pooling::kMax, View(five, {1, 5}));
    EXPECT_TRUE(AllWithin(five, std::vector<float>{kNan, kNan, kNan, 5, 5}, 0)) << name;
  }
}

TEST_F(EverySelectBackend, PoolAgreesWithTwin) {
  for (const int64_t n : {1, 2, 15, 16, 17, 33, 2500}) {
    for (const int64_t kernel : {1, 3, 5, 7, 63}) {
      for (const Pooling mode : {Pooling::kAverage, Pooling::kMax}) {
        const Matrix x = Matrix::Of(RandomValues(20 * n, 6), n, 3);
        Matrix want(DType::kF32, 20, n);
        twin->Pool(x.view(), kernel, mode, want.view());
        for (const auto& [name, ops] : backends) {
          Matrix got(DType::kF32, 20, n, 2), alone(DType::kF32, 20, n);
          ops->Pool(x.view(), kernel, mode, got.view());
          ASSERT_TRUE(got.Intact()) << name;
          // A window adds at most `kernel` values below 100 and divides.
          const double bound = mode == Pooling::kMax ? 0 : kRound * 100 * (kernel + 1.0);
          ASSERT_TRUE(AllWithin(got.values(), want.values(), bound)) << name << " n " << n;
          for (int64_t i = 0; i < 20; ++i) {
            ops->Pool(x.view().Slice(i, i + 1), kernel, mode, alone.view().Slice(i, i + 1));
          }
          ASSERT_EQ(got.FirstDifference(alone), -1) << name;
        }
      }
    }
  }
}

TEST_F(EverySelectBackend, NothingToDo) {
  const std::vector<int32_t> none;
  const Tensor no_index(nullptr, DType::kI32, {0}), no_rows(nullptr, DType::kF32, {0, 4});
  const std::vector<float> table(8);
  for (const auto& [name, ops] : backends) {
    ops->Gather(View(table, {2, 4}), no_index, no_rows);
    ops->Scatter(no_rows, no_index, View(table, {2, 4}));
    ops->ScatterAdd(no_rows, no_index, {}, View(table, {2, 4}));
  }
}

TEST(SelectOpsDeathTest, WrongIndexAndCount) {
  const std::vector<float> table(8), row(4);
  for (const auto& backend : CpuBackends(MakeCpuSelect)) {
    EXPECT_DEATH(backend.ops->Gather(View(table, {2, 4}), View(std::vector<int32_t>{2}, {1}),
                                     View(row, {1, 4})),
                 "row index out of range");
    std::vector<int32_t> out(9);
    EXPECT_DEATH(backend.ops->TopK(View(table, {1, 8}), View(std::vector<int32_t>{9}, {1}),
                                   View(out, {1, 9})),
                 "count out of range");
  }
}

struct Experts {
  std::vector<int32_t> index;
  std::vector<float> weight;
};
Experts Choose(SelectOps& ops, const std::vector<float>& logits, int64_t rows, int64_t k,
               const ExpertRule& rule, const std::vector<float>& correction = {}) {
  Experts out = {std::vector<int32_t>(static_cast<size_t>(rows * k), 77),
                 std::vector<float>(static_cast<size_t>(rows * k), kNan)};
  const auto experts = static_cast<int64_t>(logits.size()) / rows;
  ops.ChooseExperts(View(logits, {rows, experts}), rule,
                    correction.empty() ? Tensor() : View(correction, {experts}),
                    View(out.index, {rows, k}), View(out.weight, {rows, k}));
  return out;
}

TEST_F(EverySelectBackend, ChoosesExpertsHandWorked) {
  const float third = std::log(3.0f);
  for (const auto& [name, ops] : backends) {
    SCOPED_TRACE(name);
    // Shares 1/6, 3/6, 1/6, 1/6: the best, and of equals the lower one.
    Experts two = Choose(*ops, {0, third, 0, 0}, 1, 2, {});
    EXPECT_EQ(two.index, (std::vector<int32_t>{0, 1}));
    EXPECT_NEAR(two.weight[0], 1.0 / 6, 1e-6);
    EXPECT_NEAR(two.weight[1], 0.5, 1e-6);
    two = Choose(*ops, {0, third, 0, 0}, 1, 2, {.renormalize = true, .scaling = 9});
    EXPECT_NEAR(two.weight[0], 0.25, 1e-6);
    EXPECT_NEAR(two.weight[1], 0.75, 1e-6);
    EXPECT_NEAR(Choose(*ops, {0, third, 0, 0}, 1, 1, {.scaling = 2}).weight[0], 1.0, 1e-6);
    // The second best is in a group that is not taken.
    const ExpertRule grouped = {.groups = 2, .top_groups = 1};
    EXPECT_EQ(Choose(*ops, {1, 9, 8, 1}, 1, 2, grouped).index, (std::vector<int32_t>{0, 1}));
    // Sigmoids: 1/2, 3/4, 1/2, 1/4; the choice is by the corrected ones, the weights are not.
    const ExpertRule sigmoid = {.renormalize = true, .scaling = 2.5, .sigmoid = true};
    two = Choose(*ops, {0, third, 0, -third}, 1, 2, sigmoid, {0, -1, -0.5f, 0.5f});
    EXPECT_EQ(two.index, (std::vector<int32_t>{0, 3}));
    EXPECT_NEAR(two.weight[0], 2.5 * 2 / 3, 1e-6);
    EXPECT_NEAR(two.weight[1], 2.5 / 3, 1e-6);
    // Two good ones are worth more than one that is best; corrections may be far below 0.
    const ExpertRule pairs = {.groups = 2, .top_groups = 1, .sigmoid = true};
    two = Choose(*ops, {third, -9, 0, 0}, 1, 2, pairs, {0, 0, 0, 0});
    EXPECT_EQ(two.index, (std::vector<int32_t>{2, 3}));
    EXPECT_NEAR(two.weight[0], 0.5, 1e-6);
    two = Choose(*ops, {0, third, 0}, 1, 2, {.sigmoid = true}, {-30, -20, -10});
    EXPECT_EQ(two.index, (std::vector<int32_t>{1, 2}));
    EXPECT_EQ(Choose(*ops, {kNan, kNan, kNan}, 1, 2, {.sigmoid = true}, {0, 0, 0}).index,
              (std::vector<int32_t>{0, 1}));
    // One after the other: 2 beside 1.5, which is within a half of it, then 1.5 beside 1.
    const ExpertRule turns = {.in_turn = true, .tolerance = 0.5};
    two = Choose(*ops, {1.5f, 0.9f, 2, 1}, 1, 2, turns);
    EXPECT_EQ(two.index, (std::vector<int32_t>{0, 2}));
    EXPECT_NEAR(two.weight[0], 1 / (1 + std::exp(-0.6) + std::exp(-0.5)), 1e-6);
    EXPECT_NEAR(two.weight[1], 1 / (1 + std::exp(-0.5) + std::exp(-1.0)), 1e-6);
    // Below 0 it is how far another is below that counts; alone a weight is 1.
    two = Choose(*ops, {-4, -1, -3}, 1, 2, {.in_turn = true, .tolerance = 0.3});
    EXPECT_EQ(two.index, (std::vector<int32_t>{1, 2}));
    EXPECT_NEAR(two.weight[0], 1, 1e-6);
    EXPECT_NEAR(two.weight[1], 1 / (1 + std::exp(-1.0)), 1e-6);
    EXPECT_EQ(Choose(*ops, {kNan, -kInf, kNan}, 1, 2, turns).index, (std::vector<int32_t>{0, 1}));
    // Whatever the logits are, experts that exist are chosen.
    EXPECT_EQ(Choose(*ops, {kNan, kNan, kNan}, 1, 2, {}).index, (std::vector<int32_t>{0, 1}));
    EXPECT_EQ(Choose(*ops, {kInf, kInf, 0}, 1, 2, {}).index, (std::vector<int32_t>{0, 1}));
  }
}

TEST_F(EverySelectBackend, ChoosesExpertsLikeTheTwin) {
  struct Shape {
    int64_t experts, k;
    ExpertRule rule;
  };
  const Shape shapes[] = {
      {1, 1, {}},
      {8, 2, {.renormalize = true}},
      {64, 6, {}},
      {16, 2, {.in_turn = true, .tolerance = 0.4}},
      {40, 5, {.in_turn = true, .tolerance = 0.02}},
      {160, 6, {.groups = 8, .top_groups = 3, .scaling = 16}},
      {120, 20, {.groups = 60, .top_groups = 59}},
      {65, 65, {.scaling = 0.5}},
      {64, 6, {.renormalize = true, .scaling = 2.5, .sigmoid = true}},
      {256,
       8,
       {.groups = 8, .top_groups = 4, .renormalize = true, .scaling = 2.5, .sigmoid = true}},
      {6, 2, {.groups = 6, .top_groups = 3, .sigmoid = true}}};
  uint64_t seed = 60;
  for (const Shape& s : shapes) {
    constexpr int64_t kRows = 11;
    std::vector<float> logits = RandomValues(kRows * s.experts, ++seed, 4.0f);
    for (size_t i = 0; i < logits.size(); i += 3) logits[i] = std::round(logits[i]);
    std::vector<float> correction;
    if (s.rule.sigmoid) correction = RandomValues(s.experts, seed + 100, 2.0f);
    const Experts want = Choose(*twin, logits, kRows, s.k, s.rule, correction);
    for (const auto& [name, ops] : backends) {
      SCOPED_TRACE(StrCat(name, " ", s.experts, " experts"));
      const Experts got = Choose(*ops, logits, kRows, s.k, s.rule, correction);
      EXPECT_EQ(got.index, want.index);
      EXPECT_TRUE(AllWithin(got.weight, want.weight, 1e-6 * std::max(s.rule.scaling, 1.0)));
      // Alone and in company.
      const std::vector<float> last(logits.end() - s.experts, logits.end());
      const Experts alone = Choose(*ops, last, 1, s.k, s.rule, correction);
      EXPECT_TRUE(SameBits(alone.weight, std::span(got.weight).last(static_cast<size_t>(s.k))));
    }
  }
}

TEST_F(EverySelectBackend, AddsWeightedRows) {
  for (const std::array<int64_t, 3>& shape : std::initializer_list<std::array<int64_t, 3>>{
           {1, 1, 1}, {3, 2, 70}, {5, 6, 300}, {40, 8, 64}}) {
    const int64_t rows = shape[0], k = shape[1], d = shape[2];
    const Matrix source = Matrix::Of(RandomValues(rows * k * d, 71), d, 3);
    const std::vector<float> weight = RandomValues(rows * k, 72),
                             before = RandomValues(rows * d, 73);
    const auto add = [&](SelectOps& ops) {
      Matrix out = Matrix::Of(before, d, 5);
      ops.AddWeighted(source.view(), View(weight, {rows, k}), out.view());
      EXPECT_TRUE(out.Intact());
      return out;
    };
    const std::vector<float> want = add(*twin).values();
    for (const auto& [name, ops] : backends) {
      const Matrix got = add(*ops);
      EXPECT_TRUE(AllWithin(got.values(), want, 1e-5 * static_cast<double>(k))) << name;
      if (name == "reference") continue;
      // The order is that of one row after the other.
      Matrix steps = Matrix::Of(before, d, 5);
      for (int64_t j = 0; j < k; ++j) {
        for (int64_t i = 0; i < rows; ++i) {
          ops->AddWeighted(
              source.view().Slice(i * k + j, i * k + j + 1),
              View(std::span(weight).subspan(static_cast<size_t>(i * k + j), 1), {1, 1}),
              steps.view().Slice(i, i + 1));
        }
      }
      EXPECT_EQ(got.FirstDifference(steps), -1) << name;
    }
  }
}

std::vector<uint64_t> RandomWords(int64_t count, uint64_t seed) {
  std::vector<uint64_t> words(static_cast<size_t>(count));
  Rng rng(seed, 0);
  for (uint64_t& word : words) word = rng.NextU64();
  return words;
}
Tensor Words(const std::vector<uint64_t>& words, int64_t rows, int64_t columns) {
  return {const_cast<uint64_t*>(words.data()), DType::kI64, {rows, columns}};
}

TEST_F(EverySelectBackend, CountsBits) {
  for (const auto& [name, ops] : backends) {
    const std::vector<uint64_t> words = {1, uint64_t{1} << 63 | 6, ~uint64_t{0}, 0};
    std::vector<int64_t> base = {10, uint64_t{1} << 40}, out(2);
    ops->CountBits(Words(words, 2, 2), Tensor(base.data(), DType::kI64, {2}),
                   Tensor(out.data(), DType::kI64, {2}));
    EXPECT_EQ(out, (std::vector<int64_t>{14, (int64_t{1} << 40) + 64})) << name;
    const std::vector<uint64_t> many = RandomWords(3 * 2000, 81);
    std::vector<int64_t> none(3), got(3), want(3);
    const Tensor zero(none.data(), DType::kI64, {3});
    ops->CountBits(Words(many, 3, 2000), zero, Tensor(got.data(), DType::kI64, {3}));
    twin->CountBits(Words(many, 3, 2000), zero, Tensor(want.data(), DType::kI64, {3}));
    EXPECT_EQ(got, want) << name;
  }
}

TEST_F(EverySelectBackend, CountsBitsOfAnyRow) {
  for (const auto& [name, ops] : backends) {
    // Two rows a group; the second group's range is empty.
    const std::vector<uint64_t> words = {0b0110, 1, 0b0011, 1, ~uint64_t{0}, 0, 0, 0};
    const std::vector<int32_t> ends = {1, 65, 7, 7};
    std::vector<int64_t> base = {10, 20}, out(2);
    ops->CountAnyBits(Words(words, 4, 2), View(ends, {2, 2}), Tensor(base.data(), DType::kI64, {2}),
                      Tensor(out.data(), DType::kI64, {2}));
    EXPECT_EQ(out, (std::vector<int64_t>{13, 20})) << name;
    const std::vector<uint64_t> many = RandomWords(15 * 700, 82);
    const std::vector<int32_t> parts = {0, 44800, 63, 64, 64, 128, 100, 120, 1000, 44799};
    for (const int64_t groups : {1, 5}) {
      std::vector<int64_t> none(5), got(5), want(5);
      const Tensor zero(none.data(), DType::kI64, {groups});
      const Tensor range(const_cast<int32_t*>(parts.data()), DType::kI32, {groups, 2});
      ops->CountAnyBits(Words(many, 15, 700), range, zero,
                        Tensor(got.data(), DType::kI64, {groups}));
      twin->CountAnyBits(Words(many, 15, 700), range, zero,
                         Tensor(want.data(), DType::kI64, {groups}));
      EXPECT_EQ(got, want) << name << ", " << groups << " groups";
    }
  }
}

TEST_F(EverySelectBackend, MovesBits) {
  for (const auto& [name, ops] : backends) {
    const std::vector<uint64_t> one = {0b1011, uint64_t{1} << 63};
    std::vector<uint64_t> out(2, 77);
    ops->MoveBits(Words(one, 1, 2), 1, 0, Words(out, 1, 2));
    EXPECT_EQ(out, (std::vector<uint64_t>{0b101, uint64_t{1} << 62})) << name;
    ops->MoveBits(Words(one, 1, 2), 0, 62, Words(out, 1, 2));
    EXPECT_EQ(out, (std::vector<uint64_t>{uint64_t{0b11} << 62, 0b10})) << name;
    for (const int64_t first : {0, 1, 63, 64, 100, 1000}) {
      for (const int64_t skip : {0, 1, 5, 63, 64, 130}) {
        const std::vector<uint64_t> words = RandomWords(3 * 5, 82);
        std::vector<uint64_t> got(3 * 7, 77), want(3 * 7, 78);
        ops->MoveBits(Words(words, 3, 5), first, skip, Words(got, 3, 7));
        twin->MoveBits(Words(words, 3, 5), first, skip, Words(want, 3, 7));
        EXPECT_EQ(got, want) << name << " from " << first << " to " << skip;
      }
    }
  }
}

TEST_F(EverySelectBackend, ReadsBits) {
  for (const auto& [name, ops] : backends) {
    const std::vector<uint64_t> one = {0b1011, uint64_t{1} << 63};
    std::vector<float> few(5, 7.0f);
    ops->ReadBits(Words(one, 1, 2), 1, View(few, {1, 5}));
    EXPECT_EQ(few, (std::vector<float>{1, 0, 1, 0, 0})) << name;
    ops->ReadBits(Words(one, 1, 2), 125, View(few, {1, 5}));
    EXPECT_EQ(few, (std::vector<float>{0, 0, 1, 0, 0})) << name << ": nothing is behind the words";
    for (const int64_t first : {0, 1, 63, 64, 100, 1000}) {
      for (const int64_t count : {1, 64, 70, 200}) {
        const std::vector<uint64_t> words = RandomWords(3 * 5, 83);
        std::vector<float> got(3 * 210, 7.0f), want(3 * 210, 7.0f);
        const auto columns = [&](std::vector<float>& all) {
          Tensor out = View(all, {3, 210});
          out.shape[1] = count;
          return out;
        };
        ops->ReadBits(Words(words, 3, 5), first, columns(got));
        twin->ReadBits(Words(words, 3, 5), first, columns(want));
        EXPECT_EQ(got, want) << name << " from " << first << ", " << count;
      }
    }
  }
}

TEST_F(EverySelectBackend, NumbersAreAtLeast) {
  for (const auto& [name, ops] : backends) {
    std::vector<int32_t> x = {-5, 0, 3, 2, 7}, out(5);
    ops->AtLeast(View(x, {5}), 3, View(out, {5}));
    EXPECT_EQ(out, (std::vector<int32_t>{3, 3, 3, 3, 7})) << name;
    ops->AtLeast(View(x, {5}), -4, View(x, {5}));
    EXPECT_EQ(x, (std::vector<int32_t>{-4, 0, 3, 2, 7})) << name;
  }
}

}  // namespace
}  // namespace kvgauge
