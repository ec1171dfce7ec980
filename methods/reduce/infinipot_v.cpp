// SPDX-License-Identifier: Apache-2.0
// Keeps the newest frames whole, then what is least like the same place of the newest ones, then
// the best scores.
//
// Paper: InfiniPot-V, arXiv:2506.15745; after its process_kv_cache. Needs what entries show, and
// scores that put text above all pictures. What the budget leaves beside the text is for frames: a
// share of it goes by likeness of keys, the rest by scores.
#include <algorithm>
#include <cmath>

#include "methods/registry.h"
#include "methods/tensors.h"
#include "methods/video_frames.h"

namespace kvgauge {
namespace {

class InfiniPotV final : public Reducer {
 public:
  explicit InfiniPotV(const Params& params)
      : share_(params.Real("share")), newest_(params.Real("newest")) {}

  Needs needs() const override { return {.modality = true}; }

  std::vector<HeadPlan> Reduce(LayerView& view, const ReduceInput& input, State*) const override {
    const VideoFrames frames = FramesOf(view);
    std::vector<HeadPlan> plans;
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t length = view.lengths()[h], kept = std::min(length, input.allocated[h]);
      Tensor scores = Columns(input.scores.Slice(h, h + 1), 0, length);
      const int64_t room = kept - (length - std::ssize(frames.entries));
      // After a turn entries are gone that the newest frames could be held against.
      if (room > 0 && kept < length && frames.count > 1 && length == view.tokens()) {
        scores = Raised(view, h, frames, scores, room);
      }
      HeadPlan plan;
      plan.keep = Best(view, scores, kept);
      plans.push_back(plan);
    }
    return plans;
  }

 private:
  // The scores, those that go by likeness above all others of frames.
  Tensor Raised(LayerView& view, int64_t head, const VideoFrames& frames, const Tensor& scores,
                int64_t room) const {
    Ops& ops = view.ops();
    const int64_t n = scores.shape[1], area = frames.area();
    const int64_t chosen =
        room - static_cast<int64_t>(std::nearbyint((1 - share_) * static_cast<double>(room)));
    if (chosen <= 0) return scores;
    const int64_t newest =
        std::max<int64_t>(1, static_cast<int64_t>(newest_ * static_cast<double>(frames.count)));
    const Tensor entries = Upload(view, std::span<const int32_t>(frames.entries));
    const int64_t shown = entries.shape[0], whole = std::min(newest * area, chosen);
    const Tensor raised = view.Scratch(DType::kF32, {1, n});
    ops.rows->Affine(scores, 1.0f, 0.0f, raised);
    const Tensor top = Top(view, scores, entries);
    const auto raise = [&](const Tensor& which) {
      const Tensor value = view.Scratch(DType::kF32, {which.shape[0]});
      ops.select->Gather(top, Numbers(view, which.shape[0], 0, 0), AsColumn(value));
      ops.select->Scatter(AsColumn(value), which, AsColumn(raised[0]));
    };
    raise(entries.Slice(shown - whole, shown));
    const int64_t old = std::min(chosen - whole, (frames.count - newest) * area);
    if (old > 0) {
      const Tensor best = Best(view, Unlikeness(view, head, frames, entries, newest), old);
      const Tensor places = view.Scratch(DType::kI32, {old});
      ops.select->Gather(AsColumn(entries), best, AsColumn(places));
      raise(places);
    }
    return raised;
  }

  // [1, 1]: above the scores of all entries that are not forced, below those of text.
  static Tensor Top(LayerView& view, const Tensor& scores, const Tensor& entries) {
    RowOps& ops = *view.ops().rows;
    const int64_t shown = entries.shape[0], n = scores.shape[1];
    const Tensor own = view.Scratch(DType::kF32, {1, shown});
    const Tensor free = view.Scratch(DType::kF32, {1, shown});
    const Tensor forced = Filled(view, shown, kForcedFrom);
    view.ops().select->Gather(scores.Reshape({n, 1}), entries, own.Reshape({shown, 1}));
    ops.Combine(own, forced, Binary::kLess, free);
    ops.Combine(own, forced, Binary::kMin, own);
    ops.Combine(own, free, Binary::kMultiply, own);
    const Tensor top = view.Scratch(DType::kF32, {1});
    ops.ReduceRows(own, Reduction::kMax, top);
    const Tensor above = top.Reshape({1, 1});
    ops.Affine(above, 1.0f, 0.5f, above);
    return above;
  }

  // For each entry of the older frames, less the sum of the cosines of its key with the keys of the
  // same place in the newest frames. [1, older entries]
  static Tensor Unlikeness(LayerView& view, int64_t head, const VideoFrames& frames,
                           const Tensor& entries, int64_t newest) {
    Ops& ops = view.ops();
    const int64_t area = frames.area(), shown = entries.shape[0], old = shown - newest * area;
    const int64_t dim = view.shape().key_dim;
    const Tensor keys = view.Scratch(DType::kF32, {shown, dim});
    ops.select->Gather(view.Keys(head), entries, keys);
    const Tensor norms = view.Scratch(DType::kF32, {shown});
    ops.rows->ReduceRows(keys, Reduction::kNorm, norms);
    const Tensor row = norms.Reshape({1, shown});
    ops.rows->Affine(row, 1.0f, 1e-9f, row);
    ops.rows->Combine(keys, Spread(view, norms, dim), Binary::kDivide, keys);
    // The sum of cosines is the product with the sum of the newest keys.
    const Tensor sum = view.Scratch(DType::kF32, {area, dim});
    for (int64_t f = frames.count - newest; f < frames.count; ++f) {
      ops.rows->Combine(sum, keys.Slice(f * area, (f + 1) * area), Binary::kAdd, sum);
    }
    const Tensor likeness = view.Scratch(DType::kF32, {old});
    const Tensor products = view.Scratch(DType::kF32, {area, dim});
    for (int64_t f = 0; f < frames.count - newest; ++f) {
      ops.rows->Combine(keys.Slice(f * area, (f + 1) * area), sum, Binary::kMultiply, products);
      ops.rows->ReduceRows(products, Reduction::kSum, likeness.Slice(f * area, (f + 1) * area));
    }
    const Tensor out = likeness.Reshape({1, old});
    ops.rows->Affine(out, -1.0f, 0.0f, out);
    return out;
  }

  double share_, newest_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kReduce,
    .id = "infinipot_v",
    .paper = "arXiv:2506.15745",
    .summary = "of frames the newest whole, what is least like them, and the best scores",
    .departures =
        {"once, when the whole prompt was read; the reference reads a video in blocks and "
         "reduces whenever more frames are held than the budget has",
         "text before, between and behind the frames stays, and its entries are of the "
         "budget; the reference has a budget of frames",
         "where the share is less than the newest frames, their last entries stay",
         "pictures of unequal grids go by scores alone"},
    .params = {RealParam("share", 0.5, 0, 1, "of the room for frames that goes by likeness"),
               RealParam("newest", 0.25, 0, 1, "share of the frames that count as newest")},
    .make = Make<InfiniPotV>(),
});

}  // namespace
}  // namespace kvgauge
