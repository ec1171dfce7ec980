// SPDX-License-Identifier: Apache-2.0
#include "kernels/rows.h"

#include "src/op_checks.h"

namespace kvgauge {
namespace {

bool IsRows(const Tensor& t, DType dtype) { return t.dtype == dtype && HasDenseRows(t); }
bool IsFloatRows(const Tensor& t) { return IsFloat(t.dtype) && HasDenseRows(t); }

// Calls body(x, out) on [m, d] views that cover both tensors: once when their leading dimensions
// fold, else once per entry of the shorter of the two dimensions that do not (heads inside a fused
// query-key-value buffer).
template <class Body>
void ForFolded(const char* op, const Tensor& x, const Tensor& out, Body body) {
  if (x.Numel() == 0) return;
  Tensor x_rows, out_rows;
  if (FoldsToRows(x, &x_rows) && FoldsToRows(out, &out_rows)) {
    body(x_rows, out_rows);
    return;
  }
  KVG_OP_CHECK(x.rank == 3, op, x, out);
  const bool along_first = x.shape[0] <= x.shape[1];
  const auto cut = [along_first](const Tensor& t, int64_t i) {
    if (along_first) return t[i];
    Tensor rows = t;
    rows.data = static_cast<char*>(t.data) + i * t.stride[1] * SizeOf(t.dtype);
    rows.rank = 2;
    rows.shape = {t.shape[0], t.shape[2], 0, 0};
    rows.stride = {t.stride[0], 1, 0, 0};
    return rows;
  };
  for (int64_t i = 0; i < x.shape[along_first ? 0 : 1]; ++i) body(cut(x, i), cut(out, i));
}

void CheckElementwise(const char* op, const Tensor& x, const Tensor& out) {
  KVG_OP_CHECK(IsRows(x, DType::kF32) && IsRows(out, DType::kF32), op, x, out);
  KVG_OP_CHECK(SameShape(x, out) && SameDevice({x, out}), op, x, out);
}

}  // namespace

void RowOps::RmsNorm(const Tensor& x, const Tensor& weight, float weight_offset, float eps,
                     Tensor out) {
  constexpr const char* kOp = "RmsNorm";
  KVG_OP_CHECK(IsRows(x, DType::kF32) && IsFloatRows(out), kOp, x, weight, out);
  KVG_OP_CHECK(SameShape(x, out) && SameDevice({x, weight, out}), kOp, x, weight, out);
  KVG_OP_CHECK(IsVector(weight, DType::kF32, x.shape[x.rank - 1]), kOp, x, weight, out);
  ForFolded(kOp, x, out, [&](const Tensor& from, const Tensor& to) {
    DoRmsNorm(from, weight, weight_offset, eps, to);
  });
}

void RowOps::LayerNorm(const Tensor& x, const Tensor& weight, const Tensor& bias, float eps,
                       Tensor out) {
  constexpr const char* kOp = "LayerNorm";
  KVG_OP_CHECK(IsRows(x, DType::kF32) && IsFloatRows(out), kOp, x, weight, bias, out);
  KVG_OP_CHECK(SameShape(x, out) && SameDevice({x, weight, bias, out}), kOp, x, weight, bias, out);
  for (const Tensor& t : {weight, bias}) {
    KVG_OP_CHECK(t.empty() || IsVector(t, DType::kF32, x.shape[x.rank - 1]), kOp, x, weight, bias,
                 out);
  }
  ForFolded(kOp, x, out, [&](const Tensor& from, const Tensor& to) {
    DoLayerNorm(from, weight, bias, eps, to);
  });
}

void RowOps::RopeTable(const Tensor& positions, const Tensor& inverse_frequency, const Tensor& axis,
                       float attention_factor, Tensor cos, Tensor sin) {
  constexpr const char* kOp = "RopeTable";
  const auto all = [&] { return OpMessage(kOp, {positions, inverse_frequency, axis, cos, sin}); };
  KVG_CHECK(IsMatrix(positions, DType::kI32) && positions.shape[1] >= 1, all());
  const int64_t m = positions.shape[0], half = cos.rank == 2 ? cos.shape[1] : -1;
  KVG_CHECK(IsMatrix(cos, DType::kF32) && IsMatrix(sin, DType::kF32), all());
  KVG_CHECK(cos.shape[0] == m && SameShape(cos, sin), all());
  KVG_CHECK(IsVector(inverse_frequency, DType::kF32, half), all());
  KVG_CHECK(axis.empty() ? positions.shape[1] == 1 : IsVector(axis, DType::kI32, half), all());
  KVG_CHECK(SameDevice({positions, inverse_frequency, axis, cos, sin}), all());
  if (m == 0 || half == 0) return;
  DoRopeTable(positions, inverse_frequency, axis, attention_factor, cos, sin);
}

void RowOps::Rope(const Tensor& cos, const Tensor& sin, RopeLayout layout, RopeDirection direction,
                  Tensor x) {
  constexpr const char* kOp = "Rope";
  KVG_OP_CHECK(IsMatrix(cos, DType::kF32) && IsMatrix(sin, DType::kF32), kOp, cos, sin, x);
  KVG_OP_CHECK(x.rank == 3 && IsRows(x, DType::kF32), kOp, cos, sin, x);
  KVG_OP_CHECK(SameShape(cos, sin) && cos.shape[0] == x.shape[0], kOp, cos, sin, x);
  KVG_OP_CHECK(2 * cos.shape[1] <= x.shape[2] && SameDevice({cos, sin, x}), kOp, cos, sin, x);
  if (x.Numel() == 0 || cos.shape[1] == 0) return;
  DoRope(cos, sin, layout, direction, x);
}

void RowOps::Activate(const Tensor& x, Activation act, Tensor out) {
  CheckElementwise("Activate", x, out);
  ForFolded("Activate", x, out,
            [&](const Tensor& from, const Tensor& to) { DoActivate(from, act, to); });
}

void RowOps::GatedActivate(const Tensor& x, Activation act, Tensor out) {
  constexpr const char* kOp = "GatedActivate";
  KVG_OP_CHECK(IsMatrix(x, DType::kF32) && IsFloatRows(out) && out.rank == 2, kOp, x, out);
  KVG_OP_CHECK(x.shape[0] == out.shape[0] && x.shape[1] == 2 * out.shape[1], kOp, x, out);
  KVG_OP_CHECK(SameDevice({x, out}) && (x.empty() || x.data != out.data), kOp, x, out);
  if (out.Numel() == 0) return;
  DoGatedActivate(x, act, out);
}

void RowOps::Combine(const Tensor& a, const Tensor& b, Binary op, Tensor out) {
  constexpr const char* kOp = "Combine";
  KVG_OP_CHECK(IsRows(a, DType::kF32) && IsRows(b, DType::kF32), kOp, a, b, out);
  KVG_OP_CHECK(IsRows(out, DType::kF32) && SameShape(a, out), kOp, a, b, out);
  KVG_OP_CHECK(SameShape(a, b) || IsVector(b, DType::kF32, a.shape[a.rank - 1]), kOp, a, b, out);
  KVG_OP_CHECK(SameDevice({a, b, out}), kOp, a, b, out);
  if (a.Numel() == 0) return;
  Tensor a_rows, b_rows, out_rows;
  const bool fold =
      FoldsToRows(a, &a_rows) && FoldsToRows(b, &b_rows) && FoldsToRows(out, &out_rows);
  KVG_OP_CHECK(fold, kOp, a, b, out);
  DoCombine(a_rows, SameShape(a_rows, b_rows) ? b_rows : b, op, out_rows);
}

void RowOps::Affine(const Tensor& x, float scale, float shift, Tensor out) {
  CheckElementwise("Affine", x, out);
  ForFolded("Affine", x, out,
            [&](const Tensor& from, const Tensor& to) { DoAffine(from, scale, shift, to); });
}

void RowOps::Fill(float value, Tensor out) {
  KVG_OP_CHECK(IsRows(out, DType::kF32), "Fill", out, out);
  ForFolded("Fill", out, out, [&](const Tensor&, const Tensor& to) { DoFill(value, to); });
}

void RowOps::FillColumns(float value, int64_t begin, int64_t end, Tensor out) {
  constexpr const char* kOp = "FillColumns";
  KVG_OP_CHECK(IsMatrix(out, DType::kF32), kOp, out, out);
  KVG_OP_CHECK(begin >= 0 && begin <= end && end <= out.shape[1], kOp, out, out);
  if (out.shape[0] > 0 && begin < end) DoFillColumns(value, begin, end, out);
}

void RowOps::DoFillColumns(float value, int64_t begin, int64_t end, Tensor out) {
  out.data = out.f32() + begin;
  out.shape[1] = end - begin;
  DoFill(value, out);
}

void RowOps::SoftCap(const Tensor& x, float cap, Tensor out) {
  CheckElementwise("SoftCap", x, out);
  KVG_OP_CHECK(cap > 0, "SoftCap (cap must be positive)", x, out);
  ForFolded("SoftCap", x, out,
            [&](const Tensor& from, const Tensor& to) { DoSoftCap(from, cap, to); });
}

void RowOps::Softmax(const Tensor& x, float scale, Tensor out) {
  CheckElementwise("Softmax", x, out);
  KVG_OP_CHECK(scale > 0, "Softmax (scale must be positive)", x, out);
  ForFolded("Softmax", x, out,
            [&](const Tensor& from, const Tensor& to) { DoSoftmax(from, scale, to); });
}

void RowOps::LogSumExp(const Tensor& x, Tensor out) {
  constexpr const char* kOp = "LogSumExp";
  KVG_OP_CHECK(IsMatrix(x, DType::kF32) && x.shape[1] > 0, kOp, x, out);
  KVG_OP_CHECK(IsVector(out, DType::kF32, x.shape[0]) && SameDevice({x, out}), kOp, x, out);
  if (x.Numel() > 0) DoLogSumExp(x, out);
}

void RowOps::ReduceRows(const Tensor& x, Reduction kind, Tensor out) {
  constexpr const char* kOp = "ReduceRows";
  KVG_OP_CHECK(IsMatrix(x, DType::kF32) && x.shape[1] > 0, kOp, x, out);
  KVG_OP_CHECK(IsVector(out, DType::kF32, x.shape[0]) && SameDevice({x, out}), kOp, x, out);
  if (x.Numel() > 0) DoReduceRows(x, kind, out);
}

void RowOps::ReduceColumns(const Tensor& x, Reduction kind, Tensor out) {
  constexpr const char* kOp = "ReduceColumns";
  KVG_OP_CHECK(IsMatrix(x, DType::kF32) && x.shape[0] > 0, kOp, x, out);
  KVG_OP_CHECK(IsVector(out, DType::kF32, x.shape[1]) && SameDevice({x, out}), kOp, x, out);
  if (x.Numel() > 0) DoReduceColumns(x, kind, out);
}

void RowOps::ArgMax(const Tensor& x, Tensor out) {
  constexpr const char* kOp = "ArgMax";
  KVG_OP_CHECK(IsMatrix(x, DType::kF32) && x.shape[1] > 0, kOp, x, out);
  KVG_OP_CHECK(IsVector(out, DType::kI32, x.shape[0]) && SameDevice({x, out}), kOp, x, out);
  if (x.Numel() > 0) DoArgMax(x, out);
}

void RowOps::Convert(const Tensor& x, Tensor out) {
  constexpr const char* kOp = "Convert";
  const bool from_int = IsRows(x, DType::kI32) && IsRows(out, DType::kF32);
  KVG_OP_CHECK(from_int || (IsFloatRows(x) && IsFloatRows(out)), kOp, x, out);
  KVG_OP_CHECK(SameShape(x, out) && SameDevice({x, out}), kOp, x, out);
  ForFolded(kOp, x, out, [&](const Tensor& from, const Tensor& to) { DoConvert(from, to); });
}

void RowOps::Uniform(uint64_t seed, uint64_t stream, const Tensor& counter, Tensor out) {
  constexpr const char* kOp = "Uniform";
  KVG_OP_CHECK(counter.rank == 1 && IsVector(counter, DType::kI32, counter.shape[0]), kOp, counter,
               out);
  KVG_OP_CHECK(IsVector(out, DType::kF32, counter.shape[0]) && SameDevice({counter, out}), kOp,
               counter, out);
  if (out.Numel() > 0) DoUniform(seed, stream, counter, out);
}

}  // namespace kvgauge
