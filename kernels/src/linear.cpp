// SPDX-License-Identifier: Apache-2.0
#include "kernels/linear.h"

#include "core/strings.h"

namespace kvgauge {
namespace {

bool IsMatrix(const Tensor& t) {
  return t.rank == 2 && (t.shape[1] <= 1 || t.stride[1] == 1) &&
         (t.shape[0] <= 1 || t.stride[0] >= t.shape[1]);
}

std::string Shapes(const Tensor& a, const Tensor& b, const Tensor& out) {
  return StrCat(a.DebugString(), " x ", b.DebugString(), " -> ", out.DebugString());
}

void CheckBatched(const Tensor& a, const Tensor& b, const Tensor& out, int k_of_b, int n_of_b) {
  const bool fits = a.rank == 3 && b.rank == 3 && out.rank == 3 && a.shape[0] == b.shape[0] &&
                    a.shape[0] == out.shape[0] && a.shape[1] == out.shape[1] &&
                    a.shape[2] == b.shape[k_of_b] && b.shape[n_of_b] == out.shape[2];
  KVG_CHECK(fits, StrCat("shapes do not fit: ", Shapes(a, b, out)));
  KVG_CHECK(a.dtype == DType::kF32 && b.dtype == DType::kF32 && out.dtype == DType::kF32,
            "batched products are f32");
  KVG_CHECK(a.IsContiguous() && b.IsContiguous() && out.IsContiguous(),
            "batched products need contiguous tensors");
}

}  // namespace

std::unique_ptr<PackedMatrix> LinearOps::Pack(std::span<const Tensor> parts, DType store) {
  KVG_CHECK(!parts.empty(), "nothing to pack");
  KVG_CHECK(IsFloat(store), "weights are stored as f32, f16 or bf16");
  const int64_t k = parts[0].shape[1];
  int64_t n = 0;
  for (const Tensor& part : parts) {
    KVG_CHECK(part.device == Device::kHost, "weights are packed from host memory");
    KVG_CHECK(IsFloat(part.dtype) && IsMatrix(part) && part.shape[1] == k,
              StrCat("cannot pack ", part.DebugString(), " beside ", parts[0].DebugString()));
    n += part.shape[0];
  }
  return DoPack(parts, n, k, store);
}

void LinearOps::MatMul(const Tensor& x, const PackedMatrix& w, const Tensor& bias, MatMulMode mode,
                       Tensor out) {
  KVG_CHECK(IsMatrix(x) && IsMatrix(out) && x.shape[1] == w.in_features() &&
                out.shape[1] == w.out_features() && x.shape[0] == out.shape[0],
            StrCat("shapes do not fit: ", x.DebugString(), " x [", w.out_features(), ", ",
                   w.in_features(), "]^T -> ", out.DebugString()));
  KVG_CHECK(x.dtype == DType::kF32 || x.dtype == w.dtype(), "x is neither f32 nor of w's dtype");
  KVG_CHECK(out.dtype == DType::kF32, "out is not f32");
  if (!bias.empty()) {
    KVG_CHECK(bias.dtype == DType::kF32 && bias.rank == 1 && bias.shape[0] == w.out_features() &&
                  bias.IsContiguous(),
              StrCat("bias is ", bias.DebugString(), ", expected f32[", w.out_features(), "]"));
  }
  if (out.Numel() > 0) DoMatMul(x, w, bias, mode, out);
}

std::unique_ptr<MatrixSet> LinearOps::Collect(std::vector<const PackedMatrix*> matrices) {
  KVG_CHECK(!matrices.empty(), "a set of no matrices");
  const PackedMatrix& first = *matrices[0];
  for (const PackedMatrix* matrix : matrices) {
    KVG_CHECK(matrix->out_features() == first.out_features() &&
                  matrix->in_features() == first.in_features() && matrix->dtype() == first.dtype(),
              "matrices of a set have one shape and type");
  }
  return DoCollect(std::move(matrices));
}

void LinearOps::MatMulChosen(const Tensor& x, const MatrixSet& set, const Tensor& choice,
                             Tensor out) {
  const bool fits = IsMatrix(x) && IsMatrix(out) && x.shape[1] == set.in_features() &&
                    out.shape[1] == set.out_features() && choice.rank == 1 &&
                    choice.dtype == DType::kI32 && choice.IsContiguous() &&
                    choice.shape[0] == out.shape[0] &&
                    (x.shape[0] > 0 ? out.shape[0] % x.shape[0] == 0 : out.shape[0] == 0);
  KVG_CHECK(fits, StrCat("shapes do not fit: ", Shapes(x, choice, out), ", of ", set.size(), " [",
                         set.out_features(), ", ", set.in_features(), "]"));
  KVG_CHECK(x.dtype == DType::kF32 || x.dtype == set.dtype(), "x is neither f32 nor of w's dtype");
  KVG_CHECK(out.dtype == DType::kF32, "out is not f32");
  if (out.Numel() > 0) DoMatMulChosen(x, set, choice, out);
}

void LinearOps::MatMulNT(const Tensor& a, const Tensor& b, float alpha, Tensor out) {
  CheckBatched(a, b, out, 2, 1);
  if (out.Numel() > 0) DoMatMulNT(a, b, alpha, out);
}

void LinearOps::MatMulNN(const Tensor& a, const Tensor& b, float alpha, Tensor out) {
  CheckBatched(a, b, out, 1, 2);
  if (out.Numel() > 0) DoMatMulNN(a, b, alpha, out);
}

void LinearOps::Embed(const Tensor& table, const Tensor& ids, float scale, Tensor out) {
  KVG_CHECK(IsMatrix(table) && IsFloat(table.dtype), "an embedding table is a float matrix");
  KVG_CHECK(ids.rank == 1 && ids.dtype == DType::kI32 && ids.IsContiguous(), "ids are i32[m]");
  KVG_CHECK(IsMatrix(out) && out.dtype == DType::kF32 && out.shape[0] == ids.shape[0] &&
                out.shape[1] == table.shape[1],
            StrCat("shapes do not fit: ", Shapes(table, ids, out)));
  if (out.Numel() > 0) DoEmbed(table, ids, scale, out);
}

}  // namespace kvgauge
