// SPDX-License-Identifier: Apache-2.0
#include "methods/compactor_scores.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "core/rng.h"
#include "methods/tensors.h"
#include "methods/window_scorer.h"

namespace kvgauge {
namespace {

constexpr float kLeastDeviation = 1e-6f;
constexpr double kRidge = 1e-2;
constexpr int kRidgeTries = 8;

// out = (scores - mean) / deviation, over all of them. scores: [m, n], contiguous.
void Standardize(LayerView& view, const Tensor& scores, Tensor out) {
  RowOps& ops = *view.ops().rows;
  const int64_t count = scores.Numel();
  const Tensor all = scores.Reshape({count, 1});
  const Tensor centred = view.Scratch(DType::kF32, {count, 1});
  const Tensor mean = view.Scratch(DType::kF32, {1}), deviation = view.Scratch(DType::kF32, {1, 1});
  RowMoments(ops, all, centred, mean, deviation.Reshape({1}));
  ops.Activate(deviation, Activation::kSqrt, deviation);
  ops.Combine(deviation, Filled(view, 1, kLeastDeviation), Binary::kMax, deviation);
  ops.Combine(centred, deviation.Reshape({1}), Binary::kDivide, centred);
  ops.Convert(centred.Reshape({scores.shape[0], scores.shape[1]}), out);
}

// The inverse of the transposed Cholesky factor of `matrix` + ridge; the ridge grows until there
// is a factor. Row-major, `size` x `size`.
std::vector<float> InverseFactor(std::span<const float> matrix, int64_t size) {
  const auto at = [&](int64_t i, int64_t j) { return static_cast<size_t>(i * size + j); };
  std::vector<double> factor(matrix.size());
  double ridge = kRidge;
  for (int attempt = 0; attempt < kRidgeTries; ++attempt, ridge *= 10) {
    bool positive = true;
    for (int64_t i = 0; i < size && positive; ++i) {
      for (int64_t j = 0; j <= i; ++j) {
        double sum = 0.5 * (double{matrix[at(i, j)]} + double{matrix[at(j, i)]});
        if (i == j) sum += ridge;
        for (int64_t k = 0; k < j; ++k) sum -= factor[at(i, k)] * factor[at(j, k)];
        factor[at(i, j)] = i == j ? std::sqrt(sum) : sum / factor[at(j, j)];
      }
      positive = factor[at(i, i)] > 0;
    }
    if (positive) break;
  }
  // Column j of the inverse of the factor; row j of what is asked for.
  std::vector<float> inverse(matrix.size());
  std::vector<double> column(static_cast<size_t>(size));
  for (int64_t j = 0; j < size; ++j) {
    for (int64_t i = j; i < size; ++i) {
      double sum = i == j ? 1 : 0;
      for (int64_t k = j; k < i; ++k) sum -= factor[at(i, k)] * column[static_cast<size_t>(k)];
      column[static_cast<size_t>(i)] = sum / factor[at(i, i)];
      inverse[at(j, i)] = static_cast<float>(column[static_cast<size_t>(i)]);
    }
  }
  return inverse;
}

// Keys before rotation less their mean: [n, dim].
Tensor Centred(LayerView& view, int64_t head, int64_t first, int64_t n) {
  const int64_t dim = view.shape().key_dim;
  const Tensor keys = view.RawKeys(head, first).Slice(0, n);
  const Tensor mean = view.Scratch(DType::kF32, {dim});
  const Tensor centred = view.Scratch(DType::kF32, {n, dim});
  view.ops().rows->ReduceColumns(keys, Reduction::kMean, mean);
  view.ops().rows->Combine(keys, mean, Binary::kSubtract, centred);
  return centred;
}

// Gaussian numbers of variance 1 / sketch, [dim, sketch].
Tensor Directions(LayerView& view, int64_t head, int64_t sketch) {
  const int64_t dim = view.shape().key_dim;
  Rng rng(view.seed(), static_cast<uint64_t>(view.layer() * view.shape().kv_heads + head));
  std::vector<float> numbers(static_cast<size_t>(dim * sketch));
  for (float& number : numbers) {
    number = static_cast<float>(rng.NextGaussian() / std::sqrt(static_cast<double>(sketch)));
  }
  return Upload(view, numbers).Reshape({dim, sketch});
}

}  // namespace

void NonCausalScores(LayerView& view, const ChunkAttention& of, Tensor out) {
  Ops& ops = view.ops();
  const int64_t n = out.shape[1], heads = view.shape().kv_heads, group = view.shape().group();
  const Tensor sums = view.ChunkSums(of);
  const Tensor scores = view.Scratch(DType::kF32, {heads, n});
  const Tensor pooled = view.Scratch(DType::kF32, {heads, n});
  const Tensor lengths = view.Scratch(DType::kF32, {1, n});
  for (int64_t h = 0; h < heads; ++h) {
    ops.rows->ReduceColumns(Columns(sums.Slice(h * group, (h + 1) * group), of.first, of.first + n),
                            Reduction::kMean, scores[h]);
    const int64_t held = std::min(view.lengths()[h] - of.first, n);
    if (held <= 0) continue;
    const Tensor own = Columns(scores.Slice(h, h + 1), 0, held), size = Columns(lengths, 0, held);
    ops.rows->ReduceRows(view.Values(h, of.first).Slice(0, held), Reduction::kNorm,
                         size.Reshape({held}));
    ops.rows->Combine(own, size, Binary::kMultiply, own);
  }
  ops.select->Pool(scores, 3, Pooling::kAverage, pooled);
  Standardize(view, pooled, out);
}

ParamSpec SketchParam() {
  return IntParam("sketch", 48, 0, 4096,
                  "random directions in which leverage is taken; 0: those of the keys");
}

Status CheckRawKeys(const ModelShape& shape) {
  if (shape.latent_dim == 0) return {};
  return BadInput(
      "takes keys before rotation, and those of this model's latent attention are rotated in part; "
      "use it with a separate key projection");
}

void LeverageScores(LayerView& view, int64_t sketch, int64_t first, Tensor out) {
  Ops& ops = view.ops();
  const int64_t heads = view.shape().kv_heads, dim = view.shape().key_dim;
  const int64_t size = sketch > 0 ? sketch : dim;
  std::vector<float> identity(static_cast<size_t>(size * size));
  for (int64_t i = 0; i < size; ++i) identity[static_cast<size_t>(i * size + i)] = 1.0f;
  const Tensor unit = Upload(view, identity).Reshape({1, size, size});
  const Tensor products = view.Scratch(DType::kF32, {heads, size, size});
  std::vector<Tensor> rows;
  for (int64_t h = 0; h < heads; ++h) {
    const int64_t n = std::clamp<int64_t>(view.lengths()[h] - first, 0, out.shape[1]);
    rows.push_back({});
    if (n == 0) continue;
    rows.back() = Centred(view, h, first, n).Reshape({1, n, dim});
    if (sketch > 0) {
      const Tensor fewer = view.Scratch(DType::kF32, {1, n, sketch});
      ops.linear->MatMulNN(rows.back(), Directions(view, h, sketch).Reshape({1, dim, sketch}), 1.0f,
                           fewer);
      rows.back() = fewer;
    }
    // The identity times them transposed: exactly they, with rows and columns exchanged.
    const Tensor across = view.Scratch(DType::kF32, {1, size, n});
    ops.linear->MatMulNT(unit, rows.back(), 1.0f, across);
    ops.linear->MatMulNN(across, rows.back(), 1.0f, products.Slice(h, h + 1));
  }
  const std::vector<float> fetched = Fetch(ops, products);
  const Tensor scores = view.Scratch(DType::kF32, {heads, out.shape[1]});
  for (int64_t h = 0; h < heads; ++h) {
    const Tensor& own = rows[static_cast<size_t>(h)];
    if (own.empty()) continue;
    const int64_t n = own.shape[1];
    const auto matrix = std::span(fetched).subspan(static_cast<size_t>(h * size * size),
                                                   static_cast<size_t>(size * size));
    const Tensor factor = Upload(view, InverseFactor(matrix, size)).Reshape({1, size, size});
    const Tensor turned = view.Scratch(DType::kF32, {1, n, size});
    ops.linear->MatMulNN(own, factor, 1.0f, turned);
    ops.rows->ReduceRows(turned.Reshape({n, size}), Reduction::kSumSquares, scores[h].Slice(0, n));
  }
  Standardize(view, scores, out);
}

}  // namespace kvgauge
