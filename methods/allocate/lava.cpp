// SPDX-License-Identifier: Apache-2.0
// Layers hold more where their scores are spread wide, with their best entries whatever the head.
//
// Paper: LAVa, arXiv:2509.09754. Needs scores, such as those of score.lava. A layer's scores, made
// to sum to 1 over all its heads, have an entropy: layers share the budget beside protected entries
// in proportion to it. A head gets `floor` of the layer's mean, and the rest by how many of the
// layer's best are its own.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "methods/registry.h"
#include "methods/split_by_weight.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

constexpr float kLogShift = 1e-16f;  // of the reference: the logarithm of nothing is finite

class LavaShares final : public Allocator {
 public:
  explicit LavaShares(const Params& params) : floor_(params.Real("floor")) {}

  bool needs_scores() const override { return true; }

  Result<Allocation> Allocate(const AllocationInput& input) const override {
    const int64_t layers = input.shape->layers, heads = input.shape->kv_heads;
    const int64_t kept = input.protected_entries;
    const int64_t base = std::min(input.per_head, input.length) - kept;
    if (base + kept == input.length) {
      return Allocation(static_cast<size_t>(layers),
                        std::vector<int64_t>(static_cast<size_t>(heads), input.length));
    }
    std::vector<double> entropies;
    for (int64_t l = 0; l < layers; ++l) {
      entropies.push_back(Entropy(*input.views[l], input.scores[l]));
    }
    // Where nothing tells them apart, all alike.
    const double all = std::accumulate(entropies.begin(), entropies.end(), 0.0);
    if (!(all > 0) || !std::isfinite(all)) entropies.assign(entropies.size(), 1.0);
    const std::vector<int64_t> shares =
        SplitByWeight(entropies, layers * base, 0, input.length - kept);
    Allocation allocation;
    for (int64_t l = 0; l < layers; ++l) {
      const int64_t share = shares[static_cast<size_t>(l)];
      std::vector<double> weights;
      for (const float best : BestByHead(*input.views[l], input.scores[l], share + kept)) {
        const double own = static_cast<double>(best) - static_cast<double>(kept);
        weights.push_back(floor_ * static_cast<double>(share) + (1 - floor_) * own);
      }
      std::vector<int64_t>& entries =
          allocation.emplace_back(SplitByWeight(weights, heads * share, 0, input.length - kept));
      for (int64_t& count : entries) count += kept;
    }
    return allocation;
  }

 private:
  // The entropy of all scores of a layer, forced ones left out, made to sum to 1.
  static double Entropy(LayerView& view, const Tensor& scores) {
    Ops& ops = view.ops();
    const int64_t heads = scores.shape[0], n = scores.shape[1], all = heads * n;
    const Tensor shares = view.Scratch(DType::kF32, {heads, n});
    const Tensor free = view.Scratch(DType::kF32, {heads, n});
    const Tensor forced = Filled(view, n, kForcedFrom), sums = view.Scratch(DType::kF32, {2});
    ops.rows->Combine(scores, forced, Binary::kLess, free);
    ops.rows->Combine(scores, forced, Binary::kMin, shares);
    ops.rows->Combine(shares, free, Binary::kMultiply, shares);
    ops.rows->Combine(shares, Filled(view, n, 0.0f), Binary::kMax, shares);
    const Tensor row = shares.Reshape({1, all});
    ops.rows->ReduceRows(row, Reduction::kSum, sums.Slice(0, 1));
    const float sum = Fetch(ops, sums.Slice(0, 1))[0];
    if (!(sum > 0)) return 0;
    ops.rows->Affine(row, 1 / sum, 0.0f, row);
    const Tensor logs = view.Scratch(DType::kF32, {1, all});
    ops.rows->Affine(row, 1.0f, kLogShift, logs);
    ops.rows->Activate(logs, Activation::kLog, logs);
    ops.rows->Combine(logs, row, Binary::kMultiply, logs);
    ops.rows->ReduceRows(logs, Reduction::kSum, sums.Slice(1, 2));
    return std::max(0.0, -double{Fetch(ops, sums.Slice(1, 2))[0]});
  }

  // How many of the layer's `per_head` * heads best entries each head holds; protected ones, which
  // score +inf, are among them.
  static std::vector<float> BestByHead(LayerView& view, const Tensor& scores, int64_t per_head) {
    Ops& ops = view.ops();
    const int64_t heads = scores.shape[0], n = scores.shape[1], best = heads * per_head;
    const auto count = static_cast<int32_t>(best);
    const Tensor index = view.Scratch(DType::kI32, {best});
    ops.select->TopK(scores.Reshape({1, heads * n}), Upload(view, std::span(&count, 1)),
                     index.Reshape({1, best}));
    const Tensor chosen = view.Scratch(DType::kF32, {heads, n});
    ops.select->Scatter(AsColumn(Filled(view, best, 1.0f)), index, chosen.Reshape({heads * n, 1}));
    const Tensor sums = view.Scratch(DType::kF32, {heads});
    ops.rows->ReduceRows(chosen, Reduction::kSum, sums);
    return Fetch(ops, sums);
  }

  double floor_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kAllocate,
    .id = "lava",
    .paper = "arXiv:2509.09754",
    .summary = "layers share by the entropy of their scores, heads by where the layer's best are",
    .departures = {"all layers are weighed at once, without the trims on the way",
                   "sums are exactly the budget"},
    .params = {RealParam("floor", 0.2, 0, 1,
                         "share of a layer's mean that every head gets anyway")},
    .make = Make<LavaShares>(),
});

}  // namespace
}  // namespace kvgauge
