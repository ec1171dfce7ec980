// SPDX-License-Identifier: Apache-2.0
// Keeps the newest frames whole, then the best scores, then the best of stretches of the video that
// have none yet.
//
// Paper: LiveVLM, arXiv:2505.15269, its Vision Sink Bucketing. Needs what entries show. What the
// budget leaves beside text, protected entries and the newest frames is shared by the others, in
// the order in which they stand. A bucket is an equal stretch of them, and has room for `capacity`.
// A share of 1 - `scatter` goes to the best scores, each of which takes a place in its bucket; the
// rest goes, best first, to entries whose bucket has a place. A prompt without pictures is one
// stretch of video.
#include <algorithm>
#include <cmath>

#include "methods/registry.h"
#include "methods/tensors.h"
#include "methods/video_frames.h"

namespace kvgauge {
namespace {

class VisionSinkBuckets final : public Reducer {
 public:
  explicit VisionSinkBuckets(const Params& params)
      : newest_(params.Int("newest")),
        capacity_(params.Int("capacity")),
        scatter_(params.Real("scatter")) {}

  Needs needs() const override { return {.modality = true}; }
  bool takes_parts_of_pictures() const override { return true; }

  std::vector<HeadPlan> Reduce(LayerView& view, const ReduceInput& input, State*) const override {
    std::vector<HeadPlan> plans;
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t length = view.lengths()[h], kept = std::min(length, input.allocated[h]);
      const Tensor scores = Columns(input.scores.Slice(h, h + 1), 0, length);
      plans.emplace_back().keep =
          kept < length ? Kept(view, h, scores, kept) : Numbers(view, length);
    }
    return plans;
  }

 private:
  Tensor Kept(LayerView& view, int64_t head, const Tensor& scores, int64_t kept) const {
    RowOps& ops = *view.ops().rows;
    const int64_t length = scores.shape[1];
    const Tensor stays = Always(view, head, scores), count = view.Scratch(DType::kF32, {1});
    ops.ReduceRows(stays, Reduction::kSum, count);
    const auto always = static_cast<int64_t>(Fetch(view.ops(), count)[0]);
    if (always >= kept) return BestOf(view, scores, Best(view, stays, always), kept);
    const Tensor others = view.Scratch(DType::kF32, {1, length});
    ops.Affine(stays, -1.0f, 1.0f, others);
    const int64_t room = kept - always;
    const Tensor chosen = Bucketed(view, scores, Best(view, others, length - always), room);
    Mark(view, chosen, stays);
    return Best(view, stays, kept);
  }

  // [1, entries]: 1 for text, protected entries and those of the newest frames, else 0.
  Tensor Always(LayerView& view, int64_t head, const Tensor& scores) const {
    RowOps& ops = *view.ops().rows;
    const int64_t n = scores.shape[1];
    const Tensor stays = view.Scratch(DType::kF32, {1, n});
    const Tensor limit = view.Scratch(DType::kF32, {1, n});
    ops.Fill(kForcedFrom, limit);
    ops.Combine(limit, scores, Binary::kLess, stays);
    if (view.VisualSpans().empty()) return stays;
    ops.Combine(stays, view.OfModality(Modality::kText, head).Reshape({1, n}), Binary::kMax, stays);
    const std::vector<int64_t> starts = FrameStarts(view);
    const int64_t newest = std::min(newest_, std::ssize(starts));
    if (newest == 0) return stays;
    const Tensor recent = view.Scratch(DType::kF32, {1, n});
    ops.Fill(static_cast<float>(starts[starts.size() - static_cast<size_t>(newest)]) - 0.5f, limit);
    ops.Convert(view.Positions(head).Reshape({1, n}), recent);
    ops.Combine(limit, recent, Binary::kLess, recent);
    ops.Combine(stays, recent, Binary::kMax, stays);
    return stays;
  }

  // `room` of these entries, fewer than they are.
  Tensor Bucketed(LayerView& view, const Tensor& scores, const Tensor& entries,
                  int64_t room) const {
    Ops& ops = view.ops();
    const int64_t n = entries.shape[0];
    const Tensor own = view.Scratch(DType::kF32, {1, n});
    ops.select->Gather(scores.Reshape({scores.shape[1], 1}), entries, own.Reshape({n, 1}));
    const auto scattered =
        static_cast<int64_t>(std::nearbyint(scatter_ * static_cast<double>(room)));
    const Tensor taken = view.Scratch(DType::kF32, {1, n});
    Mark(view, Best(view, own, room - scattered), taken);
    // The best scores are the best of their buckets, too, so what they leave of the places of a
    // bucket is the rest of its best.
    const Tensor waits = view.Scratch(DType::kF32, {1, n}),
                 free = view.Scratch(DType::kF32, {1, n});
    const Tensor count = view.Scratch(DType::kF32, {1});
    int64_t left = scattered;
    for (const bool in_buckets : {true, false}) {
      if (left == 0) break;
      ops.rows->Affine(taken, -1.0f, 1.0f, free);
      if (in_buckets) {
        ops.rows->Combine(free, BestOfBuckets(view, own, room), Binary::kMultiply, waits);
      } else {
        ops.rows->Affine(free, 1.0f, 0.0f, waits);
      }
      ops.rows->ReduceRows(waits, Reduction::kSum, count);
      const auto waiting = static_cast<int64_t>(Fetch(ops, count)[0]);
      const int64_t more = std::min(left, waiting);
      Mark(view, BestOf(view, own, Best(view, waits, waiting), more), taken);
      left -= more;
    }
    return EntriesAt(view, entries, Best(view, taken, room));
  }

  // [1, n]: 1 for the best `capacity` of each bucket, else 0. Number i of n, from 1 on, is in
  // bucket ceil(i / (n / buckets)).
  Tensor BestOfBuckets(LayerView& view, const Tensor& scores, int64_t room) const {
    SelectOps& select = *view.ops().select;
    const int64_t n = scores.shape[1], buckets = std::max<int64_t>(1, room / capacity_);
    const int64_t wide = (n + buckets - 1) / buckets, most = std::min(capacity_, wide);
    std::vector<int32_t> in_rows, places, counts;
    for (int64_t bucket = 0, at = 0; bucket < buckets; ++bucket) {
      const int64_t end = (bucket + 1) * n / buckets, begin = at;
      for (; at < end; ++at) {
        in_rows.push_back(static_cast<int32_t>(at));
        places.push_back(static_cast<int32_t>(bucket * wide + at - begin));
      }
      in_rows.resize(static_cast<size_t>((bucket + 1) * wide), -1);
      counts.push_back(static_cast<int32_t>(std::min(capacity_, end - begin)));
    }
    // What fills a row up scores 0 and stands behind what it fills up, which is lifted above it.
    const Tensor lifted = view.Scratch(DType::kF32, {1, n}), least = view.Scratch(DType::kF32, {1});
    view.ops().rows->ReduceRows(scores, Reduction::kMin, least);
    view.ops().rows->Combine(scores, Spread(view, least, n), Binary::kSubtract, lifted);
    const Tensor grid = view.Scratch(DType::kF32, {buckets, wide});
    const Tensor best = view.Scratch(DType::kI32, {buckets, most});
    const Tensor words = view.Scratch(DType::kI64, {buckets, (wide + 63) / 64});
    select.Gather(AsColumn(lifted[0]), Upload(view, std::span<const int32_t>(in_rows)),
                  grid.Reshape({buckets * wide, 1}));
    select.TopK(grid, Upload(view, std::span<const int32_t>(counts)), best);
    select.MarkRuns(best, 1, wide, words);
    select.ReadBits(words, 0, grid);
    const Tensor marks = view.Scratch(DType::kF32, {1, n});
    select.Gather(grid.Reshape({buckets * wide, 1}), Upload(view, std::span<const int32_t>(places)),
                  AsColumn(marks[0]));
    return marks;
  }

  static void Mark(LayerView& view, const Tensor& which, const Tensor& marks) {
    view.ops().select->Scatter(AsColumn(Filled(view, which.shape[0], 1.0f)), which,
                               AsColumn(marks[0]));
  }
  static Tensor EntriesAt(LayerView& view, const Tensor& entries, const Tensor& at) {
    const Tensor out = view.Scratch(DType::kI32, {at.shape[0]});
    view.ops().select->Gather(AsColumn(entries), at, AsColumn(out));
    return out;
  }
  // The best `count` of some entries, which ascend, as they do.
  static Tensor BestOf(LayerView& view, const Tensor& scores, const Tensor& entries,
                       int64_t count) {
    const int64_t n = entries.shape[0];
    const Tensor own = view.Scratch(DType::kF32, {1, n});
    view.ops().select->Gather(scores.Reshape({scores.shape[1], 1}), entries, own.Reshape({n, 1}));
    return EntriesAt(view, entries, Best(view, own, count));
  }

  int64_t newest_, capacity_;
  double scatter_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kReduce,
    .id = "livevlm",
    .paper = "arXiv:2505.15269",
    .summary = "the newest frames, the best scores, and the best of each stretch of the video",
    .departures =
        {("a place counts among the entries that are held when a prompt is read in chunks, so that "
          "what has lost entries before takes fewer buckets; the accounts of the paper count in "
          "the context's length and do not say which"),
         ("text stays, and it and the newest frames are of the budget; the accounts do not say "
          "what the paper's 12,000 entries hold"),
         ("the accounts say neither how many frames stay whole nor which share goes to the best "
          "scores; both numbers are ours, and the best scores are held to no number of places"),
         ("where `capacity` does not divide what is shared, the best of what is left fill it up")},
    .params = {IntParam("newest", 2, 0, 1 << 20, "last pictures, or times of a video, kept whole"),
               IntParam("capacity", 1, 1, 1 << 20, "places of a bucket"),
               RealParam("scatter", 0.5, 0, 1, "share that goes to buckets with places left")},
    .make = Make<VisionSinkBuckets>(),
    .goes_by_layer = true,
});

}  // namespace
}  // namespace kvgauge
