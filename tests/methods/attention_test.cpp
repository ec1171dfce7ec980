// SPDX-License-Identifier: Apache-2.0
// Attention as stages compute it: the model's scale, soft cap and windows count.
#include "methods/attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "chosen_entries.h"
#include "core/strings.h"
#include "fake_view.h"
#include "methods/calibration.h"

namespace kvgauge {
namespace {

constexpr int64_t kAttendDim = 8, kAttended = 60;
constexpr float kOwnScale = 1.3f;

// With one scale and queries, or another and queries that make up for it.
struct ScaledView {
  explicit ScaledView(float scale, float cap = 0, int64_t window = 0) {
    ModelShape shape = SmallShape(2, 2, 2, kAttendDim);
    const float plain = shape.attention_scale;
    shape.attention_scale = scale;
    shape.attention_softcap = cap;
    shape.windows.assign(2, window);
    view = std::make_unique<FakeView>(shape, kAttended);
    for (int64_t h = 0; h < 2; ++h) {
      view->keys[static_cast<size_t>(h)] = RandomValues(kAttended * kAttendDim, 20 + h);
      view->values[static_cast<size_t>(h)] = RandomValues(kAttended * kAttendDim, 30 + h);
    }
    view->queries = RandomValues(kAttended * 4 * kAttendDim, 40);
    view->frequencies = {1.0, 0.3, 0.11, 0.013};
    makes_up = kOwnScale / plain;
  }
  void MakeUp() {
    for (float& q : view->queries) q *= makes_up;
  }
  std::vector<float> NewestQueries() const {
    return {view->queries.end() - 4 * kAttendDim, view->queries.end()};
  }

  std::unique_ptr<FakeView> view;
  float makes_up = 1;
};

std::vector<double> SharesOfRow(const FakeView& view, int64_t query_head, int64_t row, int64_t n) {
  const ModelShape& shape = view.shape();
  const int64_t window = shape.windows[0];
  std::vector<double> shares;
  double sum = 0;
  for (int64_t e = 0; e < n; ++e) {
    double dot = 0;
    for (int64_t c = 0; c < kAttendDim; ++c) {
      dot +=
          double{view.queries[static_cast<size_t>((row * 4 + query_head) * kAttendDim + c)]} *
          view.keys[static_cast<size_t>(query_head / 2)][static_cast<size_t>(e * kAttendDim + c)];
    }
    double logit = dot * shape.attention_scale;
    if (shape.attention_softcap > 0) {
      logit = shape.attention_softcap * std::tanh(logit / shape.attention_softcap);
    }
    const bool seen = window == 0 || e > row - window;
    sum += shares.emplace_back(seen ? std::exp(logit) : 0);
  }
  for (double& share : shares) share /= sum;
  return shares;
}

TEST(AttentionTest, HasTheScaleTheCapAndTheWindow) {
  for (const float cap : {0.0f, 2.0f}) {
    for (const int64_t window : {0, 25, 70}) {
      ScaledView scaled(kOwnScale, cap, window);
      FakeView& view = *scaled.view;
      for (const int64_t first : {0, 7}) {
        const int64_t rows = 3, n = kAttended - rows - first;
        Tensor queries = view.WindowQueries(rows);
        std::vector<float> own;
        for (int64_t i = 0; i < rows; ++i) {
          for (int64_t c = 0; c < kAttendDim; ++c) own.push_back(queries[i][1].f32()[c]);
        }
        const Tensor products = view.Scratch(DType::kF32, {rows, n});
        view.ops().linear->MatMulNT(View(own, {1, rows, kAttendDim}),
                                    view.Keys(0, first).Slice(0, n).Reshape({1, n, kAttendDim}),
                                    1.0f, products.Reshape({1, rows, n}));
        AttentionOfProducts(view, 0, first, QueryRows::Last(view, rows), products, products);
        for (int64_t i = 0; i < rows; ++i) {
          const int64_t row = kAttended - rows + i;
          std::vector<double> want = SharesOfRow(view, 1, row, first + n);
          double left = 0;
          for (int64_t e = first; e < first + n; ++e) left += want[static_cast<size_t>(e)];
          for (int64_t e = first; e < first + n; ++e) {
            EXPECT_NEAR(products[i].f32()[e - first], want[static_cast<size_t>(e)] / left, 1e-6);
          }
        }
      }
    }
  }
}

// Nothing is left of a row that sees none of the entries.
TEST(AttentionTest, ARowThatSeesNothingGetsNothing) {
  ScaledView scaled(kOwnScale, 0, 10);
  const Tensor products = scaled.view->Scratch(DType::kF32, {1, 20});
  AttentionOfProducts(*scaled.view, 0, 0, QueryRows::Newest(*scaled.view), products, products);
  for (int64_t e = 0; e < 20; ++e) EXPECT_EQ(products[0].f32()[e], 0.0f);
}

// A reader chooses by the model's scale: as if queries were longer.
TEST(AttentionTest, ReadersHaveTheScale) {
  const std::pair<const char*, const char*> readers[] = {
      {"top_p", R"({"share": 0.7, "dense_layers": 0})"},
      {"lead_layers", R"({"layers": "0", "tokens": 15, "heads": "layer"})"},
      {"recycled", R"({"tokens": 15, "stride": 2})"},
      {"pqcache", R"({"sinks": 0, "tokens": 15, "recent_share": 0, "bits": 6})"},
      {"tokenselect", R"({"sinks": 0, "local": 1, "tokens": 15, "scaled": true})"},
  };
  for (const auto& [id, params] : readers) {
    const auto choose = [&, id = id, params = params](ScaledView& scaled) {
      const auto reader = MakeStage<Reader>(StageKind::kRead, id, params);
      const auto state = reader->Begin(*scaled.view);
      const std::vector<float> q = scaled.NewestQueries();
      Reads reads = SelectWith(*reader, *scaled.view, *state, q);
      // What this step chose is read in the next, or by the layer above.
      if (!reads.chosen && std::string_view(id) == "recycled") {
        FakeView next(scaled.view->shape(), kAttended + 1);
        reads = SelectWith(*reader, next, *state, q);
      } else if (!reads.chosen) {
        FakeView above(scaled.view->shape(), kAttended, 1);
        reads = SelectWith(*reader, above, *state, q);
      }
      EXPECT_TRUE(reads.chosen) << id;
      return reads.words;
    };
    const float plain = SmallShape(1, 1, 1, kAttendDim).attention_scale;
    ScaledView with_scale(kOwnScale), with_queries(plain), without(plain);
    with_queries.MakeUp();
    EXPECT_EQ(choose(with_scale), choose(with_queries)) << id;
    EXPECT_NE(choose(with_scale), choose(without)) << id << ": the scale does not matter here";
  }
}

TEST(AttentionTest, SparqSharesHaveTheScale) {
  const auto answer = [](ScaledView& scaled) {
    const auto reader = MakeStage<Reader>(StageKind::kRead, "sparq", R"({"tokens": 9, "rank": 3})");
    const auto state = reader->Begin(*scaled.view);
    SelectWith(*reader, *scaled.view, *state, scaled.NewestQueries());
    std::vector<float> out = RandomValues(4 * kAttendDim, 5);
    reader->Correct(*scaled.view, *state, View(out, {4, kAttendDim}));
    return out;
  };
  const float plain = SmallShape(1, 1, 1, kAttendDim).attention_scale;
  ScaledView with_scale(kOwnScale), with_queries(plain), without(plain);
  with_queries.MakeUp();
  EXPECT_TRUE(AllWithin(answer(with_scale), answer(with_queries), 1e-5));
  EXPECT_FALSE(AllWithin(answer(with_scale), answer(without), 1e-2));
}

TEST(AttentionTest, ScorersHaveTheScale) {
  const std::pair<const char*, const char*> scorers[] = {
      {"rkv", R"({"mix": 1})"}, {"morphkv", R"({"window": 8})"}, {"expected_attention", "{}"}};
  for (const auto& [id, params] : scorers) {
    const auto score = [&, id = id, params = params](ScaledView& scaled) {
      std::vector<float> scores =
          ScoreWith(*MakeStage<Scorer>(StageKind::kScore, id, params), *scaled.view);
      for (float& one : scores) one = std::min(one, 10.0f);  // forced ones
      return scores;
    };
    const float plain = SmallShape(1, 1, 1, kAttendDim).attention_scale;
    ScaledView with_scale(kOwnScale), with_queries(plain), without(plain);
    with_queries.MakeUp();
    EXPECT_TRUE(AllWithin(score(with_scale), score(with_queries), 1e-5)) << id;
    EXPECT_FALSE(AllWithin(score(with_scale), score(without), 1e-3)) << id;
  }
}

// Heads are told apart by what a query of the mean would attend to.
TEST(AttentionTest, DuoHasTheScale) {
  const StageSpec* spec = *FindStage(StageKind::kAllocate, "duo");
  const Params params = *Params::Parse(spec->params, Json::object(), "duo");
  const auto calibrate = [&](ScaledView& scaled) {
    const std::vector<int64_t> lengths = {kAttended};
    const std::unique_ptr<Calibrator> calibrator =
        spec->calibrate(params, scaled.view->shape(), lengths);
    calibrator->Observe(0, *scaled.view);
    Calibration::Tables tables = calibrator->Finish(scaled.view->ops());
    return tables.at("heads").values;
  };
  const float plain = SmallShape(1, 1, 1, kAttendDim).attention_scale;
  ScaledView with_scale(kOwnScale), with_queries(plain), without(plain);
  with_queries.MakeUp();
  EXPECT_TRUE(AllWithin(calibrate(with_scale), calibrate(with_queries), 1e-5));
  EXPECT_FALSE(AllWithin(calibrate(with_scale), calibrate(without), 1e-4));
}

}  // namespace
}  // namespace kvgauge
