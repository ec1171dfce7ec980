// SPDX-License-Identifier: Apache-2.0
// A state of constant size that takes in what leaves, against plain loops.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fake_weights.h"
#include "methods/absorbing_reader.h"
#include "methods/calibration.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kLessKvHeads = 2, kLessGroup = 2, kLessDim = 4, kLessInner = 5, kLessRank = 3,
                  kLessHeld = 9;
constexpr int64_t kLessQueryHeads = kLessKvHeads * kLessGroup;

std::shared_ptr<Calibration> KernelFile() {
  auto file = std::make_shared<Calibration>();
  file->path = "f";
  uint64_t seed = 40;
  const auto add = [&](const char* name, std::vector<int64_t> shape) {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    file->tables[StrCat("layers.0.", name)] = {std::move(shape), RandomValues(count, ++seed)};
  };
  add("queries.in", {kLessQueryHeads, kLessDim, kLessInner});
  add("queries.out", {kLessQueryHeads, kLessInner, kLessRank});
  add("keys.in", {kLessKvHeads, kLessDim, kLessInner});
  add("keys.out", {kLessKvHeads, kLessInner, kLessRank});
  add("size", {kLessKvHeads, kLessRank});
  add("mix", {kLessKvHeads, kLessRank, kLessRank});
  add("mix_size", {kLessKvHeads, kLessRank});
  return file;
}

std::unique_ptr<Reader> LessOf(std::shared_ptr<Calibration> file) {
  auto reader =
      MakeStage<Reader>(StageKind::kRead, "less", R"({"inner": 5, "rank": 3, "calibration": "f"})");
  if (file != nullptr) reader->Use(std::move(file));
  return reader;
}

double GeluOf(double x) { return x / 2 * (1 + std::erf(x / std::sqrt(2.0))); }

// gelu(gelu(x W1) W2) by the maps of one head.
std::vector<double> TwoMaps(const Calibration& file, const std::string& side, int64_t head,
                            const float* x) {
  const std::vector<float>& in = file.tables.at("layers.0." + side + ".in").values;
  const std::vector<float>& out = file.tables.at("layers.0." + side + ".out").values;
  std::vector<double> features(kLessRank);
  for (int64_t i = 0; i < kLessInner; ++i) {
    double sum = 0;
    for (int64_t d = 0; d < kLessDim; ++d)
      sum += double{x[d]} * in[(head * kLessDim + d) * kLessInner + i];
    for (int64_t r = 0; r < kLessRank; ++r) {
      features[r] += GeluOf(sum) * out[(head * kLessInner + i) * kLessRank + r];
    }
  }
  for (double& x2 : features) x2 = GeluOf(x2);
  return features;
}

std::vector<double> KernelOfKey(const Calibration& file, int64_t head, const float* key) {
  std::vector<double> u = TwoMaps(file, "keys", head, key), psi(kLessRank);
  const auto at = [&](const char* name, int64_t i) {
    return double{file.tables.at(StrCat("layers.0.", name)).values[static_cast<size_t>(i)]};
  };
  for (int64_t r = 0; r < kLessRank; ++r) u[r] *= std::abs(at("size", head * kLessRank + r));
  for (int64_t r = 0; r < kLessRank; ++r) {
    double mixed = 0;
    for (int64_t s = 0; s < kLessRank; ++s)
      mixed += u[s] * at("mix", (head * kLessRank + s) * kLessRank + r);
    psi[r] = std::abs(u[r] + mixed * at("mix_size", head * kLessRank + r));
  }
  return psi;
}

struct LessStep {
  std::vector<float> q = RandomValues(kLessQueryHeads * kLessDim, 71);
  std::vector<float> sums = RandomValues(kLessQueryHeads, 72);  // logs of denominators
  std::vector<float> out = RandomValues(kLessQueryHeads * kLessDim, 73);
};

std::vector<float> Joined(const AbsorbingReader& reader, FakeView& view, Reader::State& state) {
  LessStep step;
  reader.Join(view, state, View(step.q, {kLessQueryHeads, kLessDim}),
              View(step.sums, {kLessQueryHeads}), View(step.out, {kLessQueryHeads, kLessDim}));
  return step.out;
}

// The two sums of attention with what has left of each KV head.
std::vector<float> JoinedByLoops(const Calibration& file, const FakeView& view,
                                 const std::vector<std::vector<int32_t>>& left) {
  LessStep step;
  for (int64_t h = 0; h < kLessQueryHeads; ++h) {
    const int64_t head = h / kLessGroup;
    std::vector<double> phi = TwoMaps(file, "queries", h, &step.q[h * kLessDim]);
    std::vector<double> z(kLessRank), sums(kLessRank * kLessDim);
    for (const int32_t entry : left[head]) {
      const std::vector<double> psi = KernelOfKey(file, head, &view.keys[head][entry * kLessDim]);
      for (int64_t r = 0; r < kLessRank; ++r) {
        z[r] += psi[r];
        for (int64_t d = 0; d < kLessDim; ++d) {
          sums[r * kLessDim + d] += psi[r] * double{view.values[head][entry * kLessDim + d]};
        }
      }
    }
    double total = 0;
    for (int64_t r = 0; r < kLessRank; ++r) total += std::abs(phi[r]) * z[r];
    const double held = std::exp(double{step.sums[h]});
    const double all = held + std::max(total, 1e-6);
    for (int64_t d = 0; d < kLessDim; ++d) {
      double number = held * double{step.out[h * kLessDim + d]};
      for (int64_t r = 0; r < kLessRank; ++r) {
        number += std::max(std::abs(phi[r]), 1e-6) * sums[r * kLessDim + d];
      }
      step.out[h * kLessDim + d] = static_cast<float>(number / all);
    }
  }
  return step.out;
}

class LessTest : public ::testing::Test {
 protected:
  LessTest() : view_(SmallShape(1, kLessKvHeads, kLessGroup, kLessDim), kLessHeld) {
    view_.Randomize(5);
    EXPECT_TRUE(reader_->Check(view_.shape()).ok());
  }

  const AbsorbingReader& reader() const { return dynamic_cast<AbsorbingReader&>(*reader_); }
  void Absorb(const std::vector<std::vector<int32_t>>& left, Reader::State& state) {
    std::vector<Tensor> leaving;
    for (const auto& of_head : left) {
      leaving.push_back(of_head.empty() ? Tensor()
                                        : Upload(view_, std::span<const int32_t>(of_head)));
    }
    const Status status = reader().Absorb(view_, leaving, state);
    EXPECT_TRUE(status.ok()) << status.error().message;
  }

  std::shared_ptr<Calibration> file_ = KernelFile();
  std::unique_ptr<Reader> reader_ = LessOf(file_);
  FakeView view_;
};

TEST_F(LessTest, AddsWhatHasLeftToTheSumsOfAttention) {
  const auto state = reader_->Begin(view_);
  EXPECT_EQ(state->bytes(), 4 * kLessKvHeads * kLessRank * (kLessDim + 1));
  const std::vector<float> before = LessStep().out;
  EXPECT_EQ(Joined(reader(), view_, *state), before) << "nothing has left";
  Absorb({{0, 3, 4}, {}}, *state);
  const std::vector<float> some = JoinedByLoops(*file_, view_, {{0, 3, 4}, {}});
  EXPECT_TRUE(AllWithin(Joined(reader(), view_, *state), some, 1e-5));
  // Later ones are added, whatever their order; a fork goes on by itself.
  const auto fork = reader().Copy(*state, view_.ops());
  Absorb({{7}, {2}}, *fork);
  Absorb({{}, {1}}, *fork);
  EXPECT_TRUE(AllWithin(Joined(reader(), view_, *fork),
                        JoinedByLoops(*file_, view_, {{0, 3, 4, 7}, {1, 2}}), 1e-5));
  EXPECT_TRUE(AllWithin(Joined(reader(), view_, *state), some, 1e-5));
}

TEST_F(LessTest, ManyEntriesLeaveInPieces) {
  constexpr int64_t kMany = 1100;
  FakeView view(SmallShape(1, kLessKvHeads, kLessGroup, kLessDim), kMany);
  std::vector<std::vector<int32_t>> left(kLessKvHeads);
  for (int64_t h = 0; h < kLessKvHeads; ++h) {
    view.keys[h] = RandomValues(kMany * kLessDim, 80 + h, 0.5f);
    view.values[h] = RandomValues(kMany * kLessDim, 90 + h, 0.5f);
    for (int32_t e = static_cast<int32_t>(h); e < kMany - 10; ++e) left[h].push_back(e);
  }
  const auto state = reader_->Begin(view);
  const std::vector<Tensor> leaving = {Upload(view, std::span<const int32_t>(left[0])),
                                       Upload(view, std::span<const int32_t>(left[1]))};
  ASSERT_TRUE(reader().Absorb(view, leaving, *state).ok());
  EXPECT_TRUE(AllWithin(Joined(reader(), view, *state), JoinedByLoops(*file_, view, left), 1e-5));
}

TEST_F(LessTest, RefusesWeightsThatDoNotFit) {
  file_->tables["layers.0.size"].values[1] = std::numeric_limits<float>::quiet_NaN();
  const auto state = reader_->Begin(view_);
  const Tensor leaving[] = {Upload(view_, std::vector<int32_t>{1}), Tensor()};
  EXPECT_THAT(reader().Absorb(view_, leaving, *state).error().message,
              HasSubstr("layer 0 into what are no finite numbers"));
  EXPECT_THAT(LessOf(nullptr)->Check(view_.shape()).error().message,
              HasSubstr("weights=random for a floor"));
  EXPECT_THAT(reader_->Check(SmallShape(1, 1, 4, kLessDim)).error().message,
              HasSubstr("table 'layers.0.keys.in' has shape [2, 4, 5], this model needs [1, 4"));
  ModelShape windows = view_.shape();
  windows.windows[0] = 8;
  EXPECT_THAT(reader_->Check(windows).error().message, HasSubstr("a window of 8 positions"));
}

// Where all heads share keys, the authors' maps of keys are [out, in].
TEST(LessImportTest, ExchangesRowsOfSharedMaps) {
  FakeWeights weights(SmallShape(1, 1, 2, 2), false);
  const auto map = [](std::vector<int64_t> shape) {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    std::vector<float> values;
    for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(i));
    return Calibration::Table{std::move(shape), std::move(values)};
  };
  Calibration::Tables published = {
      {"0.kernel_q_mat1", map({2, 2, 3})},     {"0.kernel_q_mat2", map({2, 3, 1})},
      {"0.kernel_k_mat1.weight", map({3, 2})}, {"0.kernel_k_mat2.weight", map({1, 3})},
      {"0.scalingD", map({1, 1, 1, 1})},       {"0.interaction_k.weight", map({1, 1})},
      {"0.scalingD2", map({1, 1, 1, 1})}};
  const auto import = (*FindStage(StageKind::kRead, "less"))->import_with;
  const Result<Calibration::Tables> tables = import(published, weights);
  ASSERT_TRUE(tables.ok()) << tables.error().message;
  EXPECT_EQ(tables->at("layers.0.keys.in").shape, (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(tables->at("layers.0.keys.in").values, (std::vector<float>{0, 2, 4, 1, 3, 5}));
  EXPECT_EQ(tables->at("layers.0.queries.in").values, map({2, 2, 3}).values);
  published["1.kernel_q_mat2"] = map({2, 3, 1});
  EXPECT_THAT(import(published, weights).error().message,
              HasSubstr("has kernels of layer 1, and this model has 1 layers"));
  published["0.scalingD"].values[0] = std::numeric_limits<float>::infinity();
  EXPECT_THAT(import(published, weights).error().message,
              HasSubstr("tensor '0.scalingD' has a number that is not finite"));
}

}  // namespace
}  // namespace kvgauge
