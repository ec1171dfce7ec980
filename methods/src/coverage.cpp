// SPDX-License-Identifier: Apache-2.0
#include "methods/coverage.h"

#include "methods/tensors.h"

namespace kvgauge {

int64_t CoveringCount(LayerView& view, const Tensor& scores, double share) {
  Ops& ops = view.ops();
  const int64_t n = scores.shape[1], forced = CountForced(view, scores);
  if (share >= 1 || forced == n) return n;
  const Tensor masses = view.Scratch(DType::kF32, {1, n}), free = view.Scratch(DType::kF32, {1, n});
  const Tensor most = Filled(view, n, kForcedFrom);
  ops.rows->Combine(scores, most, Binary::kLess, free);
  // Before the product, for 0 times infinity is no number.
  ops.rows->Combine(scores, most, Binary::kMin, masses);
  ops.rows->Combine(masses, free, Binary::kMultiply, masses);
  ops.rows->Combine(masses, Filled(view, n, 0.0f), Binary::kMax, masses);
  const Tensor best = view.Scratch(DType::kF32, {1, n}), sum = view.Scratch(DType::kF32, {1});
  const auto sum_of_best = [&](int64_t count) {
    const Tensor some = best.Reshape({n}).Slice(0, count);
    ops.select->Gather(masses.Reshape({n, 1}), Best(view, masses, count), AsColumn(some));
    ops.rows->ReduceRows(some.Reshape({1, count}), Reduction::kSum, sum);
    return double{Fetch(ops, sum)[0]};
  };
  int64_t too_few = 0, enough = n - forced;
  const double wanted = share * sum_of_best(enough);
  if (wanted <= 0) return forced;
  while (enough - too_few > 1) {
    const int64_t middle = (too_few + enough) / 2;
    (sum_of_best(middle) >= wanted ? enough : too_few) = middle;
  }
  return forced + enough;
}

}  // namespace kvgauge
