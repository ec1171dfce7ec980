// SPDX-License-Identifier: Apache-2.0
// Each run of entries keeps the same share of itself: its best.
//
// Paper: FINCH, TACL 2024 (doi:10.1162/tacl_a_00716), as kvpress's ChunkPress has it. Needs nothing
// but scores. A run keeps its entries times what its head may hold over what it holds, rounded
// down; what is left goes to the best of all that are left.
#include <algorithm>

#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

// Above any score that is not protected.
constexpr float kOfItsRun = 1e35f;

class EvenRuns final : public Reducer {
 public:
  explicit EvenRuns(const Params& params) : size_(params.Int("size")) {}

  std::vector<HeadPlan> Reduce(LayerView& view, const ReduceInput& input, State*) const override {
    std::vector<HeadPlan> plans;
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t length = view.lengths()[h], kept = std::min(length, input.allocated[h]);
      const Tensor scores = view.Scratch(DType::kF32, {1, length});
      view.ops().rows->Convert(Columns(input.scores.Slice(h, h + 1), 0, length), scores);
      for (int64_t begin = 0; begin < length; begin += size_) {
        const int64_t end = std::min(begin + size_, length);
        Raise(view, Columns(scores, begin, end), (end - begin) * kept / length);
      }
      HeadPlan plan;
      plan.keep = Best(view, scores, kept);
      plans.push_back(plan);
    }
    return plans;
  }

 private:
  // The best `count` of a run above those of other runs.
  static void Raise(LayerView& view, const Tensor& run, int64_t count) {
    if (count == 0) return;
    const int64_t n = run.shape[1];
    const Tensor chosen = view.Scratch(DType::kF32, {1, n});
    view.ops().select->Scatter(AsColumn(Filled(view, count, kOfItsRun)), Best(view, run, count),
                               chosen.Reshape({n, 1}));
    // Scores may be negative: what is not chosen adds nothing.
    view.ops().rows->Combine(run, chosen, Binary::kAdd, run);
  }

  int64_t size_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kReduce,
    .id = "even_runs",
    .paper = "doi:10.1162/tacl_a_00716",
    .summary = "runs of entries keep equal shares of themselves",
    .departures = {"the budget is spent to the last entry",
                   "a run may keep nothing, where the reference keeps one entry at least"},
    .params = {IntParam("size", 1024, 1, 1 << 20, "entries of a run")},
    .make = Make<EvenRuns>(),
    .goes_by_layer = true,
});

}  // namespace
}  // namespace kvgauge
