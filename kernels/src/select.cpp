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

void SelectOps::Following(const Tensor& sorted, const Tensor& value, Tensor out) {
  constexpr const char* kOp = "Following";
  KVG_OP_CHECK(sorted.rank == 1 && IsVector(sorted, DType::kI32, sorted.shape[0]), kOp, sorted,
               value, out);
  KVG_OP_CHECK(value.rank == 1 && IsVector(value, DType::kI32, value.shape[0]), kOp, sorted, value,
               out);
  KVG_OP_CHECK(IsMatrix(out, DType::kI32) && out.shape[1] == value.shape[0], kOp, sorted, value,
               out);
  KVG_OP_CHECK(SameDevice({sorted, value, out}), kOp, sorted, value, out);
  if (out.Numel() > 0) DoFollowing(sorted, value, out);
}

void SelectOps::MarkRuns(const Tensor& index, int64_t run, int64_t n, Tensor words) {
  constexpr const char* kOp = "MarkRuns";
  KVG_OP_CHECK(IsMatrix(index, DType::kI32) && IsMatrix(words, DType::kI64), kOp, index, words);
  KVG_OP_CHECK(index.shape[0] == words.shape[0] && words.shape[1] == (n + 63) / 64, kOp, index,
               words);
  KVG_OP_CHECK(run > 0 && SameDevice({index, words}), kOp, index, words);
  if (index.Numel() > 0 && n > 0) DoMarkRuns(index, run, n, words);
}

void SelectOps::ChooseExperts(const Tensor& logits, const ExpertRule& rule,
                              const Tensor& correction, Tensor index, Tensor weight) {
  constexpr const char* kOp = "ChooseExperts";
  KVG_OP_CHECK(IsMatrix(logits, DType::kF32) && IsMatrix(index, DType::kI32) &&
                   IsMatrix(weight, DType::kF32),
               kOp, logits, index, weight);
  KVG_OP_CHECK(index.IsContiguous() && weight.IsContiguous() && SameShape(index, weight) &&
                   index.shape[0] == logits.shape[0],
               kOp, logits, index, weight);
  const int64_t experts = logits.shape[1];
  KVG_OP_CHECK(rule.groups > 0 && experts % rule.groups == 0 && rule.top_groups > 0 &&
                   rule.top_groups <= rule.groups &&
                   index.shape[1] <= experts / rule.groups * rule.top_groups,
               "ChooseExperts (more experts than the groups have)", logits, index, weight);
  KVG_OP_CHECK(!rule.in_turn || (rule.groups == 1 && !rule.sigmoid && rule.tolerance >= 0), kOp,
               logits, index, weight);
  KVG_OP_CHECK(rule.sigmoid ? IsVector(correction, DType::kF32, experts) : correction.empty(), kOp,
               logits, correction, index);
  KVG_OP_CHECK(SameDevice({logits, correction, index, weight}), kOp, logits, index, weight);
  if (index.Numel() > 0) DoChooseExperts(logits, rule, correction, index, weight);
}

void SelectOps::AddWeighted(const Tensor& source, const Tensor& weight, Tensor out) {
  constexpr const char* kOp = "AddWeighted";
  KVG_OP_CHECK(
      IsMatrix(source, DType::kF32) && IsMatrix(weight, DType::kF32) && IsMatrix(out, DType::kF32),
      kOp, source, weight, out);
  KVG_OP_CHECK(weight.shape[0] == out.shape[0] && source.shape[1] == out.shape[1] &&
                   source.shape[0] == weight.shape[0] * weight.shape[1],
               kOp, source, weight, out);
  KVG_OP_CHECK(SameDevice({source, weight, out}), kOp, source, weight, out);
  if (source.Numel() > 0) DoAddWeighted(source, weight, out);
}

void SelectOps::CountBits(const Tensor& words, const Tensor& base, Tensor out) {
  constexpr const char* kOp = "CountBits";
  KVG_OP_CHECK(IsMatrix(words, DType::kI64), kOp, words, base, out);
  KVG_OP_CHECK(
      IsVector(base, DType::kI64, words.shape[0]) && IsVector(out, DType::kI64, words.shape[0]),
      kOp, words, base, out);
  KVG_OP_CHECK(SameDevice({words, base, out}), kOp, words, base, out);
  if (out.Numel() > 0) DoCountBits(words, base, out);
}

void SelectOps::CountAnyBits(const Tensor& words, const Tensor& range, const Tensor& base,
                             Tensor out) {
  constexpr const char* kOp = "CountAnyBits";
  KVG_OP_CHECK(IsMatrix(words, DType::kI64) && IsMatrix(range, DType::kI32), kOp, words, range,
               base, out);
  const int64_t groups = range.shape[0];
  KVG_OP_CHECK(range.shape[1] == 2 && range.IsContiguous() && groups > 0 &&
                   words.shape[0] % groups == 0 && IsVector(base, DType::kI64, groups) &&
                   IsVector(out, DType::kI64, groups),
               kOp, words, range, base, out);
  KVG_OP_CHECK(SameDevice({words, range, base, out}), kOp, words, range, base, out);
  DoCountAnyBits(words, range, base, out);
}

void SelectOps::MoveBits(const Tensor& words, int64_t first, int64_t skip, Tensor out) {
  constexpr const char* kOp = "MoveBits";
  KVG_OP_CHECK(IsMatrix(words, DType::kI64) && IsMatrix(out, DType::kI64), kOp, words, out);
  KVG_OP_CHECK(words.shape[0] == out.shape[0] && out.IsContiguous(), kOp, words, out);
  KVG_OP_CHECK(first >= 0 && skip >= 0 && SameDevice({words, out}), kOp, words, out);
  if (out.Numel() > 0) DoMoveBits(words, first, skip, out);
}

void SelectOps::ReadBits(const Tensor& words, int64_t first, Tensor out) {
  constexpr const char* kOp = "ReadBits";
  KVG_OP_CHECK(IsMatrix(words, DType::kI64) && IsMatrix(out, DType::kF32), kOp, words, out);
  KVG_OP_CHECK(words.shape[0] == out.shape[0] && first >= 0 && SameDevice({words, out}), kOp, words,
               out);
  if (out.Numel() > 0) DoReadBits(words, first, out);
}

void SelectOps::AtLeast(const Tensor& x, int32_t least, Tensor out) {
  KVG_OP_CHECK(x.rank == 1 && IsVector(x, DType::kI32, x.shape[0]) &&
                   IsVector(out, DType::kI32, x.shape[0]) && SameDevice({x, out}),
               "AtLeast", x, out);
  if (out.Numel() > 0) DoAtLeast(x, least, out);
}

void SelectOps::ColumnRanges(const Tensor& x, int64_t trim, Tensor low, Tensor high) {
  constexpr const char* kOp = "ColumnRanges";
  KVG_OP_CHECK(IsMatrix(x, DType::kF32) && trim >= 0 && 2 * trim < x.shape[0], kOp, x, low, high);
  KVG_OP_CHECK(IsVector(low, DType::kF32, x.shape[1]) && IsVector(high, DType::kF32, x.shape[1]),
               kOp, x, low, high);
  KVG_OP_CHECK(SameDevice({x, low, high}), kOp, x, low, high);
  if (x.Numel() > 0) DoColumnRanges(x, trim, low, high);
}

}  // namespace kvgauge
