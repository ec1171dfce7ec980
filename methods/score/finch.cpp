// SPDX-License-Identifier: Apache-2.0
// Attention of the question's rows, each weighed by how many entries it could look at.
//
// Paper: FINCH, TACL 2024 (direct.mit.edu/tacl, tacl_a_00716); after kvpress's FinchPress. Needs
// the attention of the last `window` prompt rows, which stand for the question. A row's shares are
// times the number of entries before it, so that late rows, whose shares are thinner, count as
// much. Keys turn by their place in the cache in stores that say so.
#include "methods/score_reduction.h"
#include "methods/tensors.h"
#include "methods/window_scorer.h"

namespace kvgauge {
namespace {

class Finch final : public WindowScorer {
 public:
  explicit Finch(const Params& params)
      : WindowScorer(params), reduction_(ScoreReduction::From(params)) {}

  Status Check(const ModelShape&) const override { return reduction_.Check(); }
  int64_t rows_behind_chunks() const override { return protects(); }
  bool takes_uneven() const override { return true; }

 protected:
  void ScoreBefore(LayerView& view, int64_t rows, Tensor out) const override {
    const int64_t heads = view.shape().query_heads, n = view.width(), before = out.shape[1];
    const Tensor attention = view.WindowAttention(rows);  // [query_heads, rows, width]
    const int64_t seen = attention.shape[1];
    const Tensor mean = view.Scratch(DType::kF32, {heads, n});
    Tensor weights;
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t own = view.lengths()[static_cast<size_t>(h / view.shape().group())];
      if (h % view.shape().group() == 0) weights = EntriesBefore(view, own, seen);
      view.ops().linear->MatMulNN(weights.Reshape({1, 1, seen}), attention[h].Reshape({1, seen, n}),
                                  1.0f / static_cast<float>(seen), mean[h].Reshape({1, 1, n}));
      if (own == n) continue;
      const Tensor behind = Columns(mean.Slice(h, h + 1), own - (n - before), before);
      view.ops().rows->Fill(0.0f, behind);
    }
    reduction_.Apply(view, Columns(mean, 0, before), out);
  }

 private:
  // How many entries are before each of the last `rows` of `length`: [rows].
  static Tensor EntriesBefore(LayerView& view, int64_t length, int64_t rows) {
    std::vector<float> counts;
    for (int64_t r = 0; r < rows; ++r) counts.push_back(static_cast<float>(length - rows + r));
    return Upload(view, std::span<const float>(counts));
  }

  ScoreReduction reduction_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "finch",
    .paper = "TACL 2024, direct.mit.edu/tacl, tacl_a_00716",
    .summary = "attention of the question's rows, weighed by what they could look at",
    .departures = {"the question's length is a parameter, not found by a delimiter",
                   "the prompt is scored as a whole; with compress_at chunk chunk by chunk, the "
                   "question behind each, within one budget for all"},
    .params = ScoreReduction::Declare(
        {}, {WindowScorer::WindowParam(32, "prompt rows that are the question")}),
    .make = Make<Finch>(),
});

}  // namespace
}  // namespace kvgauge
