// SPDX-License-Identifier: Apache-2.0
// Reads the pages of the older frames that a question looks at, by keys without positions; all
// heads of a layer read the same of their entries, where these stand.
//
// Paper: LiveVLM, arXiv:2505.15269, its Position-agnostic KV Retrieval. Needs keys before rotation
// and the queries of a question's rows. What is held from the first picture to the newest frames is
// cut into pages of neighbouring entries; in a prompt without pictures what is held between its
// first `sinks` and its last `local` entries. A page stands for itself by the mean of its keys. The
// question's rows attend to these means, all before rotation, and the pages that get most over rows
// and heads are read until the next question, with what is in none.
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

class PositionAgnostic final : public QuestionReader, public RepeatingReader {
 public:
  explicit PositionAgnostic(const Params& params)
      : share_(params.Real("share")),
        page_(params.Int("page")),
        newest_(params.Int("newest")),
        question_(params.Int("question")),
        sinks_(params.Int("sinks")),
        local_(params.Int("local")) {}

  Needs needs() const override {
    return {.question_rows = question_, .raw_keys = true, .modality = true};
  }
  bool takes_parts_of_pictures() const override { return true; }
  bool moves() const override { return false; }
  Status Check(const ModelShape& shape) const override { return CheckEntryBlocks(shape); }

  struct Pages final : State {
    EntryBlocks blocks;
    int64_t read = 0;  // entries before end() that are; 0: no question has chosen yet
    Buffer entries;    // [read] i32, ascending

    int64_t end() const { return blocks.first + blocks.entries(); }
    int64_t bytes() const override { return blocks.bytes() + entries.size_bytes(); }
  };

  int64_t MostBytes(const ModelShape& shape, int64_t layer, int64_t entries) const override {
    const ModelShape own = shape.OfLayer(layer);
    const int64_t pages = (entries + page_ - 1) / page_;
    if (PicksOf(pages) >= pages) return 0;
    // A picture may end anywhere, so all that is before its end may be read.
    return HostBufferBytes(pages * own.kv_heads * own.key_dim * SizeOf(DType::kF32)) +
           HostBufferBytes(entries * SizeOf(DType::kI32));
  }

  std::unique_ptr<State> Begin(LayerView& view) const override {
    auto pages = std::make_unique<Pages>();
    const auto [first, end] = Paged(view);
    const int64_t count = std::max<int64_t>(0, (end - first + page_ - 1) / page_);
    if (PicksOf(count) >= count) return pages;
    pages->blocks.first = first;
    for (int64_t at = first; at < end; at += page_) {
      pages->blocks.ends.push_back(std::min(at + page_, end) - first);
    }
    pages->blocks.StandByKvHead(view);
    if (!view.decoding()) {
      const int64_t rows = std::min(view.QuestionRows(question_), view.tokens());
      ChoosePages(view, *pages, view.WindowQueries(rows));
    }
    return pages;
  }

  void Append(LayerView&, std::span<const int64_t>, State&) const override {}

  bool saves() const override { return true; }
  Status Fields(LayerView& view, State& state, StateFields& fields) const override {
    auto& pages = static_cast<Pages&>(state);
    KVG_TRY(pages.blocks.Fields(view, view.shape().kv_heads, {}, fields));
    if (pages.blocks.count() == 0) return {};
    KVG_TRY(fields.Number("entries of pages that are read", 0, pages.end(), &pages.read));
    return fields.Indices("entries of pages that are read", view.ops(), pages.read, pages.end(),
                          &pages.entries);
  }

  bool Choose(LayerView& view, State& state, const Tensor& q, bool anew, Tensor words,
              Tensor) const override {
    auto& pages = static_cast<Pages&>(state);
    if (pages.blocks.count() == 0) return false;
    if (anew || pages.read == 0) ChoosePages(view, pages, q);
    MarkChosenAndLater(view, pages.entries.As(DType::kI32, {pages.read}), pages.end(), view.width(),
                       words);
    return true;
  }

 private:
  int64_t PicksOf(int64_t pages) const {
    return std::max<int64_t>(1, static_cast<int64_t>(share_ * static_cast<double>(pages)));
  }

  // Where the entries that are cut into pages begin and end, in every head.
  std::pair<int64_t, int64_t> Paged(LayerView& view) const {
    const std::span<const VisualSpan> spans = view.VisualSpans();
    if (spans.empty()) return {sinks_, view.width() - local_};
    std::vector<int64_t> bounds = FrameStarts(view);
    bounds.push_back(std::min(spans.back().first + spans.back().count, view.tokens()));
    const int64_t old = std::ssize(bounds) - 1 - newest_;
    if (old <= 0) return {0, 0};
    return {CountBefore(view, bounds[0]), CountBefore(view, bounds[static_cast<size_t>(old)])};
  }

  // Entries of the first head whose tokens stand before that position.
  static int64_t CountBefore(LayerView& view, int64_t position) {
    RowOps& ops = *view.ops().rows;
    const int64_t n = view.lengths()[0];
    const Tensor places = view.Scratch(DType::kF32, {1, n}),
                 limit = view.Scratch(DType::kF32, {1, n});
    const Tensor count = view.Scratch(DType::kF32, {1});
    ops.Convert(view.Positions(0).Reshape({1, n}), places);
    ops.Fill(static_cast<float>(position), limit);
    ops.Combine(places, limit, Binary::kLess, places);
    ops.ReduceRows(places, Reduction::kSum, count);
    return static_cast<int64_t>(Fetch(view.ops(), count)[0]);
  }

  void ChoosePages(LayerView& view, Pages& pages, const Tensor& q) const {
    MemoryOps& memory = *view.ops().memory;
    const int64_t picks = PicksOf(pages.blocks.count());
    const Tensor best = Best(view, Attention(view, pages.blocks, q), picks);
    std::vector<int32_t> picked(static_cast<size_t>(picks));
    memory.Copy(best, View(picked, {picks}));
    memory.Synchronize();
    const std::vector<int32_t> entries = pages.blocks.EntriesOf(picked);
    const int64_t read = std::ssize(entries);
    Buffer chosen = memory.Allocate(read * SizeOf(DType::kI32));
    memory.Copy(View(entries, {read}), chosen.As(DType::kI32, {read}));
    pages.entries = std::move(chosen);
    pages.read = read;
  }

  // What rotated queries [rows, query_heads, key_dim] pay to each page, averaged over rows and
  // heads: [1, pages].
  static Tensor Attention(LayerView& view, const EntryBlocks& pages, const Tensor& q) {
    Ops& ops = view.ops();
    const int64_t rows = q.shape[0], heads = q.shape[1], dim = q.shape[2], count = pages.count();
    const int64_t kv_heads = view.shape().kv_heads, group = heads / kv_heads;
    const Tensor queries = UnturnedQueries(view, q).Reshape({rows, heads * dim});
    const Tensor means = pages.keys.As(DType::kF32, {count, kv_heads * dim});
    const Tensor own = view.Scratch(DType::kF32, {rows, dim});
    const Tensor keys = view.Scratch(DType::kF32, {count, dim});
    const Tensor attention = view.Scratch(DType::kF32, {rows, count});
    const Tensor by_head = view.Scratch(DType::kF32, {heads, count});
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t of = h / group * dim;
      if (h % group == 0) ops.rows->Convert(Columns(means, of, of + dim), keys);
      ops.rows->Convert(Columns(queries, h * dim, (h + 1) * dim), own);
      ops.linear->MatMulNT(own.Reshape({1, rows, dim}), keys.Reshape({1, count, dim}),
                           view.shape().attention_scale, attention.Reshape({1, rows, count}));
      ops.rows->Softmax(attention, 1.0f, attention);
      ops.rows->ReduceColumns(attention, Reduction::kMean, by_head[h]);
    }
    const Tensor mean = view.Scratch(DType::kF32, {1, count});
    ops.rows->ReduceColumns(by_head, Reduction::kMean, mean[0]);
    return mean;
  }

  double share_;
  int64_t page_, newest_, question_, sinks_, local_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kRead,
    .id = "livevlm",
    .paper = "arXiv:2505.15269",
    .summary = "reads the pages of older frames that a question attends to, without positions",
    .departures =
        {"the accounts of the paper name simplified attention that is pooled; here each row and "
         "query head has a softmax over the pages, whose mean over rows and heads ranks them for "
         "all heads of the layer",
         "all rows behind the context choose, in the pass that reads them, with the words that a "
         "template puts around the question; a question of more rows than a pass has (512) chooses "
         "by those of its first pass",
         "with compress_at context the question's rows read what they choose; with prompt and "
         "chunk they were read with the prompt, and see all that is held",
         "what stands between two older frames is in their pages, and read with them; the "
         "reference has nothing there"},
    .bytes = "4 * kv_heads * key_dim a page and layer, and 4 an entry that is read and layer, "
             "beside the cache",
    .params = {RealParam("share", 0.4, 0, 1, "pages that are read, of all; at least one"),
               IntParam("page", 16, 1, 4096, "entries of a page"),
               IntParam("newest", 2, 0, 1 << 20,
                        "last pictures, or times of a video, always read; as reduce.newest"),
               IntParam("question", 256, 1, 4096,
                        "rows of a prompt that are its question, at most: those behind the last "
                        "frame, or the last of a text"),
               IntParam("sinks", 16, 0, 1 << 20, "first entries of a text, always read"),
               IntParam("local", 64, 0, 1 << 24, "last entries of a text, always read")},
    .make = Make<PositionAgnostic>(),
    .goes_by_layer = true,
});

}  // namespace
}  // namespace kvgauge
