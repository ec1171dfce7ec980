// SPDX-License-Identifier: Apache-2.0
#include "methods/joining_reader.h"

#include <algorithm>
#include <cmath>

#include "methods/repeating_view.h"
#include "methods/tensors.h"

namespace kvgauge {

void JoinSoftmax(LayerView& view, const Tensor& log_sum_exp, const Tensor& logits,
                 const Tensor& values, const Tensor& result) {
  JoinSoftmax(view, log_sum_exp, logits, logits.shape[1], values, result);
}

void JoinSoftmax(LayerView& view, const Tensor& log_sum_exp, const Tensor& logits, int64_t count,
                 const Tensor& values, const Tensor& result) {
  Ops& ops = view.ops();
  RowOps& row_ops = *ops.rows;
  const int64_t rows = logits.shape[0], n = logits.shape[1], dim = values.shape[1];
  const Tensor other = view.Scratch(DType::kF32, {rows, dim});
  const Tensor sums = view.Scratch(DType::kF32, {rows});
  const Tensor own = Columns(logits, 0, count);
  row_ops.LogSumExp(own, sums);
  row_ops.Softmax(own, 1.0f, own);
  row_ops.FillColumns(0.0f, count, n, logits);
  ops.linear->MatMulNN(logits.Reshape({1, rows, n}), values.Reshape({1, n, dim}), 1.0f,
                       other.Reshape({1, rows, dim}));
  JoinResults(view, log_sum_exp, sums, other, result);
}

void JoinResults(LayerView& view, const Tensor& log_sum_exp, const Tensor& sums,
                 const Tensor& other, const Tensor& result) {
  RowOps& row_ops = *view.ops().rows;
  const int64_t rows = other.shape[0], dim = other.shape[1];
  const Tensor both = view.Scratch(DType::kF32, {rows, 2});
  const Tensor share = view.Scratch(DType::kF32, {rows});
  row_ops.Convert(AsColumn(log_sum_exp), Columns(both, 0, 1));
  row_ops.Convert(AsColumn(sums), Columns(both, 1, 2));
  row_ops.Softmax(both, 1.0f, both);
  row_ops.Convert(Columns(both, 0, 1), AsColumn(share));
  row_ops.Combine(result, Spread(view, share, dim), Binary::kMultiply, result);
  row_ops.Convert(Columns(both, 1, 2), AsColumn(share));
  row_ops.Combine(other, Spread(view, share, dim), Binary::kMultiply, other);
  row_ops.Combine(result, other, Binary::kAdd, result);
}

void MarkEnds(LayerView& view, int64_t first, int64_t last, int64_t length, const Tensor& words) {
  Ops& ops = view.ops();
  const int64_t begin = std::min(first, length);
  const int64_t count = std::max<int64_t>(0, length - std::max(last, begin));
  const int64_t behind = GrowingColumns(view, count);
  if (begin + behind == 0) return;
  Tensor ends = view.Scratch(DType::kI32, {1, begin + behind});
  if (begin > 0) ops.memory->Copy(Numbers(view, begin), ends[0].Slice(0, begin));
  if (behind > 0) {
    ops.memory->Copy(GrowingNumbers(view, count, length - count),
                     ends[0].Slice(begin, begin + behind));
  }
  ends.shape[0] = words.shape[0];
  ends.stride[0] = 0;
  ops.select->MarkRuns(ends, 1, length, Columns(words, 0, (length + 63) / 64));
}

void MarkChosenAndLater(LayerView& view, const Tensor& entries, int64_t then, int64_t length,
                        const Tensor& words) {
  Ops& ops = view.ops();
  const int64_t chosen = entries.shape[0], later = GrowingColumns(view, length - then);
  if (chosen + later == 0) return;
  Tensor all = view.Scratch(DType::kI32, {1, chosen + later});
  if (chosen > 0) ops.memory->Copy(entries, all[0].Slice(0, chosen));
  if (later > 0) {
    ops.memory->Copy(GrowingNumbers(view, length - then, then),
                     all[0].Slice(chosen, chosen + later));
  }
  all.shape[0] = words.shape[0];
  all.stride[0] = 0;
  ops.select->MarkRuns(all, 1, length, Columns(words, 0, (length + 63) / 64));
}

void MarkWhere(LayerView& view, const Tensor& marks, int64_t first, const Tensor& words) {
  Ops& ops = view.ops();
  const int64_t rows = marks.shape[0], n = marks.shape[1];
  const Tensor sums = view.Scratch(DType::kF32, {rows});
  ops.rows->ReduceRows(marks, Reduction::kSum, sums);
  std::vector<int32_t> counts;
  for (const float sum : Fetch(ops, sums)) counts.push_back(static_cast<int32_t>(std::lround(sum)));
  const int32_t most = *std::max_element(counts.begin(), counts.end());
  Tensor marked = view.Scratch(DType::kI64, {rows, (n + 63) / 64});
  if (most > 0) {
    const Tensor index = view.Scratch(DType::kI32, {rows, most});
    ops.select->TopK(marks, Upload(view, counts), index);
    ops.select->MarkRuns(index, 1, n, marked);
  }
  if (rows < words.shape[0]) {
    marked.shape[0] = words.shape[0];
    marked.stride[0] = 0;
  }
  ops.select->MoveBits(marked, 0, first, words);
}

}  // namespace kvgauge
