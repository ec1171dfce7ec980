// SPDX-License-Identifier: Apache-2.0
// Fewer KV heads: the key and value projections of neighbouring heads become their mean.
//
// Paper: GQA, arXiv:2305.13245 (the conversion of a checkpoint, without the training that follows
// it there; so quality is that of the starting point). Needs nothing.
#include "core/strings.h"
#include "methods/pooled_heads.h"
#include "methods/registry.h"

namespace kvgauge {
namespace {

class MeanPoolHeads final : public Prepare {
 public:
  explicit MeanPoolHeads(const Params& params) : heads_(params.Int("heads")) {}

  Status Check(const ModelShape& shape) const override {
    if (shape.latent_dim > 0) {
      return BadInput("pools the heads of key and value projections, and this model has latents");
    }
    const int64_t heads = Pooled(shape);
    if (shape.kv_heads % heads == 0) return {};
    return BadInput(StrCat("heads ", heads, " must divide the model's ", shape.kv_heads,
                           " KV heads; 0 pools all of them"));
  }

  ModelShape ShapeAfter(const ModelShape& shape) const override {
    ModelShape after = shape;
    after.kv_heads = shape.kv_heads / Pooled(shape);
    return after;
  }

  Status Transform(WeightView& weights) const override {
    const ModelShape shape = weights.shape();
    KVG_TRY(weights.SetKvHeads(shape.kv_heads / Pooled(shape)));
    for (int64_t l = 0; l < shape.layers; ++l) {
      for (const auto matrix : {WeightView::Matrix::kKey, WeightView::Matrix::kValue}) {
        const int64_t dim = matrix == WeightView::Matrix::kKey ? shape.key_dim : shape.value_dim;
        KVG_ASSIGN(const Tensor heads, weights.Read(l, matrix));
        const Buffer pooled = PooledHeads(weights.ops(), heads, dim, Pooled(shape));
        const int64_t rows = heads.shape[0] / Pooled(shape), columns = heads.shape[1];
        KVG_TRY(weights.Write(l, matrix, pooled.As(DType::kF32, {rows, columns})));
        KVG_ASSIGN(const Tensor bias, weights.ReadBias(l, matrix));
        if (bias.empty()) continue;
        const Buffer pooled_bias =
            PooledHeads(weights.ops(), bias.Reshape({bias.shape[0], 1}), dim, Pooled(shape));
        KVG_TRY(weights.WriteBias(l, matrix, pooled_bias.As(DType::kF32, {rows})));
      }
    }
    return {};
  }

 private:
  int64_t Pooled(const ModelShape& shape) const { return heads_ == 0 ? shape.kv_heads : heads_; }

  int64_t heads_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kPrepare,
    .id = "mean_pool_heads",
    .paper = "arXiv:2305.13245",
    .summary = "means of neighbouring KV heads' projections",
    .departures = {"no training follows"},
    .bytes = "divides the cache by `heads`",
    .params = {IntParam("heads", 0, 0, 1024, "KV heads that become one; 0: all")},
    .make = Make<MeanPoolHeads>(),
});

}  // namespace
}  // namespace kvgauge
