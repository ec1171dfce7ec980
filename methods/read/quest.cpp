// SPDX-License-Identifier: Apache-2.0
// Reads the pages of entries whose keys could match the query best; nothing is evicted.
//
// Paper: Quest, arXiv:2406.10774. Needs the query of each decode step. The index holds the smallest
// and the largest number of each channel over the rotated keys of a page; a page's score is the
// largest product that a key within these bounds could have with the query.
// The page that is being filled is forced in only with `last_page`, as in the reference's kernels.
#include <algorithm>

#include "core/strings.h"
#include "methods/attention.h"
#include "methods/page_bounds.h"
#include "methods/registry.h"
#include "methods/repeating_reader.h"
#include "methods/tensors.h"
#include "methods/turn_taking_reader.h"

namespace kvgauge {
namespace {

class Quest final : public Reader, public TurnTakingReader, public RepeatingReader {
 public:
  explicit Quest(const Params& params)
      : page_(params.Int("page")),
        tokens_(params.Int("tokens")),
        dense_layers_(params.Int("dense_layers")),
        by_kv_head_(params.Text("heads") == "kv"),
        floor_below_(params.Text("below") == "floor"),
        last_page_(params.Bool("last_page")) {}

  int64_t MostBytes(const ModelShape& shape, int64_t layer, int64_t entries) const override {
    return layer < dense_layers_ ? 0 : PageIndex::MostBytes(shape.OfLayer(layer), page_, entries);
  }

  std::unique_ptr<State> Begin(LayerView& view) const override {
    auto index = std::make_unique<PageIndex>();
    if (view.layer() >= dense_layers_) index->Begin(view, page_);
    return index;
  }

  void Append(LayerView& view, std::span<const int64_t> first, State& state) const override {
    static_cast<PageIndex&>(state).Append(view, first);
  }

  bool saves() const override { return true; }
  Status Fields(LayerView& view, State& state, StateFields& fields) const override {
    return static_cast<PageIndex&>(state).Fields(view, fields);
  }

  bool Select(LayerView& view, State& state, const Tensor& q, Tensor words) const override {
    const auto& index = static_cast<const PageIndex&>(state);
    const auto most = [&](size_t head) {
      const int64_t length = view.lengths()[head];
      return std::max(kLeastPages, (floor_below_ ? std::min(tokens_, length) : tokens_) / page_);
    };
    bool all = true;
    int64_t columns = 0;
    for (size_t h = 0; h < index.heads.size(); ++h) {
      all &= index.heads[h].pages() <= most(h);
      columns = std::max(columns, index.heads[h].columns(view));
    }
    if (all) return false;  // also in a dense layer, whose index is empty
    const int64_t group = view.shape().group();
    const Tensor limits = view.Scratch(DType::kF32, {columns, view.shape().key_dim});
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const PageBounds& bounds = index.heads[h];
      const int64_t length = view.lengths()[h], begin = h * group, end = begin + group;
      if (bounds.pages() == 0) continue;
      const Tensor chosen = Choose(view, h, bounds, q.Slice(begin, end), limits,
                                   std::min(most(static_cast<size_t>(h)), bounds.pages()));
      view.ops().select->MarkRuns(chosen, page_, length,
                                  Columns(words.Slice(begin, end), 0, (length + 63) / 64));
    }
    return true;
  }

 private:
  static constexpr int64_t kLeastPages = 3;

  // q: [group, key_dim]. Pages for each of the group: [group, count] i32, rows may be the same.
  Tensor Choose(LayerView& view, int64_t head, const PageBounds& bounds, const Tensor& q,
                const Tensor& limits, int64_t count) const {
    Ops& ops = view.ops();
    const int64_t group = q.shape[0], pages = bounds.pages();
    Tensor scores = bounds.RoomyProducts(view, q, limits);
    HideFromNewest(view, head, 0, page_, pages, scores);
    if (last_page_) {
      Tensor last = Columns(scores, pages - 1, pages);
      ops.rows->Fill(kForcedScore, last);
    }
    const int64_t rows = by_kv_head_ ? 1 : group;
    if (by_kv_head_) {
      const Tensor best = view.Scratch(DType::kF32, {scores.shape[1]});
      ops.rows->ReduceColumns(scores, Reduction::kMax, best);
      scores = best.Reshape({1, best.shape[0]});
    }
    const std::vector<int32_t> counts(static_cast<size_t>(rows), static_cast<int32_t>(count));
    Tensor chosen = view.Scratch(DType::kI32, {rows, count});
    ops.select->TopK(Columns(scores, 0, pages), Upload(view, counts), chosen);
    if (rows < group) {
      chosen.shape[0] = group;
      chosen.stride[0] = 0;
    }
    return chosen;
  }

  int64_t page_, tokens_, dense_layers_;
  bool by_kv_head_, floor_below_, last_page_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kRead,
    .id = "quest",
    .paper = "arXiv:2406.10774",
    .summary = "reads the pages whose keys could match the query best",
    .departures = {"pages per KV head are offered beside those per query head",
                   "caches of no more than `tokens` are read whole; the reference's evaluation "
                   "leaves out a page where the length is no multiple of `page`: below = floor",
                   "the index has the cache's type"},
    .bytes = "2 * key_dim / page of the cache's type an entry and head, beside the cache",
    .params = {IntParam("page", 16, 2, 1024, "entries of a page"),
               IntParam("tokens", 1024, 1, 1 << 24, "entries that are read, but 3 pages at least"),
               IntParam("dense_layers", 2, 0, 1000, "first layers that read everything"),
               ChoiceParam("heads", "query", {"query", "kv"}, "who chooses pages of its own"),
               ChoiceParam("below", "all", {"all", "floor"},
                           "what is read of no more than `tokens`: all, or as many whole pages as "
                           "there are"),
               BoolParam("last_page", false, "the page being filled is always read")},
    .make = Make<Quest>(),
    .goes_by_layer = true,
});

}  // namespace
}  // namespace kvgauge
