// SPDX-License-Identifier: Apache-2.0
// Stages made by name and called as the runner calls them, on views made in the test.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "chosen_entries.h"
#include "fake_view.h"
#include "fake_weights.h"
#include "methods/split_by_weight.h"
#include "methods/tensors.h"

namespace kvgauge {

inline std::vector<float> ScoreWith(const std::string& id, const std::string& params,
                                    LayerView& view) {
  const Tensor out = view.Scratch(DType::kF32, {view.shape().kv_heads, view.width()});
  MakeStage<Scorer>(StageKind::kScore, id, params)->Score(view, out);
  return Floats(out);
}

// Mean and unbiased variance of what the last `rows` rows give to an entry.
struct Column {
  double mean = 0, variance = 0;
};
inline Column ColumnOf(FakeView& view, int64_t head, int64_t entry, int64_t rows) {
  const int64_t n = view.width();
  Column column;
  for (int64_t i = n - rows; i < n; ++i) column.mean += view.At(head, i, entry);
  column.mean /= static_cast<double>(rows);
  for (int64_t i = n - rows; i < n; ++i) {
    column.variance += std::pow(view.At(head, i, entry) - column.mean, 2);
  }
  column.variance /= static_cast<double>(rows - 1);
  return column;
}

inline Allocation AllocateWith(const std::string& id, const std::string& params,
                               const ModelShape& shape, int64_t length, int64_t per_head,
                               std::vector<LayerView*> views, std::vector<Tensor> scores = {}) {
  const auto stage = MakeStage<Allocator>(StageKind::kAllocate, id, params);
  Result<Allocation> allocation = stage->Allocate({.shape = &shape,
                                                   .length = length,
                                                   .per_head = per_head,
                                                   .protected_entries = 2,
                                                   .window = 5,
                                                   .scores = scores,
                                                   .views = views});
  EXPECT_TRUE(allocation.ok());
  return std::move(*allocation);
}

inline std::unique_ptr<Scorer> ScorerOf(const std::string& id, const std::string& params = "{}") {
  return MakeStage<Scorer>(StageKind::kScore, id, params);
}

inline double Sum(const std::vector<float>& rows, int64_t row, int64_t dim, double (*of)(double)) {
  double sum = 0;
  for (int64_t c = 0; c < dim; ++c) sum += of(double{rows[row * dim + c]});
  return sum;
}
inline double Absolute(double x) { return std::abs(x); }
inline double Square(double x) { return x * x; }

inline std::vector<std::vector<int32_t>> Kept(const std::string& id, const std::string& params,
                                              LayerView& view, const std::vector<float>& scores,
                                              const std::vector<int64_t>& allocated,
                                              int64_t step = 0) {
  const auto stage = MakeStage<Reducer>(StageKind::kReduce, id, params);
  const Tensor tensor = View(scores, {view.shape().kv_heads, view.width()});
  std::vector<std::vector<int32_t>> kept;
  for (const HeadPlan& plan :
       stage->Reduce(view, {.scores = tensor, .allocated = allocated, .step = step}, nullptr)) {
    EXPECT_TRUE(plan.keys.empty() && plan.values.empty() && plan.log_weight.empty());
    kept.push_back(Ints(plan.keep));
  }
  return kept;
}

class LayerShares : public ::testing::Test {
 protected:
  static constexpr int64_t kLength = 10;

  LayerShares()
      : shape_(SmallShape(2, 2)), lower_(shape_, kLength, 0), upper_(shape_, kLength, 1) {}

  // One entry of each head is protected.
  std::vector<int64_t> OfLayers(const std::string& id, const std::string& params,
                                int64_t per_head) {
    const Tensor tensors[] = {View(scores_[0], {2, kLength}), View(scores_[1], {2, kLength})};
    LayerView* const views[] = {&lower_, &upper_};
    const auto stage = MakeStage<Allocator>(StageKind::kAllocate, id, params);
    EXPECT_TRUE(stage->needs_scores());
    const Result<Allocation> allocation = stage->Allocate({.shape = &shape_,
                                                           .length = kLength,
                                                           .per_head = per_head,
                                                           .protected_entries = 1,
                                                           .scores = tensors,
                                                           .views = views});
    EXPECT_TRUE(allocation.ok());
    std::vector<int64_t> entries;
    for (const auto& layer : *allocation) {
      EXPECT_EQ(layer[0], layer[1]);
      entries.push_back(layer[0]);
    }
    return entries;
  }

  ModelShape shape_;
  FakeView lower_, upper_;
  std::vector<float> scores_[2];
};

inline std::vector<float>& ClassOf(FakeView& view, TokenClass of) {
  return view.classes[static_cast<size_t>(of)];
}

inline std::unique_ptr<Reducer> ReducerOf(const std::string& id, const std::string& params = "{}") {
  return MakeStage<Reducer>(StageKind::kReduce, id, params);
}

inline std::vector<HeadPlan> ReduceWith(const Reducer& stage, LayerView& view,
                                        const std::vector<float>& scores,
                                        const std::vector<int64_t>& allocated,
                                        Reducer::State* state = nullptr, int64_t step = 0) {
  const Tensor tensor = View(scores, {view.shape().kv_heads, view.width()});
  return stage.Reduce(view, {.scores = tensor, .allocated = allocated, .step = step}, state);
}

// What the list makes of rows, in double.
inline std::vector<double> Merged(const MergeList& list, const std::vector<int32_t>& keep,
                                  const std::vector<float>& rows, int64_t dim) {
  std::vector<double> out(rows.begin(), rows.end());
  if (list.empty()) return out;
  const std::vector<int32_t> from = Ints(list.from), to = Ints(list.to);
  const std::vector<float> weight = Floats(list.weight);
  for (size_t i = 0; !list.self.empty() && i < out.size(); ++i) {
    out[i] *= Floats(list.self)[i / static_cast<size_t>(dim)];
  }
  for (size_t i = 0; i < to.size(); ++i) {
    if (to[i] < 0) continue;
    const size_t first = std::find(keep.begin(), keep.end(), to[i]) - keep.begin();
    for (size_t k = first; k < std::min(keep.size(), first + list.spread); ++k) {
      for (int64_t c = 0; c < dim; ++c) {
        out[keep[k] * dim + c] += weight[i] * rows[from[i] * dim + c];
      }
    }
  }
  return out;
}

inline std::unique_ptr<Allocator> AllocatorOf(const std::string& id,
                                              const std::string& params = "{}") {
  return MakeStage<Allocator>(StageKind::kAllocate, id, params);
}

inline std::vector<int64_t> OfFirstHead(const Allocation& allocation) {
  std::vector<int64_t> out;
  for (const auto& layer : allocation) out.push_back(layer[0]);
  return out;
}
inline int64_t Sum(const std::vector<int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

inline std::unique_ptr<Prepare> PrepareOf(const std::string& id, const std::string& params = "{}") {
  return MakeStage<Prepare>(StageKind::kPrepare, id, params);
}

inline ModelShape Wide(int64_t kv_heads, int64_t hidden) {
  ModelShape shape = SmallShape(2, kv_heads, 2, 4);
  shape.hidden_size = hidden;
  return shape;
}

}  // namespace kvgauge
