// SPDX-License-Identifier: Apache-2.0
// Keys and values in an orthogonal basis of their head, of which the first coordinates alone are
// stored.
//
// Paper: MatryoshkaKV, arXiv:2410.14731. Needs keys as attention sees them, and a side-file:
// learned bases, imported, or the principal directions over some texts, from which the paper's
// training starts. A side-file may say how many coordinates each head keeps. Without one the bases
// are the principal directions of the prompt. Queries and outputs are turned, entries never.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/strings.h"
#include "methods/basis_change.h"
#include "methods/directions.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

std::string NestedTable(KvSide side, int64_t layer, const char* what) {
  return StrCat(side == KvSide::kKeys ? "keys." : "values.", layer, what);
}

class Matryoshka final : public Store {
 public:
  explicit Matryoshka(const Params& params)
      : shares_{params.Real("key_rank"), params.Real("value_rank")},
        raw_(params.Bool("raw_keys")) {}

  Needs needs() const override { return {.raw_keys = raw_ && calibration_ == nullptr}; }
  void Use(std::shared_ptr<const Calibration> calibration) override {
    calibration_ = std::move(calibration);
  }

  Status Check(const ModelShape& shape) const override {
    if (shape.latent_dim > 0) {
      return BadInput("keeps coordinates of heads, and this model keeps latents of its own");
    }
    if (raw_ && shape.rotary_dim == 0) {
      return BadInput("raw_keys: keys of this model are never rotated; leave it out");
    }
    for (int64_t l = 0; calibration_ != nullptr && l < shape.layers; ++l) {
      for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
        const int64_t dim = DimOf(shape, side);
        KVG_TRY(calibration_->Find(NestedTable(side, l, ".there"),
                                   std::array{shape.kv_heads, dim, dim}));
        KVG_TRY(CheckRanks(shape, side, l));
      }
    }
    return {};
  }

  Result<StorePlan> Plan(const ModelShape& shape, int64_t layer) const override {
    std::array<BasisChange, 2> changes;
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      BasisChange& change = changes[static_cast<size_t>(side)];
      change = Begun(shape, side, layer);
      if (calibration_ == nullptr) {
        // Until Calibrate has seen the prompt: the first numbers of each head.
        change.there = Packed(change, [&](int64_t, int64_t row, int64_t column) {
          return row == column ? 1.0f : 0.0f;
        });
        continue;
      }
      const std::string name = NestedTable(side, layer, ".there");
      const std::vector<float>& learned = calibration_->tables.find(name)->second.values;
      change.source = StrCat(calibration_->path, ": ", name);
      change.there = Packed(change, [&](int64_t head, int64_t row, int64_t column) {
        return learned[static_cast<size_t>((head * change.dim + row) * change.dim + column)];
      });
    }
    return PlanOf(Transformed(Coded(shape), std::move(changes[0]), std::move(changes[1])),
                  {.raw = raw_});
  }

  void Calibrate(LayerView& view, StorePlan& plan) const override {
    const auto* planned = plan.Get<Transformed>();
    if (planned == nullptr || calibration_ != nullptr) return;
    Transformed layout = *planned;
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      BasisChange& change = side == KvSide::kKeys ? layout.key_change : layout.value_change;
      auto found = std::make_shared<std::vector<float>>();
      for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
        const Tensor rows = side == KvSide::kValues ? view.Values(h)
                            : raw_                  ? view.RawKeys(h)
                                                    : view.Keys(h);
        const std::vector<float> own =
            Fetch(view.ops(), LeadingDirections(view, rows, change.width(h)));
        found->insert(found->end(), own.begin(), own.end());
      }
      change.there = std::move(found);
      change.constant = false;
    }
    plan = PlanOf(std::move(layout), plan.turn);
  }

 private:
  static int64_t DimOf(const ModelShape& shape, KvSide side) {
    return side == KvSide::kKeys ? shape.key_dim : shape.value_dim;
  }

  // Whether a side-file says how many coordinates heads keep.
  const std::vector<float>* RanksOf(KvSide side, int64_t layer) const {
    if (calibration_ == nullptr) return nullptr;
    const auto found = calibration_->tables.find(NestedTable(side, layer, ".ranks"));
    return found == calibration_->tables.end() ? nullptr : &found->second.values;
  }

  Status CheckRanks(const ModelShape& shape, KvSide side, int64_t layer) const {
    const std::vector<float>* ranks = RanksOf(side, layer);
    if (ranks == nullptr) return {};
    const int64_t dim = DimOf(shape, side);
    const auto legal = [&](float rank) {
      return rank >= 1 && rank <= static_cast<float>(dim) && std::floor(rank) == rank;
    };
    if (std::ssize(*ranks) == shape.kv_heads && std::all_of(ranks->begin(), ranks->end(), legal)) {
      return {};
    }
    const auto wrong = std::find_if_not(ranks->begin(), ranks->end(), legal);
    return BadInput(StrCat(
        calibration_->path, ": table '", NestedTable(side, layer, ".ranks"), "' has ",
        wrong == ranks->end() ? StrCat(ranks->size(), " numbers") : StrCat("a rank of ", *wrong),
        "; expected ", shape.kv_heads, " whole numbers from 1 to ", dim));
  }

  // All but the matrices.
  BasisChange Begun(const ModelShape& shape, KvSide side, int64_t layer) const {
    BasisChange change;
    change.dim = DimOf(shape, side);
    change.heads = shape.kv_heads;
    const double share = shares_[static_cast<size_t>(side)];
    const auto rank = std::max<int64_t>(1, std::llround(share * static_cast<double>(change.dim)));
    change.kept.assign(static_cast<size_t>(shape.kv_heads), rank);
    if (const std::vector<float>* ranks = RanksOf(side, layer); ranks != nullptr) {
      change.kept.assign(ranks->begin(), ranks->end());
    }
    change.stored = *std::max_element(change.kept.begin(), change.kept.end());
    return change;
  }

  template <class NumberAt>
  static BasisChange::Matrices Packed(const BasisChange& change, const NumberAt& at) {
    auto packed = std::make_shared<std::vector<float>>();
    for (int64_t h = 0; h < change.heads; ++h) {
      for (int64_t row = 0; row < change.dim; ++row) {
        for (int64_t column = 0; column < change.width(h); ++column) {
          packed->push_back(at(h, row, column));
        }
      }
    }
    return packed;
  }

  std::array<double, 2> shares_;  // by side
  bool raw_;
  std::shared_ptr<const Calibration> calibration_;
};

// (I - A / 2)^-1 (I + A / 2) of A = X - X^T, [dim, dim]: orthogonal. In place.
void CayleyMap(std::vector<double>& x, int64_t dim) {
  const auto at = [&](std::vector<double>& m, int64_t i, int64_t j) -> double& {
    return m[static_cast<size_t>(i * dim + j)];
  };
  std::vector<double> left(x.size()), right(x.size());
  for (int64_t i = 0; i < dim; ++i) {
    for (int64_t j = 0; j < dim; ++j) {
      const double half = (at(x, i, j) - at(x, j, i)) / 2;
      at(left, i, j) = (i == j ? 1 : 0) - half;
      at(right, i, j) = (i == j ? 1 : 0) + half;
    }
  }
  // I - A / 2 has no eigenvalue below 1, as those of A are imaginary: elimination ends.
  for (int64_t c = 0; c < dim; ++c) {
    int64_t pivot = c;
    for (int64_t r = c + 1; r < dim; ++r) {
      if (std::abs(at(left, r, c)) > std::abs(at(left, pivot, c))) pivot = r;
    }
    for (int64_t j = 0; j < dim; ++j) {
      std::swap(at(left, c, j), at(left, pivot, j));
      std::swap(at(right, c, j), at(right, pivot, j));
    }
    for (int64_t r = 0; r < dim; ++r) {
      if (r == c) continue;
      const double factor = at(left, r, c) / at(left, c, c);
      if (factor == 0) continue;
      for (int64_t j = 0; j < dim; ++j) {
        at(left, r, j) -= factor * at(left, c, j);
        at(right, r, j) -= factor * at(right, c, j);
      }
    }
  }
  for (int64_t i = 0; i < dim; ++i) {
    for (int64_t j = 0; j < dim; ++j) at(x, i, j) = at(right, i, j) / at(left, i, i);
  }
}

// N of "...layers.N...."; none where there is no such part.
std::optional<int64_t> NumberedLayer(std::string_view name) {
  const size_t begin = name.find("layers.");
  if (begin == std::string_view::npos) return std::nullopt;
  const size_t digits = begin + 7, end = name.find('.', digits);
  if (end == std::string_view::npos || end == digits || end - digits > 6) return std::nullopt;
  int64_t number = 0;
  for (size_t i = digits; i < end; ++i) {
    if (name[i] < '0' || name[i] > '9') return std::nullopt;
    number = 10 * number + (name[i] - '0');
  }
  return number;
}

// The authors' unitary_transform_weight.bin: ...layers.N.self_attn.key_unitary_transform_weights
// and value_..., [heads, dim, dim], what the Cayley map makes orthogonal. Means, which stand beside
// them, cancel in keys; those of values are left out.
Result<CalibrationTables> ImportMatryoshka(const CalibrationTables& published) {
  CalibrationTables tables;
  for (const auto& [name, table] : published) {
    const bool keys = name.ends_with("key_unitary_transform_weights");
    if (!keys && !name.ends_with("value_unitary_transform_weights")) continue;
    const std::optional<int64_t> layer = NumberedLayer(name);
    if (!layer || table.shape.size() != 3 || table.shape[1] != table.shape[2]) {
      return BadInput(StrCat("'", name,
                             "': expected layers.N.self_attn.key_unitary_transform_weights, or "
                             "value_..., of [heads, dim, dim]"));
    }
    const int64_t dim = table.shape[1];
    CalibrationTable& own =
        tables[NestedTable(keys ? KvSide::kKeys : KvSide::kValues, *layer, ".there")];
    own.shape = table.shape;
    for (int64_t h = 0; h < table.shape[0]; ++h) {
      const auto begin = table.values.begin() + h * dim * dim;
      std::vector<double> matrix(begin, begin + dim * dim);
      CayleyMap(matrix, dim);
      for (const double v : matrix) own.values.push_back(static_cast<float>(v));
    }
  }
  if (!tables.empty()) return tables;
  return BadInput(
      "holds no tensor '...key_unitary_transform_weights'; expected the authors' "
      "unitary_transform_weight.bin, saved as safetensors");
}

KVG_REGISTER_STAGE({
    .kind = StageKind::kStore,
    .id = "matryoshka",
    .paper = "arXiv:2410.14731",
    .summary = "the first coordinates of each head in an orthogonal basis of its own",
    .departures = {"without a side-file the basis is the prompt's principal directions",
                   "heads keep as many coordinates as the side-file or the shares say; no search",
                   "means are not taken off values, nor off keys, where they cancel",
                   "attention of the prompt reads whole entries"},
    .bytes = "for each side: rank * bytes of the cache's type; bases dim * rank * 4 a head, once a "
             "model, or once a prompt where they are found in it",
    .params = {RealParam("key_rank", 0.5, 0.001, 1, "share of a key's numbers"),
               RealParam("value_rank", 0.5, 0.001, 1, "the same of values"),
               BoolParam("raw_keys", false, "bases are of keys before rotation"),
               CalibrationParam()},
    .make = Make<Matryoshka>(),
    .calibrate = MakeCalibrator<BasisCalibrator>,
    .calibrated_params = {"raw_keys"},
    .import = ImportMatryoshka,
});

}  // namespace
}  // namespace kvgauge
