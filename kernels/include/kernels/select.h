// SPDX-License-Identifier: Apache-2.0
// Choosing and moving entries: top-k, gather, scatter, pooling.
// Tensors are f32 unless said otherwise; rows of matrices may be strided. An index or count out of
// range is a broken precondition; on the host it is checked.
#pragma once

#include <cstdint>

#include "kernels/tensor.h"

namespace kvgauge {

enum class Pooling {
  kAverage,  // the zero padding counts, so scores shrink at both ends
  kMax,      // the padding does not count; a NaN in the window gives NaN
};

class SelectOps {
 public:
  virtual ~SelectOps() = default;

  // For each row the indices of its `counts[row]` largest values, in ascending order of index.
  // Among equals the lower index wins; +inf is always first and NaN last. scores: [rows, n];
  // counts: [rows] i32 in [0, n]; out: [rows, width] i32, width >= every count, the rest of a row
  // is filled with -1.
  void TopK(const Tensor& scores, const Tensor& counts, Tensor out);

  // out[i, :] = source[index[i], :]. Any dtype; source: [n, d]; index: [m] i32 in range.
  void Gather(const Tensor& source, const Tensor& index, Tensor out);
  // out[index[i], :] = source[i, :]. Any dtype; indices distinct.
  void Scatter(const Tensor& source, const Tensor& index, Tensor out);
  // out[index[i], :] += weight[i] * source[i, :], in ascending order of i; weight may be empty (1).
  // An index of -1 is skipped.
  void ScatterAdd(const Tensor& source, const Tensor& index, const Tensor& weight, Tensor out);

  // One-dimensional pooling along each row, stride 1, padding kernel/2; kernel is odd, so the
  // length stays. x, out: [rows, n]; out is not x.
  void Pool(const Tensor& x, int64_t kernel, Pooling mode, Tensor out);

 private:
  virtual void DoTopK(const Tensor& scores, const Tensor& counts, Tensor out) = 0;
  virtual void DoGather(const Tensor& source, const Tensor& index, Tensor out) = 0;
  virtual void DoScatter(const Tensor& source, const Tensor& index, Tensor out) = 0;
  virtual void DoScatterAdd(const Tensor& source, const Tensor& index, const Tensor& weight,
                            Tensor out) = 0;
  virtual void DoPool(const Tensor& x, int64_t kernel, Pooling mode, Tensor out) = 0;
};

}  // namespace kvgauge
