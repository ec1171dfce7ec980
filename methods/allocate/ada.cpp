// SPDX-License-Identifier: Apache-2.0
// Heads of a layer share its budget by where the layer's best entries are.
//
// Paper: Ada-KV, arXiv:2407.11550. Needs the scores. With B entries beside the protected ones in
// each of H heads, the best H * B of the layer are counted by head; a head gets `alpha` of B and
// the rest by its count. alpha 1 is uniform, alpha 0 keeps the layer's best entries. With `rule`
// floor, as kvpress does it, a head is sure of its best alpha * (B + protected) entries, protected
// ones among them, and all others compete.
#include <algorithm>
#include <cmath>
#include <limits>

#include "methods/registry.h"
#include "methods/split_by_weight.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class Ada final : public Allocator {
 public:
  explicit Ada(const Params& params)
      : alpha_(params.Real("alpha")),
        floor_(params.Text("rule") == "floor"),
        compat_(params.Bool("compat")) {}

  Status Check(const ModelShape&) const override {
    if (!floor_ || !compat_) return {};
    return BadInput("compat is the rounding of rule blend; leave it out with rule floor");
  }

  bool needs_scores() const override { return true; }

  bool any_time() const override { return true; }
  Result<Allocation> Allocate(const AllocationInput& input) const override {
    const int64_t heads = input.shape->kv_heads, kept = input.protected_entries;
    const int64_t base = std::min(input.per_head, input.length) - kept;
    Allocation allocation;
    for (int64_t l = 0; l < input.shape->layers; ++l) {
      if (base + kept == input.length) {
        allocation.emplace_back(static_cast<size_t>(heads), input.length);
        continue;
      }
      LayerView& view = *input.views[l];
      if (floor_) {
        const auto share = static_cast<int64_t>(alpha_ * static_cast<double>(base + kept));
        const int64_t sure = std::max<int64_t>(share, alpha_ > 0 ? 1 : 0);
        const Tensor scores = Assured(view, input.scores[l], sure);
        std::vector<int64_t> entries;
        for (const float best : BestByHead(view, scores, base + kept)) {
          entries.push_back(static_cast<int64_t>(best));
        }
        allocation.push_back(entries);
        continue;
      }
      std::vector<double> shares;
      for (const float best : BestByHead(view, input.scores[l], base + kept)) {
        const double own = static_cast<double>(best) - static_cast<double>(kept);
        shares.push_back(own * (1 - alpha_) + (compat_
                                                   ? std::floor(static_cast<double>(base) * alpha_)
                                                   : static_cast<double>(base) * alpha_));
      }
      std::vector<int64_t> entries(static_cast<size_t>(heads));
      if (compat_) {
        for (int64_t h = 0; h < heads; ++h) {
          entries[h] = static_cast<int64_t>(std::nearbyint(shares[h]));
        }
      } else {
        entries = SplitByWeight(shares, heads * base, 0, input.length - kept);
      }
      for (int64_t& count : entries) count += kept;
      allocation.push_back(entries);
    }
    return allocation;
  }

 private:
  // How many of the layer's `per_head` * heads best entries each head holds. Protected ones are
  // among them, as they score +inf.
  static std::vector<float> BestByHead(LayerView& view, const Tensor& scores, int64_t per_head) {
    Ops& ops = view.ops();
    const int64_t heads = scores.shape[0], length = scores.shape[1], best = heads * per_head;
    const auto count = static_cast<int32_t>(best);
    Tensor index = view.Scratch(DType::kI32, {best});
    ops.select->TopK(scores.Reshape({1, heads * length}), Upload(view, std::span(&count, 1)),
                     index.Reshape({1, best}));
    Tensor chosen = view.Scratch(DType::kF32, {heads, length});
    ops.select->Scatter(AsColumn(Filled(view, best, 1.0f)), index,
                        chosen.Reshape({heads * length, 1}));
    Tensor sums = view.Scratch(DType::kF32, {heads});
    ops.rows->ReduceRows(chosen, Reduction::kSum, sums);
    return Fetch(ops, sums);
  }

  // The same scores, but +inf for the best `count` of each head.
  static Tensor Assured(LayerView& view, const Tensor& scores, int64_t count) {
    Ops& ops = view.ops();
    const int64_t heads = scores.shape[0], length = scores.shape[1];
    Tensor raised = view.Scratch(DType::kF32, {heads, length});
    ops.rows->Convert(scores, raised);
    if (count == 0) return raised;
    const std::vector<int32_t> counts(static_cast<size_t>(heads), static_cast<int32_t>(count));
    Tensor index = view.Scratch(DType::kI32, {heads, count});
    ops.select->TopK(scores, Upload(view, counts), index);
    const Tensor infinite = Filled(view, count, std::numeric_limits<float>::infinity());
    for (int64_t h = 0; h < heads; ++h) {
      ops.select->Scatter(AsColumn(infinite), index[h], AsColumn(raised[h]));
    }
    return raised;
  }

  double alpha_;
  bool floor_, compat_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kAllocate,
    .id = "ada",
    .paper = "arXiv:2407.11550",
    .summary = "heads share a layer's budget by where its best entries are",
    .departures = {"the sum over heads is exactly the budget; compat rounds as the reference does",
                   "heads are not weighted by their concentrated mass"},
    .params = {RealParam("alpha", 0.2, 0, 1, "share of the budget that every head gets anyway"),
               ChoiceParam("rule", "blend", {"blend", "floor"},
                           "blend: alpha of an equal share, the rest by counts; floor: a head is "
                           "sure of its best alpha, all others compete"),
               BoolParam("compat", false, "round each head by itself, as the reference does")},
    .make = Make<Ada>(),
});

}  // namespace
}  // namespace kvgauge
