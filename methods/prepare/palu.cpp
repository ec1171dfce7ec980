// SPDX-License-Identifier: Apache-2.0
// Key and value projections of lower rank, and the bases in which a cache of latents keeps entries.
//
// Paper: Palu, arXiv:2407.21118. Needs nothing but weights, or a calibration as well. The
// projections W of a group of KV heads are stacked and replaced by their best approximation of the
// rank; a bias counts as one more input. The prompt is read through the same projections.
// With a calibration the best is meant of what W makes of real inputs x. The reference whitens:
// with the Cholesky factor S of E[x x^T] it keeps the first left singular vectors U of W S and
// takes U U^T W. These U are the eigenvectors of W S S^T W^T = E[(W x) (W x)^T], the second moment
// of the keys (before rotation) or values themselves; so that is what the calibration sums, and S
// is never needed. With `ranks` condition and all heads in one group this is LoRC
// (arXiv:2410.03111).
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <tuple>

#include "core/strings.h"
#include "methods/calibration.h"
#include "methods/low_rank_weights.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

std::string TableName(KvSide side, int64_t layer, int64_t group, const char* what) {
  return StrCat(side == KvSide::kKeys ? "keys." : "values.", layer, ".", group, ".", what);
}

// KV heads that share a basis, of `wanted`.
int64_t GroupHeads(int64_t wanted, const ModelShape& shape) {
  return wanted == 0 ? shape.kv_heads : std::min(wanted, shape.kv_heads);
}

int64_t GroupDims(int64_t wanted, const ModelShape& shape, KvSide side) {
  return GroupHeads(wanted, shape) * (side == KvSide::kKeys ? shape.key_dim : shape.value_dim);
}

class Palu final : public Prepare {
 public:
  explicit Palu(const Params& params)
      : group_(params.Int("group")),
        multiple_(params.Int("multiple")),
        key_ratio_(params.Real("key_ratio")),
        value_ratio_(params.Real("value_ratio")),
        by_energy_(params.Text("ranks") == "energy"),
        by_condition_(params.Text("ranks") == "condition"),
        hadamard_(params.Bool("hadamard")) {}

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
    if ((key_ratio_ == 0 || value_ratio_ == 0) && GroupHeads(group_, shape) == 1) {
      return BadInput(
          "a ratio of 0 makes one head of a group, and groups have one KV head already; set the "
          "ratios, or a larger group where the model has more KV heads");
    }
    if (shape.kv_heads % GroupHeads(group_, shape) != 0) {
      return BadInput(StrCat("group ", group_, " must divide the model's ", shape.kv_heads,
                             " KV heads; 0 takes all of them"));
    }
    if (calibration_ == nullptr) {
      if (!by_energy_) return {};
      return BadInput(
          "ranks 'energy' needs a calibration; make one with `kvgauge calibrate`, or "
          "take 'uniform'");
    }
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      const int64_t dims = GroupDims(group_, shape, side);
      for (int64_t layer = 0; layer < shape.layers; ++layer) {
        for (int64_t g = 0; g < Groups(shape); ++g) {
          KVG_TRY(Directions(side, layer, g, dims));
          KVG_TRY(calibration_->Find(TableName(side, layer, g, "energy"), {&dims, 1}));
        }
      }
    }
    return {};
  }

  Status Transform(WeightView& weights) const override {
    std::vector<double> grown(static_cast<size_t>(weights.shape().layers), 0.0);
    if (by_condition_) {
      KVG_ASSIGN(grown, ByCondition(weights));
    }
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      const std::vector<int64_t> ranks = Ranks(weights.shape(), side, grown);
      const int64_t groups = Groups(weights.shape());
      for (int64_t l = 0; l < weights.shape().layers; ++l) {
        KVG_TRY(Factor(weights, l, side, {ranks.data() + l * groups, static_cast<size_t>(groups)}));
      }
    }
    return {};
  }

 private:
  int64_t Groups(const ModelShape& shape) const {
    return shape.kv_heads / GroupHeads(group_, shape);
  }

  // [dims, dims]: the directions of a group, the most energetic first.
  Result<Tensor> Directions(KvSide side, int64_t layer, int64_t group, int64_t dims) const {
    return calibration_->Find(TableName(side, layer, group, "directions"), std::array{dims, dims});
  }

  // The ratio of a side; 0 stands for the dims of one head.
  double RatioOf(const ModelShape& shape, KvSide side) const {
    const double ratio = side == KvSide::kKeys ? key_ratio_ : value_ratio_;
    return ratio > 0 ? ratio : 1 / static_cast<double>(GroupHeads(group_, shape));
  }

  // The rank of a stack of `rows` dims, rounded to a multiple.
  int64_t Rank(int64_t rows, int64_t most, double ratio) const {
    const double wanted = ratio * static_cast<double>(rows) / static_cast<double>(multiple_);
    const auto rank = static_cast<int64_t>(std::floor(wanted + 0.5)) * multiple_;
    return std::min(std::max(rank, multiple_), most);
  }

  // The ranks of every group of every layer. By energy: their sum is that of uniform ranks, and
  // each next `multiple` goes where it adds most to the share of the group's energy that is kept.
  // By condition: on the way from the ratio to all dims, as far as `grown` says of a layer.
  std::vector<int64_t> Ranks(const ModelShape& shape, KvSide side,
                             const std::vector<double>& grown) const {
    const int64_t rows = GroupDims(group_, shape, side), groups = Groups(shape);
    const double ratio = RatioOf(shape, side);
    const int64_t uniform = Rank(rows, rows, ratio);
    std::vector<int64_t> ranks(static_cast<size_t>(shape.layers * groups), uniform);
    if (by_condition_) {
      for (int64_t i = 0; i < std::ssize(ranks); ++i) {
        const double share = grown[static_cast<size_t>(i / groups)];
        ranks[static_cast<size_t>(i)] = Rank(rows, rows, ratio + (1 - ratio) * share);
      }
      return ranks;
    }
    if (!by_energy_) return ranks;
    std::vector<std::vector<double>> kept(ranks.size());  // by that rank, as a share of all
    for (int64_t i = 0; i < std::ssize(ranks); ++i) {
      const std::string name = TableName(side, i / groups, i % groups, "energy");
      const std::vector<float>& energy = calibration_->tables.find(name)->second.values;
      const double total = std::accumulate(energy.begin(), energy.end(), 1e-30);
      std::vector<double>& shares = kept[static_cast<size_t>(i)];
      shares.push_back(0);
      for (const float e : energy) shares.push_back(shares.back() + e / total);
    }
    int64_t left = uniform * std::ssize(ranks);
    const int64_t least = std::min(multiple_, uniform);
    std::fill(ranks.begin(), ranks.end(), least);
    left -= least * std::ssize(ranks);
    while (true) {
      size_t best = ranks.size();
      double most = -1;
      for (size_t i = 0; i < ranks.size(); ++i) {
        const int64_t next = std::min(ranks[i] + multiple_, rows);
        if (next == ranks[i] || next - ranks[i] > left) continue;
        const double more =
            kept[i][static_cast<size_t>(next)] - kept[i][static_cast<size_t>(ranks[i])];
        const double gain = more / static_cast<double>(next - ranks[i]);
        if (gain <= most) continue;
        most = gain;
        best = i;
      }
      if (best == ranks.size()) return ranks;
      const int64_t next = std::min(ranks[best] + multiple_, rows);
      left -= next - ranks[best];
      ranks[best] = next;
    }
  }

  // How much an error in a layer grows on its way up: the logarithm of the product of the condition
  // numbers of both projections of it and of all layers above, as a share of the way from the least
  // to the most.
  static Result<std::vector<double>> ByCondition(WeightView& weights) {
    const int64_t layers = weights.shape().layers;
    std::vector<double> grown(static_cast<size_t>(layers));
    double sum = 0;
    for (int64_t l = layers - 1; l >= 0; --l) {
      for (const auto matrix : {WeightView::Matrix::kKey, WeightView::Matrix::kValue}) {
        KVG_ASSIGN(const Tensor projection, weights.Read(l, matrix));
        sum += LogCondition(weights.ops(), projection);
      }
      grown[static_cast<size_t>(l)] = sum;
    }
    const double least = *std::min_element(grown.begin(), grown.end());
    const double most = *std::max_element(grown.begin(), grown.end());
    for (double& share : grown) share = most > least ? (share - least) / (most - least) : 0;
    return grown;
  }

  static double LogCondition(Ops& ops, const Tensor& matrix) {
    const int64_t rows = matrix.shape[0], columns = matrix.shape[1], full = std::min(rows, columns);
    const Buffer memory = AllocateFloats(ops, rows * full + full + full * columns);
    const Tensor all = memory.As(DType::kF32, {rows * full + full + full * columns});
    const Tensor s = all.Slice(rows * full, rows * full + full);
    ops.algebra->Svd(matrix, all.Slice(0, rows * full).Reshape({rows, full}), s,
                     all.Slice(rows * full + full, all.shape[0]).Reshape({full, columns}));
    const std::vector<float> values = Fetch(ops, s);
    // f32 knows no smaller singular value than this.
    const double least = std::max(double{values.back()}, 1e-6 * double{values.front()});
    return values.front() > 0 ? std::log(double{values.front()} / least) : 0;
  }

  Status Factor(WeightView& weights, int64_t layer, KvSide side,
                std::span<const int64_t> ranks) const {
    const ModelShape& shape = weights.shape();
    Ops& ops = weights.ops();
    const int64_t rows = GroupDims(group_, shape, side);
    return LowerRank(
        weights, layer, side, ranks, {.heads = GroupHeads(group_, shape), .hadamard = hadamard_},
        [&](const Tensor& part, int64_t group, const Tensor& basis, const Tensor& inner) -> Status {
          if (calibration_ == nullptr) {
            TakeLeadingVectors(ops, part, basis, inner);
            return {};
          }
          KVG_ASSIGN(const Tensor directions, Directions(side, layer, group, rows));
          TakeDirections(ops, directions, part, basis, inner);
          return {};
        });
  }

  int64_t group_, multiple_;
  double key_ratio_, value_ratio_;
  bool by_energy_, by_condition_, hadamard_;
  std::shared_ptr<const Calibration> calibration_;
};

// Sums the second moments of the keys and values of each group, and finds their eigenvectors.
class PaluCalibrator final : public Calibrator {
 public:
  PaluCalibrator(const Params& params, const ModelShape& shape, std::span<const int64_t>)
      : shape_(shape), group_(params.Int("group")) {}

  Needs needs(int) const override { return {.raw_keys = true}; }

  void Observe(int, LayerView& view) override {
    tokens_ += view.layer() == 0 ? view.tokens() : 0;
    const int64_t heads = GroupHeads(group_, shape_);
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      for (int64_t first = 0; first < shape_.kv_heads; first += heads) {
        std::vector<double>& sum = sums_[{side, view.layer(), first / heads}];
        const std::vector<float> moment = Moment(view, side, first, heads);
        sum.resize(moment.size());
        for (size_t i = 0; i < moment.size(); ++i) sum[i] += moment[i];
      }
    }
  }

  Calibration::Tables Finish(Ops& ops) override {
    Calibration::Tables tables;
    for (const auto& [at, sum] : sums_) {
      const auto& [side, layer, group] = at;
      const int64_t dims = GroupDims(group_, shape_, side);
      std::vector<float> directions, energy;
      MomentDirections(ops, sum, tokens_, directions, energy);
      tables[TableName(side, layer, group, "directions")] = {{dims, dims}, std::move(directions)};
      tables[TableName(side, layer, group, "energy")] = {{dims}, std::move(energy)};
    }
    return tables;
  }

 private:
  // Rows are joined over heads: [dims, dims].
  std::vector<float> Moment(LayerView& view, KvSide side, int64_t first, int64_t heads) const {
    Ops& ops = view.ops();
    const bool keys = side == KvSide::kKeys;
    const int64_t dim = keys ? shape_.key_dim : shape_.value_dim, dims = heads * dim;
    const int64_t n = view.tokens();
    const Tensor joined = view.Scratch(DType::kF32, {n, dims});
    for (int64_t g = 0; g < heads; ++g) {
      const Tensor rows = !keys                   ? view.Values(first + g)
                          : shape_.rotary_dim > 0 ? view.RawKeys(first + g)
                                                  : view.Keys(first + g);
      ops.rows->Convert(rows, Columns(joined, g * dim, (g + 1) * dim));
    }
    std::vector<float> unit(static_cast<size_t>(dims * dims));
    for (int64_t i = 0; i < dims; ++i) unit[static_cast<size_t>(i * dims + i)] = 1.0f;
    const Tensor one = Upload(view, unit), across = view.Scratch(DType::kF32, {dims, n});
    // The identity times them transposed: exactly they, with rows and columns exchanged.
    ops.linear->MatMulNT(one.Reshape({1, dims, dims}), joined.Reshape({1, n, dims}), 1.0f,
                         across.Reshape({1, dims, n}));
    ops.linear->MatMulNN(across.Reshape({1, dims, n}), joined.Reshape({1, n, dims}), 1.0f,
                         one.Reshape({1, dims, dims}));
    return Fetch(ops, one);
  }

  const ModelShape shape_;
  const int64_t group_;
  int64_t tokens_ = 0;
  std::map<std::tuple<KvSide, int64_t, int64_t>, std::vector<double>> sums_;  // side, layer, group
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kPrepare,
    .id = "palu",
    .paper = "arXiv:2407.21118",
    .summary = "key and value projections of lower rank, per group of heads",
    .departures = {"without a calibration no whitening",
                   "ranks are uniform or follow whitened energy, not Fisher information",
                   "a bias is one more input of what is decomposed, where the reference adds it "
                   "whole"},
    .bytes = "bases once a model: dims of a group * rank * 4 for each group, layer and side",
    .params = {IntParam("group", 4, 0, 1024, "KV heads that share a basis; 0: all"),
               IntParam("multiple", 8, 1, 1024, "ranks are multiples of this"),
               RealParam("key_ratio", 0.5, 0, 1,
                         "rank of keys as a share of a group's dims; 0: the dims of one head"),
               RealParam("value_ratio", 0.5, 0, 1, "the same of values"),
               ChoiceParam(
                   "ranks", "uniform", {"uniform", "energy", "condition"},
                   "the same everywhere; where a calibration's keys and values have most energy; "
                   "or from all dims in the layer whose errors grow most down to the ratio"),
               BoolParam("hadamard", false,
                         "latents are turned by a Hadamard matrix, in blocks of the largest "
                         "power of two that divides the rank"),
               CalibrationParam()},
    .make = Make<Palu>(),
    .calibrate = MakeCalibrator<PaluCalibrator>,
    .calibrated_params = {"group"},
});

}  // namespace
}  // namespace kvgauge
