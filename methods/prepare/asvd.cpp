// SPDX-License-Identifier: Apache-2.0
// Key and value projections of lower rank, best where inputs are large.
//
// Paper: ASVD, arXiv:2312.05821. Needs weights, and a calibration: how large each input channel is
// in the mean, |x|. With s = |x|^alpha a projection W keeps the first left singular vectors U of
// W diag(s); U U^T W is what the reference's factors make (its right factor is divided by s again).
// All KV heads of a layer are one stack; a bias counts as one more input, of size 1. Without a
// calibration s is 1.
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <string>

#include "core/strings.h"
#include "methods/calibration.h"
#include "methods/low_rank_weights.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

std::string InputTable(int64_t layer) { return StrCat("inputs.", layer); }

// What ASVD adds to scales, so that none is 0.
constexpr double kLeastScale = 1e-6;

class Asvd final : public Prepare {
 public:
  explicit Asvd(const Params& params)
      : alpha_(params.Real("alpha")),
        multiple_(params.Int("multiple")),
        ratios_{params.Real("key_ratio"), params.Real("value_ratio")} {}

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
          "keys of this model are normed after their projection, so that no basis of "
          "the projection holds them");
    }
    for (int64_t l = 0; calibration_ != nullptr && l < shape.layers; ++l) {
      KVG_TRY(calibration_->Find(InputTable(l), std::array{shape.hidden_size}));
    }
    return {};
  }

  Status Transform(WeightView& weights) const override {
    const ModelShape& shape = weights.shape();
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      const int64_t dim = side == KvSide::kKeys ? shape.key_dim : shape.value_dim;
      const int64_t rank = RankOf(shape.kv_heads * dim, ratios_[static_cast<size_t>(side)]);
      for (int64_t l = 0; l < shape.layers; ++l) {
        KVG_TRY(LowerRank(
            weights, l, side, {&rank, 1}, {.heads = shape.kv_heads},
            [&](const Tensor& part, int64_t, const Tensor& basis, const Tensor& inner) -> Status {
              Leading(weights.ops(), l, part, basis, inner);
              return {};
            }));
      }
    }
    return {};
  }

 private:
  int64_t RankOf(int64_t rows, double ratio) const {
    const double wanted = ratio * static_cast<double>(rows) / static_cast<double>(multiple_);
    const auto rank = static_cast<int64_t>(std::floor(wanted + 0.5)) * multiple_;
    return std::min(std::max(rank, multiple_), rows);
  }

  // The leading vectors of part * diag(s), and the coordinates of `part` itself.
  void Leading(Ops& ops, int64_t layer, const Tensor& part, const Tensor& basis,
               const Tensor& inner) const {
    if (calibration_ == nullptr) return TakeLeadingVectors(ops, part, basis, inner);
    const int64_t rows = part.shape[0], columns = part.shape[1], rank = basis.shape[1];
    const std::vector<float>& sizes = calibration_->tables.find(InputTable(layer))->second.values;
    std::vector<float> diagonal(static_cast<size_t>(columns * columns));
    for (int64_t i = 0; i < columns; ++i) {
      const bool bias = i >= std::ssize(sizes);
      const double size = bias ? 1.0 : double{sizes[static_cast<size_t>(i)]};
      diagonal[static_cast<size_t>(i * columns + i)] =
          static_cast<float>(std::pow(size, alpha_) + kLeastScale);
    }
    const Buffer memory = AllocateFloats(ops, columns * (columns + rows) + rank * (rows + columns));
    const Tensor all = memory.As(DType::kF32, {memory.size_bytes() / 4});
    int64_t at = 0;
    const auto take = [&](int64_t m, int64_t n) {
      const Tensor some = all.Slice(at, at + m * n).Reshape({1, m, n});
      at += m * n;
      return some;
    };
    const Tensor scale = take(columns, columns), scaled = take(rows, columns);
    const Tensor unused = take(rank, columns), across = take(rank, rows);
    ops.memory->Copy(View(diagonal, {1, columns, columns}), scale);
    ops.linear->MatMulNN(part.Reshape({1, rows, columns}), scale, 1.0f, scaled);
    TakeLeadingVectors(ops, scaled.Reshape({rows, columns}), basis,
                       unused.Reshape({rank, columns}));
    // basis^T * part.
    const std::vector<float> held = Fetch(ops, basis);
    std::vector<float> transposed(held.size());
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < rank; ++i) {
        transposed[static_cast<size_t>(i * rows + r)] = held[static_cast<size_t>(r * rank + i)];
      }
    }
    ops.memory->Copy(View(transposed, {1, rank, rows}), across);
    ops.linear->MatMulNN(across, part.Reshape({1, rows, columns}), 1.0f,
                         inner.Reshape({1, rank, columns}));
  }

  double alpha_;
  int64_t multiple_;
  std::array<double, 2> ratios_;  // by side
  std::shared_ptr<const Calibration> calibration_;
};

// Sums of |x| by layer and channel, on the host; the calibrator's own.
struct InputSums {
  std::vector<std::vector<double>> of_layer;
  std::vector<int64_t> rows;
};

// Looks on as the inputs of layers pass; what it gives entries means nothing.
class InputWatcher final : public LoadedGate {
 public:
  InputWatcher(std::shared_ptr<InputSums> sums, const ModelShape& shape, Ops& ops)
      : sums_(std::move(sums)), ops_(ops), memory_(AllocateFloats(ops, shape.hidden_size)) {}

  void Fold(int64_t layer, const Tensor& x, Tensor out) override {
    const int64_t width = x.shape[1];
    const Tensor sums = memory_.As(DType::kF32, {width});
    ops_.rows->ReduceColumns(x, Reduction::kSumAbs, sums);
    const std::vector<float> some = Fetch(ops_, sums);
    std::vector<double>& all = sums_->of_layer[static_cast<size_t>(layer)];
    for (size_t i = 0; i < all.size(); ++i) all[i] += double{some[i]};
    sums_->rows[static_cast<size_t>(layer)] += x.shape[0];
    const std::vector<float> zeros(static_cast<size_t>(out.Numel()));
    ops_.memory->Copy(View(zeros, {out.shape[0], out.shape[1]}), out);
  }
  int64_t bytes() const override { return memory_.size_bytes(); }

 private:
  std::shared_ptr<InputSums> sums_;
  Ops& ops_;
  Buffer memory_;
};

class InputGate final : public Gate {
 public:
  explicit InputGate(std::shared_ptr<InputSums> sums) : sums_(std::move(sums)) {}
  std::string key() const override { return "asvd inputs"; }
  std::unique_ptr<LoadedGate> Load(const ModelShape& shape, Ops& ops) const override {
    return std::make_unique<InputWatcher>(sums_, shape, ops);
  }
  int64_t PlannedBytes(const ModelShape& shape) const override { return shape.hidden_size * 4; }

 private:
  std::shared_ptr<InputSums> sums_;
};

class AsvdCalibrator final : public Calibrator {
 public:
  AsvdCalibrator(const Params&, const ModelShape& shape, std::span<const int64_t>)
      : sums_(std::make_shared<InputSums>()), gate_(std::make_shared<InputGate>(sums_)) {
    const auto layers = static_cast<size_t>(shape.layers);
    sums_->of_layer.resize(layers, std::vector<double>(static_cast<size_t>(shape.hidden_size)));
    sums_->rows.resize(layers);
  }

  Needs needs(int) const override { return {.gates = {GateNeed{gate_}}}; }
  void Observe(int, LayerView&) override {}  // the gate has seen all rows
  Calibration::Tables Finish(Ops&) override {
    Calibration::Tables tables;
    for (size_t l = 0; l < sums_->of_layer.size(); ++l) {
      std::vector<float> means;
      for (const double sum : sums_->of_layer[l]) {
        means.push_back(
            static_cast<float>(sum / static_cast<double>(std::max<int64_t>(sums_->rows[l], 1))));
      }
      const auto width = std::ssize(means);
      tables[InputTable(static_cast<int64_t>(l))] = {{width}, std::move(means)};
    }
    return tables;
  }

 private:
  std::shared_ptr<InputSums> sums_;
  std::shared_ptr<const Gate> gate_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kPrepare,
    .id = "asvd",
    .paper = "arXiv:2312.05821",
    .summary = "key and value projections of lower rank, best where inputs are large",
    .departures = {"without a calibration inputs count alike, which is plain SVD",
                   "ranks are the same in all layers, not searched by perplexity",
                   "exact singular vectors in place of randomised ones",
                   "a bias is one more input of what is decomposed, where the reference adds it "
                   "whole"},
    .bytes = "bases once a model: dims of all KV heads * rank * 4 for each layer and side",
    .params = {RealParam("alpha", 0.5, 0, 2, "power of an input channel's mean size"),
               IntParam("multiple", 1, 1, 1024, "ranks are multiples of this"),
               RealParam("key_ratio", 0.5, 0.001, 1, "rank of keys as a share of all heads' dims"),
               RealParam("value_ratio", 0.5, 0.001, 1, "the same of values"), CalibrationParam()},
    .make = Make<Asvd>(),
    .calibrate = MakeCalibrator<AsvdCalibrator>,
    .calibrated_params = {},
});

}  // namespace
}  // namespace kvgauge
