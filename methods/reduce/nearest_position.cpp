// SPDX-License-Identifier: Apache-2.0
// Top-k; when the prompt is reduced, what goes is merged into the entry that stays and is nearest
// in position: the mean of keys and of values.
//
// Paper: Elastic Cache, ECCV 2024, arXiv:2407.18121. Needs nothing but scores. Protected entries
// take nothing, as in the released code; of two entries that are equally near the earlier one does.
// Departures: none known.
#include <algorithm>

#include "methods/merge_list.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class NearestPosition final : public Reducer {
 public:
  explicit NearestPosition(const Params&) {}

  bool merges_keys() const override { return true; }

  std::vector<HeadPlan> Reduce(LayerView& view, const ReduceInput& input, State*) const override {
    std::vector<HeadPlan> plans;
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t length = view.lengths()[h], kept = std::min(length, input.allocated[h]);
      const Tensor scores = Columns(input.scores.Slice(h, h + 1), 0, length);
      HeadPlan plan;
      plan.keep = Best(view, scores, kept);
      if (input.step == 0 && kept < length) {
        const int64_t takers = kept - CountForced(view, scores);
        if (takers > 0) plan.keys = plan.values = Merge(view, scores, plan.keep, takers);
      }
      plans.push_back(plan);
    }
    return plans;
  }

 private:
  static MergeList Merge(LayerView& view, const Tensor& scores, const Tensor& keep,
                         int64_t takers) {
    Ops& ops = view.ops();
    const int64_t length = scores.shape[1];
    // Those that stay and are not protected: 1, else 0.
    const Tensor free = view.Scratch(DType::kF32, {1, length});
    const Tensor stays = view.Scratch(DType::kF32, {1, length});
    ops.rows->Combine(scores, Filled(view, length, kForcedFrom), Binary::kLess, free);
    ops.select->Scatter(AsColumn(Filled(view, keep.shape[0], 1.0f)), keep,
                        stays.Reshape({length, 1}));
    ops.rows->Combine(free, stays, Binary::kMultiply, free);
    const Tensor gone = Complement(view, keep, length);
    const int64_t n = gone.shape[0];

    const Tensor next = view.Scratch(DType::kI32, {n});
    ops.select->Following(Best(view, free, takers), gone, next.Reshape({1, n}));
    // The one before is the one behind where entries run backwards.
    const Tensor backwards = Numbers(view, length, static_cast<int32_t>(length - 1), -1);
    const Tensor turned = view.Scratch(DType::kF32, {1, length});
    const Tensor turned_gone = view.Scratch(DType::kI32, {n});
    const Tensor turned_before = view.Scratch(DType::kI32, {n});
    const Tensor before = view.Scratch(DType::kI32, {n});
    ops.select->Gather(free.Reshape({length, 1}), backwards, turned.Reshape({length, 1}));
    ops.select->Gather(AsColumn(backwards), gone, AsColumn(turned_gone));
    ops.select->Following(Best(view, turned, takers), turned_gone, turned_before.Reshape({1, n}));
    ops.select->Gather(AsColumn(backwards), turned_before, AsColumn(before));

    const Tensor ahead = Steps(view, gone, next, next, 1.0f);
    const Tensor behind = Steps(view, gone, before, turned_before, -1.0f);
    // 1 where the one ahead is nearer than the one behind.
    const Tensor take = view.Scratch(DType::kF32, {1, n});
    ops.rows->Combine(ahead, behind, Binary::kLess, take);
    MergeList list;
    list.from = view.Scratch(DType::kI32, {2 * n});
    list.to = view.Scratch(DType::kI32, {2 * n});
    list.weight = view.Scratch(DType::kF32, {2 * n});
    for (const bool second : {false, true}) {
      const int64_t at = second ? n : 0;
      ops.memory->Copy(gone, list.from.Slice(at, at + n));
      ops.memory->Copy(second ? before : next, list.to.Slice(at, at + n));
      ops.rows->Affine(take, second ? -1.0f : 1.0f, second ? 1.0f : 0.0f,
                       list.weight.Slice(at, at + n).Reshape({1, n}));
    }
    SkipUnused(view, list);
    NormalizeMerge(view, length, list);
    return list;
  }

  // How far `other` is from `gone`, in the direction `sign`; very far where `found` is -1. [1, n]
  static Tensor Steps(LayerView& view, const Tensor& gone, const Tensor& other, const Tensor& found,
                      float sign) {
    RowOps& ops = *view.ops().rows;
    const int64_t n = gone.shape[0];
    const Tensor from = view.Scratch(DType::kF32, {1, n}), to = view.Scratch(DType::kF32, {1, n});
    const Tensor none = view.Scratch(DType::kF32, {1, n});
    ops.Convert(gone.Reshape({1, n}), from);
    ops.Convert(other.Reshape({1, n}), to);
    ops.Convert(found.Reshape({1, n}), none);
    ops.Combine(to, from, Binary::kSubtract, to);
    ops.Affine(to, sign, 0.0f, to);
    ops.Combine(none, Filled(view, n, 0.0f), Binary::kLess, none);
    ops.Affine(none, kVeryFar, 0.0f, none);
    ops.Combine(to, none, Binary::kMax, to);
    return to;
  }

  // Only entries that are merged: a pair of weight 0 may name an entry that does not stay.
  static void SkipUnused(LayerView& view, MergeList& list) {
    Ops& ops = view.ops();
    const int64_t n = list.from.shape[0];
    const Tensor used = Best(view, list.weight.Reshape({1, n}), n / 2);
    const auto choose = [&](const Tensor& all, DType dtype) {
      const Tensor some = view.Scratch(dtype, {n / 2});
      ops.select->Gather(AsColumn(all), used, AsColumn(some));
      return some;
    };
    list.from = choose(list.from, DType::kI32);
    list.to = choose(list.to, DType::kI32);
    list.weight = choose(list.weight, DType::kF32);
  }

  static constexpr float kVeryFar = 1e9f;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kReduce,
    .id = "nearest_position",
    .paper = "arXiv:2407.18121",
    .summary = "top-k, and what a prompt gives up is merged into what stays nearest to it",
    .make = Make<NearestPosition>(),
});

}  // namespace
}  // namespace kvgauge
