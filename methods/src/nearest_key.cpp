// SPDX-License-Identifier: Apache-2.0
#include "methods/nearest_key.h"

#include <algorithm>

#include "methods/tensors.h"

namespace kvgauge {
namespace {

// Rows of the similarity matrix at a time: it is never held whole.
constexpr int64_t kRowsAtOnce = 512;

}  // namespace

NearestKeys NearestKept(LayerView& view, int64_t head, const Tensor& keep) {
  Ops& ops = view.ops();
  NearestKeys found;
  found.gone = Complement(view, keep, view.lengths()[head]);
  const int64_t n = found.gone.shape[0], kept = keep.shape[0], dim = view.shape().key_dim;
  if (n == 0 || kept == 0) {
    found.gone = found.gone.Slice(0, 0);
    return found;
  }
  found.nearest = view.Scratch(DType::kI32, {n});
  found.likeness = view.Scratch(DType::kF32, {n});
  const Tensor keys = view.Keys(head);
  Tensor stay = view.Scratch(DType::kF32, {kept, dim});
  ops.select->Gather(keys, keep, stay);
  const int64_t most = std::min(n, kRowsAtOnce);
  Tensor go = view.Scratch(DType::kF32, {most, dim});
  Tensor cosine = view.Scratch(DType::kF32, {most, kept});
  Tensor best = view.Scratch(DType::kI32, {most});
  for (int64_t begin = 0; begin < n; begin += kRowsAtOnce) {
    const int64_t rows = std::min(kRowsAtOnce, n - begin), end = begin + rows;
    ops.select->Gather(keys, found.gone.Slice(begin, end), go.Slice(0, rows));
    ops.algebra->CosineSimilarity(go.Slice(0, rows), stay, cosine.Slice(0, rows));
    ops.rows->ReduceRows(cosine.Slice(0, rows), Reduction::kMax, found.likeness.Slice(begin, end));
    ops.rows->ArgMax(cosine.Slice(0, rows), best.Slice(0, rows));
    ops.select->Gather(AsColumn(keep), best.Slice(0, rows),
                       AsColumn(found.nearest.Slice(begin, end)));
  }
  return found;
}

}  // namespace kvgauge
