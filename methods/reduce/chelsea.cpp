// SPDX-License-Identifier: Apache-2.0
// In chunks, every second entry finds the most alike of the others, and the most alike of these
// pairs merge, round by round until the budget is met.
//
// Paper: Chelsea, arXiv:2506.11418. Needs keys, and of the scores only which entries are protected.
// What stays holds the mean of all entries that it stands for, keys and values alike; attention
// counts it as often as that, by the logarithm of their number (`counts`). A round merges half of
// the entries at most.
#include <algorithm>

#include "methods/merge_list.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

// Entries that are left, in order: [m] each.
struct LikeEntries {
  Tensor at;      // i32, the entry that stands for others
  Tensor sums;    // [m, key_dim], of the keys it stands for
  Tensor counts;  // how many those are
};

class Chelsea final : public Reducer {
 public:
  explicit Chelsea(const Params& params)
      : chunk_(params.Int("chunk")), counts_(params.Bool("counts")) {}

  Status Check(const ModelShape&) const override {
    if (chunk_ % 2 == 0) return {};
    return BadInput("chunk must be even, as every second entry of it meets the others");
  }

  bool merges_keys() const override { return true; }

  std::vector<HeadPlan> Reduce(LayerView& view, const ReduceInput& input, State*) const override {
    std::vector<HeadPlan> plans;
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t length = view.lengths()[h], kept = std::min(length, input.allocated[h]);
      const Tensor scores = Columns(input.scores.Slice(h, h + 1), 0, length);
      const int64_t forced = CountForced(view, scores);
      HeadPlan plan;
      if (kept == length || kept <= forced) {
        plan.keep = Best(view, scores, kept);
      } else {
        Merge(view, h, scores, length - forced, kept - forced, plan);
      }
      plans.push_back(plan);
    }
    return plans;
  }

 private:
  // `open` entries that are not protected become `wanted`.
  void Merge(LayerView& view, int64_t head, const Tensor& scores, int64_t open, int64_t wanted,
             HeadPlan& plan) const {
    Ops& ops = view.ops();
    const int64_t length = scores.shape[1], dim = view.shape().key_dim;
    const Tensor free = view.Scratch(DType::kF32, {1, length});
    ops.rows->Combine(scores, Filled(view, length, kForcedFrom), Binary::kLess, free);
    LikeEntries left{Best(view, free, open), view.Scratch(DType::kF32, {open, dim}),
                     Filled(view, open, 1.0f)};
    ops.select->Gather(view.Keys(head), left.at, left.sums);
    // The entry that stands for each.
    const Tensor owner = Numbers(view, length);
    while (left.at.shape[0] > wanted) Round(view, left.at.shape[0] - wanted, left, owner);

    // What is left and what is protected stays.
    const Tensor stays = view.Scratch(DType::kF32, {1, length});
    ops.rows->Affine(free, -1.0f, 1.0f, stays);
    ops.select->Scatter(AsColumn(Filled(view, wanted, 1.0f)), left.at, stays.Reshape({length, 1}));
    const int64_t kept = length - open + wanted;
    plan.keep = Best(view, stays, kept);
    MergeList list;
    list.from = Complement(view, plan.keep, length);
    list.to = view.Scratch(DType::kI32, {length - kept});
    list.weight = Filled(view, length - kept, 1.0f);
    ops.select->Gather(AsColumn(owner), list.from, AsColumn(list.to));
    NormalizeMerge(view, length, list);
    plan.keys = plan.values = list;
    if (!counts_) return;
    const Tensor counts = Filled(view, length, 1.0f);
    ops.select->Scatter(AsColumn(left.counts), left.at, AsColumn(counts));
    plan.log_weight = view.Scratch(DType::kF32, {kept});
    ops.select->Gather(AsColumn(counts), plan.keep, AsColumn(plan.log_weight));
    const Tensor row = plan.log_weight.Reshape({1, kept});
    ops.rows->Activate(row, Activation::kLog, row);
  }

  // Merges up to `excess` pairs; owner: [length] i32, the entry that stands for each.
  void Round(LayerView& view, int64_t excess, LikeEntries& left, const Tensor& owner) const {
    Ops& ops = view.ops();
    const int64_t m = left.at.shape[0], dim = left.sums.shape[1], pairs = m / 2, evens = m - pairs;
    const Tensor even = Numbers(view, evens, 0, 2), odd = Numbers(view, pairs, 1, 2);
    const Tensor a = view.Scratch(DType::kF32, {evens, dim});
    const Tensor b = view.Scratch(DType::kF32, {pairs, dim});
    ops.select->Gather(left.sums, even, a);
    ops.select->Gather(left.sums, odd, b);
    // The last even entry of an odd number meets what is left of its chunk, if anything is.
    const int64_t half = chunk_ / 2, whole = evens > pairs && pairs % half == 0 ? pairs : evens;
    const Tensor like = view.Scratch(DType::kF32, {1, whole});
    const Tensor target = view.Scratch(DType::kI32, {whole});
    const Tensor cosine = view.Scratch(DType::kF32, {half * half});
    const Tensor best = view.Scratch(DType::kI32, {half});
    for (int64_t begin = 0; begin < whole; begin += half) {
      const int64_t end = std::min(begin + half, whole), last = std::min(begin + half, pairs);
      const int64_t rows = end - begin, columns = last - begin;
      const Tensor table = cosine.Slice(0, rows * columns).Reshape({rows, columns});
      ops.algebra->CosineSimilarity(a.Slice(begin, end), b.Slice(begin, last), table);
      ops.rows->ReduceRows(table, Reduction::kMax, like[0].Slice(begin, end));
      ops.rows->ArgMax(table, best.Slice(0, rows));
      ops.select->Gather(AsColumn(odd.Slice(begin, last)), best.Slice(0, rows),
                         AsColumn(target.Slice(begin, end)));
    }
    const int64_t merged = std::min(excess, whole);
    const Tensor chosen = Best(view, like, merged);
    const Tensor from = view.Scratch(DType::kI32, {merged}),
                 to = view.Scratch(DType::kI32, {merged});
    ops.select->Gather(AsColumn(even), chosen, AsColumn(from));
    ops.select->Gather(AsColumn(target), chosen, AsColumn(to));
    Unite(view, from, to, owner, left);
  }

  // from, to: [merged] i32, places in `left`, `from` ascending.
  static void Unite(LayerView& view, const Tensor& from, const Tensor& to, const Tensor& owner,
                    LikeEntries& left) {
    Ops& ops = view.ops();
    const int64_t m = left.at.shape[0], merged = from.shape[0], stay = m - merged;
    const int64_t dim = left.sums.shape[1], length = owner.shape[0];
    const Tensor sums = view.Scratch(DType::kF32, {merged, dim});
    const Tensor counts = view.Scratch(DType::kF32, {merged});
    ops.select->Gather(left.sums, from, sums);
    ops.select->Gather(AsColumn(left.counts), from, AsColumn(counts));
    ops.select->ScatterAdd(sums, to, {}, left.sums);
    ops.select->ScatterAdd(AsColumn(counts), to, {}, AsColumn(left.counts));
    // `to` stands for everything that `from` stood for.
    const Tensor old_at = view.Scratch(DType::kI32, {merged});
    const Tensor new_at = view.Scratch(DType::kI32, {merged});
    ops.select->Gather(AsColumn(left.at), from, AsColumn(old_at));
    ops.select->Gather(AsColumn(left.at), to, AsColumn(new_at));
    const Tensor successor = Numbers(view, length), before = view.Scratch(DType::kI32, {length});
    ops.select->Scatter(AsColumn(new_at), old_at, AsColumn(successor));
    ops.memory->Copy(owner, before);
    ops.select->Gather(AsColumn(successor), before, AsColumn(owner));

    const Tensor rest = Complement(view, from, m);
    LikeEntries next{view.Scratch(DType::kI32, {stay}), view.Scratch(DType::kF32, {stay, dim}),
                     view.Scratch(DType::kF32, {stay})};
    ops.select->Gather(AsColumn(left.at), rest, AsColumn(next.at));
    ops.select->Gather(left.sums, rest, next.sums);
    ops.select->Gather(AsColumn(left.counts), rest, AsColumn(next.counts));
    left = next;
  }

  int64_t chunk_;
  bool counts_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kReduce,
    .id = "chelsea",
    .paper = "arXiv:2506.11418",
    .summary = "in chunks, entries with like keys merge in pairs until the budget is met",
    .departures = {"the prompt alone is merged, where the paper goes on while decoding",
                   "protected are the entries that the method file names"},
    .params = {IntParam("chunk", 64, 2, 4096, "entries that meet each other; even"),
               BoolParam("counts", true,
                         "attention counts an entry as often as it stands for "
                         "others")},
    .make = Make<Chelsea>(),
    .goes_by_layer = true,
});

}  // namespace
}  // namespace kvgauge
