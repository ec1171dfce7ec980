// SPDX-License-Identifier: Apache-2.0
// The score that KVzip would give an entry, predicted from the input of its layer's attention.
//
// Paper: KVzap, arXiv:2601.07891; after kvpress's KVzapPress. Needs the layers' inputs, in prefill
// and decode, and trained weights: one linear map for each layer, or two with a GELU between them.
// Scores are natural logs, as the published heads give them.
#include <algorithm>
#include <utility>

#include "core/strings.h"
#include "methods/gate_scorer.h"

namespace kvgauge {
namespace {

// A published head has this many times fewer inner numbers than the model.
constexpr int64_t kNarrower = 8;

std::string KvZapTable(int64_t layer, std::string_view part) {
  return StrCat("layers.", layer, ".", part);
}

class KvZapGate final : public Gate {
 public:
  explicit KvZapGate(const Params& params)
      : tables(params), mlp_(params.Text("kind") == "mlp"), inner_(params.Int("inner")) {}

  std::string key() const override {
    return StrCat("kvzap.", mlp_ ? "mlp" : "linear", ".", inner_, ".", tables.key());
  }

  int64_t Inner(const ModelShape& shape) const {
    return inner_ > 0 ? inner_ : std::max<int64_t>(shape.hidden_size / kNarrower, 1);
  }

  GateTables::Dims DimsOf(const ModelShape& shape) const {
    GateTables::Dims dims;
    for (int64_t layer = 0; layer < shape.layers; ++layer) {
      const int64_t hidden = shape.hidden_size, heads = shape.kv_heads, inner = Inner(shape);
      if (!mlp_) {
        dims[KvZapTable(layer, "weight")] = {heads, hidden};
        dims[KvZapTable(layer, "bias")] = {heads};
        continue;
      }
      dims[KvZapTable(layer, "0.weight")] = {inner, hidden};
      dims[KvZapTable(layer, "0.bias")] = {inner};
      dims[KvZapTable(layer, "2.weight")] = {heads, inner};
      dims[KvZapTable(layer, "2.bias")] = {heads};
    }
    return dims;
  }

  std::unique_ptr<LoadedGate> Load(const ModelShape& shape, Ops& ops) const override;
  int64_t PlannedBytes(const ModelShape& shape) const override {
    return GateTables::Bytes(DimsOf(shape));
  }

  GateTables tables;

 private:
  const bool mlp_;
  const int64_t inner_;
};

class LoadedKvZap final : public LoadedGate {
 public:
  LoadedKvZap(Ops& ops, bool mlp) : ops_(ops), mlp_(mlp) {}

  void Add(const std::vector<float>& weight, const std::vector<float>& bias, int64_t out,
           int64_t in) {
    Map& map = maps_.emplace_back();
    const Tensor rows = View(weight, {out, in});
    map.weight = ops_.linear->Pack({&rows, 1}, DType::kF32);
    map.bias = ops_.memory->Allocate(out * 4);
    map.out = out;
    ops_.memory->Copy(View(bias, {out}), map.bias.As(DType::kF32, {out}));
    bytes_ += (out * in + out) * 4;
  }

  void Fold(int64_t layer, const Tensor& x, Tensor out) override {
    if (!mlp_) return Apply(maps_[static_cast<size_t>(layer)], x, out);
    const Map& first = maps_[static_cast<size_t>(2 * layer)];
    const int64_t rows = x.shape[0], bytes = rows * first.out * 4;
    if (inner_.size_bytes() < bytes) inner_ = ops_.memory->Allocate(bytes);
    const Tensor inner = inner_.As(DType::kF32, {rows, first.out});
    Apply(first, x, inner);
    ops_.rows->Activate(inner, Activation::kGelu, inner);
    Apply(maps_[static_cast<size_t>(2 * layer + 1)], inner, out);
  }

  int64_t bytes() const override { return bytes_; }

 private:
  struct Map {
    std::unique_ptr<PackedMatrix> weight;
    Buffer bias;
    int64_t out = 0;
  };
  void Apply(const Map& map, const Tensor& x, Tensor out) {
    ops_.linear->MatMul(x, *map.weight, map.bias.As(DType::kF32, {map.out}), MatMulMode::kSet, out);
  }

  Ops& ops_;
  const bool mlp_;
  std::vector<Map> maps_;  // one or two for each layer
  Buffer inner_;
  int64_t bytes_ = 0;
};

std::unique_ptr<LoadedGate> KvZapGate::Load(const ModelShape& shape, Ops& ops) const {
  auto loaded = std::make_unique<LoadedKvZap>(ops, mlp_);
  const GateTables::Dims dims = DimsOf(shape);
  const auto add = [&](int64_t layer, std::string_view part) {
    const std::string weight = KvZapTable(layer, StrCat(part, "weight"));
    const std::string bias = KvZapTable(layer, StrCat(part, "bias"));
    const std::vector<int64_t>& of = dims.at(weight);
    loaded->Add(tables.Read(weight, of), tables.Read(bias, dims.at(bias)), of[0], of[1]);
  };
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    if (!mlp_) {
      add(layer, "");
    } else {
      add(layer, "0.");
      add(layer, "2.");
    }
  }
  return loaded;
}

class KvZap final : public GateScorer {
 public:
  explicit KvZap(const Params& params) : gate_(std::make_shared<KvZapGate>(params)) { Set(gate_); }

  void Use(std::shared_ptr<const Calibration> calibration) override {
    gate_->tables.Use(std::move(calibration));
  }
  Status Check(const ModelShape& shape) const override {
    return gate_->tables.Check(gate_->DimsOf(shape));
  }

 private:
  std::shared_ptr<KvZapGate> gate_;
};

// The published heads have these names already.
Result<Calibration::Tables> ImportKvZap(const Calibration::Tables& published) { return published; }

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "kvzap",
    .paper = "arXiv:2601.07891",
    .summary = "KVzip's score, predicted from the input of the entry's layer",
    .bytes =
        "4 bytes a weight of its gate, once a model; with a trigger in decode 4 bytes an entry",
    .params = GateTables::Declare(
        {ChoiceParam("kind", "mlp", {"mlp", "linear"}, "two maps with a GELU between them, or one"),
         IntParam("inner", 0, 0, 1 << 16, "numbers between the two; 0: an eighth of the model's")}),
    .make = Make<KvZap>(),
    .calibrated_params = {"kind", "inner"},
    .import = ImportKvZap,
});

}  // namespace
}  // namespace kvgauge
