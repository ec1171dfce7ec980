// SPDX-License-Identifier: Apache-2.0
// Keeps the best scores, and of each frame that loses entries for the first time one more entry:
// the mean of all of its keys and values, weighted by their scores.
//
// Paper: StreamMem, arXiv:2508.15717, its pruning and its merging by frames. Needs what entries
// show, and scores that put text above all pictures; those of pictures are shares of attention,
// from 0 to 1. What is made of a frame takes the place of the best of its entries that go. It is an
// entry of the budget, and later chunks judge it as they do all others.
#include <algorithm>
#include <vector>

#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

constexpr float kLeastShare = 1e-20f;  // an entry that gets no attention counts as much

// Where a prompt holds the entries of each frame, as far as it was read. A frame is a time of a
// video, or a piece of a picture.
struct FramePlaces {
  std::vector<std::vector<int32_t>> frames;  // positions, ascending
  int64_t area = 0;                          // of the largest frame

  // Positions of some frames, each filled up with -1; and 1 where there is one, else 0.
  void Fill(std::span<const int32_t> which, std::vector<int32_t>& at,
            std::vector<float>& real) const {
    for (const int32_t f : which) {
      const std::vector<int32_t>& own = frames[static_cast<size_t>(f)];
      at.insert(at.end(), own.begin(), own.end());
      at.resize(at.size() + static_cast<size_t>(area) - own.size(), -1);
      real.resize(real.size() + own.size(), 1.0f);
      real.resize(at.size(), 0.0f);
    }
  }
};

FramePlaces FramesRead(LayerView& view) {
  FramePlaces places;
  for (const VisualSpan& span : view.VisualSpans()) {
    if (span.piece == VisualSpan::Piece::kNewline) continue;
    const size_t first = places.frames.size();
    places.frames.resize(first + static_cast<size_t>(span.grid[0]));
    const int64_t end = std::min(span.first + span.count, view.tokens());
    for (int64_t at = span.first; at < end; ++at) {
      const VisualPlace place = PlaceIn(span, at);
      if (place.newline) continue;
      const size_t frame = first + static_cast<size_t>(place.nowhere ? 0 : place.frame);
      places.frames[frame].push_back(static_cast<int32_t>(at));
    }
  }
  std::erase_if(places.frames, [](const auto& frame) { return frame.empty(); });
  for (const auto& frame : places.frames) places.area = std::max(places.area, std::ssize(frame));
  return places;
}

class StreamMemReduce final : public Reducer {
 public:
  explicit StreamMemReduce(const Params& params) : merge_(params.Text("merge")) {}

  Needs needs() const override { return {.modality = true}; }
  bool takes_parts_of_pictures() const override { return true; }
  bool merges_keys() const override { return merge_ != "none"; }

  std::vector<HeadPlan> Reduce(LayerView& view, const ReduceInput& input, State*) const override {
    const FramePlaces places = merge_ == "none" ? FramePlaces() : FramesRead(view);
    std::vector<HeadPlan> plans;
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t length = view.lengths()[h], kept = std::min(length, input.allocated[h]);
      const Tensor scores = Columns(input.scores.Slice(h, h + 1), 0, length);
      const std::vector<int32_t> whole =
          kept < length ? Whole(view, h, places, kept) : std::vector<int32_t>();
      if (!whole.empty()) {
        plans.push_back(WithFrames(view, h, places, whole, scores, kept));
        continue;
      }
      plans.emplace_back().keep = Best(view, scores, kept);
    }
    return plans;
  }

 private:
  // Frames of which a head holds all entries that were read, as many of the last of them as there
  // is room beside what shows no frame.
  static std::vector<int32_t> Whole(LayerView& view, int64_t head, const FramePlaces& places,
                                    int64_t kept) {
    Ops& ops = view.ops();
    const auto count = std::ssize(places.frames);
    const int64_t length = view.lengths()[head];
    if (count == 0) return {};
    const Tensor held = view.Scratch(DType::kF32, {view.tokens()});
    ops.select->Scatter(AsColumn(Filled(view, length, 1.0f)), view.Positions(head), AsColumn(held));
    std::vector<int32_t> at;
    std::vector<float> real;
    std::vector<int32_t> whole(static_cast<size_t>(count));
    for (size_t f = 0; f < whole.size(); ++f) whole[f] = static_cast<int32_t>(f);
    places.Fill(whole, at, real);
    const Tensor flags = view.Scratch(DType::kF32, {count, places.area});
    const Tensor counts = view.Scratch(DType::kF32, {count});
    ops.select->Gather(AsColumn(held), Upload(view, std::span<const int32_t>(at)),
                       flags.Reshape({count * places.area, 1}));
    ops.rows->ReduceRows(flags, Reduction::kSum, counts);
    const std::vector<float> fetched = Fetch(ops, counts);
    int64_t room = kept - length;
    for (const float of_frame : fetched) room += static_cast<int64_t>(of_frame);
    std::erase_if(whole, [&](int32_t f) {
      const auto frame = static_cast<size_t>(f);
      return static_cast<int64_t>(fetched[frame]) < std::ssize(places.frames[frame]);
    });
    const int64_t more = std::ssize(whole) - std::max<int64_t>(room, 0);
    if (more > 0) whole.erase(whole.begin(), whole.begin() + more);
    return whole;
  }

  HeadPlan WithFrames(LayerView& view, int64_t head, const FramePlaces& places,
                      const std::vector<int32_t>& whole, const Tensor& scores, int64_t kept) const {
    Ops& ops = view.ops();
    const int64_t length = scores.shape[1], count = std::ssize(whole), area = places.area;
    const int64_t all = count * area, chosen = kept - count;
    const auto mark = [&](const Tensor& which, float as, const Tensor& marks) {
      ops.select->Scatter(AsColumn(Filled(view, which.shape[0], as)), which, AsColumn(marks));
    };
    const Tensor stays = view.Scratch(DType::kF32, {length});
    mark(Best(view, scores, chosen), 1.0f, stays);

    // Entries of the frames, their shares of attention, and whether they stay: [count, area].
    std::vector<int32_t> at;
    std::vector<float> real;
    places.Fill(whole, at, real);
    const Tensor entry_at = view.Scratch(DType::kI32, {view.tokens()});
    ops.select->Scatter(AsColumn(Numbers(view, length)), view.Positions(head), AsColumn(entry_at));
    const Tensor entries = view.Scratch(DType::kI32, {all});
    ops.select->Gather(AsColumn(entry_at), Upload(view, std::span<const int32_t>(at)),
                       AsColumn(entries));
    const Tensor is_real = Upload(view, std::span<const float>(real)).Reshape({count, area});
    const Tensor share = view.Scratch(DType::kF32, {count, area});
    ops.select->Gather(scores.Reshape({length, 1}), entries, share.Reshape({all, 1}));
    const Tensor flat = share.Reshape({1, all});
    ops.rows->Combine(flat, Filled(view, all, 1.0f).Reshape({1, all}), Binary::kMin, flat);
    ops.rows->Combine(flat, Filled(view, all, kLeastShare).Reshape({1, all}), Binary::kMax, flat);
    ops.rows->Combine(share, is_real, Binary::kMultiply, share);
    const Tensor goes = view.Scratch(DType::kF32, {count, area});
    ops.select->Gather(AsColumn(stays), entries, goes.Reshape({all, 1}));
    ops.rows->Affine(goes, -1.0f, 1.0f, goes);
    ops.rows->Combine(goes, share, Binary::kMultiply, goes);

    // The best that go, of the frames of which some do.
    const Tensor most = view.Scratch(DType::kF32, {count});
    ops.rows->ReduceRows(goes, Reduction::kMax, most);
    const std::vector<float> fetched = Fetch(ops, most);
    std::vector<int32_t> losing;
    for (int32_t f = 0; f < count; ++f) {
      if (fetched[static_cast<size_t>(f)] > 0) losing.push_back(f);
    }
    HeadPlan plan;
    plan.keep = Best(view, scores, chosen);
    if (losing.empty()) return plan;
    const Tensor best = Best(view, MarkBest(view, goes).Reshape({1, all}), count);
    const auto made = std::ssize(losing);
    const Tensor rows = Upload(view, std::span<const int32_t>(losing));
    const Tensor of_frame = view.Scratch(DType::kI32, {count});
    const Tensor places_of = view.Scratch(DType::kI32, {made});
    ops.select->Gather(AsColumn(entries), best, AsColumn(of_frame));
    ops.select->Gather(AsColumn(of_frame), rows, AsColumn(places_of));
    mark(places_of, 1.0f, stays);

    plan.keep = Best(view, stays.Reshape({1, length}), chosen + made);
    plan.keys = plan.values =
        Made(view, entries.Reshape({count, area}), share, is_real, rows, places_of, length);
    return plan;
  }

  // The means of the frames `rows`, in the entries `to`.
  MergeList Made(LayerView& view, const Tensor& entries, const Tensor& share, const Tensor& is_real,
                 const Tensor& rows, const Tensor& to, int64_t length) const {
    Ops& ops = view.ops();
    const int64_t made = rows.shape[0], area = entries.shape[1];
    const auto of_rows = [&](const Tensor& from, const Tensor& out) {
      ops.select->Gather(from, rows, out.Reshape({made, area}));
    };
    MergeList list;
    list.from = view.Scratch(DType::kI32, {made * area});
    list.to = view.Scratch(DType::kI32, {made * area});
    list.weight = view.Scratch(DType::kF32, {made * area});
    of_rows(entries, list.from);
    of_rows(merge_ == "weighted" ? share : is_real, list.weight);
    const Tensor weight = list.weight.Reshape({made, area});
    const Tensor sums = view.Scratch(DType::kF32, {made});
    ops.rows->ReduceRows(weight, Reduction::kSum, sums);
    ops.rows->Combine(weight, Spread(view, sums, area), Binary::kDivide, weight);
    std::vector<int32_t> repeated(static_cast<size_t>(made * area));
    for (size_t i = 0; i < repeated.size(); ++i) {
      repeated[i] = static_cast<int32_t>(static_cast<int64_t>(i) / area);
    }
    ops.select->Gather(AsColumn(to), Upload(view, std::span<const int32_t>(repeated)),
                       AsColumn(list.to));
    list.self = Filled(view, length, 1.0f);
    ops.select->Scatter(view.Scratch(DType::kF32, {made, 1}), to, AsColumn(list.self));
    return list;
  }

  std::string merge_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kReduce,
    .id = "streammem",
    .paper = "arXiv:2508.15717",
    .summary = "the best scores, and a weighted mean of each frame that begins to lose entries",
    .departures =
        {("the paper adds a mean of every new frame; here a frame of which all entries stay has "
          "none, and another has one when entries of it go for the first time"),
         ("what is made of a frame stands at the place of the best of its entries that go; the "
          "paper gives it no place. Keys are averaged as attention sees them, rotated"),
         ("means are entries of the budget; where it has room for fewer, the newest frames have "
          "one"),
         ("a chunk that ends within a frame makes a mean of the part that was read, and the rest "
          "has none; chunk_tokens should be a number of whole frames (8 in the paper)"),
         ("text before, between and behind the frames stays, and its entries are of the budget")},
    .params = {ChoiceParam("merge", "weighted", {"weighted", "average", "none"},
                           "what is made of a frame: the mean by scores, the plain mean, nothing")},
    .make = Make<StreamMemReduce>(),
});

}  // namespace
}  // namespace kvgauge
