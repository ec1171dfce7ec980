// SPDX-License-Identifier: Apache-2.0
// What stages learn from text, against plain loops over everything.
#include "methods/calibration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "fake_view.h"
#include "fake_weights.h"
#include "methods/layouts/coded.h"
#include "methods/level_histogram.h"
#include "methods/method.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Weighted {
  double x, weight;
};

double Distortion(const std::vector<Weighted>& numbers, const std::vector<float>& levels) {
  double sum = 0;
  for (const Weighted& n : numbers) {
    double best = std::numeric_limits<double>::infinity();
    for (const float level : levels) best = std::min(best, (n.x - level) * (n.x - level));
    sum += n.weight * best;
  }
  return sum;
}

// The best levels there are, with every number a point of its own.
double BestDistortion(std::vector<Weighted> numbers, size_t levels) {
  std::sort(numbers.begin(), numbers.end(),
            [](const Weighted& a, const Weighted& b) { return a.x < b.x; });
  const size_t n = numbers.size();
  std::vector<double> w(n + 1), s(n + 1), q(n + 1);
  for (size_t i = 0; i < n; ++i) {
    w[i + 1] = w[i] + numbers[i].weight;
    s[i + 1] = s[i] + numbers[i].weight * numbers[i].x;
    q[i + 1] = q[i] + numbers[i].weight * numbers[i].x * numbers[i].x;
  }
  std::vector<double> best(n + 1, std::numeric_limits<double>::infinity());
  best[0] = 0;
  for (size_t level = 0; level < levels; ++level) {
    std::vector<double> next(n + 1, std::numeric_limits<double>::infinity());
    for (size_t end = 0; end <= n; ++end) {
      for (size_t begin = 0; begin <= end; ++begin) {
        const double weight = w[end] - w[begin], sum = s[end] - s[begin];
        const double cost = weight > 0 ? q[end] - q[begin] - sum * sum / weight : 0;
        next[end] = std::min(next[end], best[begin] + cost);
      }
    }
    best = next;
  }
  return best[n];
}

TEST(LevelHistogramTest, FewNumbersAreTheLevels) {
  LevelHistogram histogram;
  histogram.Add(-0.75, 1);
  histogram.Add(0.1, 5);
  histogram.Add(1.5, 2);  // counts as the end
  const std::vector<float> levels = histogram.Best(3);
  EXPECT_NEAR(levels[0], -0.75, 1e-6);
  EXPECT_NEAR(levels[1], 0.1, 1e-6);
  EXPECT_NEAR(levels[2], 1, 1e-6);
  EXPECT_NEAR(histogram.Best(2)[0], (-0.75 + 5 * 0.1) / 6, 1e-6);
  EXPECT_NEAR(histogram.Best(2)[1], 1, 1e-6);
  EXPECT_NEAR(histogram.Best(1)[0], (-0.75 + 0.5 + 2) / 8, 1e-6);
}

TEST(LevelHistogramTest, NothingGivesEvenLevels) {
  const std::vector<float> levels = LevelHistogram().Best(4);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(levels[i], -0.75 + 0.5 * static_cast<double>(i), 1e-3);
  }
}

TEST(LevelHistogramTest, BestThereIs) {
  for (const uint64_t seed : {1, 2, 3}) {
    const std::vector<float> x = RandomValues(300, seed, 0.4f), w = RandomValues(300, seed + 50);
    LevelHistogram histogram;
    std::vector<Weighted> numbers;
    for (size_t i = 0; i < x.size(); ++i) {
      const double at = std::clamp(double{x[i]}, -1.0, 1.0);
      numbers.push_back({at, double{w[i]} * w[i]});
      histogram.Add(at, numbers.back().weight);
    }
    for (const size_t count : {2, 4, 8, 16}) {
      const std::vector<float> levels = histogram.Best(static_cast<int64_t>(count));
      EXPECT_TRUE(std::is_sorted(levels.begin(), levels.end()));
      const double best = BestDistortion(numbers, count);
      const double got = Distortion(numbers, levels);
      EXPECT_GE(got, best * (1 - 1e-6));
      EXPECT_LE(got, best * 1.01 + 1e-6) << count << " levels";
    }
  }
}

// A few texts, each seen by a fake view of every layer.
struct Seen {
  explicit Seen(const ModelShape& of, std::vector<int64_t> text_lengths)
      : shape(of), lengths(std::move(text_lengths)) {
    for (size_t text = 0; text < lengths.size(); ++text) {
      for (int64_t layer = 0; layer < shape.layers; ++layer) {
        views.push_back(std::make_unique<FakeView>(shape, lengths[text], layer));
        views.back()->Randomize(1000 * text + 100 * static_cast<uint64_t>(layer) + 7);
      }
    }
  }

  Calibration::Tables Calibrate(StageKind kind, const std::string& id, const std::string& params) {
    const StageSpec* spec = *FindStage(kind, id);
    const Params parsed = *Params::Parse(spec->params, *ParseJson(params, "test"), id);
    const std::unique_ptr<Calibrator> calibrator = spec->calibrate(parsed, shape, lengths);
    for (int pass = 0; pass < calibrator->passes(); ++pass) {
      for (const auto& view : views) calibrator->Observe(pass, *view);
    }
    return calibrator->Finish(views[0]->ops());
  }

  ModelShape shape;
  std::vector<int64_t> lengths;
  std::vector<std::unique_ptr<FakeView>> views;  // text by text, layers in order
};

std::shared_ptr<const Calibration> Learned(Calibration::Tables tables) {
  auto calibration = std::make_shared<Calibration>();
  calibration->path = "learned.safetensors";
  calibration->tables = std::move(tables);
  return calibration;
}

TEST(KvQuantCalibration, RangesAndLevelsOfPlainLoops) {
  constexpr int64_t kSinks = 3, kDim = 8;
  const ModelShape shape = SmallShape(2, 2, 2, kDim);
  Seen seen(shape, {40, 2, 61});  // one is shorter than what stays uncoded, so nothing of it does
  const Calibration::Tables tables =
      seen.Calibrate(StageKind::kStore, "kvquant", R"({"bits": 2, "outliers": 0.1, "sinks": 3})");
  for (int64_t layer = 0; layer < 2; ++layer) {
    // [channels] of everything that counts; squares of queries.
    std::vector<std::vector<float>> columns(2 * kDim);
    std::vector<double> queries(2 * kDim);
    for (const auto& view : seen.views) {
      if (view->layer() != layer) continue;
      const int64_t n = view->tokens(), first = n > kSinks ? kSinks : 0;
      for (int64_t h = 0; h < 2; ++h) {
        for (int64_t c = 0; c < kDim; ++c) {
          for (int64_t i = first; i < n; ++i) {
            columns[h * kDim + c].push_back(view->keys[h][i * kDim + c]);
          }
          for (int64_t i = 0; i < n; ++i) {
            for (int64_t q = 2 * h; q < 2 * h + 2; ++q) {
              const double x = view->queries[(i * 4 + q) * kDim + c];
              queries[h * kDim + c] += x * x;
            }
          }
        }
      }
    }
    for (int64_t h = 0; h < 2; ++h) {
      for (int64_t c = 0; c < kDim / 2; ++c) {  // pairs of the half layout
        double& a = queries[h * kDim + c];
        double& b = queries[h * kDim + c + kDim / 2];
        a = b = (a + b) / 2;
      }
    }
    const auto table = [&](const char* what) -> const std::vector<float>& {
      return tables.at(StrCat(what, ".", layer)).values;
    };
    std::vector<Weighted> keys;
    for (int64_t c = 0; c < 2 * kDim; ++c) {
      std::vector<float>& column = columns[c];
      std::sort(column.begin(), column.end());
      ASSERT_EQ(column.size(), 40u - 3 + 2 + 61 - 3);
      const size_t trim = 97 / 20;  // 5 % on either side
      const float low = column[trim], high = column[column.size() - 1 - trim];
      EXPECT_EQ(table("keys.low")[c], low);
      EXPECT_EQ(table("keys.high")[c], high);
      const double half = (double{high} - low) / 2;
      for (const float x : column) {
        if (x < low || x > high) continue;
        keys.push_back({(double{x} - low) / half - 1, queries[c] * half * half});
      }
    }
    std::vector<Weighted> values;
    for (const auto& view : seen.views) {
      if (view->layer() != layer) continue;
      const int64_t n = view->tokens(), first = n > kSinks ? kSinks : 0;
      for (int64_t h = 0; h < 2; ++h) {
        for (int64_t j = first; j < n; ++j) {
          double paid = 0;
          for (int64_t q = 2 * h; q < 2 * h + 2; ++q) {
            for (int64_t i = j; i < n; ++i) {
              paid += double{view->At(q, i, j)} * view->At(q, i, j);
            }
          }
          const float* row = &view->values[h][j * kDim];
          const float low = *std::min_element(row, row + kDim);
          const double half = (double{*std::max_element(row, row + kDim)} - low) / 2;
          for (int64_t c = 0; c < kDim; ++c) {
            values.push_back({(row[c] - low) / half - 1, paid * half * half});
          }
        }
      }
    }
    for (const auto& [what, numbers] :
         {std::pair<const char*, std::vector<Weighted>&>{"keys.levels", keys},
          {"values.levels", values}}) {
      const double best = BestDistortion(numbers, 4);
      const double got = Distortion(numbers, table(what));
      EXPECT_GE(got, best * (1 - 1e-5)) << what;
      EXPECT_LE(got, best * 1.005) << what << " of layer " << layer;
    }
  }
}

// With Q-Norm codes are those of the plain levels, and what they stand for has the mean and the
// spread of what was coded.
TEST(KvQuantCalibration, QNormKeepsMeanAndSpread) {
  constexpr int64_t kDim = 8;
  Seen seen(SmallShape(1, 2, 2, kDim), {40, 61});
  const std::string params = R"({"bits": 2, "outliers": 0.1, "sinks": 0, "norm": )";
  const auto plain = seen.Calibrate(StageKind::kStore, "kvquant", params + "false}");
  const auto normed = seen.Calibrate(StageKind::kStore, "kvquant", params + "true}");
  EXPECT_EQ(plain.at("keys.low.0").values, normed.at("keys.low.0").values);
  EXPECT_FALSE(plain.contains("keys.edges.0"));
  std::vector<double> keys, values;  // in units of their ranges
  for (const auto& view : seen.views) {
    for (int64_t h = 0; h < 2; ++h) {
      for (int64_t i = 0; i < view->tokens() * kDim; ++i) {
        const auto c = static_cast<size_t>(h * kDim + i % kDim);
        const double low = plain.at("keys.low.0").values[c], x = view->keys[h][i];
        const double high = plain.at("keys.high.0").values[c];
        if (x >= low && x <= high) keys.push_back((2 * x - low - high) / (high - low));
        const float* row = &view->values[h][i / kDim * kDim];
        const auto [least, most] = std::minmax_element(row, row + kDim);
        values.push_back((2.0 * view->values[h][i] - *least - *most) / (double{*most} - *least));
      }
    }
  }
  for (const auto& [side, numbers] : {std::pair("keys", &keys), std::pair("values", &values)}) {
    const auto& levels = plain.at(StrCat(side, ".levels.0")).values;
    const auto& stands = normed.at(StrCat(side, ".levels.0")).values;
    const auto& edges = normed.at(StrCat(side, ".edges.0")).values;
    ASSERT_EQ(edges.size(), 3u);
    double sum = 0, squares = 0, coded = 0, coded_squares = 0;
    for (const double x : *numbers) {
      size_t nearest = 0;
      for (size_t l = 1; l < levels.size(); ++l) {
        if (std::abs(levels[l] - x) < std::abs(levels[nearest] - x)) nearest = l;
      }
      EXPECT_TRUE((nearest == 0 || x >= edges[nearest - 1] - 1e-6) &&
                  (nearest == 3 || x <= edges[nearest] + 1e-6));
      sum += x;
      squares += x * x;
      coded += stands[nearest];
      coded_squares += double{stands[nearest]} * stands[nearest];
    }
    const auto n = static_cast<double>(numbers->size());
    EXPECT_NEAR(coded / n, sum / n, 1e-5) << side;
    EXPECT_NEAR(std::sqrt(coded_squares / n - coded / n * coded / n),
                std::sqrt(squares / n - sum / n * sum / n), 1e-5)
        << side;
    EXPECT_NE(levels, stands);
  }
}

TEST(KvQuantCalibration, StoresByItsTables) {
  const ModelShape shape = SmallShape(2, 2, 1, 64);
  Seen seen(shape, {80});
  const auto calibration = Learned(seen.Calibrate(StageKind::kStore, "kvquant", R"({"bits": 3})"));
  const auto stage = MakeStage<Store>(StageKind::kStore, "kvquant", R"({"bits": 3})");
  stage->Use(calibration);
  ASSERT_TRUE(stage->Check(shape).ok()) << stage->Check(shape).error().message;
  StorePlan plan = *stage->Plan(shape, 1);
  stage->Calibrate(*seen.views[1], plan);  // what is known is not asked of the prompt
  const Coded& coded = *plan.Get<Coded>();
  EXPECT_TRUE(coded.ranges.constant);
  EXPECT_EQ(Floats(coded.ranges.low), calibration->tables.at("keys.low.1").values);
  EXPECT_EQ(Floats(coded.keys.levels), calibration->tables.at("keys.levels.1").values);
  EXPECT_EQ(Floats(coded.values.levels), calibration->tables.at("values.levels.1").values);
  EXPECT_TRUE(CheckCodec(coded.values).ok());

  const ModelShape deeper = SmallShape(3, 2, 1, 64), wider = SmallShape(2, 2, 1, 32);
  EXPECT_THAT(stage->Check(deeper).error().message,
              AllOf(HasSubstr("learned.safetensors"), HasSubstr("keys.levels.2")));
  EXPECT_THAT(stage->Check(wider).error().message, HasSubstr("[2, 64], this model needs [2, 32]"));
  const auto normed =
      MakeStage<Store>(StageKind::kStore, "kvquant", R"({"bits": 3, "norm": true})");
  normed->Use(calibration);
  EXPECT_THAT(normed->Check(shape).error().message, HasSubstr("was made without Q-Norm"));
  auto broken = std::make_shared<Calibration>(*calibration);
  std::swap(broken->tables["keys.low.0"], broken->tables["keys.high.0"]);
  stage->Use(broken);
  EXPECT_THAT(stage->Check(shape).error().message, HasSubstr("range of key channel 0"));
  broken = std::make_shared<Calibration>(*calibration);
  std::vector<float>& levels = broken->tables["values.levels.1"].values;
  levels[4] = levels[3];
  stage->Use(broken);
  EXPECT_THAT(stage->Check(shape).error().message,
              AllOf(HasSubstr("learned.safetensors: table 'values.levels.1': level 4 is "),
                    HasSubstr("levels must ascend")));
}

// Inputs that live near a few directions, and what projections make of them.
class PaluCalibration : public ::testing::Test {
 protected:
  static constexpr int64_t kInputs = 24, kTokens = 200, kPlanted = 3;

  PaluCalibration() : weights_(Shape(), true) {
    const std::vector<float> planted = RandomValues(kPlanted * kInputs, 77);
    const std::vector<float> at = RandomValues(kTokens * kPlanted, 78);
    inputs_ = RandomValues(kTokens * kInputs, 79, 0.02f);
    for (int64_t t = 0; t < kTokens; ++t) {
      for (int64_t p = 0; p < kPlanted; ++p) {
        for (int64_t i = 0; i < kInputs; ++i) {
          inputs_[t * kInputs + i] += at[t * kPlanted + p] * planted[p * kInputs + i];
        }
      }
    }
    for (const int64_t layer : {0, 1}) {
      views_.push_back(std::make_unique<FakeView>(Shape(), kTokens, layer));
      for (const auto matrix : {WeightView::Matrix::kKey, WeightView::Matrix::kValue}) {
        const std::vector<double> out =
            Outputs(weights_.weights.at({layer, matrix}), weights_.biases.at({layer, matrix}));
        auto& heads =
            matrix == WeightView::Matrix::kKey ? views_[layer]->keys : views_[layer]->values;
        for (int64_t t = 0; t < kTokens; ++t) {
          for (int64_t c = 0; c < 16; ++c) {
            heads[c / 4][t * 4 + c % 4] = static_cast<float>(out[t * 16 + c]);
          }
        }
      }
    }
  }

  static ModelShape Shape() {
    ModelShape shape = SmallShape(2, 4, 2, 4);
    shape.hidden_size = kInputs;
    return shape;
  }

  // [tokens, 16] of the inputs through weights and bias.
  std::vector<double> Outputs(const std::vector<float>& w, const std::vector<float>& bias) const {
    std::vector<double> out(kTokens * 16);
    for (int64_t t = 0; t < kTokens; ++t) {
      for (int64_t c = 0; c < 16; ++c) {
        double sum = bias[c];
        for (int64_t i = 0; i < kInputs; ++i) {
          sum += double{w[c * kInputs + i]} * inputs_[t * kInputs + i];
        }
        out[t * 16 + c] = sum;
      }
    }
    return out;
  }

  Calibration::Tables Learn() {
    const StageSpec* spec = *FindStage(StageKind::kPrepare, id_);
    const char* text = id_ == "palu" ? R"({"group": 2})" : "{}";
    const Params params = *Params::Parse(spec->params, *ParseJson(text, "t"), id_);
    const int64_t length = kTokens;
    const auto calibrator = spec->calibrate(params, Shape(), {&length, 1});
    for (const auto& view : views_) calibrator->Observe(0, *view);
    return calibrator->Finish(views_[0]->ops());
  }

  // What the changed projections make of the inputs, off what the given ones did: squares by layer
  // and side, [layer][matrix].
  std::map<FakeWeights::Key, double> ErrorOf(const std::string& params, bool calibrated) {
    FakeWeights weights(Shape(), true);
    const auto stage = MakeStage<Prepare>(StageKind::kPrepare, id_, params);
    if (calibrated) stage->Use(Learned(Learn()));
    const Status legal = stage->Check(Shape());
    EXPECT_TRUE(legal.ok()) << legal.error().message;
    EXPECT_TRUE(stage->Transform(weights).ok());
    std::map<FakeWeights::Key, double> errors;
    for (const auto& [key, w] : weights.written) {
      const std::vector<double> got = Outputs(w, weights.written_biases.at(key));
      const std::vector<double> want = Outputs(weights.weights.at(key), weights.biases.at(key));
      for (size_t i = 0; i < got.size(); ++i) {
        errors[key] += (got[i] - want[i]) * (got[i] - want[i]);
      }
    }
    ranks_.clear();
    for (const auto& [place, bases] : weights.bases) {
      for (const FakeWeights::Basis& basis : bases) ranks_[place.second].push_back(basis.rank);
    }
    return errors;
  }

  std::string id_ = "palu";
  FakeWeights weights_;
  std::vector<float> inputs_;
  std::vector<std::unique_ptr<FakeView>> views_;  // [layers]
  std::map<KvSide, std::vector<int64_t>> ranks_;
};

TEST_F(PaluCalibration, PlantedSubspaceIsFoundWhereWeightsAloneDoNotShowIt) {
  // Three planted directions and the bias: four ranks hold all but the noise.
  const std::string params = R"({"group": 2, "multiple": 1})";
  const auto plain = ErrorOf(params, false), whitened = ErrorOf(params, true);
  ASSERT_EQ(plain.size(), 4u);
  for (const auto& [key, error] : whitened) {
    EXPECT_LT(error, 0.05 * plain.at(key));
    EXPECT_GT(error, 0);
  }
}

// ||X (W - W')^T||^2 is what the singular values of W S, S the Cholesky factor of X^T X, hold
// beyond the rank.
TEST_F(PaluCalibration, ErrorIsThatOfTheWhitenedDecomposition) {
  const auto errors = ErrorOf(R"({"group": 2, "multiple": 1, "key_ratio": 0.25})", true);
  constexpr int64_t kColumns = kInputs + 1;  // a bias is one more input, always 1
  std::vector<double> gram(kColumns * kColumns), s(kColumns * kColumns);
  for (int64_t t = 0; t < kTokens; ++t) {
    const auto x = [&](int64_t i) { return i == kInputs ? 1.0 : double{inputs_[t * kInputs + i]}; };
    for (int64_t i = 0; i < kColumns; ++i) {
      for (int64_t j = 0; j < kColumns; ++j) gram[i * kColumns + j] += x(i) * x(j);
    }
  }
  for (int64_t i = 0; i < kColumns; ++i) {
    for (int64_t j = 0; j <= i; ++j) {
      double sum = gram[i * kColumns + j];
      for (int64_t k = 0; k < j; ++k) sum -= s[i * kColumns + k] * s[j * kColumns + k];
      s[i * kColumns + j] = i == j ? std::sqrt(sum) : sum / s[j * kColumns + j];
    }
  }
  const auto reference = std::move(*MakeOps("reference", ThreadSettings{1}));
  for (const auto& [key, error] : errors) {
    const int64_t rank = key.second == WeightView::Matrix::kKey ? 2 : 4;
    double discarded = 0;
    for (const int64_t first : {0, 8}) {
      std::vector<float> ws(8 * kColumns), u(64), sigma(8), vt(8 * kColumns);
      for (int64_t r = 0; r < 8; ++r) {
        for (int64_t j = 0; j < kColumns; ++j) {
          double sum = 0;
          for (int64_t i = 0; i < kColumns; ++i) {
            const double w = i == kInputs ? weights_.biases.at(key)[first + r]
                                          : weights_.weights.at(key)[(first + r) * kInputs + i];
            sum += w * s[i * kColumns + j];
          }
          ws[r * kColumns + j] = static_cast<float>(sum);
        }
      }
      reference->algebra->Svd(View(ws, {8, kColumns}), View(u, {8, 8}), View(sigma, {8}),
                              View(vt, {8, kColumns}));
      for (int64_t i = rank; i < 8; ++i) discarded += double{sigma[i]} * sigma[i];
    }
    EXPECT_NEAR(error, discarded, 1e-2 * discarded);
  }
}

// Keys and values of a layer are made of the same inputs, so that four ranks hold both together.
TEST_F(PaluCalibration, JointDirectionsAreThoseOfKeysAndValues) {
  id_ = "joint_svd";
  const std::string params = R"({"ratio": 0.125})";
  const auto plain = ErrorOf(params, false), calibrated = ErrorOf(params, true);
  const Calibration::Tables tables = Learn();
  for (const int64_t layer : {0, 1}) {
    double without = 0, with = 0, beyond = 0;
    for (const auto matrix : {WeightView::Matrix::kKey, WeightView::Matrix::kValue}) {
      without += plain.at({layer, matrix});
      with += calibrated.at({layer, matrix});
    }
    EXPECT_LT(with, 0.05 * without);
    // What the directions that were left out have of the texts is what is lost.
    const std::vector<float>& energy = tables.at(StrCat("joint.", layer, ".energy")).values;
    for (size_t i = 4; i < energy.size(); ++i) beyond += double{energy[i]} * kTokens;
    EXPECT_NEAR(with, beyond, 0.02 * beyond);
  }
  const auto stage = MakeStage<Prepare>(StageKind::kPrepare, id_, params);
  stage->Use(Learned(tables));
  EXPECT_THAT(stage->Check(SmallShape(3, 4, 2, 4)).error().message,
              HasSubstr("'joint.2.directions'"));
}

TEST_F(PaluCalibration, RanksFollowTheEnergy) {
  // One group has one direction; another is small, but it is its own share that counts.
  for (int64_t t = 0; t < kTokens; ++t) {
    for (const int64_t h : {0, 1}) {
      for (int64_t c = 0; c < 4; ++c) {
        views_[0]->keys[h][t * 4 + c] = views_[0]->keys[2][t * 4] * static_cast<float>(c - h);
      }
    }
  }
  for (const int64_t h : {2, 3}) {
    for (float& x : views_[1]->keys[h]) x *= 1e-3f;
  }
  ErrorOf(R"({"group": 2, "multiple": 1, "key_ratio": 0.5, "ranks": "energy"})", true);
  const std::vector<int64_t>& ranks = ranks_.at(KvSide::kKeys);
  ASSERT_EQ(ranks.size(), 4u);
  EXPECT_EQ(ranks[0] + ranks[1] + ranks[2] + ranks[3], 16);
  EXPECT_EQ(ranks[0], 1);
  EXPECT_GE(ranks[3], 4);
  const auto stage = MakeStage<Prepare>(StageKind::kPrepare, "palu", R"({"ranks": "energy"})");
  EXPECT_THAT(stage->Check(Shape()).error().message, HasSubstr("needs a calibration"));
}

TEST_F(PaluCalibration, DirectionsAreOrthonormalEvenWhereNothingWasSeen) {
  for (auto& head : views_[0]->values) std::fill(head.begin(), head.end(), 0.0f);
  const Calibration::Tables tables = Learn();
  EXPECT_EQ(tables.size(), 16u);
  for (const auto& [name, table] : tables) {
    if (!name.ends_with("directions")) continue;
    ASSERT_EQ(table.shape, (std::vector<int64_t>{8, 8}));
    for (int64_t a = 0; a < 8; ++a) {
      for (int64_t b = 0; b < 8; ++b) {
        double dot = 0;
        for (int64_t c = 0; c < 8; ++c) {
          dot += double{table.values[a * 8 + c]} * table.values[b * 8 + c];
        }
        EXPECT_NEAR(dot, a == b, 1e-4) << name;
      }
    }
  }
}

// A calibration and the method that names it.
class Attached : public ::testing::Test {
 protected:
  Method method_ = *LoadMethod("kvquant", std::string(KVG_SOURCE_DIR) + "/configs/methods",
                               {"store.calibration=some/file"});

  Calibration Fitting() const {
    Calibration calibration;
    calibration.path = "some/file";
    calibration.digest = "d1";
    calibration.model = "0123456789abcdef";
    calibration.model_name = "tiny";
    calibration.stage = "store.kvquant";
    calibration.stage_version = method_.store->spec->version;
    calibration.params = CalibratedParams(*method_.store);
    return calibration;
  }

  std::string WhyNot(const Calibration& calibration) {
    const Status status =
        AttachCalibration(*method_.store, std::make_shared<Calibration>(calibration));
    return status.ok() ? "" : status.error().message;
  }
};

TEST_F(Attached, FitsOneStageVersionAndSetOfParameters) {
  EXPECT_EQ(CalibrationPath(*method_.store), "some/file");
  EXPECT_EQ(WhyNot(Fitting()), "");
  Calibration other = Fitting();
  other.stage = "prepare.palu";
  EXPECT_THAT(WhyNot(other), AllOf(HasSubstr("prepare.palu"), HasSubstr("store.kvquant")));
  other = Fitting();
  other.stage_version = 77;
  EXPECT_THAT(WhyNot(other), HasSubstr("version 77"));
  other = Fitting();
  other.params = R"({"bits":2})";
  EXPECT_THAT(WhyNot(other), AllOf(HasSubstr(R"({"bits":2})"), HasSubstr(R"("bits":4)")));
}

TEST_F(Attached, HasDirectionsThatAreOrthonormal) {
  Calibration other = Fitting();
  const std::vector<float> turn = {0.6f, 0.8f, -0.8f, 0.6f};
  std::vector<float> two = turn;
  two.insert(two.end(), turn.begin(), turn.end());
  for (const std::string name : {"keys.0.1.directions", "directions.3", "values.basis.2"}) {
    other.tables = {{name, {{2, 2, 2}, two}}};
    EXPECT_EQ(WhyNot(other), "") << name;
    other.tables[name].values[5] = 0.9f;
    EXPECT_THAT(WhyNot(other), AllOf(HasSubstr("some/file: table '" + name + "', matrix 1: row 0"),
                                     HasSubstr("times row 0 is 1.17"), HasSubstr("must be 1")));
    other.tables[name].values = {1, 0, 0.01f, 1, 0, 1, 1, 0};
    EXPECT_THAT(WhyNot(other), HasSubstr("matrix 0: row 1 times row 0 is 0.01, which must be 0"));
  }
  // Tables of other names are for the stage, and so is a shape.
  other.tables = {{"keys.0.there", {{2, 2}, {1, 2, 3, 4}}},
                  {"keys.0.directions", {{1, 4}, {1, 2, 3, 4}}}};
  EXPECT_EQ(WhyNot(other), "");
  for (const std::string name : {"keys.0.0.energy", "values.variances.1"}) {
    other.tables = {{name, {{3}, {2, 0, -1}}}};
    EXPECT_THAT(WhyNot(other), HasSubstr("'" + name + "': number 2 is -1; expected 0 or more"));
  }
}

TEST(OjaTest, BeginsWithDirectionsThatAreOrthonormal) {
  const ModelShape shape = SmallShape(1, 2, 1, 2);
  const auto stage = MakeStage<Store>(StageKind::kStore, "oja", "{}");
  const auto file = std::make_shared<Calibration>();
  file->path = "bases.safetensors";
  const std::vector<float> turns = {0, 1, 1, 0, 0.6f, 0.8f, -0.8f, 0.6f};
  file->tables = {{"keys.0.there", {{2, 2, 2}, turns}}, {"values.0.there", {{2, 2, 2}, turns}}};
  stage->Use(file);
  EXPECT_TRUE(stage->Check(shape).ok());
  file->tables["values.0.there"].values[6] = 0;
  EXPECT_THAT(stage->Check(shape).error().message,
              AllOf(HasSubstr("bases.safetensors: table 'values.0.there', matrix 1: row 1"),
                    HasSubstr("orthonormal")));
}

TEST_F(Attached, BelongsToOneModel) {
  ASSERT_EQ(WhyNot(Fitting()), "");
  EXPECT_TRUE(CheckCalibrations(method_, "0123456789abcdef").ok());
  EXPECT_THAT(
      CheckCalibrations(method_, "fedcba9876543210").error().message,
      AllOf(HasSubstr("tiny (0123456789ab)"), HasSubstr("fedcba987654"), HasSubstr("some/file")));
}

TEST_F(Attached, CountsByItsContent) {
  const Json without = method_.ToJson();
  EXPECT_EQ(without["stages"]["store"]["params"]["calibration"], "some/file");
  const ModelShape shape = SmallShape(1, 2, 1, 64);
  EXPECT_THAT(CheckMethod(method_, shape, {}, 100).error().message, HasSubstr("was not read"));
  ASSERT_EQ(WhyNot(Fitting()), "");
  const Json with = method_.ToJson();
  EXPECT_EQ(with["stages"]["store"]["params"]["calibration"], "sha256:d1");
  // A method that names none is what it was before there were any.
  const Method plain = *LoadMethod("kvquant", std::string(KVG_SOURCE_DIR) + "/configs/methods", {});
  EXPECT_FALSE(plain.ToJson()["stages"]["store"]["params"].contains("calibration"));
}

}  // namespace
}  // namespace kvgauge
