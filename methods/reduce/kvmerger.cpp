// SPDX-License-Identifier: Apache-2.0
// Neighbouring entries whose keys are alike become one.
//
// Paper: KVMerger, arXiv:2407.08454. Needs scores (attention that entries received) and keys. The
// pairs of neighbours with the largest cosine are joined, as many as the budget asks for, so that
// runs of joined entries are what one slot holds. The entry of a run with the highest score is its
// pivot; the others weigh exp(-d^2 / 2 s^2), where d is the distance of their key from the pivot's
// and s is the run's mean d over the root of 2. The slot holds the weighted mean of keys and of
// values, at the pivot's position.
// Departures: the number of joined pairs follows from the budget, where the paper joins all above a
// threshold; what is protected is what the method file says, not the entries with most attention.
#include <algorithm>

#include "methods/merge_list.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

// Under any cosine.
constexpr float kNeverJoined = -4.0f;
constexpr float kOutside = -3e37f;

class KvMerger final : public Reducer {
 public:
  explicit KvMerger(const Params&) {}

  bool merges_keys() const override { return true; }

  std::vector<HeadPlan> Reduce(LayerView& view, const ReduceInput& input, State*) const override {
    std::vector<HeadPlan> plans;
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t length = view.lengths()[h], kept = std::min(length, input.allocated[h]);
      const Tensor scores = Columns(input.scores.Slice(h, h + 1), 0, length);
      HeadPlan plan;
      if (kept == length || kept == 0) {
        plan.keep = Best(view, scores, kept);
      } else {
        Join(view, h, scores, kept, plan);
      }
      plans.push_back(plan);
    }
    return plans;
  }

 private:
  static void Join(LayerView& view, int64_t head, const Tensor& scores, int64_t kept,
                   HeadPlan& plan) {
    Ops& ops = view.ops();
    const int64_t n = scores.shape[1];
    // The last entry of each run is the one that is not joined to its successor.
    const Tensor open = Filled(view, n, 1.0f);
    ops.select->Scatter(view.Scratch(DType::kF32, {n - kept, 1}),
                        Best(view, Cosines(view, head, scores), n - kept), AsColumn(open));
    const Tensor ends = Best(view, open.Reshape({1, n}), kept);
    const Tensor end_of = view.Scratch(DType::kI32, {n}), run = view.Scratch(DType::kF32, {n});
    ops.select->Following(ends, Numbers(view, n, -1), end_of.Reshape({1, n}));
    ops.rows->Convert(end_of.Reshape({1, n}), run.Reshape({1, n}));

    plan.keep = Pivots(view, scores, run, kept);
    const Tensor pivot_at = view.Scratch(DType::kI32, {n}),
                 pivot_of = view.Scratch(DType::kI32, {n});
    ops.select->Scatter(AsColumn(plan.keep), ends, AsColumn(pivot_at));
    ops.select->Gather(AsColumn(pivot_at), end_of, AsColumn(pivot_of));
    const Tensor weights = Gaussian(view, head, pivot_of);

    MergeList list;
    list.from = Complement(view, plan.keep, n);
    list.to = view.Scratch(DType::kI32, {n - kept});
    list.weight = view.Scratch(DType::kF32, {n - kept});
    ops.select->Gather(AsColumn(pivot_of), list.from, AsColumn(list.to));
    ops.select->Gather(AsColumn(weights), list.from, AsColumn(list.weight));
    NormalizeMerge(view, n, list);
    plan.keys = plan.values = list;
  }

  // Of each entry and the next, [1, n - 1]; a pair with a protected entry is never joined.
  static Tensor Cosines(LayerView& view, int64_t head, const Tensor& scores) {
    Ops& ops = view.ops();
    const int64_t n = scores.shape[1], dim = view.shape().key_dim;
    const Tensor units = view.Scratch(DType::kF32, {n, dim});
    const Tensor products = view.Scratch(DType::kF32, {n - 1, dim});
    const Tensor cosines = view.Scratch(DType::kF32, {1, n - 1});
    ops.rows->RmsNorm(view.Keys(head), Filled(view, dim, 1.0f), 0.0f, 1e-20f, units);
    ops.rows->Combine(units.Slice(0, n - 1), units.Slice(1, n), Binary::kMultiply, products);
    ops.rows->ReduceRows(products, Reduction::kMean, cosines[0]);
    const Tensor held = view.Scratch(DType::kF32, {1, n});
    ops.rows->Combine(Filled(view, n, kForcedFrom).Reshape({1, n}), scores, Binary::kLess, held);
    ops.rows->Affine(held, kNeverJoined, 0.0f, held);
    ops.rows->Combine(cosines, Columns(held, 0, n - 1), Binary::kAdd, cosines);
    ops.rows->Combine(cosines, Columns(held, 1, n), Binary::kAdd, cosines);
    return cosines;
  }

  // The entry with the highest score of each run, the first among equals: [kept] i32.
  static Tensor Pivots(LayerView& view, const Tensor& scores, const Tensor& run, int64_t kept) {
    RowOps& ops = *view.ops().rows;
    const int64_t n = scores.shape[1];
    const Tensor own = view.Scratch(DType::kF32, {1, n}), best = view.Scratch(DType::kF32, {1, n});
    ops.Combine(scores, Filled(view, n, kForcedScore), Binary::kMin, own);
    const auto mark = [&] {
      ops.Combine(own, RunMax(view, own, run), Binary::kLess, best);
      ops.Affine(best, -1.0f, 1.0f, best);
    };
    mark();
    // Of those that score alike the first: how far each is from the end of the head.
    ops.Convert(Numbers(view, n, static_cast<int32_t>(n), -1).Reshape({1, n}), own);
    ops.Combine(own, best, Binary::kMultiply, own);
    mark();
    return Best(view, best, kept);
  }

  // [1, n]: the largest number of each entry's run. run: [n], equal within runs.
  static Tensor RunMax(LayerView& view, const Tensor& x, const Tensor& run) {
    RowOps& ops = *view.ops().rows;
    const int64_t n = x.shape[1];
    const Tensor runs = run.Reshape({1, n});
    const Tensor most = view.Scratch(DType::kF32, {1, n}), old = view.Scratch(DType::kF32, {1, n});
    const Tensor apart = view.Scratch(DType::kF32, {1, n}), far = view.Scratch(DType::kF32, {1, n});
    ops.Convert(x, most);
    for (int64_t step = 1; step < n; step *= 2) {
      const int64_t m = n - step;
      ops.Convert(most, old);
      // Pairs `step` apart, far below all numbers where they are not of one run.
      const Tensor gap = Columns(apart, 0, m), other = Columns(far, 0, m);
      ops.Combine(Columns(runs, 0, m), Columns(runs, step, n), Binary::kLess, gap);
      ops.Affine(gap, kOutside, 0.0f, gap);
      for (const bool ahead : {true, false}) {
        ops.Combine(Columns(old, ahead ? step : 0, ahead ? n : m), gap, Binary::kAdd, other);
        const Tensor to = Columns(most, ahead ? 0 : step, ahead ? m : n);
        ops.Combine(to, other, Binary::kMax, to);
      }
    }
    return most;
  }

  // [n], 1 for a pivot.
  static Tensor Gaussian(LayerView& view, int64_t head, const Tensor& pivot_of) {
    Ops& ops = view.ops();
    const int64_t n = pivot_of.shape[0], dim = view.shape().key_dim;
    const Tensor keys = view.Keys(head), off = view.Scratch(DType::kF32, {n, dim});
    const Tensor apart = view.Scratch(DType::kF32, {n}), sum = view.Scratch(DType::kF32, {n});
    const Tensor count = view.Scratch(DType::kF32, {n}), mean = view.Scratch(DType::kF32, {n});
    ops.select->Gather(keys, pivot_of, off);
    ops.rows->Combine(off, keys, Binary::kSubtract, off);
    ops.rows->ReduceRows(off, Reduction::kNorm, apart);
    ops.select->ScatterAdd(AsColumn(apart), pivot_of, {}, AsColumn(sum));
    ops.select->ScatterAdd(AsColumn(Filled(view, n, 1.0f)), pivot_of, {}, AsColumn(count));
    const auto row = [n](const Tensor& t) { return t.Reshape({1, n}); };
    ops.rows->Combine(row(count), Filled(view, n, 1.0f), Binary::kMax, row(count));
    ops.rows->Combine(row(sum), row(count), Binary::kDivide, row(sum));
    ops.select->Gather(AsColumn(sum), pivot_of, AsColumn(mean));
    // d^2 / 2 s^2 is the square of d over the mean; a run of equal keys has neither.
    ops.rows->Combine(row(mean), Filled(view, n, 1e-20f), Binary::kMax, row(mean));
    ops.rows->Combine(row(apart), row(mean), Binary::kDivide, row(apart));
    ops.rows->Combine(row(apart), apart, Binary::kMultiply, row(apart));
    ops.rows->Affine(row(apart), -1.0f, 0.0f, row(apart));
    ops.rows->Activate(row(apart), Activation::kExp, row(apart));
    return apart;
  }
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kReduce,
    .id = "kvmerger",
    .paper = "arXiv:2407.08454",
    .summary = "neighbours with like keys become one entry, by a Gaussian around the best of them",
    .departures = {"as many pairs are joined as the budget asks for, where the paper joins all "
                   "above a threshold",
                   "protected are those of the method file, not the entries with most attention"},
    .make = Make<KvMerger>(),
});

}  // namespace
}  // namespace kvgauge
