// SPDX-License-Identifier: Apache-2.0
// The key and value projections of a layer, stacked, at a lower rank, and the bases in which a
// cache keeps what both are made of.
//
// Paper: MHA2MLA, arXiv:2502.14837, its joint singular value decomposition, without the training
// that follows it there. Needs nothing but weights, or a calibration as well. A bias counts as one
// more input. The prompt is read through the same projections. With a calibration the best is meant
// of what the projections make of real inputs: the directions are the eigenvectors of the second
// moment of keys before rotation and values side by side, as for Palu.
#include <algorithm>
#include <array>
#include <cmath>

#include "core/strings.h"
#include "methods/calibration.h"
#include "methods/directions.h"
#include "methods/low_rank_weights.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

std::string JointTable(int64_t layer, const char* what) {
  return StrCat("joint.", layer, ".", what);
}

// Numbers of all keys and values of a token.
int64_t JointDims(const ModelShape& shape) {
  return shape.kv_heads * (shape.key_dim + shape.value_dim);
}

class JointSvd final : public Prepare {
 public:
  explicit JointSvd(const Params& params) : ratio_(params.Real("ratio")) {}

  bool writes_bases() const override { return true; }

  void Use(std::shared_ptr<const Calibration> calibration) override {
    calibration_ = std::move(calibration);
  }

  Status Check(const ModelShape& shape) const override {
    if (shape.latent_dim > 0) {
      return BadInput("makes latents of keys and values, and this model has its own");
    }
    if (shape.key_norm) {
      return BadInput(
          "keys of this model are normed after their projection, so that no basis of the "
          "projection holds them");
    }
    const int64_t dims = JointDims(shape);
    for (int64_t l = 0; calibration_ != nullptr && l < shape.layers; ++l) {
      KVG_TRY(calibration_->Find(JointTable(l, "directions"), std::array{dims, dims}));
    }
    return {};
  }

  Status Transform(WeightView& weights) const override {
    for (int64_t l = 0; l < weights.shape().layers; ++l) KVG_TRY(Lower(weights, l));
    return {};
  }

 private:
  using Matrix = WeightView::Matrix;
  static constexpr std::array<Matrix, 2> kJoined = {Matrix::kKey, Matrix::kValue};

  Status Lower(WeightView& weights, int64_t layer) const {
    Ops& ops = weights.ops();
    std::array<int64_t, 3> begin = {};  // rows of a side, and the end
    std::array<bool, 2> biased = {};
    int64_t inputs = 0;
    for (size_t i = 0; i < 2; ++i) {
      KVG_ASSIGN(const Tensor read, weights.Read(layer, kJoined[i]));
      KVG_ASSIGN(const Tensor bias, weights.ReadBias(layer, kJoined[i]));
      begin[i + 1] = begin[i] + read.shape[0];
      biased[i] = !bias.empty();
      inputs = read.shape[1];
    }
    const int64_t rows = begin[2], columns = inputs + (biased[0] || biased[1] ? 1 : 0);
    const Buffer memory = AllocateFloats(ops, rows * columns);
    const Tensor stack = memory.As(DType::kF32, {rows, columns});
    ops.rows->Fill(0.0f, stack);
    for (size_t i = 0; i < 2; ++i) {
      KVG_ASSIGN(const Tensor read, weights.Read(layer, kJoined[i]));
      KVG_ASSIGN(const Tensor bias, weights.ReadBias(layer, kJoined[i]));
      const Tensor part = stack.Slice(begin[i], begin[i + 1]);
      ops.rows->Convert(read, Columns(part, 0, inputs));
      if (biased[i]) ops.rows->Convert(AsColumn(bias), Columns(part, inputs, columns));
    }
    const auto wanted = std::max<int64_t>(1, std::llround(ratio_ * static_cast<double>(rows)));
    const int64_t rank = std::min({wanted, rows, columns});
    const Buffer factors = AllocateFloats(ops, rank * (rows + columns));
    const Tensor all = factors.As(DType::kF32, {rank * (rows + columns)});
    const Tensor basis = all.Slice(0, rows * rank).Reshape({rows, rank});
    const Tensor inner = all.Slice(rows * rank, all.shape[0]).Reshape({rank, columns});
    if (calibration_ == nullptr) {
      TakeLeadingVectors(ops, stack, basis, inner);
    } else {
      KVG_ASSIGN(const Tensor directions,
                 calibration_->Find(JointTable(layer, "directions"), std::array{rows, rows}));
      TakeDirections(ops, directions, stack, basis, inner);
    }
    ops.linear->MatMulNN(basis.Reshape({1, rows, rank}), inner.Reshape({1, rank, columns}), 1.0f,
                         stack.Reshape({1, rows, columns}));
    for (size_t i = 0; i < 2; ++i) {
      const Tensor part = stack.Slice(begin[i], begin[i + 1]);
      const KvSide side = i == 0 ? KvSide::kKeys : KvSide::kValues;
      KVG_TRY(weights.WriteBasis(layer, side, 0, weights.shape().kv_heads,
                                 basis.Slice(begin[i], begin[i + 1])));
      const int64_t height = part.shape[0];
      const Buffer own = AllocateFloats(ops, height * columns);
      const Tensor numbers = own.As(DType::kF32, {height * columns});
      const Tensor projected = numbers.Slice(0, height * inputs).Reshape({height, inputs});
      ops.rows->Convert(Columns(part, 0, inputs), projected);
      KVG_TRY(weights.Write(layer, kJoined[i], projected));
      if (!biased[i]) continue;
      const Tensor bias = numbers.Slice(height * inputs, height * columns);
      ops.rows->Convert(Columns(part, inputs, columns), AsColumn(bias));
      KVG_TRY(weights.WriteBias(layer, kJoined[i], bias));
    }
    return {};
  }

  double ratio_;
  std::shared_ptr<const Calibration> calibration_;
};

// Sums the second moments of all keys and values of a layer side by side.
class JointSvdCalibrator final : public Calibrator {
 public:
  JointSvdCalibrator(const Params&, const ModelShape& shape, std::span<const int64_t>)
      : shape_(shape), sums_(static_cast<size_t>(shape.layers)) {}

  Needs needs(int) const override { return {.raw_keys = true}; }

  void Observe(int, LayerView& view) override {
    Ops& ops = view.ops();
    tokens_ += view.layer() == 0 ? view.tokens() : 0;
    const Tensor joined = view.Scratch(DType::kF32, {view.tokens(), JointDims(shape_)});
    int64_t at = 0;
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      for (int64_t h = 0; h < shape_.kv_heads; ++h) {
        const Tensor rows = side == KvSide::kValues ? view.Values(h)
                            : shape_.rotary_dim > 0 ? view.RawKeys(h)
                                                    : view.Keys(h);
        ops.rows->Convert(rows, Columns(joined, at, at + rows.shape[1]));
        at += rows.shape[1];
      }
    }
    const std::vector<float> products = Fetch(ops, ColumnProducts(view, joined));
    std::vector<double>& sum = sums_[static_cast<size_t>(view.layer())];
    sum.resize(products.size());
    for (size_t i = 0; i < products.size(); ++i) sum[i] += products[i];
  }

  Calibration::Tables Finish(Ops& ops) override {
    const int64_t dims = JointDims(shape_);
    Calibration::Tables tables;
    for (int64_t l = 0; l < shape_.layers; ++l) {
      std::vector<float> directions, energy;
      MomentDirections(ops, sums_[static_cast<size_t>(l)], tokens_, directions, energy);
      tables[JointTable(l, "directions")] = {{dims, dims}, std::move(directions)};
      tables[JointTable(l, "energy")] = {{dims}, std::move(energy)};
    }
    return tables;
  }

 private:
  const ModelShape shape_;
  int64_t tokens_ = 0;
  std::vector<std::vector<double>> sums_;  // [layers][dims * dims]
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kPrepare,
    .id = "joint_svd",
    .paper = "arXiv:2502.14837",
    .summary = "key and value projections of a layer at a lower rank together",
    .departures = {"all keys are in the decomposition, before rotation, and are rotated when they "
                   "are read; the reference leaves the pairs that it goes on rotating out of it",
                   "a bias is one more input of what is decomposed, where the reference adds it "
                   "whole",
                   "no training follows"},
    .params = {RealParam("ratio", 0.5, 0.001, 1,
                         "rank, as a share of the numbers of all keys and values of a token"),
               CalibrationParam()},
    .make = Make<JointSvd>(),
    .calibrate = MakeCalibrator<JointSvdCalibrator>,
});

}  // namespace
}  // namespace kvgauge
