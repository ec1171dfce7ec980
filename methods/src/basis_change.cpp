// SPDX-License-Identifier: Apache-2.0
#include "methods/basis_change.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "core/rng.h"
#include "core/strings.h"
#include "methods/shared_numbers.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

using Matrices = BasisChange::Matrices;

// The largest power of two that divides dim.
int64_t LargestPower(int64_t dim) { return dim & -dim; }

std::vector<float> Hadamard(int64_t dim, int64_t block,
                            const std::function<bool(int64_t)>& negative) {
  const auto unit = static_cast<float>(1.0 / std::sqrt(static_cast<double>(block)));
  std::vector<float> matrix(static_cast<size_t>(dim * dim));
  for (int64_t i = 0; i < dim; ++i) {
    for (int64_t j = i / block * block; j < (i / block + 1) * block; ++j) {
      const bool odd = __builtin_parityll(static_cast<uint64_t>(i % block & j % block)) != 0;
      matrix[static_cast<size_t>(i * dim + j)] = odd != negative(i) ? -unit : unit;
    }
  }
  return matrix;
}

// Rows of a square of Gaussian numbers, made orthonormal one after the other, twice.
std::vector<double> RandomOrthogonal(int64_t dim, Rng& rng) {
  std::vector<double> rows(static_cast<size_t>(dim * dim));
  for (double& v : rows) v = rng.NextGaussian();
  for (int64_t i = 0; i < dim; ++i) {
    double* row = rows.data() + i * dim;
    for (int pass = 0; pass < 2; ++pass) {
      for (int64_t j = 0; j < i; ++j) {
        const double* before = rows.data() + j * dim;
        double product = 0;
        for (int64_t k = 0; k < dim; ++k) product += row[k] * before[k];
        for (int64_t k = 0; k < dim; ++k) row[k] -= product * before[k];
      }
    }
    double square = 0;
    for (int64_t k = 0; k < dim; ++k) square += row[k] * row[k];
    for (int64_t k = 0; k < dim; ++k) row[k] /= std::sqrt(square);
  }
  return rows;
}

std::string TableName(KvSide side, int64_t layer, const char* what) {
  return StrCat(side == KvSide::kKeys ? "keys." : "values.", layer, what);
}

// Matrices of a side-file, which they keep alive: [1 or kv_heads, dim, dim].
Result<BasisChange> Learned(const std::shared_ptr<const Calibration>& calibration, KvSide side,
                            const ModelShape& shape, int64_t layer) {
  const int64_t dim = side == KvSide::kKeys ? shape.key_dim : shape.value_dim;
  const auto table = [&](const char* what) -> const Calibration::Table* {
    const auto found = calibration->tables.find(TableName(side, layer, what));
    return found == calibration->tables.end() ? nullptr : &found->second;
  };
  const Calibration::Table *there = table(".there"), *back = table(".back");
  const std::string name = StrCat(calibration->path, ": ", TableName(side, layer, ".there"));
  if (there == nullptr) {
    return BadInput(StrCat(name, ": no such table; right are matrices of [1 or ", shape.kv_heads,
                           ", ", dim, ", ", dim, "]"));
  }
  for (const Calibration::Table* one : {there, back}) {
    if (one == nullptr) continue;
    if (one->shape.size() == 3 && one->shape == there->shape) continue;
    return BadInput(StrCat(name, ": must have three dims: [1 or ", shape.kv_heads, ", ", dim, ", ",
                           dim, "], and a way back of the same shape"));
  }
  BasisChange change;
  change.heads = there->shape[0];
  change.dim = there->shape[1];
  change.stored = there->shape[2];
  change.source = name;
  change.there = Matrices(calibration, &there->values);
  if (back != nullptr) change.back = Matrices(calibration, &back->values);
  return change;  // whose numbers the layout checks
}

}  // namespace

std::vector<ParamSpec> BasisParams(LearnedBasis learned) {
  std::vector<std::string> names = {"none", "hadamard", "hadamard_64", "signed_hadamard", "random"};
  if (learned == LearnedBasis::kFromSideFile) names.emplace_back("learned");
  return {ChoiceParam("key_basis", "none", names,
                      "coordinates in which keys are stored; queries are turned instead"),
          ChoiceParam("value_basis", "none", names,
                      "coordinates in which values are stored; the output is turned back"),
          IntParam("basis_seed", 0, 0, 1 << 30, "of random coordinates")};
}

BasisChange HadamardBasis(int64_t dim, int64_t most) {
  const int64_t block = std::min(LargestPower(dim), most);
  BasisChange change;
  change.dim = change.stored = dim;
  change.there = SharedNumbers(StrCat("hadamard ", dim, " ", block),
                               [&] { return Hadamard(dim, block, [](int64_t) { return false; }); });
  return change;
}

BasisChange SignedHadamardBasis(int64_t dim, uint64_t seed) {
  BasisChange change;
  change.dim = change.stored = dim;
  change.there = SharedNumbers(StrCat("signed hadamard ", dim, " ", seed), [&] {
    Rng rng(seed, 1);
    std::vector<bool> negative;
    for (int64_t i = 0; i < dim; ++i) negative.push_back(rng.NextBelow(2) == 1);
    return Hadamard(dim, LargestPower(dim),
                    [&](int64_t i) { return negative[static_cast<size_t>(i)]; });
  });
  return change;
}

BasisChange RandomBasis(int64_t dim, int64_t stored, double scale, uint64_t seed) {
  const int64_t blocks = stored / dim;
  KVG_CHECK(blocks >= 1 && blocks * dim == stored, "blocks must be squares");
  const auto make = [&](double factor) {
    Rng rng(seed, 2);
    std::vector<float> matrix(static_cast<size_t>(dim * stored));
    for (int64_t b = 0; b < blocks; ++b) {
      const std::vector<double> block = RandomOrthogonal(dim, rng);
      for (int64_t i = 0; i < dim; ++i) {
        for (int64_t j = 0; j < dim; ++j) {
          matrix[static_cast<size_t>(i * stored + b * dim + j)] =
              static_cast<float>(factor * block[static_cast<size_t>(i * dim + j)]);
        }
      }
    }
    return matrix;
  };
  const std::string words = StrCat("random ", dim, " ", stored, " ", scale, " ", seed);
  BasisChange change;
  change.dim = dim;
  change.stored = stored;
  change.there = SharedNumbers(words, [&] { return make(scale); });
  if (blocks > 1 || scale != 1) {
    change.back = SharedNumbers(words + " back",
                                [&] { return make(1 / (scale * static_cast<double>(blocks))); });
  }
  return change;
}

BasisChoice::BasisChoice(const Params& params)
    : keys_(params.Text("key_basis")),
      values_(params.Text("value_basis")),
      seed_(static_cast<uint64_t>(params.Int("basis_seed"))) {}

Status BasisChoice::Check(const ModelShape& shape, const Calibration* calibration) const {
  if (any() && shape.latent_dim > 0) {
    return BadInput("key_basis, value_basis: the model keeps latents of its own; take 'none'");
  }
  for (const std::string* wanted : {&keys_, &values_}) {
    if (*wanted != "learned" || calibration != nullptr) continue;
    return BadInput(
        "a learned basis needs a calibration; make one with `kvgauge calibrate`, import one, or "
        "take 'hadamard'");
  }
  if (calibration != nullptr && keys_ != "learned" && values_ != "learned") {
    return BadInput(StrCat(calibration->path, ": nothing reads this calibration, as key_basis is '",
                           keys_, "' and value_basis '", values_,
                           "'; set one to 'learned', or leave calibration out"));
  }
  return {};
}

Result<BasisChange> BasisChoice::Of(KvSide side, const ModelShape& shape, int64_t layer,
                                    const std::shared_ptr<const Calibration>& calibration) const {
  const bool keys = side == KvSide::kKeys;
  const std::string& wanted = keys ? keys_ : values_;
  const int64_t dim = keys ? shape.key_dim : shape.value_dim;
  // Other layers and the other side have other numbers.
  const uint64_t seed = (seed_ * 4096 + static_cast<uint64_t>(layer)) * 2 + (keys ? 0 : 1);
  if (wanted == "hadamard") return HadamardBasis(dim);
  if (wanted == "hadamard_64") return HadamardBasis(dim, 64);
  if (wanted == "signed_hadamard") return SignedHadamardBasis(dim, seed);
  if (wanted == "random") return RandomBasis(dim, dim, 1, seed);
  if (wanted == "learned" && calibration == nullptr) return BadInput("no calibration is there");
  if (wanted == "learned") return Learned(calibration, side, shape, layer);
  return BasisChange();
}

Result<StorePlan> BasisChoice::Plan(const ModelShape& shape, int64_t layer, Coded layout,
                                    KeyTurn turn,
                                    const std::shared_ptr<const Calibration>& calibration) const {
  if (!any()) return PlanOf(std::move(layout), turn);
  KVG_ASSIGN(BasisChange of_keys, Of(KvSide::kKeys, shape, layer, calibration));
  KVG_ASSIGN(BasisChange of_values, Of(KvSide::kValues, shape, layer, calibration));
  return PlanOf(Transformed(std::move(layout), std::move(of_keys), std::move(of_values)), turn);
}

BasisCalibrator::BasisCalibrator(const Params& params, const ModelShape& shape,
                                 std::span<const int64_t>)
    : shape_(shape),
      raw_keys_(params.Bool("raw_keys") && shape.rotary_dim > 0),
      moments_(static_cast<size_t>(shape.layers)) {
  for (auto& sides : moments_) {
    sides[0].resize(static_cast<size_t>(shape.kv_heads * shape.key_dim * shape.key_dim));
    sides[1].resize(static_cast<size_t>(shape.kv_heads * shape.value_dim * shape.value_dim));
  }
}

void BasisCalibrator::Observe(int, LayerView& view) {
  for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
    const bool keys = side == KvSide::kKeys;
    const int64_t dim = keys ? shape_.key_dim : shape_.value_dim;
    double* sums = moments_[static_cast<size_t>(view.layer())][static_cast<size_t>(side)].data();
    for (int64_t h = 0; h < shape_.kv_heads; ++h, sums += dim * dim) {
      const Tensor rows = !keys ? view.Values(h) : raw_keys_ ? view.RawKeys(h) : view.Keys(h);
      const std::vector<float> numbers = Fetch(view.ops(), rows);
      for (int64_t at = 0; at < std::ssize(numbers); at += dim) {
        const float* row = numbers.data() + at;
        for (int64_t i = 0; i < dim; ++i) {
          for (int64_t j = 0; j < dim; ++j) sums[i * dim + j] += double{row[i]} * row[j];
        }
      }
    }
  }
}

Calibration::Tables BasisCalibrator::Finish(Ops& ops) {
  Calibration::Tables tables;
  for (int64_t layer = 0; layer < shape_.layers; ++layer) {
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      const int64_t dim = side == KvSide::kKeys ? shape_.key_dim : shape_.value_dim;
      const double* sums = moments_[static_cast<size_t>(layer)][static_cast<size_t>(side)].data();
      std::vector<float> all;
      for (int64_t h = 0; h < shape_.kv_heads; ++h, sums += dim * dim) {
        double trace = 0;
        for (int64_t i = 0; i < dim; ++i) trace += sums[i * dim + i];
        // Moves no direction, and keeps those that nothing was seen of orthogonal to the others.
        const double unit = trace > 0 ? trace / static_cast<double>(dim) : 1;
        std::vector<float> matrix;
        for (int64_t i = 0; i < dim * dim; ++i) {
          matrix.push_back(static_cast<float>(sums[i] / unit + (i % (dim + 1) == 0 ? 1e-6 : 0)));
        }
        const Buffer memory = ops.memory->Allocate((3 * dim * dim + dim) * 4);
        const Tensor numbers = memory.As(DType::kF32, {3 * dim * dim + dim});
        const auto square = [&](int64_t i) {
          return numbers.Slice(i * dim * dim, (i + 1) * dim * dim).Reshape({dim, dim});
        };
        ops.memory->Copy(View(matrix, {dim, dim}), square(0));
        ops.algebra->Svd(square(0), square(1), numbers.Slice(3 * dim * dim, numbers.shape[0]),
                         square(2));
        const std::vector<float> directions = Fetch(ops, square(2));  // one a row
        for (int64_t i = 0; i < dim; ++i) {
          for (int64_t j = 0; j < dim; ++j) {
            all.push_back(directions[static_cast<size_t>(j * dim + i)]);
          }
        }
      }
      tables[TableName(side, layer, ".there")] = {{shape_.kv_heads, dim, dim}, std::move(all)};
    }
  }
  return tables;
}

}  // namespace kvgauge
