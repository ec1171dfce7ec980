// SPDX-License-Identifier: Apache-2.0
#include "methods/mlp_gate.h"

#include <algorithm>
#include <array>
#include <span>
#include <tuple>
#include <utility>

#include "core/strings.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

// A published head has this many times fewer inner numbers than the model.
constexpr int64_t kNarrower = 8;

// x becomes log(1 / (1 + e^-x)) to f32's precision: min(x, 0) - log(1 + t) with t = e^-|x|, where
// log(1 + t) is 2 artanh(t / (2 + t)). x, spare[i]: [rows, columns], contiguous.
void LogSigmoid(RowOps& ops, const Tensor& x, std::span<const Tensor, 3> spare) {
  const auto& [z, square, sum] = std::tie(spare[0], spare[1], spare[2]);
  ops.Affine(x, -1.0f, 0.0f, z);
  ops.Combine(x, z, Binary::kMax, z);  // |x|
  ops.Combine(x, z, Binary::kSubtract, x);
  ops.Affine(x, 0.5f, 0.0f, x);  // min(x, 0)
  ops.Affine(z, -1.0f, 0.0f, z);
  ops.Activate(z, Activation::kExp, z);
  ops.Affine(z, 1.0f, 2.0f, sum);
  ops.Combine(z, sum, Binary::kDivide, z);
  ops.Combine(z, z, Binary::kMultiply, square);
  ops.Fill(1.0f / 15, sum);
  for (int power = 13; power >= 1; power -= 2) {
    ops.Combine(sum, square, Binary::kMultiply, sum);
    ops.Affine(sum, 1.0f, 1.0f / static_cast<float>(power), sum);
  }
  ops.Combine(sum, z, Binary::kMultiply, sum);
  ops.Affine(sum, 2.0f, 0.0f, sum);
  ops.Combine(x, sum, Binary::kSubtract, x);
}

class LoadedMlp final : public LoadedGate {
 public:
  LoadedMlp(Ops& ops, const MlpGate::Form& form)
      : ops_(ops),
        one_map_(form.one_map),
        log_sigmoid_(form.log_sigmoid),
        activation_(form.activation) {}

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
    if (!log_sigmoid_) return Number(layer, x, out);
    const int64_t rows = x.shape[0], heads = out.shape[1], count = rows * heads;
    if (logs_.size_bytes() < 4 * count * 4) logs_ = ops_.memory->Allocate(4 * count * 4);
    const Tensor all = logs_.As(DType::kF32, {4 * rows, heads});
    const Tensor numbers = all.Slice(0, rows);
    const std::array spare = {all.Slice(rows, 2 * rows), all.Slice(2 * rows, 3 * rows),
                              all.Slice(3 * rows, 4 * rows)};
    Number(layer, x, numbers);
    LogSigmoid(*ops_.rows, numbers, spare);
    ops_.rows->Convert(numbers, out);
  }

  int64_t bytes() const override { return bytes_; }

 private:
  void Number(int64_t layer, const Tensor& x, Tensor out) {
    if (one_map_) return Apply(maps_[static_cast<size_t>(layer)], x, out);
    const Map& first = maps_[static_cast<size_t>(2 * layer)];
    const int64_t rows = x.shape[0], bytes = rows * first.out * 4;
    if (inner_.size_bytes() < bytes) inner_ = ops_.memory->Allocate(bytes);
    const Tensor inner = inner_.As(DType::kF32, {rows, first.out});
    Apply(first, x, inner);
    ops_.rows->Activate(inner, activation_, inner);
    Apply(maps_[static_cast<size_t>(2 * layer + 1)], inner, out);
  }

  struct Map {
    std::unique_ptr<PackedMatrix> weight;
    Buffer bias;
    int64_t out = 0;
  };
  void Apply(const Map& map, const Tensor& x, Tensor out) {
    ops_.linear->MatMul(x, *map.weight, map.bias.As(DType::kF32, {map.out}), MatMulMode::kSet, out);
  }

  Ops& ops_;
  const bool one_map_, log_sigmoid_;
  const Activation activation_;
  std::vector<Map> maps_;  // one or two for each layer
  Buffer inner_, logs_;
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
  auto loaded = std::make_unique<LoadedMlp>(ops, form_);
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
