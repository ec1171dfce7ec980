// SPDX-License-Identifier: Apache-2.0
// Keys give up the numbers that matter least to the last queries; which ones is the head's own.
//
// Paper: ThinK, arXiv:2407.21018. Needs the queries of the last `window` prompt rows. A number of a
// head's keys matters by the mean of its square over the entries times that over the queries, and
// over the query heads of the KV head. Once after the prompt, and after eviction if there is one;
// the last `recent` entries and all later ones stay whole, values always.
#include <algorithm>

#include "core/strings.h"
#include "methods/layouts/narrow_keys.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class Think final : public Store {
 public:
  explicit Think(const Params& params)
      : pruned_(params.Real("pruned")),
        recent_(params.Int("recent")),
        window_(params.Int("window")) {}

  Needs needs() const override { return {.window = window_}; }

  Result<StorePlan> Plan(const ModelShape& shape, int64_t) const override {
    const auto gone = static_cast<int64_t>(pruned_ * static_cast<double>(shape.key_dim));
    if (gone == 0) return StorePlan();
    NarrowKeys layout;
    layout.dim = shape.key_dim - gone;
    layout.recent = recent_;
    return PlanOf(std::move(layout));
  }

  void Calibrate(LayerView& view, StorePlan& plan) const override {
    const auto* planned = plan.Get<NarrowKeys>();
    if (planned == nullptr) return;
    Ops& ops = view.ops();
    const ModelShape& shape = view.shape();
    const int64_t dim = shape.key_dim, group = shape.group(), kept = planned->dim;
    const Tensor queries = view.WindowQueries(window_);
    const Tensor squares = view.Scratch(DType::kF32, {group, dim});
    const Tensor asked = view.Scratch(DType::kF32, {1, dim});
    const Tensor scores = view.Scratch(DType::kF32, {shape.kv_heads, dim});
    for (int64_t h = 0; h < shape.kv_heads; ++h) {
      for (int64_t g = 0; g < group; ++g) {
        Tensor rows(queries[0][h * group + g].data, DType::kF32, {queries.shape[0], dim},
                    queries.device);
        rows.stride[0] = queries.stride[0];
        ops.rows->ReduceColumns(rows, Reduction::kSumSquares, squares[g]);
      }
      ops.rows->ReduceColumns(squares, Reduction::kMean, asked[0]);
      if (view.lengths()[h] > 0) {
        ops.rows->ReduceColumns(view.Keys(h), Reduction::kSumSquares, scores[h]);
      }
      ops.rows->Combine(scores.Slice(h, h + 1), asked, Binary::kMultiply, scores.Slice(h, h + 1));
    }
    NarrowKeys layout = *planned;
    layout.channels = view.Scratch(DType::kI32, {shape.kv_heads, kept});
    const std::vector<int32_t> counts(static_cast<size_t>(shape.kv_heads),
                                      static_cast<int32_t>(kept));
    ops.select->TopK(scores, Upload(view, std::span<const int32_t>(counts)), layout.channels);
    plan = PlanOf(std::move(layout), plan.turn);
  }

 private:
  double pruned_;
  int64_t recent_, window_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kStore,
    .id = "think",
    .paper = "arXiv:2407.21018",
    .summary = "keys without the numbers that matter least to the last queries",
    .departures = {"one choice per KV head, not per query head"},
    .bytes =
        "(key dims - floor(pruned * key dims)) * bytes of the cache's type for a key, whole ones "
        "for the last and later entries; 4 bytes a head for each number that stays, as a "
        "matrix in memory 4 * key dims",
    .params = {RealParam("pruned", 0.4, 0, 0.95, "share of a key's numbers that go"),
               IntParam("recent", 32, 0, 1 << 20, "last entries whose keys stay whole"),
               IntParam("window", 32, 1, 4096, "prompt rows whose queries decide")},
    .make = Make<Think>(),
});

}  // namespace
}  // namespace kvgauge
