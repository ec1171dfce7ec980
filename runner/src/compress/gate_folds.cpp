// SPDX-License-Identifier: Apache-2.0
#include "src/compress/gate_folds.h"

#include <algorithm>

#include "methods/tensors.h"

namespace kvgauge {
namespace {

Tensor Grown(Ops& ops, Buffer& memory, int64_t rows, int64_t columns) {
  const int64_t bytes = rows * columns * 4;
  if (memory.size_bytes() < bytes) memory = ops.memory->Allocate(bytes);
  return memory.As(DType::kF32, {rows, columns});
}

}  // namespace

GateFolds::GateFolds(const ModelConfig& config, const ModelShape& shape,
                     std::span<const GateNeed> gates, int64_t rows, Ops& ops)
    : config_(config), kv_heads_(shape.kv_heads), rows_(rows), ops_(ops) {
  for (const GateNeed& need : gates) {
    gates_.push_back({.gate = need.gate,
                      .loaded = need.gate->Load(shape, ops),
                      .numbers = ops.memory->Allocate(config.layer_count() * kv_heads_ *
                                                      std::max<int64_t>(rows, 1) * 4)});
  }
  if (gates_.empty()) return;
  std::vector<float> unit(static_cast<size_t>(kv_heads_ * kv_heads_));
  for (int64_t h = 0; h < kv_heads_; ++h) unit[static_cast<size_t>(h * kv_heads_ + h)] = 1.0f;
  const Tensor to = Grown(ops, unit_, kv_heads_, kv_heads_);
  ops.memory->Copy(View(unit, {kv_heads_, kv_heads_}), to);
}

void GateFolds::Fold(int64_t layer, const Tensor& x, int64_t at) {
  if (gates_.empty()) return;
  const int64_t rows = x.shape[0];
  Tensor wide = x;
  if (x.dtype != DType::kF32) {
    wide = Grown(ops_, wide_, rows, x.shape[1]);
    ops_.rows->Convert(x, wide);
  }
  // What a gate gives, and the same by head.
  const Tensor both = Grown(ops_, part_, 2, rows * kv_heads_);
  const Tensor part = both[0].Reshape({rows, kv_heads_});
  const Tensor across = both[1].Reshape({kv_heads_, rows});
  for (Folded& folded : gates_) {
    const int64_t only = folded.gate->rows_of();
    if (only >= 0 && only != layer) continue;
    folded.loaded->Fold(layer, wide, part);
    // The identity times them transposed: exactly they, with rows and columns exchanged.
    ops_.linear->MatMulNT(unit_.As(DType::kF32, {1, kv_heads_, kv_heads_}),
                          part.Reshape({1, rows, kv_heads_}), 1.0f,
                          across.Reshape({1, kv_heads_, rows}));
    ops_.rows->Convert(across, Columns(Of(*folded.gate, layer), at, at + rows));
  }
}

size_t GateFolds::IndexOf(const Gate& gate) const {
  const auto found = std::find_if(gates_.begin(), gates_.end(), [&](const Folded& folded) {
    return folded.gate->key() == gate.key();
  });
  KVG_CHECK(found != gates_.end(), "no stage declared this gate");
  return static_cast<size_t>(found - gates_.begin());
}

Tensor GateFolds::Of(const Gate& gate, int64_t layer) const {
  return gates_[IndexOf(gate)].numbers.As(DType::kF32,
                                          {config_.layer_count(), kv_heads_, rows_})[layer];
}

void GateFolds::Give(const Gate& gate, int64_t layer, const Tensor& before) {
  Given& given = gates_[IndexOf(gate)].before[layer];
  given = {ops_.memory->Allocate(before.Numel() * 4), before.shape[1]};
  ops_.rows->Convert(before, given.numbers.As(DType::kF32, {kv_heads_, given.entries}));
}

Tensor GateFolds::Before(const Gate& gate, int64_t layer) const {
  const std::map<int64_t, Given>& before = gates_[IndexOf(gate)].before;
  const auto found = before.find(layer);
  if (found == before.end()) return {};
  return found->second.numbers.As(DType::kF32, {kv_heads_, found->second.entries});
}

int64_t GateFolds::bytes() const {
  int64_t bytes = wide_.size_bytes() + part_.size_bytes() + unit_.size_bytes() + weight_bytes();
  for (const Folded& folded : gates_) {
    bytes += folded.numbers.size_bytes();
    for (const auto& [layer, given] : folded.before) bytes += given.numbers.size_bytes();
  }
  return bytes;
}

int64_t GateFolds::weight_bytes() const {
  int64_t bytes = 0;
  for (const Folded& folded : gates_) bytes += folded.loaded->bytes();
  return bytes;
}

}  // namespace kvgauge
