// SPDX-License-Identifier: Apache-2.0
// Keeps the highest scores, and adds the value of an entry that goes to those of the entries that
// follow it, with a probability that grows with its attention.
//
// Paper: CaM, ICML 2024 (proceedings.mlr.press/v235/zhang24n.html). Needs the attention of the
// newest row: the prompt's last one, and each decode step's. With `merge` following kept entries,
// p = clamp(a / mean of theirs, 0, 1), drawn once for each KV head and entry; each of them gets
// value / merge. Keys stay. `expectation` uses p itself.
#include <algorithm>
#include <vector>

#include "kernels/window_sums.h"
#include "methods/registry.h"
#include "methods/score_reduction.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

// Sets the draws apart from those of other stages.
constexpr uint64_t kCamStream = 0x63616d;

class Cam final : public Reducer {
 public:
  explicit Cam(const Params& params)
      : merge_(params.Int("merge")), expectation_(params.Bool("expectation")) {}

  Needs needs() const override { return {.window = 1, .step_attention = true}; }

  std::vector<HeadPlan> Reduce(LayerView& view, const ReduceInput& input, State*) const override {
    const int64_t heads = view.shape().kv_heads, width = view.width();
    const Tensor rows = input.step == 0
                            ? view.WindowAttention(1).Reshape({view.shape().query_heads, width})
                            : view.StepAttention();
    Tensor attention = view.Scratch(DType::kF32, {heads, width});
    ScoreReduction().Apply(view, rows, attention);
    std::vector<HeadPlan> plans;
    std::vector<int64_t> single;  // heads that give up one entry of many, as a decode step has them
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t length = view.lengths()[h], kept = std::min(length, input.allocated[h]);
      HeadPlan plan;
      plan.keep = Best(view, Columns(input.scores.Slice(h, h + 1), 0, length), kept);
      if (length - kept == 1 && merge_ < kept) {
        single.push_back(h);
      } else if (kept > 0 && kept < length) {
        plan.values = MergeOfMany(view, h, plan.keep, attention[h]);
      }
      plans.push_back(plan);
    }
    if (!single.empty()) MergeSingles(view, single, attention, plans);
    return plans;
  }

 private:
  // attention: [width]
  MergeList MergeOfMany(LayerView& view, int64_t head, const Tensor& keep,
                        const Tensor& attention) const {
    Ops& ops = view.ops();
    const int64_t length = view.lengths()[head], kept = keep.shape[0];
    const Tensor gone = Complement(view, keep, length);
    const int64_t n = gone.shape[0];

    MergeList list;
    list.spread = merge_;
    list.from = gone;
    list.to = view.Scratch(DType::kI32, {n});
    ops.select->Following(keep, gone, list.to.Reshape({1, n}));
    // Means of every kept entry and those behind it, found where the first of them stands.
    const Tensor held = view.Scratch(DType::kF32, {kept, 1});
    const Tensor mean = view.Scratch(DType::kF32, {kept, 1});
    ops.select->Gather(AsColumn(attention), keep, held);
    WindowSums(ops, held, merge_, WindowSide::kAhead, view.Scratch(DType::kF32, {2 * kept, 1}),
               mean);
    std::vector<float> counts(static_cast<size_t>(kept));
    for (int64_t i = 0; i < kept; ++i) {
      counts[static_cast<size_t>(i)] = static_cast<float>(std::min(merge_, kept - i));
    }
    const Tensor mean_row = mean.Reshape({1, kept});
    ops.rows->Combine(mean_row, Upload(view, counts).Reshape({1, kept}), Binary::kDivide, mean_row);
    const Tensor of_entries = view.Scratch(DType::kF32, {attention.shape[0], 1});
    ops.select->Scatter(mean, keep, of_entries);
    const Tensor following = view.Scratch(DType::kF32, {n}), share = view.Scratch(DType::kF32, {n});
    ops.select->Gather(of_entries, list.to, AsColumn(following));
    ops.select->Gather(AsColumn(attention), gone, AsColumn(share));

    const Tensor draws = view.Scratch(DType::kF32, {n});
    if (!expectation_) Draw(view, head, gone, draws);
    Weigh(view, following, draws, share);
    list.weight = share;
    return list;
  }

  // The same to the bit for heads that give up one entry each, all of them together: sums have the
  // same order, and what follows the last entry adds 0. attention: [heads, width]
  void MergeSingles(LayerView& view, const std::vector<int64_t>& heads, const Tensor& attention,
                    std::vector<HeadPlan>& plans) const {
    Ops& ops = view.ops();
    const int64_t n = std::ssize(heads);
    const Tensor following = view.Scratch(DType::kI32, {n, merge_});
    const Tensor held = view.Scratch(DType::kF32, {merge_, n});
    const Tensor share = view.Scratch(DType::kF32, {n}), draws = view.Scratch(DType::kF32, {n});
    for (int64_t i = 0; i < n; ++i) {
      const int64_t head = heads[static_cast<size_t>(i)];
      HeadPlan& plan = plans[static_cast<size_t>(head)];
      const Tensor gone = Complement(view, plan.keep, view.lengths()[head]);
      const Tensor scores = AsColumn(attention[head]);
      ops.select->Following(plan.keep, gone, AsColumn(following[i]));
      ops.select->Gather(scores, following[i], Columns(held, i, i + 1));
      ops.select->Gather(scores, gone, AsColumn(share.Slice(i, i + 1)));
      if (!expectation_) Draw(view, head, gone, draws.Slice(i, i + 1));
      plan.values.spread = merge_;
      plan.values.from = gone;
      plan.values.to = following[i].Slice(0, 1);
      plan.values.weight = share.Slice(i, i + 1);
    }
    const Tensor sums = view.Scratch(DType::kF32, {merge_, n});
    WindowSums(ops, held, merge_, WindowSide::kAhead, view.Scratch(DType::kF32, {2 * merge_, n}),
               sums);
    // How many there are, at least one.
    const Tensor places = view.Scratch(DType::kF32, {n, merge_});
    const Tensor counts = view.Scratch(DType::kF32, {n}), row = counts.Reshape({1, n});
    ops.rows->Convert(following, places);
    ops.rows->Combine(Filled(view, n * merge_, -1.0f).Reshape({n, merge_}), places, Binary::kLess,
                      places);
    ops.rows->ReduceRows(places, Reduction::kSum, counts);
    ops.rows->Combine(row, Filled(view, n, 1.0f).Reshape({1, n}), Binary::kMax, row);
    ops.rows->Combine(sums.Slice(0, 1), row, Binary::kDivide, row);
    Weigh(view, counts, draws, share);
  }

  // share: the attention of what goes, then its weight. following: the mean attention of those that
  // share its value, overwritten. All: [n]
  void Weigh(LayerView& view, const Tensor& following, const Tensor& draws,
             const Tensor& share) const {
    RowOps& rows = *view.ops().rows;
    const int64_t n = share.shape[0];
    const Tensor mean = following.Reshape({1, n}), weight = share.Reshape({1, n});
    // Without attention anywhere the share is 0, not 0 / 0.
    rows.Affine(mean, 1.0f, 1e-30f, mean);
    rows.Combine(weight, mean, Binary::kDivide, weight);
    rows.Combine(weight, Filled(view, n, 1.0f).Reshape({1, n}), Binary::kMin, weight);
    // 1 with that probability, else 0.
    if (!expectation_) rows.Combine(draws.Reshape({1, n}), weight, Binary::kLess, weight);
    rows.Affine(weight, 1.0f / static_cast<float>(merge_), 0.0f, weight);
  }

  static void Draw(LayerView& view, int64_t head, const Tensor& gone, const Tensor& draws) {
    Ops& ops = view.ops();
    const Tensor positions = view.Scratch(DType::kI32, {gone.shape[0]});
    ops.select->Gather(AsColumn(view.Positions(head)), gone, AsColumn(positions));
    const int64_t place = view.layer() * view.shape().kv_heads + head;
    ops.rows->Uniform(view.seed(), kCamStream << 32 | static_cast<uint64_t>(place), positions,
                      draws);
  }

  int64_t merge_;
  bool expectation_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kReduce,
    .id = "cam",
    .version = 2,
    .paper = "ICML 2024, proceedings.mlr.press/v235/zhang24n.html",
    .summary = "top-k, and values that go are added to those that follow, by chance",
    .departures = {"one draw per KV head, from the mean of its query heads",
                   "all entries that a prompt gives up are merged at once",
                   "entries really go; the reference masks them"},
    .params = {IntParam("merge", 32, 1, 1024, "following entries that share a value"),
               BoolParam("expectation", false, "weights are the probability itself: no draws")},
    .make = Make<Cam>(),
});

}  // namespace
}  // namespace kvgauge
