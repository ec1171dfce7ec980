// SPDX-License-Identifier: Apache-2.0
// Keeps runs of neighbouring entries whole: those with the best mean score.
//
// Paper: ChunkKV, arXiv:2502.00299; after kvpress's ChunkKVPress. Needs nothing but scores. The
// mean is over a run's entries that are not protected anyway; when the prompt is reduced it is
// summed over the heads of a layer, which then keep the same runs (`heads` all). What the budget
// leaves beside whole runs goes to the first entries of the next best one, where the reference
// leaves it unused.
#include <algorithm>

#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

// Above any score that is not forced, and as far below.
constexpr float kProtectedFrom = 1e35f;

class Chunks final : public Reducer {
 public:
  explicit Chunks(const Params& params)
      : size_(params.Int("size")), own_(params.Text("heads") == "own") {}

  std::vector<HeadPlan> Reduce(LayerView& view, const ReduceInput& input, State*) const override {
    const int64_t heads = view.shape().kv_heads;
    Tensor together;
    if (!own_ && input.step == 0 && SameLengths(view)) {
      together = view.Scratch(DType::kF32, {1, view.width()});
      for (int64_t h = 0; h < heads; ++h) {
        const Means means = MeansOf(view, input.scores.Slice(h, h + 1));
        view.ops().rows->Combine(together, means.of_entries, Binary::kAdd, together);
      }
    }
    std::vector<HeadPlan> plans;
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t length = view.lengths()[h], kept = std::min(length, input.allocated[h]);
      const auto count = static_cast<int32_t>(kept);
      const Means means = MeansOf(view, Columns(input.scores.Slice(h, h + 1), 0, length));
      const Tensor order = view.Scratch(DType::kF32, {1, length});
      // Protected entries before all others.
      view.ops().rows->Affine(means.forced, 2 * kProtectedFrom, -kProtectedFrom, order);
      view.ops().rows->Combine(order, together.empty() ? means.of_entries : together, Binary::kMax,
                               order);
      HeadPlan plan;
      plan.keep = view.Scratch(DType::kI32, {kept});
      view.ops().select->TopK(order, Upload(view, std::span(&count, 1)),
                              plan.keep.Reshape({1, kept}));
      plans.push_back(plan);
    }
    return plans;
  }

 private:
  struct Means {
    Tensor of_entries;  // [1, n], of the run that an entry is in
    Tensor forced;      // [1, n], 1 where the entry is protected, else 0
  };

  // Heads of different lengths hold different entries at a place, so runs have nothing in common.
  static bool SameLengths(const LayerView& view) {
    const auto lengths = view.lengths();
    return std::ranges::all_of(lengths, [&](int64_t length) { return length == lengths.front(); });
  }

  // scores: [1, n]
  Means MeansOf(LayerView& view, const Tensor& scores) const {
    Ops& ops = view.ops();
    const int64_t n = scores.shape[1], runs = (n + size_ - 1) / size_;
    const Tensor limit = Filled(view, n, kProtectedFrom);
    // Zeros behind the end: neither counted nor summed.
    const Tensor free = view.Scratch(DType::kF32, {runs, size_});
    const Tensor sums = view.Scratch(DType::kF32, {runs, size_});
    const Tensor free_entries = Columns(free.Reshape({1, runs * size_}), 0, n);
    const Tensor entries = Columns(sums.Reshape({1, runs * size_}), 0, n);
    ops.rows->Combine(scores, limit, Binary::kLess, free_entries);
    ops.rows->Combine(scores, limit, Binary::kMin, entries);
    ops.rows->Combine(entries, free_entries, Binary::kMultiply, entries);
    const Tensor of_run = view.Scratch(DType::kF32, {1, runs});
    const Tensor counts = view.Scratch(DType::kF32, {1, runs});
    ops.rows->ReduceRows(sums, Reduction::kSum, of_run.Reshape({runs}));
    ops.rows->ReduceRows(free, Reduction::kSum, counts.Reshape({runs}));
    ops.rows->Combine(counts, Filled(view, runs, 1.0f), Binary::kMax, counts);
    ops.rows->Combine(of_run, counts, Binary::kDivide, of_run);
    const Tensor spread = view.Scratch(DType::kF32, {runs, size_});
    ops.linear->MatMulNN(of_run.Reshape({1, runs, 1}),
                         Filled(view, size_, 1.0f).Reshape({1, 1, size_}), 1.0f,
                         spread.Reshape({1, runs, size_}));
    ops.rows->Affine(free_entries, -1.0f, 1.0f, free_entries);
    return {Columns(spread.Reshape({1, runs * size_}), 0, n), free_entries};
  }

  int64_t size_;
  bool own_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kReduce,
    .id = "chunks",
    .paper = "arXiv:2502.00299",
    .summary = "keeps whole runs of neighbouring entries, by their mean score",
    .departures = {"the budget is spent to the last entry, so one run may stay in part",
                   "layers do not reuse each other's choice",
                   "decode steps choose for each head, and so does a later turn where heads hold "
                   "different numbers of entries"},
    .params = {IntParam("size", 20, 1, 4096, "entries of a run"),
               ChoiceParam("heads", "all", {"all", "own"},
                           "one choice for the prompt of a layer, or one for each head")},
    .make = Make<Chunks>(),
    .goes_by_layer = true,
});

}  // namespace
}  // namespace kvgauge
