// SPDX-License-Identifier: Apache-2.0
// Attention of the last prompt rows, and how much it moves from row to row; and layers that hold
// more where it is spread wide and moves much.
//
// Paper: CAKE, arXiv:2503.12491. Needs the attention of the last `window` prompt rows, of which
// what they give to entries before them counts. An entry scores mean + `gamma` * variance over the
// rows. A layer's preference is entropy^(1 / `tau1`) * variance^(1 / `tau2`), both summed over
// heads and entries; layers share the budget beside protected entries in proportion to it.
// Departures: all layers are weighed at once, where the reference trims after every layer what it
// has seen so far; the sum is exactly the budget; nothing is evicted while decoding.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "methods/apportion.h"
#include "methods/registry.h"
#include "methods/score_reduction.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

constexpr float kEntropyShift = 1e-10f;  // of the reference: the logarithm of nothing is finite

// Unbiased, over the rows: a [rows, n] less its mean in `centred`, mean and variance [n].
void Moments(RowOps& ops, const Tensor& a, const Tensor& centred, const Tensor& mean,
             const Tensor& variance) {
  const int64_t rows = a.shape[0], n = a.shape[1];
  ops.ReduceColumns(a, Reduction::kMean, mean);
  ops.Combine(a, mean, Binary::kSubtract, centred);
  ops.ReduceColumns(centred, Reduction::kSumSquares, variance);
  const Tensor row = variance.Reshape({1, n});
  ops.Affine(row, 1.0f / static_cast<float>(std::max<int64_t>(rows - 1, 1)), 0.0f, row);
}

class CakeScore final : public Scorer {
 public:
  explicit CakeScore(const Params& params)
      : window_(params.Int("window")),
        gamma_(static_cast<float>(params.Real("gamma"))),
        reduction_(ScoreReduction::From(params)) {}

  Needs needs() const override { return {.window = window_}; }
  Status Check(const ModelShape&) const override { return reduction_.Check(); }

  void Score(LayerView& view, Tensor out) const override {
    RowOps& ops = *view.ops().rows;
    const int64_t n = view.width(), rows = std::min(window_, n), before = n - rows;
    const int64_t heads = view.shape().query_heads;
    const Tensor tail = Columns(out, before, n);
    ops.Fill(kForcedScore, tail);
    if (before == 0) return;
    const Tensor attention = view.WindowAttention(rows);
    const Tensor centred = view.Scratch(DType::kF32, {rows, before});
    const Tensor variance = view.Scratch(DType::kF32, {before});
    const Tensor scores = view.Scratch(DType::kF32, {heads, before});
    for (int64_t h = 0; h < heads; ++h) {
      Moments(ops, Columns(attention[h], 0, before), centred, scores[h], variance);
      const Tensor row = variance.Reshape({1, before}), own = scores.Slice(h, h + 1);
      ops.Affine(row, gamma_, 0.0f, row);
      ops.Combine(own, row, Binary::kAdd, own);
    }
    reduction_.Apply(view, scores, Columns(out, 0, before));
  }

 private:
  int64_t window_;
  float gamma_;
  ScoreReduction reduction_;
};

class CakeShares final : public Allocator {
 public:
  explicit CakeShares(const Params& params)
      : window_(params.Int("window")), tau1_(params.Real("tau1")), tau2_(params.Real("tau2")) {}

  Needs needs() const override { return {.window = window_}; }

  Result<Allotment> Allocate(const AllocationInput& input) const override {
    const int64_t layers = input.shape->layers, kept = input.protected_entries;
    const int64_t base = std::min(input.per_head, input.length) - kept;
    const auto heads = static_cast<size_t>(input.shape->kv_heads);
    std::vector<double> preferences;
    for (int64_t l = 0; l < layers; ++l) {
      preferences.push_back(Preference(*input.views[l], *input.views[0]));
    }
    // Where nothing tells them apart, all alike.
    const double all = std::accumulate(preferences.begin(), preferences.end(), 0.0);
    if (!(all > 0) || !std::isfinite(all)) preferences.assign(preferences.size(), 1.0);
    Allotment allotment;
    for (const int64_t share : Apportion(preferences, layers * base, 0, input.length - kept)) {
      allotment.emplace_back(heads, share + kept);
    }
    return allotment;
  }

 private:
  // `room` lends working memory, so that layers use the same.
  double Preference(LayerView& view, LayerView& room) const {
    RowOps& ops = *view.ops().rows;
    const int64_t n = view.width(), rows = std::min(window_, n), before = n - rows;
    const int64_t heads = view.shape().query_heads;
    if (before == 0) return 0;
    const Tensor attention = view.WindowAttention(rows);
    const Tensor work = room.Scratch(DType::kF32, {rows, before});
    const Tensor mean = room.Scratch(DType::kF32, {before});
    const Tensor variance = room.Scratch(DType::kF32, {before});
    const Tensor sums = room.Scratch(DType::kF32, {heads, rows + 1});
    for (int64_t h = 0; h < heads; ++h) {
      const Tensor a = Columns(attention[h], 0, before);
      ops.Affine(a, 1.0f, kEntropyShift, work);
      ops.Activate(work, Activation::kLog, work);
      ops.Combine(work, a, Binary::kMultiply, work);
      ops.ReduceRows(work, Reduction::kSum, sums[h].Slice(0, rows));
      Moments(ops, a, work, mean, variance);
      ops.ReduceRows(variance.Reshape({1, before}), Reduction::kSum, sums[h].Slice(rows, rows + 1));
    }
    double entropy = 0, spread = 0;
    const std::vector<float> all = Fetch(view.ops(), sums);
    for (size_t i = 0; i < all.size(); ++i) {
      const bool last = i % static_cast<size_t>(rows + 1) == static_cast<size_t>(rows);
      last ? spread += double{all[i]} : entropy -= double{all[i]};
    }
    return std::pow(std::max(entropy, 0.0), 1 / tau1_) * std::pow(spread, 1 / tau2_);
  }

  int64_t window_;
  double tau1_, tau2_;
};

ParamSpec Window() { return IntParam("window", 32, 1, 4096, "prompt rows that look back"); }

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "cake",
    .paper = "arXiv:2503.12491",
    .summary = "attention of the last prompt rows: its mean and how much it moves",
    .departures = {"one set of entries per KV head, as in the reference's grouped form"},
    .params = ScoreReduction::Declare(
        {.kernel = 5},
        {Window(), RealParam("gamma", 200, 0, 1e6, "weight of the variance over the rows")}),
    .make = Make<CakeScore>(),
});

KVG_REGISTER_STAGE({
    .kind = StageKind::kAllocate,
    .id = "cake",
    .paper = "arXiv:2503.12491",
    .summary = "layers whose attention is spread wide and moves much hold more",
    .departures = {"all layers are weighed at once, without the trims on the way",
                   "the sum over layers is exactly the budget"},
    .params = {Window(), RealParam("tau1", 1.6, 0.05, 100, "entropy counts as its 1 / tau1 power"),
               RealParam("tau2", 0.4, 0.05, 100, "variance counts as its 1 / tau2 power")},
    .make = Make<CakeShares>(),
});

}  // namespace
}  // namespace kvgauge
