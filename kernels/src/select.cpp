// SPDX-License-Identifier: Apache-2.0
#include "kernels/select.h"

#include "src/op_checks.h"

namespace kvgauge {
namespace {

// Gather, scatter: equal row lengths, one index per row of the indexed side.
void CheckMove(const char* op, const Tensor& table, const Tensor& index, const Tensor& list) {
  KVG_OP_CHECK(table.rank == 2 && list.rank == 2, op, table, index, list);
  KVG_OP_CHECK(HasDenseRows(table) && HasDenseRows(list), op, table, index, list);
  KVG_OP_CHECK(table.dtype == list.dtype && table.shape[1] == list.shape[1], op, table, index,
               list);
  KVG_OP_CHECK(IsVector(index, DType::kI32, list.shape[0]), op, table, index, list);
  KVG_OP_CHECK(SameDevice({table, index, list}), op, table, index, list);
}

}  // namespace

void SelectOps::TopK(const Tensor& scores, const Tensor& counts, Tensor out) {
  constexpr const char* kOp = "TopK";
  KVG_OP_CHECK(IsMatrix(scores, DType::kF32) && IsMatrix(out, DType::kI32), kOp, scores, counts,
               out);
  KVG_OP_CHECK(IsVector(counts, DType::kI32, scores.shape[0]), kOp, scores, counts, out);
  KVG_OP_CHECK(out.shape[0] == scores.shape[0], kOp, scores, counts, out);
  KVG_OP_CHECK(SameDevice({scores, counts, out}), kOp, scores, counts, out);
  if (out.Numel() > 0) DoTopK(scores, counts, out);
}

void SelectOps::Gather(const Tensor& source, const Tensor& index, Tensor out) {
  CheckMove("Gather", source, index, out);
  if (out.Numel() > 0) DoGather(source, index, out);
}

void SelectOps::Scatter(const Tensor& source, const Tensor& index, Tensor out) {
  CheckMove("Scatter", out, index, source);
  if (source.Numel() > 0) DoScatter(source, index, out);
}

void SelectOps::ScatterAdd(const Tensor& source, const Tensor& index, const Tensor& weight,
                           Tensor out) {
  CheckMove("ScatterAdd", out, index, source);
  KVG_OP_CHECK(out.dtype == DType::kF32, "ScatterAdd", source, index, weight, out);
  KVG_OP_CHECK(weight.empty() || IsVector(weight, DType::kF32, source.shape[0]), "ScatterAdd",
               source, index, weight, out);
  KVG_OP_CHECK(SameDevice({source, weight}), "ScatterAdd", source, index, weight, out);
  if (source.Numel() > 0) DoScatterAdd(source, index, weight, out);
}

void SelectOps::Pool(const Tensor& x, int64_t kernel, Pooling mode, Tensor out) {
  constexpr const char* kOp = "Pool";
  KVG_OP_CHECK(IsMatrix(x, DType::kF32) && IsMatrix(out, DType::kF32), kOp, x, out);
  KVG_OP_CHECK(SameShape(x, out) && SameDevice({x, out}), kOp, x, out);
  KVG_OP_CHECK(kernel > 0 && kernel % 2 == 1, "Pool (kernel must be odd)", x, out);
  KVG_OP_CHECK(x.empty() || x.data != out.data, "Pool (not in place)", x, out);
  if (x.Numel() > 0) DoPool(x, kernel, mode, out);
}

}  // namespace kvgauge
