// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "fake_view.h"
#include "methods/split_by_weight.h"
#include "stage_calls.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;

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
    const Allocation exact = *AllocatorOf("ada", params)->Allocate(input);
    const Allocation compat =
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

}  // namespace
}  // namespace kvgauge
