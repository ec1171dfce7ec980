// SPDX-License-Identifier: Apache-2.0
// Keys and values in the directions in which they vary most, as many of them as a threshold asks.
//
// Paper: Eigen Attention, arXiv:2408.05646, in its form for rotary models: one basis of keys before
// rotation for all KV heads of a layer, and one of values for each head. A layer keeps as many
// directions as their singular values, of a sum of 1, stay below the threshold; of values as many
// as the neediest head. With `error` the threshold falls from 1 by 0.02 until what is lost reaches
// it, and goes back one step. Needs a calibration: the second moments of keys and values over some
// texts. Without one they are those of the projections.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "core/strings.h"
#include "methods/calibration.h"
#include "methods/low_rank_weights.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

// One for keys; for values one a head.
std::string EigenTable(KvSide side, int64_t layer, int64_t basis, const char* what) {
  return side == KvSide::kKeys ? StrCat("keys.", layer, ".", what)
                               : StrCat("values.", layer, ".", basis, ".", what);
}

// Directions [dim, dim], one a row, the most energetic first.
struct Spectrum {
  std::vector<float> directions;
  std::vector<float> energy;
};

// The directions of a symmetric sum of products, [dim, dim].
Spectrum SpectrumOf(Ops& ops, std::span<const double> sum, int64_t dim) {
  double trace = 0;
  for (int64_t i = 0; i < dim; ++i) trace += sum[static_cast<size_t>(i * dim + i)];
  // Moves no direction, and keeps those that nothing was seen of orthogonal to the others.
  const double unit = trace > 0 ? trace / static_cast<double>(dim) : 1, ridge = 1e-6;
  std::vector<float> matrix;
  for (int64_t i = 0; i < dim * dim; ++i) {
    const double one = trace > 0 ? sum[static_cast<size_t>(i)] / unit : 0;
    matrix.push_back(static_cast<float>(one + (i % (dim + 1) == 0 ? ridge : 0)));
  }
  const Buffer memory = AllocateFloats(ops, 3 * dim * dim + dim);
  const Tensor all = memory.As(DType::kF32, {3 * dim * dim + dim});
  const auto square = [&](int64_t i) {
    return all.Slice(i * dim * dim, (i + 1) * dim * dim).Reshape({dim, dim});
  };
  const Tensor values = all.Slice(3 * dim * dim, all.shape[0]);
  ops.memory->Copy(View(matrix, {dim, dim}), square(0));
  ops.algebra->Svd(square(0), square(1), values, square(2));
  Spectrum spectrum{Fetch(ops, square(2)), Fetch(ops, values)};
  for (float& e : spectrum.energy) e = std::max(0.0f, e - static_cast<float>(ridge));
  return spectrum;
}

// How many singular values, of a sum of 1, stay below the threshold when summed.
int64_t CountBelow(const std::vector<float>& energy, double threshold) {
  double total = 0, sum = 0;
  for (const float e : energy) total += std::sqrt(double{e});
  int64_t count = 0;
  for (const float e : energy) {
    sum += std::sqrt(double{e});
    if (sum < threshold * total) ++count;
  }
  return std::clamp<int64_t>(count, 1, std::ssize(energy));
}

// What the directions from `rank` on hold.
double EnergyFrom(const std::vector<float>& energy, int64_t rank) {
  return std::accumulate(energy.begin() + rank, energy.end(), 0.0);
}

class EigenAttention final : public Prepare {
 public:
  explicit EigenAttention(const Params& params)
      : threshold_(params.Real("threshold")), error_(params.Real("error")) {}

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
      for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
        const int64_t dim = DimOf(shape, side);
        for (int64_t b = 0; b < (side == KvSide::kKeys ? 1 : shape.kv_heads); ++b) {
          KVG_TRY(calibration_->Find(EigenTable(side, l, b, "directions"), std::array{dim, dim}));
          KVG_TRY(calibration_->Find(EigenTable(side, l, b, "energy"), std::array{dim}));
        }
      }
    }
    return {};
  }

  Status Transform(WeightView& weights) const override {
    const ModelShape shape = weights.shape();
    for (int64_t l = 0; l < shape.layers; ++l) {
      KVG_ASSIGN(const std::vector<Spectrum> keys, SpectraOf(weights, l, KvSide::kKeys));
      KVG_ASSIGN(const std::vector<Spectrum> values, SpectraOf(weights, l, KvSide::kValues));
      const std::array<int64_t, 2> ranks = Ranks(keys, values);
      for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
        const std::vector<Spectrum>& spectra = side == KvSide::kKeys ? keys : values;
        const int64_t dim = DimOf(shape, side);
        const std::vector<int64_t> of_heads(static_cast<size_t>(shape.kv_heads),
                                            ranks[static_cast<size_t>(side)]);
        KVG_TRY(LowerRank(
            weights, l, side, of_heads, {.heads = 1},
            [&](const Tensor& part, int64_t head, const Tensor& basis,
                const Tensor& inner) -> Status {
              const Spectrum& own = spectra[spectra.size() == 1 ? 0 : static_cast<size_t>(head)];
              TakeDirections(weights.ops(), View(own.directions, {dim, dim}), part, basis, inner);
              return {};
            }));
      }
    }
    return {};
  }

 private:
  static int64_t DimOf(const ModelShape& shape, KvSide side) {
    return side == KvSide::kKeys ? shape.key_dim : shape.value_dim;
  }

  // One of keys; of values one a head.
  Result<std::vector<Spectrum>> SpectraOf(WeightView& weights, int64_t layer, KvSide side) const {
    const ModelShape& shape = weights.shape();
    const bool keys = side == KvSide::kKeys;
    const int64_t dim = DimOf(shape, side), heads = shape.kv_heads;
    std::vector<Spectrum> spectra;
    if (calibration_ != nullptr) {
      for (int64_t b = 0; b < (keys ? 1 : heads); ++b) {
        const auto values = [&](const char* what) {
          return calibration_->tables.find(EigenTable(side, layer, b, what))->second.values;
        };
        spectra.push_back({values("directions"), values("energy")});
      }
      return spectra;
    }
    const auto matrix = keys ? WeightView::Matrix::kKey : WeightView::Matrix::kValue;
    KVG_ASSIGN(const Tensor rows, weights.Read(layer, matrix));
    Ops& ops = weights.ops();
    const int64_t inputs = rows.shape[1];
    const Buffer memory = AllocateFloats(ops, dim * dim);
    const Tensor product = memory.As(DType::kF32, {1, dim, dim});
    std::vector<double> sum;
    for (int64_t h = 0; h < heads; ++h) {
      const Tensor own = rows.Slice(h * dim, (h + 1) * dim).Reshape({1, dim, inputs});
      ops.linear->MatMulNT(own, own, 1.0f, product);
      const std::vector<float> products = Fetch(ops, product);
      sum.resize(products.size());
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += double{products[i]};
      if (keys && h + 1 < heads) continue;
      spectra.push_back(SpectrumOf(ops, sum, dim));
      sum.clear();
    }
    return spectra;
  }

  // The ranks of keys and of values at a threshold.
  static std::array<int64_t, 2> RanksAt(const std::vector<Spectrum>& keys,
                                        const std::vector<Spectrum>& values, double threshold) {
    std::array<int64_t, 2> ranks = {CountBelow(keys[0].energy, threshold), 1};
    for (const Spectrum& one : values) {
      ranks[1] = std::max(ranks[1], CountBelow(one.energy, threshold));
    }
    return ranks;
  }

  // The larger of what keys and what values lose, as a share of their length.
  static double LostAt(const std::vector<Spectrum>& keys, const std::vector<Spectrum>& values,
                       const std::array<int64_t, 2>& ranks) {
    double most = 0;
    for (const auto* spectra : {&keys, &values}) {
      double lost = 0, all = 1e-30;
      for (const Spectrum& one : *spectra) {
        lost += EnergyFrom(one.energy, ranks[spectra == &keys ? 0 : 1]);
        all += EnergyFrom(one.energy, 0);
      }
      most = std::max(most, std::sqrt(lost / all));
    }
    return most;
  }

  std::array<int64_t, 2> Ranks(const std::vector<Spectrum>& keys,
                               const std::vector<Spectrum>& values) const {
    if (error_ == 0) return RanksAt(keys, values, threshold_);
    constexpr double kStep = 0.02, kLeastShare = 0.45;
    const std::array<int64_t, 2> full = {std::ssize(keys[0].energy), std::ssize(values[0].energy)};
    const auto few = [&](const std::array<int64_t, 2>& ranks) {
      for (size_t i = 0; i < ranks.size(); ++i) {
        if (static_cast<double>(ranks[i]) <= kLeastShare * static_cast<double>(full[i]))
          return true;
      }
      return false;
    };
    int steps = 0;  // below 1
    double lost = 0;
    std::array<int64_t, 2> ranks = full;
    while (lost < error_ && !few(ranks)) {
      ranks = RanksAt(keys, values, 1 - kStep * steps);
      lost = LostAt(keys, values, ranks);
      ++steps;
    }
    return RanksAt(keys, values, 1 - kStep * (steps - 2));
  }

  double threshold_, error_;
  std::shared_ptr<const Calibration> calibration_;
};

class EigenCalibrator final : public Calibrator {
 public:
  EigenCalibrator(const Params&, const ModelShape& shape, std::span<const int64_t>)
      : shape_(shape), sums_(static_cast<size_t>(shape.layers)) {
    for (auto& of_layer : sums_) of_layer.resize(static_cast<size_t>(1 + shape.kv_heads));
  }

  Needs needs(int) const override { return {.raw_keys = shape_.rotary_dim > 0}; }

  void Observe(int, LayerView& view) override {
    auto& of_layer = sums_[static_cast<size_t>(view.layer())];
    for (int64_t h = 0; h < shape_.kv_heads; ++h) {
      Add(view, shape_.rotary_dim > 0 ? view.RawKeys(h) : view.Keys(h), of_layer[0]);
      Add(view, view.Values(h), of_layer[static_cast<size_t>(1 + h)]);
    }
  }

  Calibration::Tables Finish(Ops& ops) override {
    Calibration::Tables tables;
    for (int64_t l = 0; l < shape_.layers; ++l) {
      for (int64_t b = 0; b <= shape_.kv_heads; ++b) {
        const KvSide side = b == 0 ? KvSide::kKeys : KvSide::kValues;
        const int64_t dim = b == 0 ? shape_.key_dim : shape_.value_dim;
        Spectrum spectrum =
            SpectrumOf(ops, sums_[static_cast<size_t>(l)][static_cast<size_t>(b)], dim);
        tables[EigenTable(side, l, b - 1, "directions")] = {{dim, dim},
                                                            std::move(spectrum.directions)};
        tables[EigenTable(side, l, b - 1, "energy")] = {{dim}, std::move(spectrum.energy)};
      }
    }
    return tables;
  }

 private:
  static void Add(LayerView& view, const Tensor& rows, std::vector<double>& sum) {
    const std::vector<float> numbers = Fetch(view.ops(), rows);
    const int64_t dim = rows.shape[1];
    sum.resize(static_cast<size_t>(dim * dim));
    for (int64_t at = 0; at < std::ssize(numbers); at += dim) {
      const float* row = numbers.data() + at;
      for (int64_t i = 0; i < dim; ++i) {
        for (int64_t j = 0; j < dim; ++j) {
          sum[static_cast<size_t>(i * dim + j)] += double{row[i]} * row[j];
        }
      }
    }
  }

  const ModelShape shape_;
  // [layers][keys of all heads, then values of each] of [dim, dim]
  std::vector<std::vector<std::vector<double>>> sums_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kPrepare,
    .id = "eigen_attention",
    .paper = "arXiv:2408.05646",
    .summary = "keys and values in as many of their main directions as a threshold asks",
    .departures = {"without a calibration the directions are those of the projections",
                   "`error` is of keys and values, where the reference compares outputs of layers",
                   "all tokens of the texts count, not means of texts at each place",
                   "keys turn by their own positions in decode, where the released code turns all "
                   "by the newest"},
    .bytes = "bases once a model: dims of a head * rank * 4 for each KV head, layer and side",
    .params = {RealParam("threshold", 0.9, 0.05, 1,
                         "sum of the singular values that are kept, as a share of all"),
               RealParam("error", 0, 0, 1,
                         "what keys or values of a layer may lose, as a share of their length, by "
                         "which it chooses its threshold; 0: `threshold` everywhere"),
               CalibrationParam()},
    .make = Make<EigenAttention>(),
    .calibrate = MakeCalibrator<EigenCalibrator>,
    .calibrated_params = {},
});

}  // namespace
}  // namespace kvgauge
