// SPDX-License-Identifier: Apache-2.0
// Most of a head's entries are its best; the others are drawn from the rest, by their scores.
//
// Paper: NACL, arXiv:2408.03675. Needs nothing beside the scores. A head may hold some entries
// besides protected ones; a share `random` of these is drawn without replacement, with
// probabilities softmax of `scale` times the scores: the best after a Gumbel number was added to
// each, which is a function of the seed, the layer, the head and the entry's position. The
// reference sums over rows: where a scorer averages them, `scale` is their number.
#include <algorithm>
#include <cmath>
#include <limits>

#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

// Sets the draws apart from those of other stages.
constexpr uint64_t kNaclStream = 0x6e61636c;

class Nacl final : public Reducer {
 public:
  explicit Nacl(const Params& params)
      : random_(params.Real("random")), scale_(static_cast<float>(params.Real("scale"))) {}

  std::vector<HeadPlan> Reduce(LayerView& view, const ReduceInput& input, State*) const override {
    std::vector<HeadPlan> plans;
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t length = view.lengths()[h], kept = std::min(length, input.allocated[h]);
      const Tensor scores = Columns(input.scores.Slice(h, h + 1), 0, length);
      HeadPlan plan;
      plan.keep = Best(view, scores, kept);
      const int64_t drawn = Drawn(view, scores, kept);
      if (kept < length && drawn > 0) {
        const Tensor noisy = view.Scratch(DType::kF32, {1, length});
        AddNoise(view, h, scores, noisy);
        // The best come first whatever is drawn.
        const Tensor sure = Best(view, scores, kept - drawn);
        const Tensor infinite = Filled(view, sure.shape[0], std::numeric_limits<float>::infinity());
        view.ops().select->Scatter(AsColumn(infinite), sure, noisy.Reshape({length, 1}));
        plan.keep = Best(view, noisy, kept);
      }
      plans.push_back(plan);
    }
    return plans;
  }

 private:
  // How many of `kept` are drawn: protected entries, whose scores are infinite, are not.
  int64_t Drawn(LayerView& view, const Tensor& scores, int64_t kept) const {
    RowOps& ops = *view.ops().rows;
    const int64_t n = scores.shape[1];
    const Tensor most = Filled(view, n, std::numeric_limits<float>::max());
    const Tensor above = view.Scratch(DType::kF32, {1, n}), count = view.Scratch(DType::kF32, {1});
    ops.Combine(most.Reshape({1, n}), scores, Binary::kLess, above);
    ops.ReduceRows(above, Reduction::kSum, count);
    const auto forced = static_cast<int64_t>(Fetch(view.ops(), count)[0]);
    const auto free = static_cast<double>(std::max<int64_t>(kept - forced, 0));
    return static_cast<int64_t>(std::nearbyint(free * random_));
  }

  void AddNoise(LayerView& view, int64_t head, const Tensor& scores, const Tensor& noisy) const {
    RowOps& ops = *view.ops().rows;
    const int64_t n = scores.shape[1];
    const auto place = static_cast<uint64_t>(view.layer() * view.shape().kv_heads + head);
    Gumbel(view, kNaclStream << 32 | place, view.Positions(head), noisy.Reshape({n}));
    const Tensor scaled = view.Scratch(DType::kF32, {1, n});
    ops.Affine(scores, scale_, 0.0f, scaled);
    ops.Combine(noisy, scaled, Binary::kAdd, noisy);
  }

  double random_;
  float scale_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kReduce,
    .id = "nacl",
    .paper = "arXiv:2408.03675",
    .summary = "keeps the highest scores, and draws a share from the rest by their scores",
    .departures = {"one draw per KV head", "draws are this project's own"},
    .params = {RealParam("random", 0.37, 0, 1, "share that is drawn, of what is not protected"),
               RealParam("scale", 1, 0, 1e6, "of the scores, before they become probabilities")},
    .make = Make<Nacl>(),
});

}  // namespace
}  // namespace kvgauge
