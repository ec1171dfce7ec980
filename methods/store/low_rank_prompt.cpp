// SPDX-License-Identifier: Apache-2.0
// The prompt's keys before rotation, and its values, in the directions in which they vary most,
// found in the prompt itself; in the directions of several layers together, if wanted.
//
// Papers: the keys of ShadowKV (arXiv:2410.21465), and xKV (arXiv:2503.18893), whose layers share
// in groups. Needs keys before rotation. The heads of a layer, or of a group of layers, stand side
// by side; of the singular vectors of that matrix the first `key_rank` and `value_rank` of all
// stay. Later entries are whole.
#include <algorithm>
#include <cmath>

#include "core/strings.h"
#include "methods/directions.h"
#include "methods/layouts/group_basis.h"
#include "methods/layouts/prompt_basis.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class LowRankPrompt final : public Store {
 public:
  explicit LowRankPrompt(const Params& params)
      : key_share_(params.Real("key_rank")),
        value_share_(params.Real("value_rank")),
        layers_(params.Int("layers")) {}

  // Layers that share find their bases in what they hold.
  Needs needs() const override { return {.raw_keys = key_share_ > 0 && layers_ == 1}; }

  Status Check(const ModelShape& shape) const override {
    if (key_share_ == 0 || shape.rotary_dim > 0) return {};
    return BadInput("key_rank: keys of this model are never rotated; only value_rank applies");
  }

  Result<StorePlan> Plan(const ModelShape& shape, int64_t layer) const override {
    if (layers_ > 1) return GroupPlan(shape, layer);
    PromptBasis layout;
    layout.key_rank = RankOf(key_share_, shape.kv_heads * shape.key_dim);
    layout.value_rank = RankOf(value_share_, shape.kv_heads * shape.value_dim);
    if (layout.key_rank == 0 && layout.value_rank == 0) return StorePlan();
    return PlanOf(std::move(layout));
  }

  void Calibrate(LayerView& view, StorePlan& plan) const override {
    const auto* planned = plan.Get<PromptBasis>();
    if (planned == nullptr) return;
    PromptBasis layout = *planned;
    const ModelShape& shape = view.shape();
    if (layout.key_rank > 0) {
      layout.key_basis = BasisOf(view, shape.key_dim, layout.key_rank,
                                 [&](int64_t head) { return view.RawKeys(head); });
    }
    if (layout.value_rank > 0) {
      layout.value_basis = BasisOf(view, shape.value_dim, layout.value_rank,
                                   [&](int64_t head) { return view.Values(head); });
    }
    plan = PlanOf(std::move(layout), plan.turn);
  }

 private:
  // The last group may have fewer layers.
  Result<StorePlan> GroupPlan(const ModelShape& shape, int64_t layer) const {
    GroupBasis layout;
    const int64_t first = layer / layers_ * layers_;
    layout.layers = std::min(layers_, shape.layers - first);
    layout.below = layer - first;
    layout.key_rank = RankOf(key_share_, layout.layers * shape.kv_heads * shape.key_dim);
    layout.value_rank = RankOf(value_share_, layout.layers * shape.kv_heads * shape.value_dim);
    if (layout.key_rank == 0 && layout.value_rank == 0) return StorePlan();
    return PlanOf(std::move(layout));
  }

  static int64_t RankOf(double share, int64_t width) {
    if (share == 0) return 0;
    return std::max<int64_t>(1, std::llround(share * static_cast<double>(width)));
  }

  // The first right singular vectors of what the heads hold side by side, [heads * dim, rank].
  template <class RowsOf>
  static Tensor BasisOf(LayerView& view, int64_t dim, int64_t rank, const RowsOf& rows_of) {
    Ops& ops = view.ops();
    const int64_t heads = view.shape().kv_heads, width = heads * dim;
    const int64_t n = *std::min_element(view.lengths().begin(), view.lengths().end());
    const Tensor rows = view.Scratch(DType::kF32, {n, width});
    for (int64_t h = 0; h < heads && n > 0; ++h) {
      ops.rows->Convert(rows_of(h).Slice(0, n), Columns(rows, h * dim, (h + 1) * dim));
    }
    return LeadingDirections(view, rows, rank);
  }

  double key_share_, value_share_;
  int64_t layers_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kStore,
    .id = "low_rank_prompt",
    .paper = "arXiv:2410.21465",
    .summary = "the prompt's keys and values in the directions in which they vary most",
    .departures =
        {"bases of several layers are found in keys as the cache holds them, turned back"},
    .bytes = "for each side and group of layers: rank * bytes of the cache's type an entry of the "
             "prompt, all heads together, and 4 * rank * heads * dim a layer; later entries whole",
    .params = {RealParam("key_rank", 0.15625, 0, 1,
                         "share of the numbers of all heads' keys, in all layers of a group"),
               RealParam("value_rank", 0, 0, 1, "the same of values; 0: whole"),
               IntParam("layers", 1, 1, 1024, "neighbouring layers that share coordinates")},
    .make = Make<LowRankPrompt>(),
});

}  // namespace
}  // namespace kvgauge
