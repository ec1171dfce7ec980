// SPDX-License-Identifier: Apache-2.0
// Allocators against hand-worked cases; whatever is exact sums to the budget.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "fake_view.h"
#include "methods/apportion.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::unique_ptr<Allocator> AllocatorOf(const std::string& id, const std::string& params = "{}") {
  return MakeStage<Allocator>(StageKind::kAllocate, id, params);
}

std::vector<int64_t> OfFirstHead(const Allotment& allotment) {
  std::vector<int64_t> out;
  for (const auto& layer : allotment) out.push_back(layer[0]);
  return out;
}
int64_t Sum(const std::vector<int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

TEST(ApportionTest, LargestRemaindersWithinBounds) {
  const auto shares = [](std::vector<double> weights, int64_t total, int64_t least, int64_t most) {
    return Apportion(weights, total, least, most);
  };
  EXPECT_THAT(shares({1, 1, 1}, 10, 0, 10), ElementsAre(4, 3, 3));
  EXPECT_THAT(shares({5, 3, 2}, 10, 0, 10), ElementsAre(5, 3, 2));
  EXPECT_THAT(shares({100, 1, 1}, 12, 0, 8), ElementsAre(8, 2, 2));
  EXPECT_THAT(shares({100, 1, 1}, 12, 3, 12), ElementsAre(6, 3, 3));
  EXPECT_THAT(shares({0, 0}, 5, 0, 5), ElementsAre(3, 2));
  EXPECT_THAT(shares({7, 1}, 8, 4, 4), ElementsAre(4, 4));
  for (const int64_t total : {40, 57, 99, 200}) {
    const std::vector<int64_t> got = shares({0.1, 7, 2.5, 3, 0, 11}, total, 4, 50);
    EXPECT_EQ(Sum(got), total);
    for (const int64_t share : got) {
      EXPECT_GE(share, 4);
      EXPECT_LE(share, 50);
    }
  }
}

TEST(UniformTest, EveryHeadTheSame) {
  const ModelShape shape = SmallShape(3, 2);
  AllocationInput input{.shape = &shape, .length = 10, .per_head = 4};
  EXPECT_EQ(*AllocatorOf("uniform")->Allocate(input), Allotment(3, {4, 4}));
  input.per_head = 40;
  EXPECT_EQ(*AllocatorOf("uniform")->Allocate(input), Allotment(3, {10, 10}));
}

TEST(PyramidTest, ListOfTheReference) {
  const ModelShape shape = SmallShape(32, 1);
  const AllocationInput input{
      .shape = &shape, .length = 10000, .per_head = 128, .protected_entries = 8};
  std::vector<int64_t> want;
  for (int64_t l = 0; l < 32; ++l) want.push_back(234 - 7 * l + 8);
  EXPECT_EQ(OfFirstHead(*AllocatorOf("pyramid", R"({"compat": true})")->Allocate(input)), want);

  const std::vector<int64_t> exact = OfFirstHead(*AllocatorOf("pyramid")->Allocate(input));
  EXPECT_EQ(Sum(exact), 32 * 128);
  EXPECT_EQ(exact.front(), 234 + 8);
  EXPECT_EQ(exact.back(), 6 + 8);
  EXPECT_TRUE(std::is_sorted(exact.rbegin(), exact.rend()));

  const auto level = AllocatorOf("pyramid", R"({"beta": 1})");
  EXPECT_EQ(OfFirstHead(*level->Allocate(input)), std::vector<int64_t>(32, 128));
}

TEST(PyramidTest, ShortPromptsAreLevelAndBounded) {
  const ModelShape shape = SmallShape(4, 2);
  AllocationInput input{.shape = &shape, .length = 100, .per_head = 60, .protected_entries = 8};
  // Under twice the pooled part: level.
  EXPECT_EQ(OfFirstHead(*AllocatorOf("pyramid")->Allocate(input)), std::vector<int64_t>(4, 60));
  // 47 on average beside the protected. The first layer can hold no more than 92: 92 62 32 2.
  input.per_head = 55;
  const Allotment bounded = *AllocatorOf("pyramid", R"({"beta": 1000})")->Allocate(input);
  EXPECT_THAT(OfFirstHead(bounded), ElementsAre(100, 70, 40, 10));
  EXPECT_THAT(
      OfFirstHead(*AllocatorOf("pyramid", R"({"beta": 1000, "compat": true})")->Allocate(input)),
      ElementsAre(100, 70, 40, 10));
  // Unbounded 91.65 61.88 32.12 2.35, and the two largest remainders.
  EXPECT_THAT(OfFirstHead(*AllocatorOf("pyramid")->Allocate(input)), ElementsAre(100, 70, 40, 10));
  EXPECT_EQ(bounded[1][0], bounded[1][1]);
  const ModelShape one = SmallShape(1, 1);
  input.shape = &one;
  EXPECT_EQ(OfFirstHead(*AllocatorOf("pyramid")->Allocate(input)), std::vector<int64_t>{55});
  for (const char* params : {"{}", R"({"compat": true})"}) {
    input.per_head = 100;
    EXPECT_EQ(OfFirstHead(*AllocatorOf("pyramid", params)->Allocate(input)),
              std::vector<int64_t>{100});
  }
}

TEST(AdaTest, HandWorked) {
  const ModelShape shape = SmallShape(1, 2);
  FakeView view(shape, 4);
  const std::vector<float> scores = {0.9f, 0.8f, 0.75f, kInf, 0.7f, 0.2f, 0.3f, kInf};
  const Tensor tensor = View(scores, {2, 4});
  LayerView* const views[] = {&view};
  AllocationInput input{.shape = &shape,
                        .length = 4,
                        .per_head = 3,
                        .protected_entries = 1,
                        .scores = std::span(&tensor, 1),
                        .views = views};
  const auto entries = [&](const char* params) {
    return (*AllocatorOf("ada", params)->Allocate(input))[0];
  };
  EXPECT_THAT(entries(R"({"alpha": 0})"), ElementsAre(4, 2));  // 0.9 0.8 0.75 | 0.7
  EXPECT_THAT(entries(R"({"alpha": 1})"), ElementsAre(3, 3));
  EXPECT_THAT(entries(R"({"alpha": 0.2})"), ElementsAre(4, 2));  // 2.8 and 1.2 beside one
  EXPECT_THAT(entries(R"({"alpha": 0.2, "compat": true})"), ElementsAre(3, 2));  // 2.4 and 0.8
  input.per_head = 4;
  EXPECT_THAT(entries("{}"), ElementsAre(4, 4));
}

TEST(AdaTest, FloorHandWorked) {
  const ModelShape shape = SmallShape(1, 2);
  FakeView view(shape, 4);
  const std::vector<float> scores = {0.9f, 0.8f, 0.75f, 0.6f, 0.5f, 0.2f, 0.3f, 0.1f};
  const Tensor tensor = View(scores, {2, 4});
  LayerView* const views[] = {&view};
  const AllocationInput input{
      .shape = &shape, .length = 4, .per_head = 2, .scores = std::span(&tensor, 1), .views = views};
  const auto entries = [&](const char* params) {
    return (*AllocatorOf("ada", params)->Allocate(input))[0];
  };
  EXPECT_THAT(entries(R"({"rule": "floor", "alpha": 0})"), ElementsAre(4, 0));
  // One of two is sure: 0.9 and 0.5, then 0.8 and 0.75.
  EXPECT_THAT(entries(R"({"rule": "floor", "alpha": 0.5})"), ElementsAre(3, 1));
  EXPECT_THAT(entries(R"({"rule": "floor", "alpha": 1})"), ElementsAre(2, 2));
  // A head keeps one however small alpha is.
  EXPECT_THAT(entries(R"({"rule": "floor", "alpha": 0.01})"), ElementsAre(3, 1));
}

TEST(AdaTest, SumsAndRetainedScoresOnRandomLayers) {
  const int64_t heads = 5, n = 200, kept = 10;
  const ModelShape shape = SmallShape(2, heads);
  FakeView a(shape, n), b(shape, n);
  std::vector<std::vector<float>> scores = {RandomValues(heads * n, 1), RandomValues(heads * n, 2)};
  std::vector<Tensor> tensors;
  for (auto& layer : scores) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t j = 0; j < n; ++j) {
        layer[h * n + j] =
            j >= n - kept ? kInf : std::abs(layer[h * n + j]) * static_cast<float>(h + 1);
      }
    }
    tensors.push_back(View(layer, {heads, n}));
  }
  LayerView* const views[] = {&a, &b};
  const AllocationInput input{.shape = &shape,
                              .length = n,
                              .per_head = 47,
                              .protected_entries = kept,
                              .scores = tensors,
                              .views = views};
  for (const double alpha : {0.0, 0.2, 0.35, 1.0}) {
    const std::string params = StrCat(R"({"alpha": )", alpha, "}");
    const Allotment exact = *AllocatorOf("ada", params)->Allocate(input);
    const Allotment compat =
        *AllocatorOf("ada", StrCat(R"({"compat": true, "alpha": )", alpha, "}"))->Allocate(input);
    for (int64_t l = 0; l < 2; ++l) {
      EXPECT_EQ(Sum(exact[l]), heads * 47);
      EXPECT_LE(std::abs(Sum(compat[l]) - heads * 47), heads);
      // The layer's best entries, counted by sorting.
      std::vector<float> sorted = scores[l];
      std::sort(sorted.rbegin(), sorted.rend());
      const float edge = sorted[heads * 47 - 1];
      for (int64_t h = 0; h < heads; ++h) {
        const auto row = std::span(scores[l]).subspan(h * n, n);
        const auto best = std::count_if(row.begin(), row.end(), [=](float v) { return v >= edge; });
        EXPECT_NEAR(exact[l][h], kept + (best - kept) * (1 - alpha) + 37 * alpha, 1.0);
      }
    }
  }
}

// Three query heads whose column sums are 0 but for one entry: their variances are 0 or 1 once
// scaled, so F is the share of heads that have it.
FakeView LayerWithPeaks(const ModelShape& shape, int64_t length, int64_t peaks) {
  FakeView view(shape, length);
  for (int64_t h = 3 - peaks; h < 3; ++h) view.At(h, 0, 0) = 1;
  return view;
}

TEST(D2oAllocatorTest, HandWorked) {
  const ModelShape shape = SmallShape(2, 1, 3);
  FakeView spiky = LayerWithPeaks(shape, 100, 2), flat = LayerWithPeaks(shape, 100, 1);
  LayerView* const views[] = {&spiky, &flat};
  AllocationInput input{
      .shape = &shape, .length = 100, .per_head = 10, .protected_entries = 2, .views = views};
  const auto entries = [&](const char* params) {
    return OfFirstHead(*AllocatorOf("d2o", params)->Allocate(input));
  };
  // Of 20: shares exp(-2/3) to exp(-1/3).
  EXPECT_THAT(entries(R"({"whole_first": 0, "whole_last": 0})"), ElementsAre(8, 12));
  EXPECT_THAT(entries(R"({"whole_first": 0, "whole_last": 0, "compat": true})"),
              ElementsAre(8, 11));
  EXPECT_THAT(entries(R"({"whole_first": 1, "whole_last": 0, "compat": true})"),
              ElementsAre(100, 11));
  const auto refused =
      AllocatorOf("d2o", R"({"whole_first": 1, "whole_last": 0})")->Allocate(input);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("1 of 2 layers stay whole"));
  EXPECT_THAT(refused.error().message, HasSubstr("whole_first"));
  EXPECT_FALSE(AllocatorOf("d2o")->Allocate(input).ok());  // 2 + 1 layers of 2
  EXPECT_FALSE(AllocatorOf("d2o", R"({"compat": true})")->Allocate(input).ok());
  input.per_head = 60;
  EXPECT_THAT(entries(R"({"whole_first": 1, "whole_last": 0})"), ElementsAre(100, 20));
  input.per_head = 100;
  EXPECT_THAT(entries("{}"), ElementsAre(100, 100));
}

}  // namespace
}  // namespace kvgauge
