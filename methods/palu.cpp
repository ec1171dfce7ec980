// SPDX-License-Identifier: Apache-2.0
// Key and value projections of lower rank, and the bases in which a cache of latents keeps entries.
//
// Paper: Palu, arXiv:2407.21118. Needs nothing but weights. The projections of a group of KV heads
// are stacked and replaced by their best approximation of the rank; a bias counts as one more
// input. The prompt is read through the same projections.
// Departures, for want of calibration data: no whitening (the approximation is of the weights, not
// of what they make of real inputs) and the same share of ranks everywhere, where the reference
// searches ranks by Fisher information. Latents are not quantised.
#include <algorithm>

#include "core/strings.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class Palu final : public Prepare {
 public:
  explicit Palu(const Params& params)
      : group_(params.Int("group")),
        multiple_(params.Int("multiple")),
        key_ratio_(params.Real("key_ratio")),
        value_ratio_(params.Real("value_ratio")) {}

  bool writes_bases() const override { return true; }

  Status Check(const ModelShape& shape) const override {
    if (shape.latent_dim > 0) {
      return BadInput("makes latents of keys and values, and this model has its own");
    }
    if (shape.key_norm) {
      return BadInput(
          "keys of this model are normed after their projection, so that no basis of "
          "the projection holds them");
    }
    if (shape.kv_heads % Group(shape) == 0) return {};
    return BadInput(StrCat("group ", group_, " must divide the model's ", shape.kv_heads,
                           " KV heads; 0 takes all of them"));
  }

  Status Transform(WeightView& weights) const override {
    for (int64_t l = 0; l < weights.shape().layers; ++l) {
      KVG_TRY(Factor(weights, l, KvSide::kKeys));
      KVG_TRY(Factor(weights, l, KvSide::kValues));
    }
    return {};
  }

 private:
  int64_t Group(const ModelShape& shape) const {
    return group_ == 0 ? shape.kv_heads : std::min(group_, shape.kv_heads);
  }

  // Of a stack of `rows` dims, rounded to a multiple.
  int64_t Rank(int64_t rows, int64_t most, double ratio) const {
    const double wanted = ratio * static_cast<double>(rows) / static_cast<double>(multiple_);
    const auto rank = static_cast<int64_t>(wanted + 0.5) * multiple_;
    return std::min(std::max(rank, multiple_), most);
  }

  Status Factor(WeightView& weights, int64_t layer, KvSide side) const {
    const ModelShape& shape = weights.shape();
    const bool keys = side == KvSide::kKeys;
    const auto matrix = keys ? WeightView::Matrix::kKey : WeightView::Matrix::kValue;
    const int64_t heads = Group(shape), rows = heads * (keys ? shape.key_dim : shape.value_dim);
    KVG_ASSIGN(const Tensor read, weights.Read(layer, matrix));
    KVG_ASSIGN(const Tensor bias, weights.ReadBias(layer, matrix));
    Ops& ops = weights.ops();
    const int64_t all = read.shape[0], inputs = read.shape[1];
    const int64_t columns = inputs + (bias.empty() ? 0 : 1);
    const Buffer joined = Allocate(ops, all * columns);
    const Tensor stack = joined.As(DType::kF32, {all, columns});
    ops.rows->Convert(read, Columns(stack, 0, inputs));
    if (!bias.empty()) ops.rows->Convert(AsColumn(bias), Columns(stack, inputs, columns));

    const int64_t full = std::min(rows, columns);
    const int64_t rank = Rank(rows, full, keys ? key_ratio_ : value_ratio_);
    const Buffer u_memory = Allocate(ops, rows * full), s_memory = Allocate(ops, full);
    const Buffer vt_memory = Allocate(ops, full * columns),
                 basis_memory = Allocate(ops, rows * rank);
    const Tensor u = u_memory.As(DType::kF32, {rows, full}), s = s_memory.As(DType::kF32, {full});
    const Tensor vt = vt_memory.As(DType::kF32, {full, columns});
    const Tensor basis = basis_memory.As(DType::kF32, {rows, rank});
    for (int64_t first = 0; first < shape.kv_heads; first += heads) {
      const int64_t begin = first / heads * rows;
      const Tensor part = stack.Slice(begin, begin + rows);
      ops.algebra->Svd(part, u, s, vt);
      ops.rows->Convert(Columns(u, 0, rank), basis);
      KVG_TRY(weights.WriteBasis(layer, side, first, heads, basis));
      // The stack as the basis holds it: basis * diag(s) * vt.
      const std::vector<float> scale = Fetch(ops, s);
      for (int64_t i = 0; i < rank; ++i) {
        ops.rows->Affine(vt.Slice(i, i + 1), scale[i], 0.0f, vt.Slice(i, i + 1));
      }
      ops.linear->MatMulNN(basis.Reshape({1, rows, rank}),
                           vt.Slice(0, rank).Reshape({1, rank, columns}), 1.0f,
                           part.Reshape({1, rows, columns}));
    }
    const Buffer weight_memory = Allocate(ops, all * inputs), bias_memory = Allocate(ops, all);
    const Tensor projected = weight_memory.As(DType::kF32, {all, inputs});
    ops.rows->Convert(Columns(stack, 0, inputs), projected);
    KVG_TRY(weights.Write(layer, matrix, projected));
    if (bias.empty()) return {};
    const Tensor projected_bias = bias_memory.As(DType::kF32, {all});
    ops.rows->Convert(Columns(stack, inputs, columns), AsColumn(projected_bias));
    return weights.WriteBias(layer, matrix, projected_bias);
  }

  static Buffer Allocate(Ops& ops, int64_t numbers) {
    return ops.memory->Allocate(numbers * SizeOf(DType::kF32));
  }

  int64_t group_, multiple_;
  double key_ratio_, value_ratio_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kPrepare,
    .id = "palu",
    .paper = "arXiv:2407.21118",
    .summary = "key and value projections of lower rank, per group of heads",
    .departures = {"no whitening, as there is no calibration data",
                   "the same share of ranks in every layer; the reference searches them"},
    .bytes = "bases once a model: dims of a group * rank * 4 for each group, layer and side",
    .params = {IntParam("group", 4, 0, 1024, "KV heads that share a basis; 0: all"),
               IntParam("multiple", 8, 1, 1024, "ranks are multiples of this"),
               RealParam("key_ratio", 0.5, 0.001, 1, "rank of keys as a share of a group's dims"),
               RealParam("value_ratio", 0.5, 0.001, 1, "the same of values")},
    .make = Make<Palu>(),
});

}  // namespace
}  // namespace kvgauge
