// SPDX-License-Identifier: Apache-2.0
// Reads the frames that a question resembles, for all heads of a layer together, as if nothing had
// stood between them.
//
// Paper: ReKV, arXiv:2503.00540; after Becomebright/ReKV. Needs keys before rotation and the
// queries of a question's rows. Every picture, and every time of a video, is a block, with what
// stands behind it up to the next; a text is cut into blocks of `block` entries behind its first
// `sinks`, as far as `local` entries are left at its end. A block stands for itself by the mean of
// its keys before rotation, the question by the mean of its queries. The `picks` blocks whose
// products, summed over query heads, are largest are read until the next question, with what stands
// before the first block and behind the last one. Keys turn as if these blocks, and what stands
// before them, were the entries just before what follows.
#include <algorithm>

#include "kernels/buffer_bytes.h"
#include "methods/entry_blocks.h"
#include "methods/joining_reader.h"
#include "methods/question_reader.h"
#include "methods/registry.h"
#include "methods/repeating_reader.h"
#include "methods/state_fields.h"
#include "methods/tensors.h"
#include "methods/video_frames.h"

namespace kvgauge {
namespace {

class ReKv final : public QuestionReader, public RepeatingReader {
 public:
  explicit ReKv(const Params& params)
      : picks_(params.Int("picks")),
        question_(params.Int("question")),
        block_(params.Int("block")),
        sinks_(params.Int("sinks")),
        local_(params.Int("local")) {}

  Needs needs() const override {
    return {.question_rows = question_, .raw_keys = true, .modality = true};
  }
  Status Check(const ModelShape& shape) const override { return CheckEntryBlocks(shape); }
  // All heads of a layer read the same entries, by their places in the prompt.
  bool shares_choices() const override { return true; }

  struct Frames final : State {
    EntryBlocks blocks;
    int64_t read = 0;  // entries before end() that are; 0: no question has chosen yet
    Buffer entries;    // [read] i32, ascending
    Buffer places;     // [end] i32: where those are turned to

    int64_t end() const { return blocks.first + blocks.entries(); }
    int64_t bytes() const override {
      return blocks.bytes() + entries.size_bytes() + places.size_bytes();
    }
  };

  int64_t MostBytes(const ModelShape& shape, int64_t layer, int64_t entries) const override {
    // Most pictures have ten times as many tokens, and texts have blocks. A plan for pictures of
    // one token each would count more than the cache itself has.
    constexpr int64_t kFewestTokens = 16;
    const int64_t tokens = std::min(block_, kFewestTokens);
    const ModelShape own = shape.OfLayer(layer);
    const int64_t blocks = (entries + tokens - 1) / tokens;
    if (blocks <= picks_) return 0;
    return HostBufferBytes(blocks * own.query_heads * own.key_dim * SizeOf(DType::kF32)) +
           2 * HostBufferBytes(entries * SizeOf(DType::kI32));
  }

  std::unique_ptr<State> Begin(LayerView& view) const override {
    auto frames = std::make_unique<Frames>();
    const std::vector<int64_t> bounds = Bounds(view);
    if (std::ssize(bounds) <= picks_ + 1) return frames;
    frames->blocks.first = bounds[0];
    for (size_t i = 1; i < bounds.size(); ++i) {
      frames->blocks.ends.push_back(bounds[i] - bounds[0]);
    }
    frames->blocks.StandTogether(view);
    if (!view.decoding()) ChooseBlocks(view, *frames, view.WindowQueries(QuestionOf(view)));
    return frames;
  }

  void Append(LayerView&, std::span<const int64_t>, State&) const override {}

  bool saves() const override { return true; }
  Status Fields(LayerView& view, State& state, StateFields& fields) const override {
    auto& frames = static_cast<Frames&>(state);
    KVG_TRY(frames.blocks.Fields(view, view.shape().query_heads, {}, fields));
    if (frames.blocks.count() == 0) return {};
    if (frames.blocks.count() <= picks_) {
      return BadInput("state of the method: no more blocks than are read");
    }
    const int64_t end = frames.end();
    KVG_TRY(fields.Number("entries of blocks that are read", 0, end, &frames.read));
    if (frames.read == 0) return {};
    KVG_TRY(fields.Indices("entries of blocks that are read", view.ops(), frames.read, end,
                           &frames.entries));
    return fields.Indices("places of entries", view.ops(), end, end, &frames.places);
  }

  bool Choose(LayerView& view, State& state, const Tensor& q, bool anew, Tensor words,
              Tensor places) const override {
    auto& frames = static_cast<Frames&>(state);
    if (frames.blocks.count() == 0) return false;
    if (anew || frames.read == 0) ChooseBlocks(view, frames, q);
    const int64_t end = frames.end();
    MarkChosenAndLater(view, frames.entries.As(DType::kI32, {frames.read}), end, view.width(),
                       words);
    view.ops().memory->Copy(frames.places.As(DType::kI32, {end}), places.Slice(0, end));
    return true;
  }

 private:
  // Where each block begins, and where the last one ends; one number or none: there are no blocks.
  std::vector<int64_t> Bounds(LayerView& view) const {
    std::vector<int64_t> bounds;
    const std::span<const VisualSpan> spans = view.VisualSpans();
    if (spans.empty()) {
      for (int64_t at = sinks_; at <= view.width() - local_; at += block_) bounds.push_back(at);
      return bounds;
    }
    bounds = FrameStarts(view);
    if (!bounds.empty()) bounds.push_back(spans.back().first + spans.back().count);
    return bounds;
  }

  // Rows of the prompt that are its question.
  int64_t QuestionOf(LayerView& view) const {
    return std::min(view.QuestionRows(question_), view.width());
  }

  // The mean of rotated queries [rows, query_heads, key_dim] before their rotation: [query_heads,
  // key_dim].
  static Tensor MeanQuery(LayerView& view, const Tensor& q) {
    const int64_t rows = q.shape[0], heads = q.shape[1], dim = q.shape[2];
    const Tensor raw = UnturnedQueries(view, q);
    const Tensor mean = view.Scratch(DType::kF32, {heads * dim});
    view.ops().rows->ReduceColumns(raw.Reshape({rows, heads * dim}), Reduction::kMean, mean);
    return mean.Reshape({heads, dim});
  }

  void ChooseBlocks(LayerView& view, Frames& frames, const Tensor& q) const {
    MemoryOps& memory = *view.ops().memory;
    const EntryBlocks& blocks = frames.blocks;
    const Tensor best = Best(view, blocks.Scores(view, MeanQuery(view, q)), picks_);
    std::vector<int32_t> picked(static_cast<size_t>(picks_));
    memory.Copy(best, View(picked, {picks_}));
    const std::vector<int32_t> entries = blocks.EntriesOf(picked);
    const int64_t end = frames.end(), read = std::ssize(entries);
    std::vector<int32_t> turned(static_cast<size_t>(end));
    for (int64_t i = 0; i < read; ++i) {
      turned[static_cast<size_t>(entries[static_cast<size_t>(i)])] =
          static_cast<int32_t>(end - read + i);
    }
    Buffer chosen = memory.Allocate(read * SizeOf(DType::kI32));
    Buffer places = memory.Allocate(end * SizeOf(DType::kI32));
    memory.Copy(View(entries, {read}), chosen.As(DType::kI32, {read}));
    memory.Copy(View(turned, {end}), places.As(DType::kI32, {end}));
    frames.entries = std::move(chosen);
    frames.places = std::move(places);
    frames.read = read;
  }

  int64_t picks_, question_, block_, sinks_, local_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kRead,
    .id = "rekv",
    .paper = "arXiv:2503.00540",
    .summary = "reads the frames whose mean keys a question's mean query resembles, side by side",
    .departures =
        {"all rows behind the context choose, in the pass that reads them, with the words that a "
         "template puts around the question; the reference lets the bare question choose in a pass "
         "of its own, which it forgets; a question of more rows than a pass has (512) chooses by "
         "those of its first pass",
         "with compress_at prompt the question's rows were read with the prompt and saw what "
         "the attend stage let them see; with compress_at context they read what they choose, "
         "as in the reference",
         "what stands between two frames belongs to the first of them; the reference has nothing "
         "there",
         "where positions have three axes, what is read takes the places of the last frames; the "
         "reference is for models with one axis"},
    .bytes = "4 * query_heads * key_dim a frame and layer, and 4 to 8 an entry of the context and "
             "layer, beside the cache",
    .params = {IntParam("picks", 64, 1, 1 << 20, "frames, or blocks of a text, that are read"),
               IntParam("question", 256, 1, 4096,
                        "rows of a prompt that are its question, at most: those behind the last "
                        "frame, or the last of a text"),
               IntParam("block", 196, 1, 4096, "entries of a block of a text"),
               IntParam("sinks", 16, 0, 1 << 20, "first entries of a text, always read"),
               IntParam("local", 64, 0, 1 << 24, "last entries of a text, always read")},
    .make = Make<ReKv>(),
    .goes_by_layer = true,
});

}  // namespace
}  // namespace kvgauge
