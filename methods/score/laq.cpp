// SPDX-License-Identifier: Apache-2.0
// Attention of the first tokens of a drafted answer, and of the last prompt rows, smoothed along
// the entries.
//
// Paper: Lookahead Q-Cache, arXiv:2505.20334; after the released code. Needs the queries of the
// last prompt rows, and a draft: its cache holds the entries that the last `draft_window` rows look
// at. Rows share their attention among the entries of the prompt alone.
#include <algorithm>
#include <limits>

#include "methods/attention.h"
#include "methods/registry.h"
#include "methods/score_reduction.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class LookaheadQueries final : public Scorer {
 public:
  explicit LookaheadQueries(const Params& params)
      : draft_(params.Int("draft")),
        entries_(params.Int("draft_entries")),
        draft_window_(params.Int("draft_window")),
        window_(params.Int("window")),
        late_(params.Text("mask") == "released"),
        reduction_(ScoreReduction::From(params)) {}

  Needs needs() const override { return {.window = std::max(window_, draft_window_)}; }
  Status Check(const ModelShape&) const override { return reduction_.Check(); }
  int64_t protects() const override { return window_; }
  int64_t DraftRows() const override { return draft_; }
  int64_t DraftEntries() const override { return entries_; }

  void ScoreForDraft(LayerView& view, Tensor out) const override {
    const Tensor attention = view.WindowAttention(draft_window_);
    const int64_t heads = attention.shape[0], rows = attention.shape[1], n = attention.shape[2];
    const int64_t before = n - rows;
    if (before > 0) {
      const Tensor sums = view.Scratch(DType::kF32, {heads, before});
      for (int64_t h = 0; h < heads; ++h) {
        view.ops().rows->ReduceColumns(Columns(attention[h], 0, before), Reduction::kSum, sums[h]);
      }
      reduction_.Apply(view, sums, Columns(out, 0, before));
    }
    view.ops().rows->Fill(kForcedScore, Columns(out, before, n));
  }

  void Score(LayerView& view, Tensor out) const override {
    const ModelShape& shape = view.shape();
    const int64_t n = view.width(), window = std::min(window_, n), before = n - window;
    if (before > 0) {
      const Tensor sums = view.Scratch(DType::kF32, {shape.query_heads, before});
      for (int64_t h = 0; h < shape.kv_heads; ++h) Sum(view, h, window, sums);
      reduction_.Apply(view, sums, Columns(out, 0, before));
    }
    if (window > 0) view.ops().rows->Fill(kForcedScore, Columns(out, before, n));
  }

 private:
  // What the rows pay to entries before the window, for the query heads of one KV head.
  // sums: [query_heads, entries before the window]
  void Sum(LayerView& view, int64_t head, int64_t window, const Tensor& sums) const {
    Ops& ops = view.ops();
    const int64_t n = view.width(), dim = view.shape().key_dim, group = view.shape().group();
    const Tensor drafted = view.DraftQueries();
    const int64_t rows = window + drafted.shape[0], before = sums.shape[1];
    const Tensor keys = view.Keys(head).Reshape({1, n, dim});
    const Tensor queries = view.Scratch(DType::kF32, {rows, dim});
    const Tensor products = view.Scratch(DType::kF32, {rows, n});
    for (int64_t q = head * group; q < (head + 1) * group; ++q) {
      if (window > 0) OfHead(ops, view.WindowQueries(window), q, queries.Slice(0, window));
      OfHead(ops, drafted, q, queries.Slice(window, rows));
      ops.linear->MatMulNT(queries.Reshape({1, rows, dim}), keys, 1.0f,
                           products.Reshape({1, rows, n}));
      LogitsOfProducts(view, products);
      for (int64_t r = 0; r < rows; ++r) {
        // As released, the last row is the first to see all.
        const int64_t seen = std::clamp<int64_t>(n - (late_ ? rows : window) + r + 1, 1, n);
        const Tensor hidden = Columns(products.Slice(r, r + 1), seen, n);
        if (seen < n) ops.rows->Fill(-std::numeric_limits<float>::infinity(), hidden);
      }
      const QueryRows places = {.position = view.tokens() - window, .apart = 1};
      AttentionOfLogits(view, head, 0, places, products, products);
      ops.rows->ReduceColumns(Columns(products, 0, before), Reduction::kSum, sums[q]);
    }
  }

  // The rows of one query head of [rows, query_heads, dim].
  static void OfHead(Ops& ops, const Tensor& all, int64_t head, const Tensor& out) {
    Tensor own(all[0][head].data, DType::kF32, {all.shape[0], all.shape[2]}, all.device);
    own.stride[0] = all.stride[0];
    ops.rows->Convert(own, out);
  }

  int64_t draft_, entries_, draft_window_, window_;
  bool late_;
  ScoreReduction reduction_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "laq",
    .paper = "arXiv:2505.20334",
    .summary = "attention of a drafted answer's tokens and of the last prompt rows",
    .departures =
        {"one set of entries per KV head, not per query head",
         "a draft goes on behind a token that ends the answer, where the reference stops",
         "the draft's cache holds a number of entries of its own, where the reference's script "
         "gives it the budget",
         "rows of the prompt see the entries before them; the released mask hides more of them "
         "and some from drafted rows: mask=released"},
    .params = ScoreReduction::Declare(
        {.kernel = 7, .pooling = Pooling::kMax},
        {IntParam("draft", 8, 1, 1 << 16, "tokens of the draft"),
         IntParam("draft_entries", 256, 1, 1 << 24, "entries that a head holds while drafting"),
         IntParam("draft_window", 32, 1, 4096, "prompt rows that choose them, and stay"),
         IntParam("window", 8, 0, 4096, "prompt rows that look back beside the draft, and stay"),
         ChoiceParam("mask", "causal", {"causal", "released"},
                     "which entries a row does not see: later ones, or as in the released code")}),
    .make = Make<LookaheadQueries>(),
});

}  // namespace
}  // namespace kvgauge
