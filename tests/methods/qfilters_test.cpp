// SPDX-License-Identifier: Apache-2.0
// Directions of queries by power iteration over plain loops, learned and from the prompt.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "fake_view.h"
#include "methods/calibration.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kFilterDim = 6, kGroup = 2, kHeads = 4;

// The direction along which the rows of one query head have most of their squares.
std::vector<double> Direction(const std::vector<std::vector<float>>& rows) {
  std::vector<double> moments(kFilterDim * kFilterDim), x(kFilterDim, 1.0);
  for (const std::vector<float>& q : rows) {
    for (int64_t a = 0; a < kFilterDim; ++a) {
      for (int64_t b = 0; b < kFilterDim; ++b) moments[a * kFilterDim + b] += double{q[a]} * q[b];
    }
  }
  for (int step = 0; step < 20000; ++step) {
    std::vector<double> y(kFilterDim);
    double squares = 0;
    for (int64_t a = 0; a < kFilterDim; ++a) {
      for (int64_t b = 0; b < kFilterDim; ++b) y[a] += moments[a * kFilterDim + b] * x[b];
      squares += y[a] * y[a];
    }
    for (int64_t a = 0; a < kFilterDim; ++a) x[a] = y[a] / std::sqrt(squares);
  }
  int64_t side = 0;
  for (const std::vector<float>& q : rows) {
    double product = 0;
    for (int64_t a = 0; a < kFilterDim; ++a) product += x[a] * q[a];
    side += product < 0 ? -1 : 1;
  }
  for (double& value : x) value = side < 0 ? -value : value;
  return x;
}

// Of KV head `head`, over the last `rows` queries of every view.
std::vector<double> Filter(std::span<FakeView* const> views, int64_t head, int64_t rows) {
  std::vector<double> filter(kFilterDim);
  for (int64_t q = head * kGroup; q < (head + 1) * kGroup; ++q) {
    std::vector<std::vector<float>> queries;
    for (const FakeView* view : views) {
      const int64_t n = view->tokens();
      for (int64_t i = std::max<int64_t>(0, n - rows); i < n; ++i) {
        const float* at = view->queries.data() + (i * kHeads + q) * kFilterDim;
        queries.emplace_back(at, at + kFilterDim);
      }
    }
    const std::vector<double> one = Direction(queries);
    for (int64_t c = 0; c < kFilterDim; ++c) filter[c] += one[c] / kGroup;
  }
  return filter;
}

void ExpectProducts(const Scorer& scorer, FakeView& view,
                    const std::vector<std::vector<double>>& filters) {
  const Tensor out = view.Scratch(DType::kF32, {2, view.width()});
  scorer.Score(view, out);
  for (int64_t h = 0; h < 2; ++h) {
    for (int64_t j = 0; j < view.lengths()[h]; ++j) {
      double want = 0;
      for (int64_t c = 0; c < kFilterDim; ++c)
        want += filters[h][c] * view.keys[h][j * kFilterDim + c];
      EXPECT_NEAR(out[h].f32()[j], want, 2e-5);
    }
  }
}

// Queries that lean to one side, so that the side is theirs and not of rounding.
std::unique_ptr<FakeView> Leaning(int64_t tokens, int64_t layer, uint64_t seed) {
  auto view = std::make_unique<FakeView>(SmallShape(2, 2, kGroup, kFilterDim), tokens, layer);
  view->Randomize(seed);
  for (size_t i = 0; i < view->queries.size(); ++i) {
    if (i % kFilterDim == seed % kFilterDim) view->queries[i] = 2 * view->queries[i] - 1.5f;
  }
  return view;
}

TEST(QFiltersTest, OfThePromptsLastQueries) {
  const auto scorer = MakeStage<Scorer>(StageKind::kScore, "qfilters", R"({"window": 9})");
  EXPECT_EQ(scorer->needs(), (Needs{.window = 9, .step_window = 9}));
  EXPECT_TRUE(scorer->any_time());
  // Fewer rows than dims, too.
  for (const int64_t tokens : {30, 4}) {
    const auto view = Leaning(tokens, 1, 8);
    FakeView* const views[] = {view.get()};
    ExpectProducts(*scorer, *view, {Filter(views, 0, 9), Filter(views, 1, 9)});
  }
}

// Five queries lean a little to one side and one far to the other: the mean would follow the one,
// the authors' filters follow the five.
TEST(QFiltersTest, TheMajorityOfQueriesSaysWhichSide) {
  FakeView view(SmallShape(1, 1, 1, 2), 6);
  view.queries = {1, 0.1f, 1, -0.1f, 1, 0.1f, 1, -0.1f, 1, 0, -9, 0};
  for (int64_t j = 0; j < 6; ++j) view.keys[0][static_cast<size_t>(2 * j)] = static_cast<float>(j);
  const auto scorer = MakeStage<Scorer>(StageKind::kScore, "qfilters", R"({"window": 6})");
  const Tensor out = view.Scratch(DType::kF32, {1, 6});
  scorer->Score(view, out);
  for (int64_t j = 0; j < 6; ++j) {
    EXPECT_NEAR(out[0].f32()[j], static_cast<float>(j), 0.01f * static_cast<float>(j + 1));
  }
}

TEST(QFiltersTest, LearnedFromTexts) {
  const StageSpec* spec = *FindStage(StageKind::kScore, "qfilters");
  const Params params = *Params::Parse(spec->params, nullptr, "qfilters");
  const std::vector<int64_t> lengths = {30, 600};
  const ModelShape shape = SmallShape(2, 2, kGroup, kFilterDim);
  const std::unique_ptr<Calibrator> calibrator = spec->calibrate(params, shape, lengths);
  std::vector<std::unique_ptr<FakeView>> views;
  for (const int64_t length : lengths) {
    for (const int64_t layer : {0, 1}) {
      views.push_back(Leaning(length, layer, 20 + static_cast<uint64_t>(layer)));
      calibrator->Observe(0, *views.back());
    }
  }
  EXPECT_EQ(calibrator->passes(), 2);
  for (const auto& view : views) calibrator->Observe(1, *view);
  auto learned = std::make_shared<Calibration>();
  learned->path = "learned.safetensors";
  learned->tables = calibrator->Finish(views[0]->ops());

  const auto scorer =
      MakeStage<Scorer>(StageKind::kScore, "qfilters", R"({"calibration": "learned.safetensors"})");
  EXPECT_EQ(scorer->needs(), Needs{});
  EXPECT_TRUE(scorer->any_time());
  scorer->Use(learned);
  EXPECT_TRUE(scorer->Check(shape).ok());
  const Status other = scorer->Check(SmallShape(2, 4, 1, kFilterDim));
  ASSERT_FALSE(other.ok());
  EXPECT_THAT(other.error().message, HasSubstr("filters.0"));
  for (const int64_t layer : {0, 1}) {
    FakeView* const of_layer[] = {views[layer].get(), views[2 + layer].get()};
    const auto prompt = Leaning(12, layer, 5);
    prompt->SetLength(1, 7);
    ExpectProducts(*scorer, *prompt, {Filter(of_layer, 0, 512), Filter(of_layer, 1, 512)});
  }
}

}  // namespace
}  // namespace kvgauge
