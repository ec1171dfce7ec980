// SPDX-License-Identifier: Apache-2.0
// Entries that went through a transform coder: principal directions, bits where they tell most.
//
// Paper: KVTC, arXiv:2511.01815. Needs keys before rotation. Keys, and values, of all heads of a
// layer lose their mean and are turned into the principal directions of calibration texts, or,
// without a calibration, of the prompt. A search over all ways to put coordinates into groups and
// to give these bits finds the one that loses least in a budget. A saved cache holds the codes,
// coded by entropy. The first entries and the newest stay as they are.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "core/strings.h"
#include "methods/calibration.h"
#include "methods/layouts/basis_coded.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

int64_t SideWidth(const ModelShape& shape, KvSide side) {
  return shape.kv_heads * (side == KvSide::kKeys ? shape.key_dim : shape.value_dim);
}
std::string CoderTable(KvSide side, const char* what, int64_t layer) {
  return StrCat(side == KvSide::kKeys ? "keys." : "values.", what, ".", layer);
}

// Sums over entries, all heads side by side.
struct CoderSums {
  double count = 0;
  std::vector<double> sums, products;  // [width], [width, width]
};

// What makes up a side of the layout, in host memory.
struct CoderSide {
  std::vector<float> mean, basis, variances;
};

// rows x as columns: the mean of each, and the directions of what is left, the strongest first.
CoderSide DirectionsOf(Ops& ops, const CoderSums& of, int64_t width) {
  CoderSide side;
  std::vector<float> spread;
  const double count = std::max(of.count, 1.0);
  for (const double sum : of.sums) side.mean.push_back(static_cast<float>(sum / count));
  for (int64_t i = 0; i < width; ++i) {
    for (int64_t j = 0; j < width; ++j) {
      const double product = of.products[static_cast<size_t>(i * width + j)] / count;
      const double means =
          of.sums[static_cast<size_t>(i)] / count * (of.sums[static_cast<size_t>(j)] / count);
      spread.push_back(static_cast<float>(product - means));
    }
  }
  // Moves no direction; keeps what rounding leaves below 0 away.
  double trace = 0;
  for (int64_t i = 0; i < width; ++i) trace += spread[static_cast<size_t>(i * width + i)];
  const double lift = std::max(1e-6 * trace / static_cast<double>(width), 1e-12);
  for (int64_t i = 0; i < width; ++i) {
    spread[static_cast<size_t>(i * width + i)] += static_cast<float>(lift);
  }
  const Buffer memory = ops.memory->Allocate((2 * width * width + width) * SizeOf(DType::kF32));
  const Tensor all = memory.As(DType::kF32, {2 * width * width + width});
  const Tensor square = all.Slice(0, width * width).Reshape({width, width});
  const Tensor vectors = all.Slice(width * width, 2 * width * width).Reshape({width, width});
  const Tensor values = all.Slice(2 * width * width, all.shape[0]);
  ops.memory->Copy(View(spread, {width, width}), square);
  ops.algebra->Eigenvectors(square, values, vectors);
  const std::vector<float> directions = Fetch(ops, vectors);  // one a row
  side.variances = Fetch(ops, values);
  side.basis.resize(directions.size());
  for (int64_t i = 0; i < width; ++i) {
    for (int64_t j = 0; j < width; ++j) {
      side.basis[static_cast<size_t>(j * width + i)] =
          directions[static_cast<size_t>(i * width + j)];
    }
  }
  return side;
}

class Kvtc final : public Store {
 public:
  explicit Kvtc(const Params& params)
      : key_bits_(params.Real("key_bits")),
        value_bits_(params.Real("value_bits")),
        sinks_(params.Int("sinks")),
        recent_(params.Int("keep_recent")) {}

  Needs needs() const override { return {.raw_keys = true}; }

  void Use(std::shared_ptr<const Calibration> calibration) override {
    calibration_ = std::move(calibration);
  }

  Result<StorePlan> Plan(const ModelShape& shape, int64_t layer) const override {
    BasisCoded layout;
    layout.sinks = sinks_;
    layout.recent = recent_;
    if (calibration_ != nullptr) {
      for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
        const int64_t width = SideWidth(shape, side);
        const auto table = [&](const char* what, int64_t m, int64_t n) {
          const int64_t sizes[] = {m, n};
          return calibration_->Find(CoderTable(side, what, layer), sizes);
        };
        BasisCoded::Side& own = side == KvSide::kKeys ? layout.keys : layout.values;
        KVG_ASSIGN(own.mean, table("mean", 1, width));
        KVG_ASSIGN(own.basis, table("basis", width, width));
        KVG_ASSIGN(const Tensor variances, table("variances", 1, width));
        own.groups = BestGroups({variances.f32(), variances.f32() + width}, Budget(side, width));
      }
    }
    return PlanOf(std::move(layout), {.raw = shape.rotary_dim > 0});
  }

  void Calibrate(LayerView& view, StorePlan& plan) const override {
    if (calibration_ != nullptr) return;
    BasisCoded layout = *plan.Get<BasisCoded>();
    layout.keys = Found(view, KvSide::kKeys);
    layout.values = Found(view, KvSide::kValues);
    plan = PlanOf(std::move(layout), plan.turn);
  }

 private:
  int64_t Budget(KvSide side, int64_t width) const {
    const double bits = side == KvSide::kKeys ? key_bits_ : value_bits_;
    return std::llround(bits * static_cast<double>(width));
  }

  // What the prompt's entries themselves give.
  BasisCoded::Side Found(LayerView& view, KvSide side) const {
    Ops& ops = view.ops();
    const ModelShape& shape = view.shape();
    const int64_t width = SideWidth(shape, side), dim = width / shape.kv_heads;
    const int64_t n = *std::min_element(view.lengths().begin(), view.lengths().end());
    CoderSums sums;
    sums.sums.resize(static_cast<size_t>(width));
    sums.products.resize(static_cast<size_t>(width * width));
    if (n > 0) {
      const Tensor rows = view.Scratch(DType::kF32, {n, width});
      const Tensor columns = view.Scratch(DType::kF32, {width, n});
      for (int64_t h = 0; h < shape.kv_heads; ++h) {
        const Tensor own = side == KvSide::kValues ? view.Values(h)
                           : shape.rotary_dim > 0  ? view.RawKeys(h)
                                                   : view.Keys(h);
        ops.rows->Convert(own.Slice(0, n), Columns(rows, h * dim, (h + 1) * dim));
      }
      const Tensor unit = view.Scratch(DType::kF32, {width, width});
      ops.rows->Fill(0.0f, unit);
      ops.select->Scatter(AsColumn(Filled(view, width, 1.0f)),
                          Numbers(view, width, 0, static_cast<int32_t>(width) + 1),
                          AsColumn(unit.Reshape({width * width})));
      ops.linear->MatMulNT(unit.Reshape({1, width, width}), rows.Reshape({1, n, width}), 1.0f,
                           columns.Reshape({1, width, n}));
      const Tensor products = view.Scratch(DType::kF32, {width, width});
      ops.linear->MatMulNT(columns.Reshape({1, width, n}), columns.Reshape({1, width, n}), 1.0f,
                           products.Reshape({1, width, width}));
      const Tensor totals = view.Scratch(DType::kF32, {1, width});
      ops.rows->ReduceColumns(rows, Reduction::kSum, totals[0]);
      const std::vector<float> of_pairs = Fetch(ops, products), of_columns = Fetch(ops, totals);
      sums.count = static_cast<double>(n);
      sums.sums.assign(of_columns.begin(), of_columns.end());
      sums.products.assign(of_pairs.begin(), of_pairs.end());
    }
    const CoderSide found = DirectionsOf(ops, sums, width);
    BasisCoded::Side own;
    own.mean = view.Scratch(DType::kF32, {1, width});
    own.basis = view.Scratch(DType::kF32, {width, width});
    ops.memory->Copy(View(found.mean, {1, width}), own.mean);
    ops.memory->Copy(View(found.basis, {width, width}), own.basis);
    own.groups = BestGroups(found.variances, Budget(side, width));
    return own;
  }

  double key_bits_, value_bits_;
  int64_t sinks_, recent_;
  std::shared_ptr<const Calibration> calibration_;
};

class KvtcCalibrator final : public Calibrator {
 public:
  KvtcCalibrator(const Params&, const ModelShape& shape, std::span<const int64_t>)
      : shape_(shape), sums_(static_cast<size_t>(2 * shape.layers)) {}

  Needs needs(int) const override { return {.raw_keys = true}; }

  void Observe(int, LayerView& view) override {
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      const int64_t width = SideWidth(shape_, side), dim = width / shape_.kv_heads;
      CoderSums& of = Of(side, view.layer());
      of.sums.resize(static_cast<size_t>(width));
      of.products.resize(static_cast<size_t>(width * width));
      std::vector<std::vector<float>> heads;
      for (int64_t h = 0; h < shape_.kv_heads; ++h) {
        const Tensor rows = side == KvSide::kValues ? view.Values(h)
                            : shape_.rotary_dim > 0 ? view.RawKeys(h)
                                                    : view.Keys(h);
        heads.push_back(Fetch(view.ops(), rows));
      }
      const int64_t n = std::ssize(heads[0]) / dim;
      std::vector<double> row(static_cast<size_t>(width));
      for (int64_t t = 0; t < n; ++t) {
        for (int64_t c = 0; c < width; ++c) {
          row[static_cast<size_t>(c)] =
              heads[static_cast<size_t>(c / dim)][static_cast<size_t>(t * dim + c % dim)];
        }
        of.count += 1;
        for (int64_t i = 0; i < width; ++i) {
          of.sums[static_cast<size_t>(i)] += row[static_cast<size_t>(i)];
          for (int64_t j = 0; j < width; ++j) {
            of.products[static_cast<size_t>(i * width + j)] +=
                row[static_cast<size_t>(i)] * row[static_cast<size_t>(j)];
          }
        }
      }
    }
  }

  Calibration::Tables Finish(Ops& ops) override {
    Calibration::Tables tables;
    for (int64_t layer = 0; layer < shape_.layers; ++layer) {
      for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
        const int64_t width = SideWidth(shape_, side);
        CoderSide found = DirectionsOf(ops, Of(side, layer), width);
        tables[CoderTable(side, "mean", layer)] = {{1, width}, std::move(found.mean)};
        tables[CoderTable(side, "basis", layer)] = {{width, width}, std::move(found.basis)};
        tables[CoderTable(side, "variances", layer)] = {{1, width}, std::move(found.variances)};
      }
    }
    return tables;
  }

 private:
  CoderSums& Of(KvSide side, int64_t layer) {
    return sums_[static_cast<size_t>(2 * layer + static_cast<int64_t>(side))];
  }

  const ModelShape shape_;
  std::vector<CoderSums> sums_;  // [layers][sides]
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kStore,
    .id = "kvtc",
    .paper = "arXiv:2511.01815",
    .summary = "rounded in principal directions, small in a saved cache and whole in memory",
    .departures = {"layers stand alone; the paper joins all of them",
                   "without a calibration directions are those of the prompt",
                   "bits are chosen by the variances of coordinates, not by errors on texts",
                   "groups have 8 to 128 coordinates, the paper's 1 to 1,024",
                   "rANS with shares of each group of 256 tokens, in place of DEFLATE",
                   "a saved cache has the directions with it"},
    .bytes =
        "those of plain entries and of their codes, 4 bytes a group and 1 a coordinate that is "
        "kept; in a saved cache the entropy of the codes, their shares, and 4 bytes a group",
    .params = {RealParam("key_bits", 2, 0, 8, "budget of a key's number, scales included"),
               RealParam("value_bits", 2, 0, 8, "budget of a value's number, scales included"),
               IntParam("sinks", 4, 0, 4096, "first entries that stay as they are"),
               IntParam("keep_recent", 128, 0, 1 << 20, "newest entries that stay as they are"),
               CalibrationParam()},
    .make = Make<Kvtc>(),
    .calibrate = MakeCalibrator<KvtcCalibrator>,
});

}  // namespace
}  // namespace kvgauge
