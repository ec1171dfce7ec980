// SPDX-License-Identifier: Apache-2.0
#include "methods/leverage.h"

#include <algorithm>
#include <cmath>

#include "methods/tensors.h"

namespace kvgauge {
namespace {

// `scale` times the identity, [d, d].
Tensor Identity(LayerView& view, int64_t d, float scale) {
  std::vector<float> matrix(static_cast<size_t>(d * d));
  for (int64_t i = 0; i < d; ++i) matrix[static_cast<size_t>(i * d + i)] = scale;
  return Upload(view, std::span<const float>(matrix)).Reshape({d, d});
}

// Of a symmetric matrix whose eigenvalues are at least `least`: [d, d].
Tensor InverseOf(LayerView& view, const Tensor& matrix, float least) {
  Ops& ops = view.ops();
  const int64_t d = matrix.shape[0];
  const Tensor norm = view.Scratch(DType::kF32, {1});
  ops.rows->ReduceRows(matrix.Reshape({1, d * d}), Reduction::kNorm, norm);
  const float size = Fetch(ops, norm)[0];
  const auto square = [d](const Tensor& t) { return t.Reshape({1, d, d}); };
  Tensor inverse = Identity(view, d, 1.0f / size), next = view.Scratch(DType::kF32, {d, d});
  const Tensor twice = Identity(view, d, 2.0f), rest = view.Scratch(DType::kF32, {d, d});
  // The error 1 - least / size is squared in each round.
  const int rounds = 5 + static_cast<int>(std::ceil(std::log2(std::max(size / least, 1.0f))));
  for (int i = 0; i < rounds; ++i) {
    ops.linear->MatMulNN(square(matrix), square(inverse), -1.0f, square(rest));
    ops.rows->Combine(rest, twice, Binary::kAdd, rest);
    ops.linear->MatMulNN(square(inverse), square(rest), 1.0f, square(next));
    std::swap(inverse, next);
  }
  return inverse;
}

}  // namespace

void RidgeLeverage(LayerView& view, const Tensor& x, const Tensor& weight, float ridge,
                   Tensor out) {
  Ops& ops = view.ops();
  const int64_t n = x.shape[0], d = x.shape[1];
  // The identity times the rows transposed: exactly they, with rows and columns exchanged.
  const Tensor across = view.Scratch(DType::kF32, {d, n});
  ops.linear->MatMulNT(Identity(view, d, 1.0f).Reshape({1, d, d}), x.Reshape({1, n, d}), 1.0f,
                       across.Reshape({1, d, n}));
  if (!weight.empty()) ops.rows->Combine(across, weight, Binary::kMultiply, across);
  const Tensor gram = view.Scratch(DType::kF32, {d, d});
  ops.linear->MatMulNN(across.Reshape({1, d, n}), x.Reshape({1, n, d}), 1.0f,
                       gram.Reshape({1, d, d}));
  ops.rows->Combine(gram, Identity(view, d, ridge), Binary::kAdd, gram);
  const Tensor turned = view.Scratch(DType::kF32, {n, d});
  ops.linear->MatMulNN(x.Reshape({1, n, d}), InverseOf(view, gram, ridge).Reshape({1, d, d}), 1.0f,
                       turned.Reshape({1, n, d}));
  ops.rows->Combine(turned, x, Binary::kMultiply, turned);
  ops.rows->ReduceRows(turned, Reduction::kSum, out);
}

}  // namespace kvgauge
