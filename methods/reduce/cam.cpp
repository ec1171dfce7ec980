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
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t length = view.lengths()[h], kept = std::min(length, input.allocated[h]);
      HeadPlan plan;
      plan.keep = Best(view, Columns(input.scores.Slice(h, h + 1), 0, length), kept);
      if (kept > 0 && kept < length) plan.values = Merge(view, h, plan.keep, attention[h]);
      plans.push_back(plan);
    }
    return plans;
  }

 private:
  // attention: [width]
  MergeList Merge(LayerView& view, int64_t head, const Tensor& keep,
                  const Tensor& attention) const {
    Ops& ops = view.ops();
    const int64_t length = view.lengths()[head], kept = keep.shape[0];
    const Tensor gone = Complement(view, keep, length);
    const int64_t n = gone.shape[0];
    const auto as_row = [n](const Tensor& t) { return t.Reshape({1, n}); };

    MergeList list;
    list.spread = merge_;
    list.to = view.Scratch(DType::kI32, {n});
    const Tensor following = view.Scratch(DType::kF32, {n});
    // A decode step gives up few entries of many.
    if (n * merge_ < kept) {
      MeansOfFew(view, keep, gone, attention, list.to, following);
    } else {
      MeansOfMany(view, keep, gone, attention, list.to, following);
    }
    // Without attention anywhere the share is 0, not 0 / 0.
    ops.rows->Affine(as_row(following), 1.0f, 1e-30f, as_row(following));

    const Tensor share = view.Scratch(DType::kF32, {n}), ones = Filled(view, n, 1.0f);
    ops.select->Gather(AsColumn(attention), gone, AsColumn(share));
    ops.rows->Combine(as_row(share), as_row(following), Binary::kDivide, as_row(share));
    ops.rows->Combine(as_row(share), as_row(ones), Binary::kMin, as_row(share));
    if (!expectation_) Draw(view, head, gone, share);
    ops.rows->Affine(as_row(share), 1.0f / static_cast<float>(merge_), 0.0f, as_row(share));

    list.from = gone;
    list.weight = share;
    return list;
  }

  // The first kept entry that follows each of those that are gone, and the mean attention of as
  // many as share a value; where none follows, -1 and 0.
  void MeansOfMany(LayerView& view, const Tensor& keep, const Tensor& gone, const Tensor& attention,
                   const Tensor& to, const Tensor& means) const {
    Ops& ops = view.ops();
    const int64_t kept = keep.shape[0];
    ops.select->Following(keep, gone, to.Reshape({1, gone.shape[0]}));
    // Those of every kept entry, found where the first of them stands.
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
    ops.select->Gather(of_entries, to, AsColumn(means));
  }

  // The same to the bit: sums have the same order, and what follows the last entry adds 0.
  void MeansOfFew(LayerView& view, const Tensor& keep, const Tensor& gone, const Tensor& attention,
                  const Tensor& to, const Tensor& means) const {
    Ops& ops = view.ops();
    const int64_t n = gone.shape[0], numbers = merge_ * n;
    const Tensor following = view.Scratch(DType::kI32, {merge_, n});
    ops.select->Following(keep, gone, following);
    ops.memory->Copy(following[0], to);
    const Tensor held = view.Scratch(DType::kF32, {merge_, n});
    const Tensor sums = view.Scratch(DType::kF32, {merge_, n});
    ops.select->Gather(AsColumn(attention), following.Reshape({numbers}),
                       held.Reshape({numbers, 1}));
    WindowSums(ops, held, merge_, WindowSide::kAhead, view.Scratch(DType::kF32, {2 * merge_, n}),
               sums);
    // How many there are, at least one.
    const Tensor counts = view.Scratch(DType::kF32, {n});
    const Tensor none = Filled(view, numbers, -1.0f).Reshape({merge_, n});
    ops.rows->Convert(following, held);
    ops.rows->Combine(none, held, Binary::kLess, held);
    ops.rows->ReduceColumns(held, Reduction::kSum, counts);
    const Tensor row = counts.Reshape({1, n});
    ops.rows->Combine(row, Filled(view, n, 1.0f).Reshape({1, n}), Binary::kMax, row);
    ops.rows->Combine(sums.Slice(0, 1), row, Binary::kDivide, means.Reshape({1, n}));
  }

  // share: 1 with that probability, else 0.
  static void Draw(LayerView& view, int64_t head, const Tensor& gone, const Tensor& share) {
    Ops& ops = view.ops();
    const int64_t n = gone.shape[0];
    Tensor positions = view.Scratch(DType::kI32, {n}), draw = view.Scratch(DType::kF32, {n});
    ops.select->Gather(AsColumn(view.Positions(head)), gone, AsColumn(positions));
    const int64_t place = view.layer() * view.shape().kv_heads + head;
    ops.rows->Uniform(view.seed(), kCamStream << 32 | static_cast<uint64_t>(place), positions,
                      draw);
    ops.rows->Combine(draw.Reshape({1, n}), share.Reshape({1, n}), Binary::kLess,
                      share.Reshape({1, n}));
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
