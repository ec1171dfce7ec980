// SPDX-License-Identifier: Apache-2.0
// How often an entry gets less attention than its equal share: what was unimportant stays so.
//
// Paper: Scissorhands, arXiv:2305.17118. Needs the attention of the last `window` prompt rows, and
// the newest row at decode steps. A row that sees m entries finds those unimportant that it gives
// less than 1/m; the score is minus the number of such rows, so 0 is best and entries that few rows
// have seen yet are held to be important. The reference keeps the last 10 entries, method files
// protect them.
#include <algorithm>

#include "methods/registry.h"
#include "methods/score_reduction.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class Scissorhands final : public Scorer {
 public:
  explicit Scissorhands(const Params& params)
      : window_(params.Int("window")), reduction_(ScoreReduction::From(params)) {}

  Needs needs() const override { return {.window = window_, .step_attention = true}; }
  Status Check(const ModelShape&) const override { return reduction_.Check(); }
  bool ages() const override { return true; }

  void Score(LayerView& view, Tensor out) const override {
    RowOps& ops = *view.ops().rows;
    const int64_t heads = view.shape().query_heads, n = view.width();
    const Tensor attention = view.WindowAttention(std::min(window_, n));
    const int64_t rows = attention.shape[1];
    const Tensor counts = view.Scratch(DType::kF32, {heads, n});
    const Tensor below = view.Scratch(DType::kF32, {heads, n});
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t seen = n - rows + r + 1;
      Tensor row(attention[0][r].data, DType::kF32, {heads, seen}, attention.device);
      row.stride[0] = attention.stride[0];
      CountBelow(ops, row, Columns(below, 0, seen), Columns(counts, 0, seen), view);
    }
    reduction_.Apply(view, counts, out);
    ops.Affine(out, -1.0f, 0.0f, out);
  }

  void Age(LayerView& view, Tensor scores) const override {
    RowOps& ops = *view.ops().rows;
    const ModelShape& shape = view.shape();
    const int64_t width = view.width(), group = shape.group();
    const Tensor attention = view.StepAttention();
    const Tensor counts = view.Scratch(DType::kF32, {shape.query_heads, width});
    const Tensor below = view.Scratch(DType::kF32, {group, width});
    for (int64_t h = 0; h < shape.kv_heads; ++h) {
      const int64_t n = view.lengths()[h], begin = h * group, end = begin + group;
      if (n == 0) continue;
      CountBelow(ops, Columns(attention.Slice(begin, end), 0, n), Columns(below, 0, n),
                 Columns(counts.Slice(begin, end), 0, n), view);
    }
    const Tensor row = view.Scratch(DType::kF32, {scores.shape[0], width});
    reduction_.Apply(view, counts, row);
    ops.Combine(scores, row, Binary::kSubtract, scores);
  }

 private:
  // counts += 1 where a row, all of whose entries are seen, gives less than an equal share.
  static void CountBelow(RowOps& ops, const Tensor& rows, const Tensor& below, const Tensor& counts,
                         LayerView& view) {
    const int64_t seen = rows.shape[1];
    const Tensor share = Filled(view, seen, 1.0f / static_cast<float>(seen));
    ops.Combine(rows, share, Binary::kLess, below);
    ops.Combine(counts, below, Binary::kAdd, counts);
  }

  int64_t window_;
  ScoreReduction reduction_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "scissorhands",
    .paper = "arXiv:2305.17118",
    .summary = "entries that few rows give less than an equal share of attention",
    .departures = {"one set of entries per KV head, not per query head",
                   "over decode steps counts go on; the paper forgets rows older than `window`",
                   "entries go as the trigger says; the paper drops a batch from a full buffer"},
    .bytes = "with a trigger in decode: 4 bytes an entry for its score",
    .params = ScoreReduction::Declare({.group = ScoreReduction::Group::kSum},
                                      {IntParam("window", 400, 1, 4096,
                                                "prompt rows that are looked at")}),
    .make = Make<Scissorhands>(),
});

}  // namespace
}  // namespace kvgauge
