// SPDX-License-Identifier: Apache-2.0
#include "methods/layouts/learning_basis.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/strings.h"
#include "kernels/attention.h"

namespace kvgauge {

Status LearningBasis::Check(const StoreUse& use) const {
  const ModelShape& shape = *use.shape;
  if (shape.latent_dim > 0) {
    return BadInput("keeps coordinates of heads, and this model keeps latents of its own");
  }
  if (!use.merges_keys_later.empty()) {
    return BadInput(StrCat("keeps coordinates of older keys, and ", use.merges_keys_later,
                           " would merge them with whole ones while decoding; use "
                           "trigger.prefill, which merges before that, or store.plain"));
  }
  if (key_rank < 1 || key_rank > shape.key_dim || value_rank < 1 || value_rank > shape.value_dim) {
    return BadInput(StrCat("ranks ", key_rank, " and ", value_rank, "; right is 1 .. ",
                           shape.key_dim, " for keys and 1 .. ", shape.value_dim, " for values"));
  }
  return {};
}

double LearningBasis::HeadBytes(const ModelShape& shape, int64_t entries) const {
  const auto size = static_cast<double>(SizeOf(shape.cache_dtype));
  const int64_t whole = std::min(entries, sinks + recent), rest = entries - whole;
  double bytes = 0;
  for (const auto& [rank, dim] :
       {std::pair{key_rank, shape.key_dim}, std::pair{value_rank, shape.value_dim}}) {
    bytes += static_cast<double>(whole * dim + rest * rank) * size;
    bytes += static_cast<double>(dim * rank * SizeOf(DType::kF32));
  }
  return bytes;
}

int64_t LearningBasis::EntryBits(const ModelShape& shape) const {
  return 8 * SizeOf(shape.cache_dtype) * (key_rank + value_rank);
}

// What is whole, coordinates, pages that are part filled, and both bases of a change.
int64_t LearningBasis::PlannedLayerBytes(const ModelShape& shape, int64_t entries,
                                         int64_t fresh) const {
  const auto pages = [](int64_t n) { return (n + kKvPageEntries - 1) / kKvPageEntries + 1; };
  const int64_t whole = std::min(entries, recent + every + fresh);
  int64_t bytes = 4 * entries;  // positions
  for (const auto& [rank, dim] :
       {std::pair{key_rank, shape.key_dim}, std::pair{value_rank, shape.value_dim}}) {
    const int64_t numbers = (pages(sinks) + 2 * pages(whole)) * dim + 2 * pages(entries) * rank;
    bytes += numbers * kKvPageEntries * SizeOf(shape.cache_dtype);
    bytes += 2 * dim * rank * SizeOf(DType::kF32);
  }
  return shape.kv_heads * bytes;
}

void OjaStep(Ops& ops, const Tensor& rows, float step, const Tensor& basis) {
  const int64_t n = rows.shape[0], dim = rows.shape[1], rank = basis.shape[1];
  const Buffer memory = ops.memory->Allocate(
      (dim * dim + n * dim + n * rank + 2 * dim * rank + rank * rank) * SizeOf(DType::kF32));
  int64_t at = 0;
  const auto take = [&](int64_t height, int64_t width) {
    const int64_t begin = std::exchange(at, at + height * width);
    return memory.As(DType::kF32, {at}).Slice(begin, at).Reshape({height, width});
  };
  const Tensor unit = take(dim, dim), columns = take(dim, n), coordinates = take(n, rank);
  const Tensor moved = take(dim, rank), turned = take(dim, rank), upper = take(rank, rank);
  std::vector<float> diagonal(static_cast<size_t>(dim * dim));
  for (int64_t i = 0; i < dim; ++i) diagonal[static_cast<size_t>(i * dim + i)] = 1.0f;
  ops.memory->Copy(View(diagonal, {dim, dim}), unit);
  const auto one = [](const Tensor& x) { return x.Reshape({1, x.shape[0], x.shape[1]}); };
  ops.linear->MatMulNT(one(unit), one(rows), 1.0f, one(columns));
  ops.linear->MatMulNN(one(rows), one(basis), 1.0f, one(coordinates));
  ops.linear->MatMulNN(one(columns), one(coordinates), step / static_cast<float>(n), one(moved));
  ops.rows->Combine(moved, basis, Binary::kAdd, moved);
  ops.algebra->Qr(moved, turned, upper);
  ops.memory->Copy(turned, basis);
}

}  // namespace kvgauge
