// SPDX-License-Identifier: Apache-2.0
#include "kernels/algebra.h"

#include <algorithm>
#include <bit>

#include "kernels/sphere.h"
#include "src/op_checks.h"

namespace kvgauge {
namespace {

bool IsDense(const Tensor& t, int64_t rows, int64_t columns) {
  return t.dtype == DType::kF32 && t.rank == 2 && t.shape[0] == rows && t.shape[1] == columns &&
         t.IsContiguous();
}

}  // namespace

void AlgebraOps::CosineSimilarity(const Tensor& a, const Tensor& b, Tensor out) {
  constexpr const char* kOp = "CosineSimilarity";
  KVG_OP_CHECK(a.rank == 2 && b.rank == 2 && a.shape[1] == b.shape[1], kOp, a, b, out);
  KVG_OP_CHECK(IsDense(a, a.shape[0], a.shape[1]) && IsDense(b, b.shape[0], b.shape[1]), kOp, a, b,
               out);
  KVG_OP_CHECK(IsDense(out, a.shape[0], b.shape[0]) && SameDevice({a, b, out}), kOp, a, b, out);
  if (out.Numel() > 0) DoCosineSimilarity(a, b, out);
}

void AlgebraOps::KMeans(const Tensor& x, int iterations, Tensor centroids, Tensor assignment) {
  constexpr const char* kOp = "KMeans";
  KVG_OP_CHECK(x.rank == 2 && IsDense(x, x.shape[0], x.shape[1]), kOp, x, centroids, assignment);
  KVG_OP_CHECK(centroids.rank == 2 && IsDense(centroids, centroids.shape[0], x.shape[1]), kOp, x,
               centroids, assignment);
  KVG_OP_CHECK(IsVector(assignment, DType::kI32, x.shape[0]), kOp, x, centroids, assignment);
  KVG_OP_CHECK(SameDevice({x, centroids, assignment}), kOp, x, centroids, assignment);
  if (x.shape[0] == 0) return;
  KVG_OP_CHECK(centroids.shape[0] > 0 && iterations >= 0, kOp, x, centroids, assignment);
  DoKMeans(x, iterations, centroids, assignment);
}

void AlgebraOps::Svd(const Tensor& a, Tensor u, Tensor s, Tensor vt) {
  constexpr const char* kOp = "Svd";
  KVG_OP_CHECK(a.rank == 2 && IsDense(a, a.shape[0], a.shape[1]), kOp, a, u, s, vt);
  const int64_t m = a.shape[0], n = a.shape[1], r = std::min(m, n);
  KVG_OP_CHECK(IsDense(u, m, r) && IsVector(s, DType::kF32, r) && IsDense(vt, r, n), kOp, a, u, s,
               vt);
  KVG_OP_CHECK(SameDevice({a, u, s, vt}), kOp, a, u, s, vt);
  if (r > 0) DoSvd(a, u, s, vt);
}

void AlgebraOps::Eigenvectors(const Tensor& a, Tensor values, Tensor vectors) {
  constexpr const char* kOp = "Eigenvectors";
  KVG_OP_CHECK(a.rank == 2 && IsDense(a, a.shape[0], a.shape[0]), kOp, a, values, vectors);
  const int64_t n = a.shape[0];
  KVG_OP_CHECK(vectors.rank == 2 && vectors.shape[0] <= n, kOp, a, values, vectors);
  const int64_t r = vectors.shape[0];
  KVG_OP_CHECK(IsDense(vectors, r, n) && IsVector(values, DType::kF32, r), kOp, a, values, vectors);
  KVG_OP_CHECK(SameDevice({a, values, vectors}), kOp, a, values, vectors);
  if (r > 0) DoEigenvectors(a, values, vectors);
}

void AlgebraOps::Qr(const Tensor& a, Tensor q, Tensor r) {
  constexpr const char* kOp = "Qr";
  KVG_OP_CHECK(a.rank == 2 && a.shape[0] >= a.shape[1], kOp, a, q, r);
  const int64_t m = a.shape[0], n = a.shape[1];
  KVG_OP_CHECK(IsDense(a, m, n) && IsDense(q, m, n) && IsDense(r, n, n), kOp, a, q, r);
  KVG_OP_CHECK(SameDevice({a, q, r}), kOp, a, q, r);
  if (n > 0) DoQr(a, q, r);
}

void AlgebraOps::Hadamard(Tensor x) {
  constexpr const char* kOp = "Hadamard";
  KVG_OP_CHECK(IsMatrix(x, DType::kF32), kOp, x);
  KVG_OP_CHECK(std::has_single_bit(static_cast<uint64_t>(x.shape[1])),
               "Hadamard (row length must be a power of two)", x);
  if (x.Numel() > 0) DoHadamard(x);
}

void AlgebraOps::DirectionsBetween(const Tensor& a, const Tensor& b, double weight, Tensor out,
                                   Tensor a_norm, Tensor b_norm) {
  constexpr const char* kOp = "DirectionsBetween";
  KVG_OP_CHECK(a.rank == 2 && IsDense(a, a.shape[0], a.shape[1]), kOp, a, b, out);
  KVG_OP_CHECK(IsDense(b, a.shape[0], a.shape[1]) && IsDense(out, a.shape[0], a.shape[1]), kOp, a,
               b, out);
  KVG_OP_CHECK(
      IsVector(a_norm, DType::kF32, a.shape[0]) && IsVector(b_norm, DType::kF32, a.shape[0]), kOp,
      a, a_norm, b_norm);
  KVG_OP_CHECK(SameDevice({a, b, out, a_norm, b_norm}) && weight >= 0 && weight <= 1, kOp, a, b,
               out);
  if (a.Numel() > 0) DoDirectionsBetween(a, b, weight, out, a_norm, b_norm);
}

void AlgebraOps::DoDirectionsBetween(const Tensor& a, const Tensor& b, double weight, Tensor out,
                                     Tensor a_norm, Tensor b_norm) {
  const int64_t dim = a.shape[1];
  for (int64_t i = 0; i < a.shape[0]; ++i) {
    const Arc arc(a.f32() + i * dim, b.f32() + i * dim, dim);
    arc.Between(weight, out.f32() + i * dim);
    a_norm.f32()[i] = static_cast<float>(arc.a_norm);
    b_norm.f32()[i] = static_cast<float>(arc.b_norm);
  }
}

}  // namespace kvgauge
