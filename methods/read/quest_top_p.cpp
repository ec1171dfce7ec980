// SPDX-License-Identifier: Apache-2.0
// Reads the fewest entries that have a share of the attention, of the pages that bounds choose.
//
// Paper: Twilight, arXiv:2502.02770, its pruner over Quest. Needs the query of each decode step. A
// query head takes the pages whose keys could match it best, `tokens` entries of them, as
// read.quest does. A softmax over these entries alone says how few of them sum to `share`.
#include <algorithm>

#include "methods/attention.h"
#include "methods/largest_sums.h"
#include "methods/page_bounds.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class QuestTopP final : public Reader {
 public:
  explicit QuestTopP(const Params& params)
      : page_(params.Int("page")),
        most_((params.Int("tokens") + page_ - 1) / page_),
        share_(static_cast<float>(params.Real("share"))),
        dense_layers_(params.Int("dense_layers")) {}

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

  bool ReadsFew(int64_t layer, int64_t length) const override {
    return layer >= dense_layers_ && AreFew(most_ * page_, length);
  }

  bool Select(LayerView& view, State& state, const Tensor& q, Tensor words) const override {
    const auto& index = static_cast<const PageIndex&>(state);
    if (index.heads.empty() || view.width() == 0) return false;
    if (share_ >= 1 && view.width() <= most_ * page_) return false;
    const int64_t group = view.shape().group();
    const Tensor given = view.Scratch(DType::kF32, {view.shape().query_heads, view.width()});
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t length = view.lengths()[h], begin = h * group, end = begin + group;
      if (length == 0) continue;
      Attend(view, h, index.heads[static_cast<size_t>(h)], q.Slice(begin, end),
             Columns(given.Slice(begin, end), 0, length));
    }
    MarkFewest(view, given, share_, most_ * page_, words);
    return true;
  }

 private:
  // What each of the group gives the entries of its pages, and 0 to others: [group, length].
  // q: [group, key_dim]
  void Attend(LayerView& view, int64_t head, const PageBounds& bounds, const Tensor& q,
              const Tensor& out) const {
    Ops& ops = view.ops();
    const int64_t group = q.shape[0], dim = q.shape[1], length = out.shape[1];
    const int64_t pages = bounds.pages(), count = std::min(most_, pages);
    const Tensor scores = bounds.LargestProducts(view, q);
    HideFromNewest(view, head, 0, page_, scores);
    const std::vector<int32_t> counts(static_cast<size_t>(group), static_cast<int32_t>(count));
    const Tensor chosen = view.Scratch(DType::kI32, {group, count});
    ops.select->TopK(scores, Upload(view, counts), chosen);

    const Tensor query = view.Scratch(DType::kF32, {group, dim});
    const Tensor logits = view.Scratch(DType::kF32, {group, length});
    ops.rows->Convert(q, query);
    ops.linear->MatMulNT(query.Reshape({1, group, dim}), view.Keys(head).Reshape({1, length, dim}),
                         1.0f, logits.Reshape({1, group, length}));
    LogitsOfProducts(view, logits);
    HideFromNewest(view, head, 0, 1, logits);
    const Tensor ones = AsColumn(Filled(view, count, 1.0f));
    for (int64_t g = 0; g < group; ++g) {
      const Tensor taken = view.Scratch(DType::kF32, {pages});
      ops.select->Scatter(ones, chosen[g], AsColumn(taken));
      const Tensor entries = Spread(view, taken, page_).Reshape({pages * page_}).Slice(0, length);
      ops.rows->Activate(entries, Activation::kLog, entries);  // 0, or -inf
      ops.rows->Combine(logits[g], entries, Binary::kAdd, logits[g]);
    }
    ops.rows->Softmax(logits, 1.0f, out);
  }

  int64_t page_, most_;
  float share_;
  int64_t dense_layers_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kRead,
    .id = "quest_top_p",
    .paper = "arXiv:2502.02770",
    .summary = "reads the fewest entries that have a share, of the pages that bounds choose",
    .departures = {"attention among the entries of chosen pages is that of the keys as they are "
                   "stored, where the reference estimates it by a copy of them in 4 bits",
                   "the index has the cache's type"},
    .bytes = "2 * key_dim / page of the cache's type an entry and head, beside the cache",
    .params = {IntParam("page", 16, 2, 1024, "entries of a page"),
               IntParam("tokens", 8192, 1, 1 << 24, "entries of the pages that are chosen"),
               RealParam("share", 0.85, 0.001, 1, "share of its attention that a query head reads"),
               IntParam("dense_layers", 2, 0, 1000, "first layers that read everything")},
    .make = Make<QuestTopP>(),
    .goes_by_layer = true,
});

}  // namespace
}  // namespace kvgauge
