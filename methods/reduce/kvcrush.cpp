// SPDX-License-Identifier: Apache-2.0
// Keeps the best blocks of entries, and of all others some that stand for them.
//
// Paper: KVCrush, arXiv:2503.00022; after OpenVINO GenAI's KVCrushAlgorithm. Needs nothing but
// scores. Entries that may go are cut into blocks. An entry's bit is 1 if its score is in the upper
// half. The blocks with the best scores have the budget but for `share` of it; the others are
// ordered by how many bits of theirs differ from an anchor, and evenly spaced ones of that order
// stay as well. When the prompt is reduced, scores are summed over the heads of a layer, which then
// keep the same blocks.
#include <algorithm>
#include <numeric>

#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class KvCrush final : public Reducer {
 public:
  explicit KvCrush(const Params& params)
      : block_(params.Int("block")), share_(params.Real("share")), anchor_(params.Text("anchor")) {}

  std::vector<HeadPlan> Reduce(LayerView& view, const ReduceInput& input, State*) const override {
    const int64_t heads = view.shape().kv_heads;
    const auto lengths = view.lengths();
    const bool same = input.step == 0 && std::ranges::all_of(lengths, [&](int64_t length) {
                        return length == lengths.front();
                      });
    const Tensor together = view.Scratch(DType::kF32, {1, view.width()});
    for (int64_t h = 0; same && h < heads; ++h) {
      view.ops().rows->Combine(together, input.scores.Slice(h, h + 1), Binary::kAdd, together);
    }
    std::vector<HeadPlan> plans;
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t length = lengths[h], kept = std::min(length, input.allocated[h]);
      const Tensor scores = same ? together : input.scores.Slice(h, h + 1);
      HeadPlan plan;
      plan.keep = Choose(view, Columns(scores, 0, length), kept);
      plans.push_back(plan);
    }
    return plans;
  }

 private:
  // scores: [1, n]
  Tensor Choose(LayerView& view, const Tensor& scores, int64_t kept) const {
    const int64_t n = scores.shape[1], forced = CountForced(view, scores), free = n - forced;
    if (kept == n || kept - forced < block_) return Best(view, scores, kept);
    const Tensor places =
        forced == 0 ? Numbers(view, n) : Complement(view, Best(view, scores, forced), n);
    const Tensor own = view.Scratch(DType::kF32, {1, free});
    view.ops().select->Gather(scores.Reshape({n, 1}), places, own.Reshape({free, 1}));
    const std::vector<float> ranks = RankBlocks(view, own, kept - forced);
    const auto blocks = static_cast<int64_t>(ranks.size());
    const Tensor entries = Spread(view, Upload(view, ranks), block_).Reshape({blocks * block_, 1});
    const Tensor order = view.Scratch(DType::kF32, {1, n});
    view.ops().rows->Fill(kForcedScore, order);
    view.ops().select->Scatter(entries.Slice(0, free), places, order.Reshape({n, 1}));
    return Best(view, order, kept);
  }

  // Blocks that stay have 2. Others have less than 1, more with a better score: what the budget
  // leaves beside whole blocks goes to the first entries of the next one. own: [1, free]
  std::vector<float> RankBlocks(LayerView& view, const Tensor& own, int64_t budget) const {
    RowOps& rows = *view.ops().rows;
    const int64_t free = own.shape[1], blocks = (free + block_ - 1) / block_;
    // Zeros behind the end.
    const Tensor values = view.Scratch(DType::kF32, {blocks, block_});
    const Tensor there = view.Scratch(DType::kF32, {blocks, block_});
    const Tensor bits = view.Scratch(DType::kF32, {blocks, block_});
    const Tensor sums = view.Scratch(DType::kF32, {blocks});
    const Tensor counts = view.Scratch(DType::kF32, {blocks});
    const Tensor distances = view.Scratch(DType::kF32, {blocks});
    rows.Convert(own, Columns(values.Reshape({1, blocks * block_}), 0, free));
    rows.Fill(1.0f, Columns(there.Reshape({1, blocks * block_}), 0, free));
    rows.ReduceRows(values, Reduction::kSum, sums);
    rows.ReduceRows(there, Reduction::kSum, counts);
    rows.Combine(sums, counts, Binary::kDivide, sums);
    if (const int64_t half = free / 2; half > 0) {
      view.ops().select->Scatter(AsColumn(Filled(view, half, 1.0f)), Best(view, own, half),
                                 bits.Reshape({blocks * block_, 1}));
    }
    rows.Combine(bits, Anchor(view, bits.Slice(0, free / block_)), Binary::kSubtract, bits);
    rows.Combine(bits, there, Binary::kMultiply, bits);
    rows.ReduceRows(bits, Reduction::kSumAbs, distances);
    return Rank(Fetch(view.ops(), sums), Fetch(view.ops(), distances), budget);
  }

  std::vector<float> Rank(const std::vector<float>& scores, const std::vector<float>& distances,
                          int64_t budget) const {
    const auto fit = std::min(static_cast<size_t>(budget / block_), scores.size());
    const auto stand_ins = std::min(fit, static_cast<size_t>(share_ * static_cast<double>(budget) /
                                                             static_cast<double>(block_)));
    std::vector<size_t> order(scores.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, [&](size_t a, size_t b) { return scores[a] > scores[b]; });
    std::vector<float> ranks(scores.size());
    for (size_t i = 0; i < order.size(); ++i) {
      ranks[order[i]] = i < fit - stand_ins
                            ? 2.0f
                            : 1 - static_cast<float>(i + 1) / static_cast<float>(order.size() + 1);
    }
    std::vector<size_t> others(order.begin() + static_cast<std::ptrdiff_t>(fit - stand_ins),
                               order.end());
    std::ranges::sort(others);
    std::ranges::stable_sort(others,
                             [&](size_t a, size_t b) { return distances[a] < distances[b]; });
    for (size_t i = 0; i < stand_ins; ++i) ranks[others[i * (others.size() / stand_ins)]] = 2.0f;
    return ranks;
  }

  // [block]; bits: [whole blocks, block]
  Tensor Anchor(LayerView& view, const Tensor& bits) const {
    RowOps& rows = *view.ops().rows;
    const Tensor anchor = view.Scratch(DType::kF32, {1, block_});
    const Tensor half = Filled(view, block_, 0.5f).Reshape({1, block_});
    if (anchor_ == "ones") rows.Fill(1.0f, anchor);
    if (anchor_ == "alternating") {
      std::vector<float> turns(static_cast<size_t>(block_));
      for (size_t i = 1; i < turns.size(); i += 2) turns[i] = 1;
      return Upload(view, turns);
    }
    if (anchor_ == "mean" && bits.shape[0] > 0) {
      rows.ReduceColumns(bits, Reduction::kMean, anchor[0]);
      rows.Combine(half, anchor, Binary::kLess, anchor);
    }
    if (anchor_ == "random") {
      rows.Uniform(view.seed(), static_cast<uint64_t>(view.layer()), Numbers(view, block_),
                   anchor[0]);
      rows.Combine(half, anchor, Binary::kLess, anchor);
    }
    return anchor[0];
  }

  int64_t block_;
  double share_;
  std::string anchor_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kReduce,
    .id = "kvcrush",
    .paper = "arXiv:2503.00022",
    .summary = "keeps the best blocks, and of the others evenly spaced ones that stand for them",
    .departures = {"a bit says whether an entry's score is in the upper half, and a block has as "
                   "many as entries, as in OpenVINO; the paper has a bit of each head",
                   "blocks that stand for others are part of the budget, where OpenVINO keeps them "
                   "beside it; the budget is spent to the last entry",
                   "of blocks as far from the anchor the earlier comes first",
                   "decode steps choose for each head, and so does a later turn where heads hold "
                   "different numbers of entries"},
    .params = {IntParam("block", 32, 1, 4096, "entries of a block"),
               RealParam("share", 0.25, 0, 1,
                         "share of the budget for blocks that stand for others"),
               ChoiceParam("anchor", "random", {"random", "zeros", "ones", "mean", "alternating"},
                           "bits that blocks are compared with")},
    .make = Make<KvCrush>(),
});

}  // namespace
}  // namespace kvgauge
