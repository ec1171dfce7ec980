// SPDX-License-Identifier: Apache-2.0
// How far the output of attention moves when one entry goes and the others share its weight.
//
// Paper: CAOTE, arXiv:2504.14051. With weights a that sum to 1 and output o = sum of a_j v_j,
// taking entry j away moves o by a_j / (1 - a_j) * |o - v_j|, exactly. Needs the attention of the
// last `window` prompt rows, whose mean the weights are, or the column sums (`weights`). Computed
// for each query head, then joined. The window always stays.
#include <algorithm>
#include <cmath>

#include "methods/registry.h"
#include "methods/score_reduction.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

// The least that is left to the others; keeps the score of an entry with all the weight finite.
constexpr float kLeastRest = 1e-6f;

class Caote final : public Scorer {
 public:
  explicit Caote(const Params& params)
      : window_(params.Int("window")),
        sums_(params.Text("weights") == "sums"),
        reduction_(ScoreReduction::From(params)) {}

  Needs needs() const override {
    return sums_ ? Needs{.column_sums = true} : Needs{.window = window_};
  }
  int64_t protects() const override { return sums_ ? 0 : window_; }
  bool takes_uneven() const override { return true; }
  Status Check(const ModelShape&) const override { return reduction_.Check(); }

  void Score(LayerView& view, Tensor out) const override {
    Ops& ops = view.ops();
    const ModelShape& shape = view.shape();
    const int64_t n = view.width(), dim = shape.value_dim, group = shape.group();
    if (n == 0) return;
    const Tensor weights = Weights(view);
    const Tensor moves = view.Scratch(DType::kF32, {shape.query_heads, n});
    const Tensor all_least = Filled(view, n, kLeastRest);
    const Tensor output = view.Scratch(DType::kF32, {dim});
    const Tensor all_away = view.Scratch(DType::kF32, {n, dim});
    const Tensor all_rest = view.Scratch(DType::kF32, {n});
    for (int64_t q = 0; q < shape.query_heads; ++q) {
      const int64_t length = view.lengths()[static_cast<size_t>(q / group)];
      if (length == 0) continue;
      const auto own = [&](const Tensor& t) { return t.Slice(0, length).Reshape({1, length}); };
      const Tensor values = view.Values(q / group), row = own(weights[q]), move = own(moves[q]);
      const Tensor least = all_least.Slice(0, length), away = all_away.Slice(0, length);
      const Tensor rest = own(all_rest);
      ops.linear->MatMulNN(row.Reshape({1, 1, length}), values.Reshape({1, length, dim}), 1.0f,
                           output.Reshape({1, 1, dim}));
      ops.rows->Combine(values, output, Binary::kSubtract, away);
      ops.rows->ReduceRows(away, Reduction::kNorm, move.Reshape({length}));
      ops.rows->Affine(row, -1.0f, 1.0f, rest);
      ops.rows->Combine(rest, least, Binary::kMax, rest);
      ops.rows->Combine(move, row, Binary::kMultiply, move);
      ops.rows->Combine(move, rest, Binary::kDivide, move);
    }
    reduction_.Apply(view, moves, out);
  }

 private:
  // [query_heads, width], rows that sum to 1.
  Tensor Weights(LayerView& view) const {
    Ops& ops = view.ops();
    const int64_t heads = view.shape().query_heads, n = view.width();
    Tensor mean = view.Scratch(DType::kF32, {heads, n});
    if (sums_) {
      // As many rows as tokens: each gave 1 to the entries that it saw.
      ops.rows->Affine(view.ColumnSums(), 1.0f / static_cast<float>(view.tokens()), 0.0f, mean);
      return mean;
    }
    const Tensor attention = view.WindowAttention(std::min(window_, n));
    for (int64_t h = 0; h < heads; ++h) {
      ops.rows->ReduceColumns(attention[h], Reduction::kMean, mean[h]);
    }
    return mean;
  }

  int64_t window_;
  bool sums_;
  ScoreReduction reduction_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "caote",
    .version = 2,
    .paper = "arXiv:2504.14051",
    .summary = "how far attention's output moves when the entry goes",
    .departures = {"weights are means of attention, without the base methods' pooling"},
    .params = ScoreReduction::Declare(
        {}, {IntParam("window", 32, 1, 4096,
                      "prompt rows whose mean attention is the weight; their own entries "
                      "stay"),
             ChoiceParam("weights", "window", {"window", "sums"},
                         "attention of the last rows, or of all rows")}),
    .make = Make<Caote>(),
    .goes_by_layer = true,
});

}  // namespace
}  // namespace kvgauge
