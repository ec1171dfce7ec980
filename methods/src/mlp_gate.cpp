// SPDX-License-Identifier: Apache-2.0
#include "methods/mlp_gate.h"

#include <algorithm>
#include <utility>

#include "core/strings.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

// A published head has this many times fewer inner numbers than the model.
constexpr int64_t kNarrower = 8;

class LoadedMlp final : public LoadedGate {
 public:
  LoadedMlp(Ops& ops, bool one_map, Activation activation)
      : ops_(ops), one_map_(one_map), activation_(activation) {}

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
    if (one_map_) return Apply(maps_[static_cast<size_t>(layer)], x, out);
    const Map& first = maps_[static_cast<size_t>(2 * layer)];
    const int64_t rows = x.shape[0], bytes = rows * first.out * 4;
    if (inner_.size_bytes() < bytes) inner_ = ops_.memory->Allocate(bytes);
    const Tensor inner = inner_.As(DType::kF32, {rows, first.out});
    Apply(first, x, inner);
    ops_.rows->Activate(inner, activation_, inner);
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
  const bool one_map_;
  const Activation activation_;
  std::vector<Map> maps_;  // one or two for each layer
  Buffer inner_;
  int64_t bytes_ = 0;
};

}  // namespace

std::string MlpGate::Table(int64_t layer, std::string_view part) {
  return StrCat("layers.", layer, ".", part);
}

std::string MlpGate::key() const {
  return StrCat(form_.name, ".", form_.one_map ? "linear" : "mlp", ".", form_.inner, ".",
                tables.key());
}

GateTables::Dims MlpGate::DimsOf(const ModelShape& shape) const {
  GateTables::Dims dims;
  const int64_t hidden = shape.hidden_size, heads = shape.kv_heads;
  const int64_t inner = form_.inner > 0 ? form_.inner : std::max<int64_t>(hidden / kNarrower, 1);
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    if (form_.one_map) {
      dims[Table(layer, "weight")] = {heads, hidden};
      dims[Table(layer, "bias")] = {heads};
      continue;
    }
    dims[Table(layer, "0.weight")] = {inner, hidden};
    dims[Table(layer, "0.bias")] = {inner};
    dims[Table(layer, "2.weight")] = {heads, inner};
    dims[Table(layer, "2.bias")] = {heads};
  }
  return dims;
}

std::unique_ptr<LoadedGate> MlpGate::Load(const ModelShape& shape, Ops& ops) const {
  auto loaded = std::make_unique<LoadedMlp>(ops, form_.one_map, form_.activation);
  const GateTables::Dims dims = DimsOf(shape);
  const auto add = [&](int64_t layer, std::string_view part) {
    const std::string weight = Table(layer, StrCat(part, "weight"));
    const std::string bias = Table(layer, StrCat(part, "bias"));
    const std::vector<int64_t>& of = dims.at(weight);
    loaded->Add(tables.Read(weight, of), tables.Read(bias, dims.at(bias)), of[0], of[1]);
  };
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    if (form_.one_map) {
      add(layer, "");
    } else {
      add(layer, "0.");
      add(layer, "2.");
    }
  }
  return loaded;
}

}  // namespace kvgauge
