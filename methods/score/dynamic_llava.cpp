// SPDX-License-Identifier: Apache-2.0
// A trained predictor says of each decoded token whether later ones may attend to it.
//
// Paper: Dynamic-LLaVA, arXiv:2412.00876, its second half; after Osilly/dynamic_llava. The
// predictor reads the row of a decoded token as it enters a layer: a norm and four maps make two
// numbers, for staying and against. From that layer on every head holds the token's entry if the
// first is larger; the token itself attends to it either way. Entries that stay score 1, others 0,
// so reduce.threshold at 0.5 with trigger.every_step does what the reference does. Needs the rows
// that enter the layer, in decode.
#include <memory>
#include <string>

#include "core/strings.h"
#include "methods/named_maps.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

constexpr char kTextPredictorPrefix[] = "model.output_text_score_predictor.";

class LoadedTokenGate final : public LoadedGate {
 public:
  LoadedTokenGate(const GateTables& tables, const GateTables::Dims& dims, int64_t width, Ops& ops)
      : maps_(tables, dims, ops), width_(width), bytes_(GateTables::Bytes(dims)), ops_(ops) {}

  // The number for staying less the one against, for every head.
  void Fold(int64_t, const Tensor& x, Tensor out) override {
    const int64_t rows = x.shape[0], hidden = x.shape[1];
    const int64_t numbers = rows * (hidden + 2 * width_ + 2);
    if (memory_.size_bytes() < numbers * 4) memory_ = ops_.memory->Allocate(numbers * 4);
    const Tensor all = memory_.As(DType::kF32, {numbers});
    int64_t used = 0;
    const auto next = [&](int64_t columns) {
      used += rows * columns;
      return all.Slice(used - rows * columns, used).Reshape({rows, columns});
    };
    const Tensor normed = next(hidden), wide = next(width_), half = next(width_ / 2);
    const Tensor quarter = next(width_ / 4), logits = next(2);
    maps_.Norm("output_mlp.0", x, normed);
    maps_.MapGelu("output_mlp.1", normed, wide);
    maps_.MapGelu("output_mlp.3", wide, half);
    maps_.MapGelu("output_mlp.5", half, quarter);
    maps_.Map("output_mlp.7", quarter, MatMulMode::kSet, logits);
    for (int64_t h = 0; h < out.shape[1]; ++h) {
      ops_.rows->Combine(Columns(logits, 0, 1), Columns(logits, 1, 2), Binary::kSubtract,
                         Columns(out, h, h + 1));
    }
  }

  int64_t bytes() const override { return bytes_; }

 private:
  const NamedMaps maps_;
  const int64_t width_, bytes_;
  Ops& ops_;
  Buffer memory_;
};

class TokenGate final : public Gate {
 public:
  explicit TokenGate(const Params& params)
      : tables(params), layer_(params.Int("layer")), width_(params.Int("width")) {}

  std::string key() const override {
    return StrCat("dynamic_llava.", layer_, ".", width_, ".", tables.key());
  }
  GateTables::Dims DimsOf(const ModelShape& shape) const {
    GateTables::Dims dims;
    const auto map = [&](int64_t at, int64_t out, int64_t in) {
      dims[StrCat("output_mlp.", at, ".weight")] = {out, in};
      dims[StrCat("output_mlp.", at, ".bias")] = {out};
    };
    dims["output_mlp.0.weight"] = dims["output_mlp.0.bias"] = {shape.hidden_size};
    map(1, width_, shape.hidden_size);
    map(3, width_ / 2, width_);
    map(5, width_ / 4, width_ / 2);
    map(7, 2, width_ / 4);
    return dims;
  }
  std::unique_ptr<LoadedGate> Load(const ModelShape& shape, Ops& ops) const override {
    return std::make_unique<LoadedTokenGate>(tables, DimsOf(shape), width_, ops);
  }
  int64_t PlannedBytes(const ModelShape& shape) const override {
    return GateTables::Bytes(DimsOf(shape));
  }
  int64_t rows_of() const override { return layer_; }

  Status Check(const ModelShape& shape) const {
    if (width_ % 4 != 0) {
      return BadInput(StrCat("width is ", width_, "; expected a multiple of 4"));
    }
    if (layer_ >= shape.layers) {
      return BadInput(StrCat("layer is ", layer_, ", and the model has ", shape.layers,
                             " layers; expected 0 .. ", shape.layers - 1));
    }
    return tables.Check(DimsOf(shape));
  }

  GateTables tables;

 private:
  const int64_t layer_, width_;
};

class DynamicLlavaTokens final : public Scorer {
 public:
  explicit DynamicLlavaTokens(const Params& params) : gate_(std::make_shared<TokenGate>(params)) {}

  Needs needs() const override { return {.step_gates = {{gate_}}}; }
  bool any_time() const override { return true; }
  void Use(std::shared_ptr<const Calibration> calibration) override {
    gate_->tables.Use(std::move(calibration));
  }
  Status Check(const ModelShape& shape) const override { return gate_->Check(shape); }

  void Score(LayerView& view, Tensor out) const override {
    RowOps& ops = *view.ops().rows;
    const bool judges = view.decoding() && view.layer() >= gate_->rows_of();
    for (int64_t h = 0; h < out.shape[0]; ++h) {
      const int64_t n = view.lengths()[static_cast<size_t>(h)];
      if (n == 0) continue;
      const Tensor own = out.Slice(h, h + 1);
      ops.Fill(1.0f, Columns(own, 0, n));
      if (!judges) continue;
      const Tensor newest = view.GateScores(*gate_).Slice(h, h + 1);  // [1, 1]
      ops.Combine(view.Scratch(DType::kF32, {1, 1}), newest, Binary::kLess, Columns(own, n - 1, n));
    }
  }

 private:
  std::shared_ptr<TokenGate> gate_;
};

Result<Calibration::Tables> ImportTextPredictor(const Calibration::Tables& published) {
  return TablesUnder(kTextPredictorPrefix, published);
}

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "dynamic_llava",
    .paper = "arXiv:2412.00876",
    .summary = "1 for entries that a trained predictor keeps when they are decoded, and for all of "
               "the prompt, else 0",
    .departures =
        {"tokens of later turns stay; the reference can train a predictor for them, which "
         "its scripts leave out"},
    .bytes = "4 bytes a weight of its predictor, once a model",
    .params = GateTables::Declare(
        {IntParam("layer", 2, 0, 1 << 16, "the first layer that does without tokens"),
         IntParam("width", 512, 4, 1 << 16, "numbers of a row in the predictor")}),
    .make = Make<DynamicLlavaTokens>(),
    .calibrated_params = {"width"},
    .import = ImportTextPredictor,
});

}  // namespace
}  // namespace kvgauge
