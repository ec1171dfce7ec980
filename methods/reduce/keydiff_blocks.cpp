// SPDX-License-Identifier: Apache-2.0
// Block by block: of what stayed so far and the next `block` entries, those whose keys point away
// from their mean direction stay.
//
// Paper: KeyDiff, arXiv:2504.15364, as kvpress's BlockPress applies it. Needs nothing but keys; of
// the scores only which entries are protected. The first block is as many entries as a head may
// hold.
#include <algorithm>

#include "methods/key_direction.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class KeyDiffBlocks final : public Reducer {
 public:
  explicit KeyDiffBlocks(const Params& params) : block_(params.Int("block")) {}

  std::vector<HeadPlan> Reduce(LayerView& view, const ReduceInput& input, State*) const override {
    std::vector<HeadPlan> plans;
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t length = view.lengths()[h], kept = std::min(length, input.allocated[h]);
      HeadPlan plan;
      plan.keep = Choose(view, h, input.scores[h].Slice(0, length), kept);
      plans.push_back(plan);
    }
    return plans;
  }

 private:
  Tensor Choose(LayerView& view, int64_t head, const Tensor& scores, int64_t kept) const {
    Ops& ops = view.ops();
    const int64_t length = scores.shape[0], dim = view.shape().key_dim;
    const Tensor all = Numbers(view, length);
    Tensor keep = all.Slice(0, kept);
    if (kept == 0 || kept == length) return keep;
    const Tensor keys = view.Keys(head);
    const int64_t most = std::min(kept + block_, length);
    const Tensor now = view.Scratch(DType::kI32, {most});
    const Tensor rows = view.Scratch(DType::kF32, {most, dim});
    const Tensor own = view.Scratch(DType::kF32, {most}), away = view.Scratch(DType::kF32, {most});
    for (int64_t begin = kept; begin < length; begin += block_) {
      const int64_t end = std::min(begin + block_, length), n = kept + end - begin;
      ops.memory->Copy(keep, now.Slice(0, kept));
      ops.memory->Copy(all.Slice(begin, end), now.Slice(kept, n));
      ops.select->Gather(keys, now.Slice(0, n), rows.Slice(0, n));
      AwayFromMean(view, rows.Slice(0, n), away.Slice(0, n));
      // Protected entries before all others: 1 above what any cosine is.
      ops.select->Gather(AsColumn(scores), now.Slice(0, n), AsColumn(own.Slice(0, n)));
      const Tensor order = away.Slice(0, n).Reshape({1, n}),
                   forced = own.Slice(0, n).Reshape({1, n});
      const Tensor limit = Filled(view, n, kForcedFrom);
      ops.rows->Combine(limit.Reshape({1, n}), forced, Binary::kLess, forced);
      ops.rows->Affine(forced, 4.0f, 0.0f, forced);
      ops.rows->Combine(order, forced, Binary::kAdd, order);
      const Tensor best = Best(view, order, kept), next = view.Scratch(DType::kI32, {kept});
      ops.select->Gather(AsColumn(now), best, AsColumn(next));
      keep = next;
    }
    return keep;
  }

  int64_t block_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kReduce,
    .id = "keydiff_blocks",
    .paper = "arXiv:2504.15364",
    .summary = "block by block, keeps entries whose keys point away from the mean direction",
    .departures =
        {"the prompt is read with full attention, and chosen from block by block "
         "afterwards, as kvpress does; score.keydiff with compress_at chunk chooses while "
         "it is read, as the paper does"},
    .params = {IntParam("block", 128, 1, 1 << 20, "entries of a block")},
    .make = Make<KeyDiffBlocks>(),
    .goes_by_layer = true,
});

}  // namespace
}  // namespace kvgauge
