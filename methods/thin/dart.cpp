// SPDX-License-Identifier: Apache-2.0
// Rows of pictures leave before one early layer that repeat what a few pivots say.
//
// Paper: DART, arXiv:2502.11494; after ZichenWen1/DART. Pivots are the rows with the longest keys
// in the layer below, by the sum of absolute numbers over all heads: some of pictures, and some of
// the text behind them. They take turns: each keeps the rows that are least like it among those
// that are left, by the cosine of hidden states behind the model's last norm. With rows=all, rows
// of text may leave as well, and the text that gives pivots is the last `recent` rows.
#include <algorithm>

#include "core/strings.h"
#include "methods/merging_thin.h"
#include "methods/registry.h"
#include "methods/row_choice.h"
#include "methods/tensors.h"
#include "methods/tile_math.h"

namespace kvgauge {
namespace {

constexpr float kLeastRowLength = 1e-8f;  // of a row that is compared

class Dart final : public MergingThin {
 public:
  explicit Dart(const Params& params)
      : choice_(params),
        layer_(params.Int("layer")),
        drop_(params.Real("drop")),
        visual_pivots_(params.Int("visual_pivots")),
        text_pivots_(params.Int("text_pivots")) {}

  Needs needs() const override { return choice_.needs(); }

  Status Check(const ModelShape& shape) const override {
    if (visual_pivots_ + text_pivots_ == 0) {
      return BadInput("visual_pivots and text_pivots are 0; expected a pivot of either kind");
    }
    if (layer_ < shape.layers) return {};
    return BadInput(StrCat("layer is ", layer_, ", and the model has ", shape.layers,
                           " layers; expected 1 .. ", shape.layers - 1));
  }

  std::vector<int64_t> Layers(const ModelShape&) const override { return {layer_}; }
  bool wants_inputs() const override { return false; }
  bool wants_normed() const override { return true; }

  RowsOn Pass(LayerView& view, const ThinRows& rows) const override {
    const int64_t n = view.width();
    std::vector<int32_t> left = choice_.CandidatesLeft(view), kept;
    if (left.empty() || drop_ == 0) return {.kept = Numbers(view, n)};
    std::vector<int32_t> behind;  // the last candidate
    for (auto row = left.back() + 1; row < n; ++row) behind.push_back(row);
    const std::vector<float> lengths = Fetch(view.ops(), KeyLengths(view));
    std::vector<int32_t> pivots = Longest(lengths, left, visual_pivots_);
    for (int32_t row = 0; row < n; ++row) {
      const bool may = std::binary_search(left.begin(), left.end(), row);
      const bool pivot = std::find(pivots.begin(), pivots.end(), row) != pivots.end();
      if (!may || pivot) kept.push_back(row);
    }
    for (const int32_t pivot : pivots) std::erase(left, pivot);
    const std::vector<int32_t> text = Longest(lengths, behind, text_pivots_);
    pivots.insert(pivots.end(), text.begin(), text.end());
    if (!pivots.empty()) TakeTurns(view, rows.normed, pivots, left, kept);
    std::sort(kept.begin(), kept.end());
    return {.kept = Upload(view, kept)};
  }

 private:
  // The length of each row's keys, all heads together: [n].
  static Tensor KeyLengths(LayerView& view) {
    const int64_t n = view.width();
    const Tensor sum = view.Scratch(DType::kF32, {n}), one = view.Scratch(DType::kF32, {n});
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      view.ops().rows->ReduceRows(view.Keys(h, 0), Reduction::kSumAbs, one);
      view.ops().rows->Combine(sum.Reshape({1, n}), one.Reshape({1, n}), Binary::kAdd,
                               sum.Reshape({1, n}));
    }
    return sum;
  }

  // Those `of` with the longest keys, the longest first.
  static std::vector<int32_t> Longest(const std::vector<float>& lengths,
                                      const std::vector<int32_t>& of, int64_t count) {
    std::vector<float> own;
    for (const int32_t row : of) own.push_back(lengths[static_cast<size_t>(row)]);
    std::vector<int32_t> rows = LargestFirst(own, count);
    for (int32_t& row : rows) row = of[static_cast<size_t>(row)];
    return rows;
  }

  // Moves rows from `left` to `kept`, as many for each pivot.
  void TakeTurns(LayerView& view, const Tensor& normed, const std::vector<int32_t>& pivots,
                 std::vector<int32_t>& left, std::vector<int32_t>& kept) const {
    const int64_t n = view.width(), turns = std::ssize(pivots);
    const int64_t each = ShareOf(choice_.CandidatesOf(view), 1 - drop_) / turns;
    const std::vector<float> alike = Fetch(view.ops(), Alike(view, normed, pivots));
    for (int64_t turn = 0; turn < turns; ++turn) {
      std::vector<float> unlike;
      for (const int32_t row : left) {
        unlike.push_back(-alike[static_cast<size_t>(turn * n + int64_t{row})]);
      }
      std::vector<int32_t> taken = LargestFirst(unlike, each);
      std::sort(taken.rbegin(), taken.rend());
      for (const int32_t at : taken) {
        kept.push_back(left[static_cast<size_t>(at)]);
        left.erase(left.begin() + at);
      }
    }
  }

  // Cosines of each row and the pivots, times the pivot's length: [pivots, n].
  static Tensor Alike(LayerView& view, const Tensor& rows, const std::vector<int32_t>& pivots) {
    RowOps& ops = *view.ops().rows;
    const int64_t n = rows.shape[0], width = rows.shape[1], count = std::ssize(pivots);
    const Tensor some = view.Scratch(DType::kF32, {count, width});
    const Tensor alike = view.Scratch(DType::kF32, {count, n});
    const Tensor lengths = view.Scratch(DType::kF32, {n});
    view.ops().select->Gather(rows, Upload(view, pivots), some);
    view.ops().linear->MatMulNT(some.Reshape({1, count, width}), rows.Reshape({1, n, width}), 1.0f,
                                alike.Reshape({1, count, n}));
    ops.ReduceRows(rows, Reduction::kNorm, lengths);
    ops.Combine(lengths.Reshape({1, n}), Filled(view, n, kLeastRowLength).Reshape({1, n}),
                Binary::kMax, lengths.Reshape({1, n}));
    ops.Combine(alike, lengths, Binary::kDivide, alike);
    return alike;
  }

  RowChoice choice_;
  int64_t layer_;
  double drop_;
  int64_t visual_pivots_, text_pivots_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kThin,
    .id = "dart",
    .paper = "arXiv:2502.11494",
    .summary = "rows of pictures leave that are like a few pivots",
    .departures = {"pivots take turns from the longest key on, those of pictures first; in the "
                   "reference the order is that of a Python set of row numbers",
                   "all pictures of a prompt are ranked together; the reference has one",
                   "where there are fewer rows than pivots, all of them are pivots; the reference "
                   "fails"},
    .bytes = "from its layer on what is left of the prompt, and 4 bytes an entry for its position",
    .params = RowChoice::Declare(
        "visual",
        {IntParam("layer", 2, 1, 1 << 16, "the first layer that fewer rows reach"),
         RealParam("drop", 0.778, 0, 1,
                   "the share of the candidates that leaves; of pivots and a whole number for each "
                   "of them, a few more or less; 0: none"),
         IntParam("visual_pivots", 4, 0, 4096, "pivots among the candidates"),
         IntParam("text_pivots", 4, 0, 4096, "pivots among the rows behind the last candidate")}),
    .make = Make<Dart>(),
});

}  // namespace
}  // namespace kvgauge
