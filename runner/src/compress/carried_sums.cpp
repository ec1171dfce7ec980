// SPDX-License-Identifier: Apache-2.0
#include "src/compress/carried_sums.h"

#include <algorithm>

#include "methods/tensors.h"

namespace kvgauge {

CarriedSums::CarriedSums(const ModelShape& shape, const Needs& needs, const LayerDevices& devices)
    : shape_(shape), devices_(devices), gates_(needs.gates) {
  const auto layers = static_cast<size_t>(shape.layers);
  if (needs.column_sums) sums_.resize(layers);
  if (needs.column_squares) squares_.resize(layers);
  gate_scores_.resize(gates_.size());
  for (std::vector<Sums>& of_gate : gate_scores_) of_gate.resize(layers);
}

void CarriedSums::GiveTo(PrefillCapture& capture) const {
  const auto give = [&](size_t layer, const Sums& from, const Tensor& to) {
    if (from.width == 0) return;
    const Tensor before = from.memory.As(DType::kF32, {shape_.query_heads, from.width});
    devices_.of(static_cast<int64_t>(layer)).rows->Convert(before, Columns(to, 0, from.width));
  };
  for (size_t layer = 0; layer < sums_.size(); ++layer) {
    give(layer, sums_[layer], capture.ColumnSums(static_cast<int64_t>(layer)));
  }
  for (size_t layer = 0; layer < squares_.size(); ++layer) {
    give(layer, squares_[layer], capture.ColumnSquares(static_cast<int64_t>(layer)));
  }
  for (size_t g = 0; g < gates_.size(); ++g) {
    for (size_t layer = 0; layer < gate_scores_[g].size(); ++layer) {
      const Sums& from = gate_scores_[g][layer];
      if (from.width == 0) continue;
      capture.GiveGateScores(*gates_[g].gate, static_cast<int64_t>(layer),
                             from.memory.As(DType::kF32, {shape_.kv_heads, from.width}));
    }
  }
}

void CarriedSums::Take(const PrefillCapture& capture, int64_t layer,
                       std::span<const HeadPlan> plan) {
  const auto index = static_cast<size_t>(layer);
  if (!sums_.empty()) Keep(devices_.of(layer), capture.ColumnSums(layer), plan, sums_[index]);
  if (!squares_.empty())
    Keep(devices_.of(layer), capture.ColumnSquares(layer), plan, squares_[index]);
  for (size_t g = 0; g < gates_.size(); ++g) {
    Ops& ops = devices_.of(layer);
    const Tensor before = capture.GateScoresBefore(*gates_[g].gate, layer);
    const Tensor own = capture.GateScores(*gates_[g].gate, layer);
    const int64_t held = before.empty() ? 0 : before.shape[1], width = held + own.shape[1];
    const Buffer memory = ops.memory->Allocate(shape_.kv_heads * width * 4);
    const Tensor all = memory.As(DType::kF32, {shape_.kv_heads, width});
    if (held > 0) ops.rows->Convert(before, Columns(all, 0, held));
    ops.rows->Convert(own, Columns(all, held, width));
    Keep(ops, all, plan, gate_scores_[g][index]);
  }
}

// all: [query_heads, width], or of KV heads.
void CarriedSums::Keep(Ops& ops, const Tensor& all, std::span<const HeadPlan> plan, Sums& kept) {
  int64_t width = plan.empty() ? all.shape[1] : 0;
  for (const HeadPlan& head : plan) width = std::max(width, head.keep.Numel());
  Buffer memory = ops.memory->Allocate(std::max<int64_t>(all.shape[0] * width, 1) * 4);
  const Tensor left = memory.As(DType::kF32, {all.shape[0], width});
  if (plan.empty()) {
    ops.rows->Convert(all, left);
  } else {
    const int64_t group = all.shape[0] / std::ssize(plan);
    for (int64_t q = 0; q < all.shape[0]; ++q) {
      const Tensor& keep = plan[static_cast<size_t>(q / group)].keep;
      const int64_t count = keep.Numel();
      if (count > 0) ops.select->Gather(AsColumn(all[q]), keep, AsColumn(left[q].Slice(0, count)));
    }
  }
  kept = {std::move(memory), width};
}

int64_t CarriedSums::bytes() const {
  int64_t bytes = 0;
  for (const auto* all : {&sums_, &squares_}) {
    for (const Sums& sums : *all) bytes += sums.memory.size_bytes();
  }
  for (const std::vector<Sums>& of_gate : gate_scores_) {
    for (const Sums& sums : of_gate) bytes += sums.memory.size_bytes();
  }
  return bytes;
}

}  // namespace kvgauge
