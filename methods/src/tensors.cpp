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

Buffer CopyOf(const Buffer& buffer, Ops& ops) {
  const int64_t bytes = buffer.size_bytes();
  if (bytes == 0) return {};
  Buffer copy = ops.memory->Allocate(bytes);
  ops.memory->Copy(buffer.As(DType::kU8, {bytes}), copy.As(DType::kU8, {bytes}));
  return copy;
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

Tensor Spread(LayerView& view, const Tensor& column, int64_t w) {
  const int64_t m = column.shape[0];
  const Tensor out = view.Scratch(DType::kF32, {m, w});
  view.ops().linear->MatMulNN(column.Reshape({1, m, 1}), Filled(view, w, 1.0f).Reshape({1, 1, w}),
                              1.0f, out.Reshape({1, m, w}));
  return out;
}

Tensor MarkBest(LayerView& view, const Tensor& rows) {
  RowOps& ops = *view.ops().rows;
  const int64_t m = rows.shape[0], w = rows.shape[1];
  const Tensor best = view.Scratch(DType::kF32, {m}), marks = view.Scratch(DType::kF32, {m, w});
  ops.ReduceRows(rows, Reduction::kMax, best);
  ops.Combine(rows, Spread(view, best, w), Binary::kLess, marks);
  ops.Affine(marks, -1.0f, 1.0f, marks);
  // They count w at the first place, w - 1 at the second and so on.
  const Tensor falling = view.Scratch(DType::kF32, {1, w});
  ops.Convert(Numbers(view, w, static_cast<int32_t>(w), -1).Reshape({1, w}), falling);
  ops.Combine(marks, falling[0], Binary::kMultiply, marks);
  ops.ReduceRows(marks, Reduction::kMax, best);
  ops.Combine(marks, Spread(view, best, w), Binary::kLess, marks);
  ops.Affine(marks, -1.0f, 1.0f, marks);
  return marks;
}

int64_t CountForced(LayerView& view, const Tensor& scores) {
  const int64_t n = scores.shape[1];
  const Tensor forced = view.Scratch(DType::kF32, {1, n}), count = view.Scratch(DType::kF32, {1});
  view.ops().rows->Combine(Filled(view, n, kForcedFrom).Reshape({1, n}), scores, Binary::kLess,
                           forced);
  view.ops().rows->ReduceRows(forced, Reduction::kSum, count);
  return static_cast<int64_t>(Fetch(view.ops(), count)[0]);
}

Tensor Numbers(LayerView& view, int64_t n, int32_t first, int32_t step) {
  std::vector<int32_t> numbers(static_cast<size_t>(n));
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = first + static_cast<int32_t>(i) * step;
  return Upload(view, std::span<const int32_t>(numbers));
}

}  // namespace kvgauge
