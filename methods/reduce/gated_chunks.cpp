// SPDX-License-Identifier: Apache-2.0
// Keeps runs of neighbouring entries whole, by their mean score; of an important run whose score
// comes from few entries only those few stay.
//
// Paper: ChunkKV, arXiv:2502.00299, with the gate of kvpress's EntropyGatedChunkKVPress. Needs
// nothing but scores. A run is uneven if the entropy of its scores, as shares, is below the median
// of all runs, and important if its mean is at least the median. Runs are taken from the best mean
// on; uneven important ones give their best `few`, the last one what the budget leaves; what then
// is left of the budget goes to the best of all entries. When the prompt is reduced, scores are
// summed over the heads of a layer. Entries that a scorer forces count as its highest score.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

constexpr float kShareFloor = 1e-8f;  // as the reference adds it
constexpr float kOfARun = 1e35f;      // above any score that is not protected
constexpr float kNoEntry = -3e38f;    // behind the end of a head
constexpr float kProtected = 2e35f;

class GatedChunks final : public Reducer {
 public:
  explicit GatedChunks(const Params& params) : size_(params.Int("size")), few_(params.Int("few")) {}

  Status Check(const ModelShape&) const override {
    if (few_ < size_) return {};
    return BadInput("few has to be less than size, the entries of a run");
  }

  std::vector<HeadPlan> Reduce(LayerView& view, const ReduceInput& input, State*) const override {
    const int64_t heads = view.shape().kv_heads;
    const auto lengths = view.lengths();
    const bool alike = input.step == 0 && std::all_of(lengths.begin(), lengths.end(),
                                                      [&](int64_t n) { return n == lengths[0]; });
    Runs together;
    if (alike) together = Describe(view, Summed(view, input.scores, 0, heads, lengths[0]));
    std::vector<HeadPlan> plans;
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t length = lengths[h], kept = std::min(length, input.allocated[h]);
      HeadPlan plan;
      if (kept == 0 || kept == length) {
        plan.keep = Best(view, Columns(input.scores.Slice(h, h + 1), 0, length), kept);
      } else {
        const Tensor own = Columns(input.scores.Slice(h, h + 1), 0, length);
        plan.keep = Choose(
            view, alike ? together : Describe(view, Summed(view, input.scores, h, h + 1, length)),
            own, kept);
      }
      plans.push_back(plan);
    }
    return plans;
  }

 private:
  struct Runs {
    Tensor scores;              // [runs, size], kNoEntry behind the end
    std::vector<float> means;   // of each run
    std::vector<float> spread;  // its entropy over that of equal scores
  };

  // Over heads [begin, end): [1, length]. Forced scores become the highest of those that are not.
  static Tensor Summed(LayerView& view, const Tensor& scores, int64_t begin, int64_t end,
                       int64_t length) {
    RowOps& ops = *view.ops().rows;
    const int64_t heads = end - begin;
    const Tensor all = Columns(scores.Slice(begin, end), 0, length);
    const Tensor limit = Filled(view, length, kForcedFrom);
    const Tensor open = view.Scratch(DType::kF32, {heads, length});
    const Tensor low = view.Scratch(DType::kF32, {heads, length});
    ops.Combine(all, limit, Binary::kLess, open);
    ops.Combine(all, limit, Binary::kMin, low);
    const Tensor forced = view.Scratch(DType::kF32, {heads, length});
    ops.Affine(open, kForcedScore, -kForcedScore, forced);
    ops.Combine(low, forced, Binary::kAdd, low);  // forced ones fall below all others
    const Tensor best = view.Scratch(DType::kF32, {heads});
    ops.ReduceRows(low, Reduction::kMax, best);
    const std::vector<float> of_heads = Fetch(view.ops(), best);
    const float highest = *std::max_element(of_heads.begin(), of_heads.end());
    ops.Affine(open, -kForcedScore, highest > -kForcedFrom ? highest : 0.0f, forced);
    ops.Combine(low, forced, Binary::kMax, low);
    const Tensor sum = view.Scratch(DType::kF32, {1, length});
    ops.ReduceColumns(low, Reduction::kSum, sum[0]);
    return sum;
  }

  Runs Describe(LayerView& view, const Tensor& scores) const {
    const int64_t n = scores.shape[1], full = n / size_, tail = n % size_;
    const int64_t count = full + (tail > 0 ? 1 : 0);
    Runs runs;
    runs.scores = view.Scratch(DType::kF32, {count, size_});
    view.ops().rows->Fill(kNoEntry, runs.scores);
    const Tensor flat = runs.scores.Reshape({1, count * size_});
    view.ops().rows->Convert(scores, Columns(flat, 0, n));
    const Tensor numbers = view.Scratch(DType::kF32, {2, count});
    if (full > 0) Measure(view, runs.scores.Slice(0, full), Columns(numbers, 0, full));
    if (tail > 0) {
      Measure(view, Columns(runs.scores.Slice(full, count), 0, tail),
              Columns(numbers, full, count));
    }
    const std::vector<float> both = Fetch(view.ops(), numbers);
    runs.means.assign(both.begin(), both.begin() + count);
    runs.spread.assign(both.begin() + count, both.end());
    for (float& spread : runs.spread) spread = std::clamp(spread, 0.0f, 1.0f);
    return runs;
  }

  // rows: [m, w]; numbers: [2, m], means and entropies. One entry alone has no entropy.
  static void Measure(LayerView& view, const Tensor& rows, const Tensor& numbers) {
    Ops& ops = view.ops();
    const int64_t m = rows.shape[0], w = rows.shape[1];
    ops.rows->ReduceRows(rows, Reduction::kMean, numbers[0]);
    if (w == 1) return;
    const Tensor each = view.Scratch(DType::kF32, {m}), share = view.Scratch(DType::kF32, {m, w});
    // Scores below zero are lifted by the least of their run.
    ops.rows->ReduceRows(rows, Reduction::kMin, each);
    ops.rows->Combine(each.Reshape({1, m}), Filled(view, m, 0.0f), Binary::kMin,
                      each.Reshape({1, m}));
    ops.rows->Combine(rows, Spread(view, each, w), Binary::kSubtract, share);
    ops.rows->ReduceRows(share, Reduction::kSum, each);
    ops.rows->Affine(each.Reshape({1, m}), 1.0f, kShareFloor, each.Reshape({1, m}));
    ops.rows->Combine(share, Spread(view, each, w), Binary::kDivide, share);
    const Tensor other = view.Scratch(DType::kF32, {m, w});
    ops.rows->Affine(share, 1.0f, kShareFloor, other);
    ops.rows->Activate(other, Activation::kLog, other);
    ops.rows->Combine(share, other, Binary::kMultiply, share);
    ops.rows->ReduceRows(share, Reduction::kSum, each);
    const auto scale = static_cast<float>(-1 / std::log(static_cast<double>(w)));
    const Tensor entropy = numbers.Slice(1, 2);
    ops.rows->Affine(each.Reshape({1, m}), scale, 0.0f, entropy);
  }

  // own: [1, length], the head's scores, which say what is protected.
  Tensor Choose(LayerView& view, const Runs& runs, const Tensor& own, int64_t kept) const {
    Ops& ops = view.ops();
    const auto count = std::ssize(runs.means);
    const int64_t length = own.shape[1];
    // Protected entries: +inf, and so above every forced score.
    const Tensor held = view.Scratch(DType::kF32, {count, size_});
    const Tensor held_flat = Columns(held.Reshape({1, count * size_}), 0, length);
    ops.rows->Combine(Filled(view, length, kProtected).Reshape({1, length}), own, Binary::kLess,
                      held_flat);
    const Tensor sums = view.Scratch(DType::kF32, {count});
    ops.rows->ReduceRows(held, Reduction::kSum, sums);
    const std::vector<int32_t> counts = Counts(runs, Fetch(ops, sums), length, kept);

    const Tensor order = view.Scratch(DType::kF32, {count, size_});
    ops.rows->Affine(held, -kProtected, 0.0f, order);
    ops.rows->Combine(runs.scores, order, Binary::kAdd, order);  // protected ones last in their run
    const Tensor chosen = view.Scratch(DType::kF32, {count, size_});
    const Tensor index = view.Scratch(DType::kI32, {count, size_});
    ops.select->TopK(order, Upload(view, std::span<const int32_t>(counts)), index);
    const Tensor marks = AsColumn(Filled(view, size_, kOfARun));
    for (int64_t c = 0; c < count; ++c) {
      const int64_t some = counts[static_cast<size_t>(c)];
      if (some == 0) continue;
      ops.select->Scatter(marks.Slice(0, some), index[c].Slice(0, some), AsColumn(chosen[c]));
    }
    // What is left of the budget goes to the best of all.
    ops.rows->Combine(runs.scores, chosen, Binary::kMax, order);
    const Tensor flat = Columns(order.Reshape({1, count * size_}), 0, length);
    ops.rows->Affine(held_flat, kProtected, -kOfARun, held_flat);
    ops.rows->Combine(flat, held_flat, Binary::kMax, flat);
    return Best(view, flat, kept);
  }

  // How many entries of each run stay beside protected ones, of which `held` are in it.
  std::vector<int32_t> Counts(const Runs& runs, const std::vector<float>& held, int64_t length,
                              int64_t kept) const {
    const auto count = std::ssize(runs.means);
    const auto median = [count](std::vector<float> values) {
      const auto middle = values.begin() + (count - 1) / 2;
      std::nth_element(values.begin(), middle, values.end());
      return *middle;
    };
    const float strong = median(runs.means), even = median(runs.spread);
    std::vector<size_t> order(static_cast<size_t>(count));
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return runs.means[a] > runs.means[b]; });
    auto left = kept;
    for (const float of_run : held) left -= static_cast<int64_t>(of_run);
    std::vector<int32_t> counts(static_cast<size_t>(count));
    for (const size_t c : order) {
      const int64_t begin = static_cast<int64_t>(c) * size_;
      const int64_t open = std::min(size_, length - begin) - static_cast<int64_t>(held[c]);
      int64_t some = std::min(open, std::max<int64_t>(left, 0));
      if (runs.means[c] >= strong && runs.spread[c] < even) some = std::min(some, few_);
      counts[c] = static_cast<int32_t>(some);
      left -= some;
    }
    return counts;
  }

  int64_t size_, few_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kReduce,
    .id = "gated_chunks",
    .paper = "arXiv:2502.00299",
    .summary = "keeps whole runs of entries, but few of an important run with uneven scores",
    .departures = {"decode steps choose for each head",
                   "protected entries are kept first and left out of the runs' counts"},
    .params = {IntParam("size", 10, 2, 4096, "entries of a run"),
               IntParam("few", 4, 1, 4095, "entries that stay of an important uneven run")},
    .make = Make<GatedChunks>(),
    .goes_by_layer = true,
});

}  // namespace
}  // namespace kvgauge
