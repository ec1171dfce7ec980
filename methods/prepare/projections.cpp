// SPDX-License-Identifier: Apache-2.0
// The key and value projections where a cache of layer inputs finds them, a bias as one more
// column; the weights stay as they are.
//
// Paper: XQuant, arXiv:2508.10395. Needs nothing but weights.
#include "methods/low_rank_weights.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class Projections final : public Prepare {
 public:
  explicit Projections(const Params&) {}

  bool writes_bases() const override { return true; }

  Status Check(const ModelShape& shape) const override {
    if (shape.latent_dim == 0) return {};
    return BadInput("writes projections of keys and values, and this model projects latents");
  }

  Status Transform(WeightView& weights) const override {
    for (int64_t l = 0; l < weights.shape().layers; ++l) {
      bool biased = false;
      for (const WeightView::Matrix matrix : kBoth) {
        KVG_ASSIGN(const Tensor bias, weights.ReadBias(l, matrix));
        biased = biased || !bias.empty();
      }
      for (const WeightView::Matrix matrix : kBoth) KVG_TRY(WriteOne(weights, l, matrix, biased));
    }
    return {};
  }

 private:
  static constexpr WeightView::Matrix kBoth[] = {WeightView::Matrix::kKey,
                                                 WeightView::Matrix::kValue};

  // Both sides are made of the same input, which ends in 1 where one of them has a bias.
  static Status WriteOne(WeightView& weights, int64_t layer, WeightView::Matrix matrix,
                         bool biased) {
    Ops& ops = weights.ops();
    KVG_ASSIGN(const Tensor read, weights.Read(layer, matrix));
    KVG_ASSIGN(const Tensor bias, weights.ReadBias(layer, matrix));
    const int64_t rows = read.shape[0], inputs = read.shape[1], columns = inputs + (biased ? 1 : 0);
    const Buffer memory = AllocateFloats(ops, rows * columns);
    const Tensor joined = memory.As(DType::kF32, {rows, columns});
    ops.rows->Fill(0.0f, joined);
    ops.rows->Convert(read, Columns(joined, 0, inputs));
    if (!bias.empty()) ops.rows->Convert(AsColumn(bias), Columns(joined, inputs, columns));
    const KvSide side = matrix == WeightView::Matrix::kKey ? KvSide::kKeys : KvSide::kValues;
    return weights.WriteBasis(layer, side, 0, weights.shape().kv_heads, joined);
  }
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kPrepare,
    .id = "projections",
    .paper = "arXiv:2508.10395",
    .summary = "the key and value projections, for caches that keep layer inputs",
    .make = Make<Projections>(),
});

}  // namespace
}  // namespace kvgauge
