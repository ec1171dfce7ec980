// SPDX-License-Identifier: Apache-2.0
// Top-k; an entry that goes is merged into the most similar one that stays, when it is similar
// enough.
//
// Paper: D2O, arXiv:2406.13035. Needs nothing but scores and keys: u is the cosine of a key that
// goes with its nearest key that stays; at first the threshold is the mean u, later alpha *
// threshold + beta * mean u.
// As in the reference, u is averaged over the heads of the layer before it is held against the
// threshold: over entries of the same rank among those that go, whatever entries these are. Where
// heads give up different numbers of entries there are no such ranks, and each holds its own u.
#include <algorithm>
#include <cmath>

#include "methods/nearest_key.h"
#include "methods/registry.h"
#include "methods/state_fields.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class NearestMerge final : public Reducer {
 public:
  explicit NearestMerge(const Params& params)
      : exponential_(params.Text("weight") == "exp"),
        by_head_(params.Text("threshold") == "head"),
        alpha_(params.Real("alpha")),
        beta_(params.Real("beta")) {}

  bool merges_keys() const override { return true; }

  struct Threshold final : State {
    bool set = false;
    double value = 0;
    Status Fields(StateFields& fields, int64_t, int64_t) override {
      KVG_TRY(fields.Flag("whether there is a threshold", &set));
      return fields.Real("threshold", &value);
    }
  };
  std::unique_ptr<State> Begin() const override { return std::make_unique<Threshold>(); }

  std::vector<HeadPlan> Reduce(LayerView& view, const ReduceInput& input,
                               State* state) const override {
    const int64_t heads = view.shape().kv_heads;
    std::vector<HeadPlan> plans;
    std::vector<NearestKeys> matches;
    // The host asks for these once for all heads.
    const Tensor likeness = view.Scratch(DType::kF32, {heads});
    const Tensor passing = view.Scratch(DType::kF32, {heads});
    double count = 0;
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t length = view.lengths()[h], kept = std::min(length, input.allocated[h]);
      HeadPlan plan;
      plan.keep = Best(view, Columns(input.scores.Slice(h, h + 1), 0, length), kept);
      plans.push_back(plan);
      matches.push_back(NearestKept(view, h, plan.keep));
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
    const Tensor shared = by_head_ ? Tensor() : MeanLikeness(view, matches);
    std::vector<Tensor> passes(plans.size());
    for (size_t h = 0; h < plans.size(); ++h) {
      if (matches[h].gone.shape[0] == 0) continue;
      passes[h] = Passing(view, shared.empty() ? matches[h].likeness : shared, threshold.value);
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
  static void Add(LayerView& view, const Tensor& values, const Tensor& sum) {
    view.ops().rows->ReduceRows(values.Reshape({1, values.shape[0]}), Reduction::kSum, sum);
  }

  // Over heads, by rank: [n]. Empty where heads give up different numbers of entries.
  static Tensor MeanLikeness(LayerView& view, const std::vector<NearestKeys>& found) {
    const auto heads = static_cast<int64_t>(found.size());
    const int64_t n = found[0].gone.shape[0];
    for (const NearestKeys& head : found) {
      if (head.gone.shape[0] != n) return {};
    }
    const Tensor all = view.Scratch(DType::kF32, {heads, n});
    for (int64_t h = 0; h < heads; ++h) {
      view.ops().memory->Copy(found[static_cast<size_t>(h)].likeness, all[h]);
    }
    const Tensor mean = view.Scratch(DType::kF32, {n});
    view.ops().rows->ReduceColumns(all, Reduction::kMean, mean);
    return mean;
  }

  // [n]: 1 for those that are like enough.
  static Tensor Passing(LayerView& view, const Tensor& likeness, double threshold) {
    Ops& ops = view.ops();
    const int64_t n = likeness.shape[0];
    Tensor pass = view.Scratch(DType::kF32, {1, n});
    const Tensor bound = Filled(view, n, static_cast<float>(threshold));
    ops.rows->Combine(likeness.Reshape({1, n}), bound.Reshape({1, n}), Binary::kLess, pass);
    ops.rows->Affine(pass, -1.0f, 1.0f, pass);
    return pass.Reshape({n});
  }

  // Merges the `count` matches that pass.
  MergeList Merge(LayerView& view, const NearestKeys& found, const Tensor& pass, int32_t count,
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

  bool exponential_, by_head_;
  double alpha_, beta_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kReduce,
    .id = "d2o",
    .version = 2,
    .paper = "arXiv:2406.13035",
    .summary = "top-k, and what goes is merged into its nearest key that stays",
    .departures = {"merges per KV head, not per query head"},
    .params = {ChoiceParam("weight", "mean", {"mean", "exp"},
                           "mean: of similarity-scaled entries, as released; exp: normalised "
                           "exponentials, as in the paper"),
               ChoiceParam("threshold", "layer", {"layer", "head"},
                           "what is held against the threshold: similarities averaged over the "
                           "heads of a layer, rank by rank, as released, or each head's own"),
               RealParam("alpha", 0.5, 0, 1, "share of the old threshold"),
               RealParam("beta", 0.5, 0, 1, "share of the newest mean similarity")},
    .make = Make<NearestMerge>(),
});

}  // namespace
}  // namespace kvgauge
