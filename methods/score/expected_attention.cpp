// SPDX-License-Identifier: Apache-2.0
// The attention that queries to come are expected to pay, were they drawn as the prompt's were:
// normally distributed before rotation, turned by the mean rotation of the next positions.
//
// Paper: Expected Attention, arXiv:2510.00636; after kvpress's ExpectedAttentionPress. Needs mean
// and covariance of the prompt's queries before rotation. A key's expected weight is
// exp(mean . k / sqrt(d) + k . covariance . k / 2d), made a share of the whole by a softmax,
// averaged over the query heads of a group and multiplied by the length of the value.
#include <cmath>

#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class ExpectedAttention final : public Scorer {
 public:
  explicit ExpectedAttention(const Params& params)
      : sinks_(params.Int("sinks")),
        future_(params.Int("future")),
        epsilon_(static_cast<float>(params.Real("epsilon"))),
        covariance_(params.Bool("covariance")),
        value_norm_(params.Bool("value_norm")) {}

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
    const int64_t n = view.width(), body = n - sinks_, dim = shape.key_dim, group = shape.group();
    if (body <= 0) return ops.rows->Fill(1.0f, out);
    const Tensor mean = view.QueryMean(sinks_), rotation = MeanRotation(view);
    const Tensor covariance = covariance_ ? view.QueryCovariance(sinks_) : Tensor();
    const auto root = std::sqrt(static_cast<float>(dim));
    const Tensor turned = view.Scratch(DType::kF32, {body, dim});
    const Tensor spread = view.Scratch(DType::kF32, {body, dim});
    const Tensor weights = view.Scratch(DType::kF32, {group, body});
    const Tensor energy = view.Scratch(DType::kF32, {1, body});
    for (int64_t h = 0; h < shape.kv_heads; ++h) {
      ops.rows->Convert(view.Keys(h, sinks_), turned);
      if (!rotation.empty()) {
        // One row of as many heads as there are keys: all turn alike.
        ops.rows->Rope(rotation.Slice(0, 1), rotation.Slice(1, 2), shape.rope_layout,
                       RopeDirection::kInverse, turned.Reshape({1, body, dim}));
      }
      const Tensor keys = turned.Reshape({1, body, dim});
      for (int64_t g = 0; g < group; ++g) {
        const int64_t q = h * group + g;
        const Tensor row = weights.Slice(g, g + 1);
        ops.linear->MatMulNT(mean[q].Reshape({1, 1, dim}), keys, 1.0f / root,
                             row.Reshape({1, 1, body}));
        if (!covariance_) continue;
        ops.linear->MatMulNN(keys, covariance[q].Reshape({1, dim, dim}), 0.5f / (root * root),
                             spread.Reshape({1, body, dim}));
        ops.rows->Combine(spread, turned, Binary::kMultiply, spread);
        ops.rows->ReduceRows(spread, Reduction::kSum, energy.Reshape({body}));
        ops.rows->Combine(row, energy, Binary::kAdd, row);
      }
      ops.rows->Softmax(weights, 1.0f, weights);
      const Tensor scores = out[h].Slice(sinks_, n);
      ops.rows->ReduceColumns(weights, Reduction::kMean, scores);
      if (value_norm_) TimesValues(view, h, scores.Reshape({1, body}));
    }
    if (sinks_ > 0) RaiseSinks(view, out);
  }

 private:
  // Averages over the positions to come: cosines, then sines, [2, pairs].
  Tensor MeanRotation(LayerView& view) const {
    const Tensor rotations = view.Rotations(view.tokens(), future_);
    if (rotations.empty()) return {};
    const Tensor mean = view.Scratch(DType::kF32, {2, rotations.shape[2]});
    for (const int64_t i : {0, 1}) {
      view.ops().rows->ReduceColumns(rotations[i], Reduction::kMean, mean[i]);
    }
    return mean;
  }

  // scores: [1, n] of the entries after the sinks.
  void TimesValues(LayerView& view, int64_t head, Tensor scores) const {
    Ops& ops = view.ops();
    const int64_t n = scores.shape[1];
    const Tensor lengths = view.Scratch(DType::kF32, {1, n});
    ops.rows->ReduceRows(view.Values(head, sinks_), Reduction::kNorm, lengths.Reshape({n}));
    if (epsilon_ > 0) ops.rows->Affine(scores, 1.0f, epsilon_, scores);
    ops.rows->Combine(scores, lengths, Binary::kMultiply, scores);
  }

  // One more than the highest score of the layer, as the reference has it.
  void RaiseSinks(LayerView& view, Tensor out) const {
    Ops& ops = view.ops();
    const int64_t heads = out.shape[0];
    const Tensor best = view.Scratch(DType::kF32, {1, heads});
    const Tensor above = view.Scratch(DType::kF32, {1});
    ops.rows->ReduceRows(Columns(out, sinks_, out.shape[1]), Reduction::kMax,
                         best.Reshape({heads}));
    ops.rows->ReduceRows(best, Reduction::kMax, above);
    ops.rows->Affine(AsColumn(above), 1.0f, 1.0f, AsColumn(above));
    const Tensor first = view.Scratch(DType::kI32, {heads * sinks_});  // zeros
    const Tensor raised = view.Scratch(DType::kF32, {heads * sinks_, 1});
    ops.select->Gather(AsColumn(above), first, raised);
    ops.rows->Convert(raised.Reshape({heads, sinks_}), Columns(out, 0, sinks_));
  }

  int64_t sinks_, future_;
  float epsilon_;
  bool covariance_, value_norm_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "expected_attention",
    .version = 2,
    .paper = "arXiv:2510.00636",
    .summary = "attention that queries like the prompt's are expected to pay",
    .params = {IntParam("future", 512, 1, 1 << 20, "positions to come over which angles are meant"),
               IntParam("sinks", 4, 0, 4096,
                        "first tokens: their queries are left out, they score above all others"),
               RealParam("epsilon", 0, 0, 1, "added to shares before values count"),
               BoolParam("covariance", true, "whether the spread of queries counts"),
               BoolParam("value_norm", true, "whether scores are times the length of the value")},
    .make = Make<ExpectedAttention>(),
});

}  // namespace
}  // namespace kvgauge
