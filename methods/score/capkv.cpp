// SPDX-License-Identifier: Apache-2.0
// How much of the space that values span an entry holds alone, weighed by how well its key meets
// the queries to come.
//
// Paper: CapKV, arXiv:2604.25975; after kvpress's CapPress. Needs the mean of the prompt's queries
// before rotation, which the mean rotation of the next positions turns. An entry weighs w =
// exp(tau * cosine of its key and that query), the largest weight of a query head being 1; its
// score is w v (I + sum of w v v^T)^-1 v, averaged over the query heads of a KV head.
// Departures: none from kvpress, which takes cosines where the paper takes products.
#include <algorithm>

#include "methods/leverage.h"
#include "methods/query_anchor.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

constexpr float kLeastWeight = 1e-6f;  // as the reference adds it, in the matrix alone

class CapKv final : public Scorer {
 public:
  explicit CapKv(const Params& params)
      : sinks_(params.Int("sinks")),
        future_(params.Int("future")),
        tau_(static_cast<float>(params.Real("tau"))) {}

  Needs needs() const override { return {.query_moments = {sinks_}}; }

  Status Check(const ModelShape& shape) const override {
    if (shape.latent_dim == 0) return {};
    return BadInput(
        "takes queries before rotation, and those of this model's latent attention are rotated in "
        "part; use it with separate query and key projections");
  }

  void Score(LayerView& view, Tensor out) const override {
    Ops& ops = view.ops();
    const ModelShape& shape = view.shape();
    const int64_t n = view.width(), body = n - sinks_, group = shape.group();
    if (body <= 0) return ops.rows->Fill(1.0f, out);
    const Tensor anchors = Anchors(view);
    const Tensor weights = view.Scratch(DType::kF32, {group, body});
    const Tensor scores = view.Scratch(DType::kF32, {group, body});
    const Tensor inside = view.Scratch(DType::kF32, {1, body});
    for (int64_t h = 0; h < shape.kv_heads; ++h) {
      const Tensor values = view.Values(h, sinks_);
      ops.algebra->CosineSimilarity(anchors.Slice(h * group, (h + 1) * group), view.Keys(h, sinks_),
                                    weights);
      RelativeToBest(view, weights);
      for (int64_t g = 0; g < group; ++g) {
        ops.rows->Affine(weights.Slice(g, g + 1), 1.0f, kLeastWeight, inside);
        RidgeLeverage(view, values, inside[0], 1.0f, scores[g]);
      }
      ops.rows->Combine(scores, weights, Binary::kMultiply, scores);
      ops.rows->ReduceColumns(scores, Reduction::kMean, out[h].Slice(sinks_, n));
    }
    RaiseFirst(view, sinks_, out);
  }

 private:
  // Mean queries as they will be rotated: [query_heads, key_dim].
  Tensor Anchors(LayerView& view) const {
    const ModelShape& shape = view.shape();
    const int64_t heads = shape.query_heads, dim = shape.key_dim;
    const Tensor anchors = view.Scratch(DType::kF32, {heads, dim});
    view.ops().rows->Convert(view.QueryMean(sinks_), anchors);
    const Tensor rotation = MeanRotationToCome(view, future_);
    if (!rotation.empty()) {
      view.ops().rows->Rope(rotation.Slice(0, 1), rotation.Slice(1, 2), shape.rope_layout,
                            RopeDirection::kForward, anchors.Reshape({1, heads, dim}));
    }
    return anchors;
  }

  // exp(tau * (cosine - the largest of its row)), in place.
  void RelativeToBest(LayerView& view, const Tensor& cosines) const {
    Ops& ops = view.ops();
    const int64_t m = cosines.shape[0], n = cosines.shape[1];
    const Tensor best = view.Scratch(DType::kF32, {m});
    ops.rows->Affine(cosines, tau_, 0.0f, cosines);
    ops.rows->ReduceRows(cosines, Reduction::kMax, best);
    ops.rows->Combine(cosines, Spread(view, best, n), Binary::kSubtract, cosines);
    ops.rows->Activate(cosines, Activation::kExp, cosines);
  }

  int64_t sinks_, future_;
  float tau_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "capkv",
    .paper = "arXiv:2604.25975",
    .summary = "what an entry adds to the space of values, weighed by queries to come",
    .departures = {"cosines of query and key, as in kvpress; the paper takes products"},
    .params = {RealParam("tau", 5, 0, 80, "sharpness of the weights; 0: all are 1"),
               IntParam("future", 512, 1, 1 << 20, "positions to come over which angles are meant"),
               IntParam("sinks", 4, 0, 4096,
                        "first tokens: their queries are left out, they score above all others")},
    .make = Make<CapKv>(),
});

}  // namespace
}  // namespace kvgauge
