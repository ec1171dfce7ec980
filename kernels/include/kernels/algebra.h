// SPDX-License-Identifier: Apache-2.0
// Small dense algebra for methods: similarity, clustering, factorisations, Hadamard.
// Tensors are f32 and contiguous; only Hadamard takes strided rows.
#pragma once

#include <cstdint>

#include "kernels/tensor.h"

namespace kvgauge {

class AlgebraOps {
 public:
  virtual ~AlgebraOps() = default;

  // out[i, j] = cosine of a[i] and b[j]; 0 where either is the zero vector.
  // a: [m, d]; b: [n, d]; out: [m, n].
  void CosineSimilarity(const Tensor& a, const Tensor& b, Tensor out);

  // Lloyd's algorithm: assign, then `iterations` times move each centroid to the mean of its
  // members and assign again, so that the two results belong together. x: [n, d]; centroids:
  // [k, d], in: the start, out: the result; assignment: [n] i32, nearest centroid by squared
  // distance, lowest index among equals. An empty cluster keeps its centroid.
  void KMeans(const Tensor& x, int iterations, Tensor centroids, Tensor assignment);

  // Thin singular value decomposition a = u * diag(s) * vt by one-sided Jacobi, r = min(m, n).
  // a: [m, n]; u: [m, r]; s: [r] descending; vt: [r, n]. The largest-magnitude entry of each row
  // of vt is positive, so that signs are reproducible.
  void Svd(const Tensor& a, Tensor u, Tensor s, Tensor vt);
  // The largest eigenvalues, and their unit eigenvectors one a row, of a symmetric matrix that has
  // no negative ones, such as the products of all pairs of some columns. Much faster than Svd of
  // the same matrix. Signs as for Svd. a: [n, n]; values: [r] descending, r <= n; vectors: [r, n].
  void Eigenvectors(const Tensor& a, Tensor values, Tensor vectors);
  // Thin QR by Householder, m >= n. q: [m, n]; r: [n, n] upper, non-negative diagonal.
  void Qr(const Tensor& a, Tensor q, Tensor r);

  // out[i]: the direction at `weight` of the way from that of a[i] to that of b[i], on the sphere;
  // a zero vector has none and does not count, and two opposite ones may have none. a, b, out: [n,
  // d]; a_norm, b_norm: [n], their lengths.
  void DirectionsBetween(const Tensor& a, const Tensor& b, double weight, Tensor out, Tensor a_norm,
                         Tensor b_norm);

  // Rows times the orthonormal Walsh-Hadamard matrix (its own inverse), in place. x: [m, d],
  // d a power of two.
  void Hadamard(Tensor x);

 private:
  virtual void DoCosineSimilarity(const Tensor& a, const Tensor& b, Tensor out) = 0;
  virtual void DoKMeans(const Tensor& x, int iterations, Tensor centroids, Tensor assignment) = 0;
  virtual void DoSvd(const Tensor& a, Tensor u, Tensor s, Tensor vt) = 0;
  virtual void DoEigenvectors(const Tensor& a, Tensor values, Tensor vectors) = 0;
  virtual void DoQr(const Tensor& a, Tensor q, Tensor r) = 0;
  virtual void DoHadamard(Tensor x) = 0;
  // Here: on the host (kernels/sphere.h).
  virtual void DoDirectionsBetween(const Tensor& a, const Tensor& b, double weight, Tensor out,
                                   Tensor a_norm, Tensor b_norm);
};

}  // namespace kvgauge
