// SPDX-License-Identifier: Apache-2.0
// Layers whose attention is spread wide and moves much hold more.
//
// Paper: CAKE, arXiv:2503.12491. Needs the attention of the rows that the scorer looks back from,
// of which what they give to entries before them counts. A layer's preference is entropy^(1 /
// `tau1`) * variance^(1 / `tau2`), both summed over heads and entries; layers share the budget
// beside protected entries in proportion to it, and what one cannot hold goes to the others alike.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "methods/tensors.h"
#include "methods/window_scorer.h"

namespace kvgauge {
namespace {

constexpr float kEntropyShift = 1e-10f;  // of the reference: the logarithm of nothing is finite

class CakeShares final : public Allocator {
 public:
  explicit CakeShares(const Params& params)
      : tau1_(params.Real("tau1")), tau2_(params.Real("tau2")) {}

  bool shares_window() const override { return true; }

  Status CheckBudget(const AllocationInput& input) const override {
    if (input.window > 0) return {};
    return BadInput(
        "weighs layers by the window that the scorer looks back from, and this one has none; use "
        "score.cake or score.snapkv");
  }

  Result<Allocation> Allocate(const AllocationInput& input) const override {
    const int64_t layers = input.shape->layers, kept = input.protected_entries;
    const int64_t base = std::min(input.per_head, input.length) - kept;
    const auto heads = static_cast<size_t>(input.shape->kv_heads);
    std::vector<double> preferences;
    LayerView* room = input.views[0];  // of the first layer on the same device
    for (LayerView* view : input.views) {
      if (&view->ops() != &room->ops()) room = view;
      preferences.push_back(Preference(*view, input.window, *room));
    }
    // Where nothing tells them apart, all alike.
    const double all = std::accumulate(preferences.begin(), preferences.end(), 0.0);
    if (!(all > 0) || !std::isfinite(all)) preferences.assign(preferences.size(), 1.0);
    Allocation allocation;
    for (const int64_t share : Adjusted(preferences, layers * base, input.length - kept)) {
      allocation.emplace_back(heads, share + kept);
    }
    return allocation;
  }

 private:
  // Shares of `total`, rounded down; then what layers would hold beyond `most`, and then what
  // rounding left, goes to layers below it: the same number each and one more for the first of
  // them. What that puts beyond `most` is not spent.
  static std::vector<int64_t> Adjusted(std::span<const double> preferences, int64_t total,
                                       int64_t most) {
    const double all = std::accumulate(preferences.begin(), preferences.end(), 0.0);
    std::vector<int64_t> shares;
    int64_t beyond = 0;
    for (const double preference : preferences) {
      const auto share = static_cast<int64_t>(preference / all * static_cast<double>(total));
      shares.push_back(std::min(share, most));
      beyond += share - shares.back();
    }
    SpreadEqually(beyond, most, shares);
    SpreadEqually(total - std::accumulate(shares.begin(), shares.end(), int64_t{0}), most, shares);
    for (int64_t& share : shares) share = std::min(share, most);
    return shares;
  }

  static void SpreadEqually(int64_t count, int64_t most, std::span<int64_t> shares) {
    std::vector<int64_t*> open;
    for (int64_t& share : shares) {
      if (share < most) open.push_back(&share);
    }
    if (count <= 0 || open.empty()) return;
    const auto layers = static_cast<int64_t>(open.size());
    for (int64_t i = 0; i < layers; ++i) {
      *open[static_cast<size_t>(i)] += count / layers + (i < count % layers ? 1 : 0);
    }
  }

  // `room` lends working memory, so that layers use the same.
  double Preference(LayerView& view, int64_t window, LayerView& room) const {
    RowOps& ops = *view.ops().rows;
    const int64_t n = view.width(), before = n - std::min(window, n);
    const int64_t heads = view.shape().query_heads;
    if (before == 0) return 0;
    const Tensor attention = view.WindowAttention(std::min(window, n));
    const int64_t rows = attention.shape[1];
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
      RowMoments(ops, a, work, mean, variance);
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

  double tau1_, tau2_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kAllocate,
    .id = "cake",
    .version = 2,
    .paper = "arXiv:2503.12491",
    .summary = "layers whose attention is spread wide and moves much hold more",
    .departures = {"all layers are weighed at once, without the trims on the way"},
    .params = {RealParam("tau1", 1.6, 0.05, 100, "entropy counts as its 1 / tau1 power"),
               RealParam("tau2", 0.4, 0.05, 100, "variance counts as its 1 / tau2 power")},
    .make = Make<CakeShares>(),
});

}  // namespace
}  // namespace kvgauge
