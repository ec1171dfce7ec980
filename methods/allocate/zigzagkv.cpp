// SPDX-License-Identifier: Apache-2.0
// Layers that need more entries for most of their attention hold more.
//
// Paper: ZigZagKV, arXiv:2412.09036. Needs the scores. A head needs as many of its best entries as
// hold `mass` of the sum of its scores, a layer the mean over its heads. With B entries a head on
// average, `floor` of B goes to every layer and the rest by need.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "methods/largest_sums.h"
#include "methods/registry.h"
#include "methods/split_by_weight.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class ZigZagKv final : public Allocator {
 public:
  explicit ZigZagKv(const Params& params)
      : mass_(static_cast<float>(params.Real("mass"))), floor_(params.Real("floor")) {}

  bool needs_scores() const override { return true; }

  Result<Allocation> Allocate(const AllocationInput& input) const override {
    const int64_t layers = input.shape->layers, length = input.length;
    const int64_t per_head = std::min(input.per_head, length);
    const auto heads = static_cast<size_t>(input.shape->kv_heads);
    if (per_head == length) {
      return Allocation(static_cast<size_t>(layers), std::vector<int64_t>(heads, length));
    }
    std::vector<double> needs;
    for (int64_t l = 0; l < layers; ++l) needs.push_back(Need(*input.views[l], input.scores[l]));
    const double all = std::accumulate(needs.begin(), needs.end(), 0.0);
    const auto mean = static_cast<double>(per_head);
    std::vector<double> shares;
    for (const double need : needs) {
      const double by_need = all > 0 ? need / all * static_cast<double>(layers) : 1;
      shares.push_back(mean * (floor_ + (1 - floor_) * by_need));
    }
    const int64_t least =
        std::max(input.protected_entries, static_cast<int64_t>(std::floor(floor_ * mean)));
    Allocation allocation;
    for (const int64_t share : SplitByWeight(shares, layers * per_head, least, length)) {
      allocation.emplace_back(heads, share);
    }
    return allocation;
  }

 private:
  // The mean over heads of the least number of entries whose scores sum to `mass_` of all.
  double Need(LayerView& view, const Tensor& scores) const {
    Ops& ops = view.ops();
    const int64_t heads = scores.shape[0], n = scores.shape[1];
    const Tensor masses = view.Scratch(DType::kF32, {heads, n});
    const Tensor free = view.Scratch(DType::kF32, {heads, n});
    const Tensor forced = Filled(view, n, kForcedFrom), zero = Filled(view, n, 0.0f);
    ops.rows->Combine(scores, forced, Binary::kLess, free);
    ops.rows->Combine(scores, forced, Binary::kMin, masses);
    ops.rows->Combine(masses, free, Binary::kMultiply, masses);
    ops.rows->Combine(masses, zero, Binary::kMax, masses);
    const std::vector<int32_t> all(static_cast<size_t>(heads), static_cast<int32_t>(n));
    const std::vector<float> whole = SumsOfLargest(view, masses, all);
    std::vector<float> goals;
    for (const float sum : whole) goals.push_back(mass_ * sum);
    const std::vector<int32_t> enough = FewestLargest(view, masses, goals, all);
    double needed = 0;
    for (int64_t h = 0; h < heads; ++h) {
      // Without any mass no entry is needed.
      if (whole[h] > 0) needed += static_cast<double>(enough[h]);
    }
    return needed / static_cast<double>(heads);
  }

  float mass_;
  double floor_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kAllocate,
    .id = "zigzagkv",
    .paper = "arXiv:2412.09036",
    .summary = "layers that need more entries for most of their attention hold more",
    .departures = {"protected entries are left out of the sums",
                   "the sum over layers is exactly the budget"},
    .params = {RealParam("mass", 0.9, 0.01, 1, "share of a head's scores that its best must hold"),
               RealParam("floor", 0.2, 0, 1, "share of the mean that every layer gets anyway")},
    .make = Make<ZigZagKv>(),
});

}  // namespace
}  // namespace kvgauge
