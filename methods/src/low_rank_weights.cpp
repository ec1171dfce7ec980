// SPDX-License-Identifier: Apache-2.0
#include "methods/low_rank_weights.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "methods/basis_change.h"
#include "methods/tensors.h"

namespace kvgauge {

Buffer AllocateFloats(Ops& ops, int64_t numbers) {
  return ops.memory->Allocate(numbers * SizeOf(DType::kF32));
}

namespace {

// basis * H, in new memory.
Buffer TurnedByHadamard(Ops& ops, const Tensor& basis) {
  const int64_t rows = basis.shape[0], rank = basis.shape[1];
  const BasisChange change = HadamardBasis(rank);
  Buffer memory = AllocateFloats(ops, rank * (rows + rank));
  const Tensor all = memory.As(DType::kF32, {rank * (rows + rank)});
  const Tensor matrix = all.Slice(rows * rank, all.shape[0]).Reshape({1, rank, rank});
  ops.memory->Copy(View(*change.there, {1, rank, rank}), matrix);
  ops.linear->MatMulNN(basis.Reshape({1, rows, rank}), matrix, 1.0f,
                       all.Slice(0, rows * rank).Reshape({1, rows, rank}));
  return memory;
}

}  // namespace

Status LowerRank(WeightView& weights, int64_t layer, KvSide side, std::span<const int64_t> ranks,
                 const LowRankOptions& options, const BasisOfRows& basis_of) {
  const bool keys = side == KvSide::kKeys;
  const auto matrix = keys ? WeightView::Matrix::kKey : WeightView::Matrix::kValue;
  const ModelShape& shape = weights.shape();
  const int64_t heads = options.heads, rows = heads * (keys ? shape.key_dim : shape.value_dim);
  KVG_ASSIGN(const Tensor read, weights.Read(layer, matrix));
  KVG_ASSIGN(const Tensor bias, weights.ReadBias(layer, matrix));
  Ops& ops = weights.ops();
  const int64_t all = read.shape[0], inputs = read.shape[1];
  const int64_t columns = inputs + (bias.empty() ? 0 : 1);
  const Buffer joined = AllocateFloats(ops, all * columns);
  const Tensor stack = joined.As(DType::kF32, {all, columns});
  ops.rows->Convert(read, Columns(stack, 0, inputs));
  if (!bias.empty()) ops.rows->Convert(AsColumn(bias), Columns(stack, inputs, columns));

  for (int64_t g = 0; g < std::ssize(ranks); ++g) {
    const int64_t rank = std::min(ranks[static_cast<size_t>(g)], std::min(rows, columns));
    const Tensor part = stack.Slice(g * rows, (g + 1) * rows);
    const Buffer memory = AllocateFloats(ops, rank * (rows + columns));
    const Tensor all_memory = memory.As(DType::kF32, {rank * (rows + columns)});
    const Tensor basis = all_memory.Slice(0, rows * rank).Reshape({rows, rank});
    const Tensor inner =
        all_memory.Slice(rows * rank, all_memory.shape[0]).Reshape({rank, columns});
    KVG_TRY(basis_of(part, g, basis, inner));
    Tensor written = basis;
    Buffer turned;
    if (options.hadamard) {
      turned = TurnedByHadamard(ops, basis);
      written = turned.As(DType::kF32, {rows, rank});
    }
    KVG_TRY(weights.WriteBasis(layer, side, g * heads, heads, written));
    // The stack as the basis holds it.
    ops.linear->MatMulNN(basis.Reshape({1, rows, rank}), inner.Reshape({1, rank, columns}), 1.0f,
                         part.Reshape({1, rows, columns}));
  }
  const Buffer weight_memory = AllocateFloats(ops, all * inputs);
  const Buffer bias_memory = AllocateFloats(ops, all);
  const Tensor projected = weight_memory.As(DType::kF32, {all, inputs});
  ops.rows->Convert(Columns(stack, 0, inputs), projected);
  KVG_TRY(weights.Write(layer, matrix, projected));
  if (bias.empty()) return {};
  const Tensor projected_bias = bias_memory.As(DType::kF32, {all});
  ops.rows->Convert(Columns(stack, inputs, columns), AsColumn(projected_bias));
  return weights.WriteBias(layer, matrix, projected_bias);
}

void TakeLeadingVectors(Ops& ops, const Tensor& part, const Tensor& basis, const Tensor& inner) {
  const int64_t rows = part.shape[0], columns = part.shape[1], full = std::min(rows, columns);
  const int64_t rank = basis.shape[1];
  const Buffer u_memory = AllocateFloats(ops, rows * full), s_memory = AllocateFloats(ops, full);
  const Buffer vt_memory = AllocateFloats(ops, full * columns);
  const Tensor u = u_memory.As(DType::kF32, {rows, full}), s = s_memory.As(DType::kF32, {full});
  const Tensor vt = vt_memory.As(DType::kF32, {full, columns});
  ops.algebra->Svd(part, u, s, vt);
  ops.rows->Convert(Columns(u, 0, rank), basis);
  const std::vector<float> scale = Fetch(ops, s);
  for (int64_t i = 0; i < rank; ++i) {
    ops.rows->Affine(vt.Slice(i, i + 1), scale[static_cast<size_t>(i)], 0.0f,
                     inner.Slice(i, i + 1));
  }
}

void TakeDirections(Ops& ops, const Tensor& directions, const Tensor& part, const Tensor& basis,
                    const Tensor& inner) {
  const int64_t rows = part.shape[0], columns = part.shape[1], rank = basis.shape[1];
  std::vector<float> transposed(static_cast<size_t>(rows * rank));
  for (int64_t i = 0; i < rank; ++i) {
    for (int64_t r = 0; r < rows; ++r) {
      transposed[static_cast<size_t>(r * rank + i)] = directions[i].f32()[r];
    }
  }
  ops.memory->Copy(View(transposed, {rows, rank}), basis);
  const Buffer memory = AllocateFloats(ops, rank * rows);
  const Tensor across = memory.As(DType::kF32, {rank, rows});
  ops.memory->Copy(directions.Slice(0, rank), across);
  ops.linear->MatMulNN(across.Reshape({1, rank, rows}), part.Reshape({1, rows, columns}), 1.0f,
                       inner.Reshape({1, rank, columns}));
}

void MomentDirections(Ops& ops, const std::vector<double>& sum, int64_t tokens,
                      std::vector<float>& directions, std::vector<float>& energy) {
  const auto dims = static_cast<int64_t>(std::llround(std::sqrt(static_cast<double>(sum.size()))));
  double trace = 0;
  for (int64_t i = 0; i < dims; ++i) trace += sum[static_cast<size_t>(i * dims + i)];
  trace /= static_cast<double>(tokens);
  // Moves no eigenvector, and keeps those that nothing was seen of orthogonal to the others.
  const double ridge = trace > 0 ? 1e-6 * trace / static_cast<double>(dims) : 1.0;
  std::vector<float> matrix(sum.size());
  for (size_t i = 0; i < sum.size(); ++i) {
    const bool diagonal = i % static_cast<size_t>(dims + 1) == 0;
    matrix[i] = static_cast<float>(sum[i] / static_cast<double>(tokens) + (diagonal ? ridge : 0.0));
  }
  const Buffer memory = AllocateFloats(ops, 3 * dims * dims + dims);
  const Tensor all = memory.As(DType::kF32, {3 * dims * dims + dims});
  const auto square = [&](int64_t i) {
    return all.Slice(i * dims * dims, (i + 1) * dims * dims).Reshape({dims, dims});
  };
  const Tensor s = all.Slice(3 * dims * dims, all.shape[0]);
  ops.memory->Copy(View(matrix, {dims, dims}), square(0));
  ops.algebra->Svd(square(0), square(1), s, square(2));
  directions = Fetch(ops, square(2));
  energy = Fetch(ops, s);
  for (float& e : energy) e = std::max(0.0f, e - static_cast<float>(ridge));
}

}  // namespace kvgauge
