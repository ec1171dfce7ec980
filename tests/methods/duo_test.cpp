// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <complex>

#include "fake_view.h"
#include "methods/calibration.h"
#include "methods/split_by_weight.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kRoleDim = 6;

// Two layers of two KV heads, each of two query heads, with queries and keys that lean.
std::unique_ptr<FakeView> Leaning(int64_t layer, uint64_t seed) {
  auto view = std::make_unique<FakeView>(SmallShape(2, 2, 2, kRoleDim), 40, layer);
  view->Randomize(seed);
  for (size_t i = 0; i < view->queries.size(); ++i) {
    view->queries[i] += 2 * std::sin(static_cast<float>(seed + i % (4 * kRoleDim)));
  }
  for (int64_t h = 0; h < 2; ++h) {
    for (size_t i = 0; i < view->keys[h].size(); ++i) {
      view->keys[h][i] += 2 * std::cos(static_cast<float>(seed + 7 * h + i % kRoleDim));
    }
  }
  view->frequencies = {1.0, 0.11, 0.013};
  return view;
}

// A query of the mean 500 positions on from the first key of the mean: where its attention lies.
double Reach(const FakeView& view, int64_t head) {
  const int64_t n = view.width();
  double reach = 0;
  std::vector<double> key(kRoleDim);
  for (int64_t i = 0; i < n * kRoleDim; ++i) key[i % kRoleDim] += view.keys[head][i] / double(n);
  for (int64_t q = 2 * head; q < 2 * head + 2; ++q) {
    std::vector<double> query(kRoleDim), weights;
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t c = 0; c < kRoleDim; ++c)
        query[c] += view.queries[(i * 4 + q) * kRoleDim + c] / double(n);
    }
    double sum = 0;
    for (int64_t p = 0; p < 500; ++p) {
      std::complex<double> score = 0;
      for (int64_t c = 0; c < kRoleDim / 2; ++c) {
        const std::complex<double> a(query[c], query[c + kRoleDim / 2]),
            b(key[c], key[c + kRoleDim / 2]);
        score += a * std::conj(b) * std::polar(1.0, view.frequencies[c] * double(499 - p));
      }
      weights.push_back(std::exp(score.real() / std::sqrt(double(kRoleDim))));
      sum += weights.back();
    }
    // The area under the sum from the first position on.
    double running = 0;
    for (const double w : weights) reach += (running += w / sum) / 500 / 2;
  }
  return reach;
}

TEST(DuoTest, HeadsThatReachFarStayWhole) {
  const auto lower = Leaning(0, 3), upper = Leaning(1, 11);
  std::vector<double> reaches;
  for (const FakeView* view : {lower.get(), upper.get()}) {
    for (const int64_t h : {0, 1}) reaches.push_back(Reach(*view, h));
  }
  LayerView* const views[] = {lower.get(), upper.get()};
  const auto stage = MakeStage<Allocator>(StageKind::kAllocate, "duo", R"({"streaming": 10})");
  EXPECT_EQ(stage->needs(), (Needs{.query_moments = {0}, .raw_keys = true}));
  EXPECT_TRUE(stage->Check(lower->shape()).ok());
  std::vector<double> sorted = reaches;
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 1; i < 4; ++i) ASSERT_GT(sorted[i] - sorted[i - 1], 1e-3) << "too like";
  for (int64_t whole = 0; whole <= 4; ++whole) {
    const AllocationInput input{.shape = &lower->shape(),
                                .length = 40,
                                .per_head = 10 + (30 * whole + 3) / 4,
                                .protected_entries = 4,
                                .views = views};
    const Allocation got = *stage->Allocate(input);
    for (size_t i = 0; i < 4; ++i) {
      const bool far = whole > 0 && reaches[i] >= sorted[static_cast<size_t>(4 - whole)];
      EXPECT_EQ(got[i / 2][i % 2], far ? 40 : 10) << whole << " whole, head " << i;
    }
  }
}

TEST(DuoTest, ACalibrationIsTheMeanOverTexts) {
  const StageSpec* spec = *FindStage(StageKind::kAllocate, "duo");
  const Params params = *Params::Parse(spec->params, Json::object(), "duo");
  const ModelShape shape = SmallShape(2, 2, 2, kRoleDim);
  const std::vector<int64_t> lengths = {40, 40};
  const std::unique_ptr<Calibrator> calibrator = spec->calibrate(params, shape, lengths);
  EXPECT_EQ(calibrator->passes(), 1);
  EXPECT_EQ(calibrator->needs(0), (Needs{.query_moments = {0}, .raw_keys = true}));
  std::vector<double> want(4);
  std::unique_ptr<FakeView> view;
  for (const uint64_t text : {0, 1}) {
    for (const int64_t layer : {0, 1}) {
      view = Leaning(layer, 3 + 20 * text + static_cast<uint64_t>(layer));
      for (const int64_t h : {0, 1}) want[2 * layer + h] += Reach(*view, h) / 2;
      calibrator->Observe(0, *view);
    }
  }
  const Calibration::Tables tables = calibrator->Finish(view->ops());
  ASSERT_EQ(tables.size(), 1u);
  EXPECT_THAT(tables.at("heads").shape, ElementsAre(2, 2));
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(tables.at("heads").values[i], want[i], 1e-5);
}

TEST(DuoTest, ATableDecidesAndMustFit) {
  const ModelShape shape = SmallShape(2, 2);
  auto table = std::make_shared<Calibration>();
  table->tables["heads"] = {{2, 2}, {0.1f, 0.9f, 0.1f, 0.3f}};
  const auto stage =
      MakeStage<Allocator>(StageKind::kAllocate, "duo", R"({"streaming": 10, "calibration": "t"})");
  stage->Use(table);
  EXPECT_EQ(stage->needs(), Needs{});
  AllocationInput input{.shape = &shape, .length = 100, .per_head = 55};
  EXPECT_TRUE(stage->Check(shape).ok());
  EXPECT_EQ(*stage->Allocate(input), (Allocation{{10, 100}, {10, 100}}));
  // Of equals the earlier one streams.
  input.per_head = 78;
  EXPECT_EQ(*stage->Allocate(input), (Allocation{{10, 100}, {100, 100}}));
  input.per_head = 9;
  EXPECT_THAT(stage->CheckBudget(input).error().message, HasSubstr("allocate.streaming"));
  EXPECT_EQ(*stage->Allocate(input), Allocation(2, {9, 9}));
  EXPECT_THAT(stage->Check(SmallShape(2, 4)).error().message, HasSubstr("[2, 4]"));

  ModelShape unturned = shape;
  unturned.rotary_dim = 0;
  EXPECT_TRUE(stage->Check(unturned).ok());
  const auto alone = MakeStage<Allocator>(StageKind::kAllocate, "duo");
  EXPECT_THAT(alone->Check(unturned).error().message, HasSubstr("calibration"));
}

}  // namespace
}  // namespace kvgauge
