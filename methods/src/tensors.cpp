// SPDX-License-Identifier: Apache-2.0
#include "methods/tensors.h"

namespace kvgauge {

Tensor Upload(LayerView& view, std::span<const int32_t> values) {
  const auto n = static_cast<int64_t>(values.size());
  Tensor out = view.Scratch(DType::kI32, {n});
  if (n > 0) view.ops().memory->Copy(View(values, {n}), out);
  return out;
}

Tensor Upload(LayerView& view, std::span<const float> values) {
  const auto n = static_cast<int64_t>(values.size());
  Tensor out = view.Scratch(DType::kF32, {n});
  if (n > 0) view.ops().memory->Copy(View(values, {n}), out);
  return out;
}

std::vector<float> Fetch(Ops& ops, const Tensor& values) {
  std::vector<float> out(static_cast<size_t>(values.Numel()));
  if (out.empty()) return out;
  const int64_t n = values.Numel();
  ops.memory->Copy(values.Reshape({n}), View(out, {n}));
  ops.memory->Synchronize();
  return out;
}

Tensor Best(LayerView& view, const Tensor& scores, int64_t count) {
  const auto number = static_cast<int32_t>(count);
  Tensor index = view.Scratch(DType::kI32, {count});
  view.ops().select->TopK(scores, Upload(view, std::span(&number, 1)), index.Reshape({1, count}));
  return index;
}

Tensor Filled(LayerView& view, int64_t n, float value) {
  Tensor out = view.Scratch(DType::kF32, {1, n});
  view.ops().rows->Fill(value, out);
  return out.Reshape({n});
}

void ScoreText(LayerView& view, int64_t head, const Tensor& out) {
  RowOps& rows = *view.ops().rows;
  const int64_t n = out.shape[1];
  rows.Convert(view.Positions(head).Reshape({1, n}), out);
  rows.Affine(out, 1.0f, 1.0f, out);
  rows.Combine(out, view.OfModality(Modality::kText, head).Reshape({1, n}), Binary::kMultiply, out);
}

void Gumbel(LayerView& view, uint64_t stream, const Tensor& positions, const Tensor& out) {
  RowOps& ops = *view.ops().rows;
  ops.Uniform(view.seed(), stream, positions, out);
  const Tensor row = out.Reshape({1, out.shape[0]});
  for (int i = 0; i < 2; ++i) {
    ops.Activate(row, Activation::kLog, row);
    ops.Affine(row, -1.0f, 0.0f, row);
  }
}

Tensor Complement(LayerView& view, const Tensor& keep, int64_t length) {
  const int64_t rest = length - keep.shape[0];
  Tensor free = Filled(view, length, 1.0f);
  view.ops().select->Scatter(view.Scratch(DType::kF32, {keep.shape[0], 1}), keep, AsColumn(free));
  if (rest == 0) return view.Scratch(DType::kI32, {0});
  return Best(view, free.Reshape({1, length}), rest);
}

}  // namespace kvgauge
