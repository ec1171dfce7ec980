// SPDX-License-Identifier: Apache-2.0
// Layers hold more of the pictures where the question looks at them much, and at few of them.
//
// Paper: AirCache, arXiv:2503.23956; no public code. Needs the rows behind the last
// picture. A layer's strength is the sum of what its pictures' rows get, its skewness the third
// standardised moment of that over these rows, corrected for their number. Each is taken by its
// mean over the layers, and the mean of both divides what the budget leaves for pictures.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "methods/elite_window.h"
#include "methods/registry.h"
#include "methods/split_by_weight.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

// A layer's rows of pictures, and means over its query heads.
struct ShownMoments {
  double count = 0, strength = 0, skewness = 0;
};

class AirCacheAllocator final : public Allocator {
 public:
  explicit AirCacheAllocator(const Params& params) : window_(params) {}

  Needs needs() const override { return window_.needs(); }
  bool evens_heads() const override { return true; }

  Result<Allocation> Allocate(const AllocationInput& input) const override {
    const int64_t layers = input.shape->layers, length = input.length;
    const int64_t per_head = std::min(input.per_head, length);
    const auto heads = static_cast<size_t>(input.shape->kv_heads);
    const Allocation even(static_cast<size_t>(layers), std::vector<int64_t>(heads, per_head));
    if (per_head == length || per_head == input.protected_entries) return even;
    std::vector<double> strength, skewness;
    double shown = 0;
    for (LayerView* view : input.views) {
      const ShownMoments of_layer = MomentsOf(*view);
      shown = of_layer.count;
      strength.push_back(of_layer.strength);
      skewness.push_back(of_layer.skewness);
    }
    // Text stays, and so is no part of what is divided.
    AllocationInput pictures = input;
    pictures.protected_entries =
        std::max(input.protected_entries, length - static_cast<int64_t>(shown));
    if (per_head <= pictures.protected_entries) return even;
    std::vector<double> weights(strength.size(), 0.0);
    for (const std::vector<double>* part : {&strength, &skewness}) {
      const double sum = std::accumulate(part->begin(), part->end(), 0.0);
      for (size_t l = 0; l < weights.size() && sum > 0; ++l) weights[l] += (*part)[l] / sum;
    }
    return SplitLayersByWeight(pictures, weights, 0);
  }

 private:
  ShownMoments MomentsOf(LayerView& view) const {
    RowOps& ops = *view.ops().rows;
    const int64_t heads = view.shape().query_heads, n = view.width();
    const Tensor shown = EliteWindow::Shown(view), got = window_.Importance(view);
    const Tensor powers = view.Scratch(DType::kF32, {heads, n});
    const Tensor sums = view.Scratch(DType::kF32, {heads});
    const auto by_head = [&](const Tensor& rows) {
      ops.ReduceRows(rows, Reduction::kSum, sums);
      return Fetch(view.ops(), sums);
    };
    const std::vector<float> counts = by_head(shown), strengths = by_head(got);
    std::vector<float> means, scales;
    for (size_t h = 0; h < counts.size(); ++h)
      means.push_back(strengths[h] / std::max(counts[h], 1.0f));
    ops.Combine(got, Spread(view, Upload(view, means), n), Binary::kSubtract, got);
    ops.Combine(got, shown, Binary::kMultiply, got);
    ops.Combine(got, got, Binary::kMultiply, powers);
    for (size_t h = 0; const float square : by_head(powers)) {
      const float deviation = std::sqrt(square / std::max(counts[h++] - 1, 1.0f));
      scales.push_back(deviation > 0 ? 1 / deviation : 0.0f);
    }
    // By the deviation first: third powers of small numbers would be lost.
    ops.Combine(got, Spread(view, Upload(view, scales), n), Binary::kMultiply, got);
    ops.Combine(got, got, Binary::kMultiply, powers);
    ops.Combine(powers, got, Binary::kMultiply, powers);
    ShownMoments moments = {.count = double{counts[0]}};
    for (size_t h = 0; const float third : by_head(powers)) {
      const double count = double{counts[h]};
      moments.strength += double{strengths[h]} / static_cast<double>(heads);
      if (count > 2) {
        moments.skewness +=
            double{third} * count / ((count - 1) * (count - 2)) / static_cast<double>(heads);
      }
      ++h;
    }
    moments.skewness = std::max(moments.skewness, 0.0);
    return moments;
  }

  EliteWindow window_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kAllocate,
    .id = "aircache",
    .paper = "arXiv:2503.23956",
    .summary = "more for pictures in layers that look at them much, and at few of their rows",
    .departures = {"strength and skewness are means over query heads; the paper writes its "
                   "formulas for one head",
                   "the sum over layers is exactly the budget, and no layer gets more than it has",
                   "a skewness below 0 counts as 0, which the paper leaves open",
                   "the budget is one of all entries, text included, which stays"},
    .params = EliteWindow::Declare(),
    .make = Make<AirCacheAllocator>(),
});

}  // namespace
}  // namespace kvgauge
