// SPDX-License-Identifier: Apache-2.0
// Matrix products: activations times prepacked weights, and small dense products for methods.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "kernels/tensor.h"

namespace kvgauge {

// A weight matrix [out_features, in_features] in the layout its backend multiplies fastest.
// Immutable once made; the only copy of the weight that the runner keeps.
class PackedMatrix {
 public:
  virtual ~PackedMatrix() = default;
  int64_t out_features() const { return out_features_; }
  int64_t in_features() const { return in_features_; }
  DType dtype() const { return dtype_; }
  virtual int64_t bytes() const = 0;

 protected:
  PackedMatrix(int64_t out_features, int64_t in_features, DType dtype)
      : out_features_(out_features), in_features_(in_features), dtype_(dtype) {}

 private:
  int64_t out_features_, in_features_;
  DType dtype_;
};

// Matrices of one shape and type, one of which is chosen for each row of a product, as an expert is
// for a token. They are not owned and outlive the set.
class MatrixSet {
 public:
  explicit MatrixSet(std::vector<const PackedMatrix*> matrices) : matrices_(std::move(matrices)) {}
  virtual ~MatrixSet() = default;
  int64_t size() const { return static_cast<int64_t>(matrices_.size()); }
  const PackedMatrix& operator[](int64_t i) const { return *matrices_[static_cast<size_t>(i)]; }
  int64_t out_features() const { return matrices_[0]->out_features(); }
  int64_t in_features() const { return matrices_[0]->in_features(); }
  DType dtype() const { return matrices_[0]->dtype(); }

 private:
  std::vector<const PackedMatrix*> matrices_;
};

enum class MatMulMode {
  kSet,  // out = x * w^T (+ bias)
  kAdd,  // out += x * w^T (+ bias): the product is summed first, then added
};

class LinearOps {
 public:
  virtual ~LinearOps() = default;

  // Stacks the rows of `parts` (each [n_i, k], any float dtype, host memory, row stride allowed,
  // no alignment needed) and stores them as `store` (f32, f16 or bf16; rounded to nearest even).
  std::unique_ptr<PackedMatrix> Pack(std::span<const Tensor> parts, DType store);

  // x: [m, k] f32 or w.dtype(); rows may be strided. f32 x is rounded to w.dtype() first, so the
  // two forms agree. bias: [n] f32 or empty. out: [m, n] f32, rows may be strided.
  // Products are summed in f32 at least, in an order fixed by k alone.
  void MatMul(const Tensor& x, const PackedMatrix& w, const Tensor& bias, MatMulMode mode,
              Tensor out);

  // At least one matrix, all packed by this backend.
  std::unique_ptr<MatrixSet> Collect(std::vector<const PackedMatrix*> matrices);
  // out[i, :] = x[i / share, :] * set[choice[i]]^T, with the bits of MatMul in mode kSet. x: [m, k]
  // as in MatMul; choice: [m * share] i32 in range; out: [m * share, n] f32, rows may be strided.
  void MatMulChosen(const Tensor& x, const MatrixSet& set, const Tensor& choice, Tensor out);

  // out[b, m, n] = alpha * a[b, m, k] * b[b, n, k]^T. All f32, contiguous. For methods; not tuned
  // for weights.
  void MatMulNT(const Tensor& a, const Tensor& b, float alpha, Tensor out);
  // out[b, m, n] = alpha * a[b, m, k] * b[b, k, n].
  void MatMulNN(const Tensor& a, const Tensor& b, float alpha, Tensor out);

  // out[i, :] = scale * table[ids[i], :]. table: [rows, d] float dtype; ids: [m] i32 in range;
  // out: [m, d] f32.
  void Embed(const Tensor& table, const Tensor& ids, float scale, Tensor out);

 private:
  virtual std::unique_ptr<PackedMatrix> DoPack(std::span<const Tensor> parts, int64_t n, int64_t k,
                                               DType store) = 0;
  virtual void DoMatMul(const Tensor& x, const PackedMatrix& w, const Tensor& bias, MatMulMode mode,
                        Tensor out) = 0;
  virtual std::unique_ptr<MatrixSet> DoCollect(std::vector<const PackedMatrix*> matrices) {
    return std::make_unique<MatrixSet>(std::move(matrices));
  }
  virtual void DoMatMulChosen(const Tensor& x, const MatrixSet& set, const Tensor& choice,
                              Tensor out) = 0;
  virtual void DoMatMulNT(const Tensor& a, const Tensor& b, float alpha, Tensor out) = 0;
  virtual void DoMatMulNN(const Tensor& a, const Tensor& b, float alpha, Tensor out) = 0;
  virtual void DoEmbed(const Tensor& table, const Tensor& ids, float scale, Tensor out) = 0;
};

}  // namespace kvgauge
