// SPDX-License-Identifier: Apache-2.0
// Layers whose attention is spread evenly hold more entries; an entry that goes is merged into the
// most similar one that stays, when it is similar enough.
//
// Paper: D2O, arXiv:2406.13035. The allocator needs the column sums of prompt attention: a layer's
// F is the variance of each head's sums over the entries, scaled to [0, 1] over its heads and
// averaged; layers share the budget by softmax(-F). The reducer needs nothing but scores and keys:
// u is the cosine of a key that goes with its nearest key that stays; at first the threshold is the
// mean u, later alpha * threshold + beta * mean u.
// Departures of the allocator: the first and last layers, which the reference leaves whole, count
// in the budget (`compat`: they do not, and shares are rounded down). Of the reducer: each head
// holds its own u against the threshold, where the reference averages u over heads that evict
// different entries; entries are merged for each KV head, not for each query head.
#include <algorithm>
#include <cmath>

#include "core/strings.h"
#include "methods/apportion.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class LayerShares final : public Allocator {
 public:
  explicit LayerShares(const Params& params)
      : whole_first_(params.Int("whole_first")),
        whole_last_(params.Int("whole_last")),
        compat_(params.Bool("compat")) {}

  Needs needs() const override { return {.column_sums = true}; }

  Status CheckBudget(const AllocationInput& input) const override {
    const int64_t layers = input.shape->layers;
    if (input.per_head >= input.length) return {};
    const int64_t whole = std::min(layers, whole_first_ + whole_last_), shared = layers - whole;
    const int64_t left = layers * input.per_head - whole * input.length;
    const int64_t least = shared * std::max<int64_t>(1, input.protected_entries);
    if (shared > 0 && (compat_ || left >= least)) return {};
    return BadInput(StrCat(whole, " of ", layers,
                           " layers stay whole, which leaves the others too little of ",
                           input.per_head, " entries a head of ", input.length,
                           "; raise the budget, lower allocate.whole_first and "
                           "allocate.whole_last, or set allocate.compat"));
  }

  Result<Allotment> Allocate(const AllocationInput& input) const override {
    KVG_TRY(CheckBudget(input));
    const int64_t layers = input.shape->layers, length = input.length;
    const auto heads = static_cast<size_t>(input.shape->kv_heads);
    Allotment allotment(static_cast<size_t>(layers), std::vector<int64_t>(heads, length));
    if (input.per_head >= length) return allotment;
    // weights[l] = exp(-F), 0 for whole layers.
    std::vector<double> weights;
    std::vector<int64_t> shared;
    for (int64_t l = 0; l < layers; ++l) {
      weights.push_back(std::exp(-Spread(*input.views[l])));
      if (l >= whole_first_ && l < layers - whole_last_) shared.push_back(l);
    }
    std::vector<int64_t> entries;
    if (compat_) {
      double all = 0;
      for (const double w : weights) all += w;
      const double ratio = static_cast<double>(input.per_head) / static_cast<double>(length);
      for (const int64_t l : shared) {
        const double share =
            std::clamp(static_cast<double>(layers) * ratio * weights[l] / all, 0.01, 1.0);
        entries.push_back(std::max(input.protected_entries,
                                   static_cast<int64_t>(share * static_cast<double>(length))));
      }
    } else {
      const auto count = static_cast<int64_t>(shared.size());
      const int64_t left = layers * input.per_head - (layers - count) * length;
      std::vector<double> open;
      for (const int64_t l : shared) open.push_back(weights[l]);
      entries = Apportion(open, left, input.protected_entries, length);
    }
    for (size_t i = 0; i < shared.size(); ++i) {
      allotment[shared[i]].assign(heads, entries[i]);
    }
    return allotment;
  }

 private:
  static double Spread(LayerView& view) {
    Ops& ops = view.ops();
    const Tensor sums = view.ColumnSums();
    const int64_t heads = sums.shape[0], n = sums.shape[1];
    Tensor means = view.Scratch(DType::kF32, {heads});
    ops.rows->ReduceRows(sums, Reduction::kMean, means);
    Tensor centred = view.Scratch(DType::kF32, {heads, n});
    const std::vector<float> mean = Fetch(ops, means);
    for (int64_t h = 0; h < heads; ++h) {
      ops.rows->Affine(sums.Slice(h, h + 1), 1.0f, -mean[h], centred.Slice(h, h + 1));
    }
    ops.rows->ReduceRows(centred, Reduction::kSumSquares, means);
    const std::vector<float> spread = Fetch(ops, means);
    const auto [least, most] = std::minmax_element(spread.begin(), spread.end());
    if (*most == *least) return 0;
    double total = 0;
    for (const float v : spread) total += double{v - *least} / double{*most - *least};
    return total / static_cast<double>(heads);
  }

  int64_t whole_first_, whole_last_;
  bool compat_;
};

class NearestMerge final : public Reducer {
 public:
  explicit NearestMerge(const Params& params)
      : exponential_(params.Text("weight") == "exp"),
        alpha_(params.Real("alpha")),
        beta_(params.Real("beta")) {}

  bool merges_keys() const override { return true; }

  struct Threshold final : State {
    bool set = false;
    double value = 0;
  };
  std::unique_ptr<State> Begin() const override { return std::make_unique<Threshold>(); }

  std::vector<HeadPlan> Reduce(LayerView& view, const ReduceInput& input,
                               State* state) const override {
    const int64_t heads = view.shape().kv_heads;
    std::vector<HeadPlan> plans;
    std::vector<Matches> matches;
    // The host asks for these once for all heads.
    const Tensor likeness = view.Scratch(DType::kF32, {heads});
    const Tensor passing = view.Scratch(DType::kF32, {heads});
    double count = 0;
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t length = view.lengths()[h], kept = std::min(length, input.allotted[h]);
      HeadPlan plan;
      plan.keep = Best(view, Columns(input.scores.Slice(h, h + 1), 0, length), kept);
      plans.push_back(plan);
      matches.push_back(Match(view, h, plan.keep));
      const int64_t gone = matches[h].gone.shape[0];
      if (gone == 0) continue;
      Add(view, matches[h].likeness, likeness.Slice(h, h + 1));
      count += static_cast<double>(gone);
    }
    if (count == 0) return plans;
    double sum = 0;
    for (const float of_head : Fetch(view.ops(), likeness)) sum += double{of_head};
    auto& threshold = *static_cast<Threshold*>(state);
    threshold.value = threshold.set ? alpha_ * threshold.value + beta_ * sum / count : sum / count;
    threshold.set = true;
    std::vector<Tensor> passes(plans.size());
    for (size_t h = 0; h < plans.size(); ++h) {
      if (matches[h].gone.shape[0] == 0) continue;
      passes[h] = Passing(view, matches[h], threshold.value);
      const auto at = static_cast<int64_t>(h);
      Add(view, passes[h], passing.Slice(at, at + 1));
    }
    const std::vector<float> counts = Fetch(view.ops(), passing);
    for (size_t h = 0; h < plans.size(); ++h) {
      const auto number = static_cast<int32_t>(counts[h]);
      if (number == 0) continue;
      plans[h].keys = plans[h].values =
          Merge(view, matches[h], passes[h], number, view.lengths()[h]);
    }
    return plans;
  }

 private:
  struct Matches {
    Tensor gone;      // [n] i32 entries that go
    Tensor nearest;   // [n] i32 the entry that stays and is most like each
    Tensor likeness;  // [n] their cosine
  };

  // Rows of the similarity matrix at a time: it is never held whole.
  static constexpr int64_t kRows = 512;

  static Matches Match(LayerView& view, int64_t head, const Tensor& keep) {
    Ops& ops = view.ops();
    Matches found;
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
    const int64_t most = std::min(n, kRows);
    Tensor go = view.Scratch(DType::kF32, {most, dim});
    Tensor cosine = view.Scratch(DType::kF32, {most, kept});
    Tensor best = view.Scratch(DType::kI32, {most});
    for (int64_t begin = 0; begin < n; begin += kRows) {
      const int64_t rows = std::min(kRows, n - begin), end = begin + rows;
      ops.select->Gather(keys, found.gone.Slice(begin, end), go.Slice(0, rows));
      ops.algebra->CosineSimilarity(go.Slice(0, rows), stay, cosine.Slice(0, rows));
      ops.rows->ReduceRows(cosine.Slice(0, rows), Reduction::kMax,
                           found.likeness.Slice(begin, end));
      ops.rows->ArgMax(cosine.Slice(0, rows), best.Slice(0, rows));
      ops.select->Gather(AsColumn(keep), best.Slice(0, rows),
                         AsColumn(found.nearest.Slice(begin, end)));
    }
    return found;
  }

  static void Add(LayerView& view, const Tensor& values, const Tensor& sum) {
    view.ops().rows->ReduceRows(values.Reshape({1, values.shape[0]}), Reduction::kSum, sum);
  }

  // [n]: 1 for those that are like enough.
  static Tensor Passing(LayerView& view, const Matches& found, double threshold) {
    Ops& ops = view.ops();
    const int64_t n = found.gone.shape[0];
    Tensor pass = view.Scratch(DType::kF32, {1, n});
    const Tensor bound = Filled(view, n, static_cast<float>(threshold));
    ops.rows->Combine(found.likeness.Reshape({1, n}), bound.Reshape({1, n}), Binary::kLess, pass);
    ops.rows->Affine(pass, -1.0f, 1.0f, pass);
    return pass.Reshape({n});
  }

  // Of those `count` that pass.
  MergeList Merge(LayerView& view, const Matches& found, const Tensor& pass, int32_t count,
                  int64_t length) const {
    Ops& ops = view.ops();
    MergeList list;
    Tensor chosen = view.Scratch(DType::kI32, {count});
    ops.select->TopK(pass.Reshape({1, pass.shape[0]}), Upload(view, std::span(&count, 1)),
                     chosen.Reshape({1, count}));
    const auto choose = [&](const Tensor& from, DType dtype) {
      Tensor out = view.Scratch(dtype, {count});
      ops.select->Gather(AsColumn(from), chosen, AsColumn(out));
      return out;
    };
    list.from = choose(found.gone, DType::kI32);
    list.to = choose(found.nearest, DType::kI32);
    list.weight = choose(found.likeness, DType::kF32);
    const Tensor row = list.weight.Reshape({1, count});

    // exp: weights e^u / (e + sum e^u), self e / (e + sum e^u);
    // mean: weights u / (1 + number), self 1 / (1 + number).
    const float own = exponential_ ? std::exp(1.0f) : 1.0f;
    if (exponential_) ops.rows->Activate(row, Activation::kExp, row);
    Tensor sum = Filled(view, length, own);
    const Tensor added = exponential_ ? list.weight : Filled(view, count, 1.0f);
    ops.select->ScatterAdd(AsColumn(added), list.to, {}, AsColumn(sum));
    list.self = Filled(view, length, own);
    ops.rows->Combine(list.self.Reshape({1, length}), sum.Reshape({1, length}), Binary::kDivide,
                      list.self.Reshape({1, length}));
    Tensor of_target = view.Scratch(DType::kF32, {count});
    ops.select->Gather(AsColumn(sum), list.to, AsColumn(of_target));
    ops.rows->Combine(row, of_target.Reshape({1, count}), Binary::kDivide, row);
    return list;
  }

  bool exponential_;
  double alpha_, beta_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kAllocate,
    .id = "d2o",
    .paper = "arXiv:2406.13035",
    .summary = "layers with evenly spread attention hold more",
    .departures = {"layers that stay whole count in the budget; with compat they do not"},
    .params = {IntParam("whole_first", 2, 0, 1000, "first layers that stay whole"),
               IntParam("whole_last", 1, 0, 1000, "last layers that stay whole"),
               BoolParam("compat", false,
                         "share as the reference does, whose sum is not the budget")},
    .make = Make<LayerShares>(),
});

KVG_REGISTER_STAGE({
    .kind = StageKind::kReduce,
    .id = "d2o",
    .paper = "arXiv:2406.13035",
    .summary = "top-k, and what goes is merged into its nearest key that stays",
    .departures = {"each head holds its own similarities against the threshold; the reference "
                   "averages them over heads that evict different entries",
                   "merges per KV head, not per query head"},
    .params = {ChoiceParam("weight", "mean", {"mean", "exp"},
                           "mean: of similarity-scaled entries, as released; exp: normalised "
                           "exponentials, as in the paper"),
               RealParam("alpha", 0.5, 0, 1, "share of the old threshold"),
               RealParam("beta", 0.5, 0, 1, "share of the newest mean similarity")},
    .make = Make<NearestMerge>(),
});

}  // namespace
}  // namespace kvgauge
