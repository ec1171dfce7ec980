// SPDX-License-Identifier: Apache-2.0
// Special tokens first, then punctuation, entries that draw much attention, the last ones, others.
//
// Paper: FastGen, arXiv:2310.01801. Needs the classes of tokens and the column sums of prompt
// attention. The paper's policies are nested, so the score is the first of them that an entry is
// in, and among its own kind the mean attention it drew; allocate.fastgen says how many of them a
// head has. `heavy` and `recent` are shares of the prompt.
#include <algorithm>
#include <cmath>

#include "methods/registry.h"
#include "methods/score_reduction.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

// One prompt's shares.
struct Shares {
  double heavy, recent;

  static int64_t Of(double share, int64_t length) {
    return std::min(length, static_cast<int64_t>(std::ceil(share * static_cast<double>(length))));
  }
};

// Attention that the entries of each KV head drew, by row that could see them: [kv_heads, n].
Tensor MeanAttention(LayerView& view) {
  Ops& ops = view.ops();
  const int64_t heads = view.shape().kv_heads, n = view.width();
  const Tensor mean = view.Scratch(DType::kF32, {heads, n});
  ScoreReduction().Apply(view, view.ColumnSums(), mean);
  std::vector<float> shares(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    shares[static_cast<size_t>(i)] = 1.0f / static_cast<float>(n - i);
  }
  ops.rows->Combine(mean, Upload(view, std::span<const float>(shares)), Binary::kMultiply, mean);
  return mean;
}

// 4: special, 3: punctuation, 2: much attention, 1: last, 0: none of these. [1, n]
Tensor KindsOf(LayerView& view, const Shares& shares, int64_t head, const Tensor& mean) {
  Ops& ops = view.ops();
  const int64_t n = mean.shape[1];
  const Tensor kinds = view.Scratch(DType::kF32, {1, n});
  const Tensor last = Columns(kinds, n - shares.Of(shares.recent, n), n);
  if (last.shape[1] > 0) ops.rows->Fill(1.0f, last);
  if (const int64_t heavy = shares.Of(shares.heavy, n); heavy > 0) {
    const Tensor is_heavy = view.Scratch(DType::kF32, {1, n});
    ops.select->Scatter(AsColumn(Filled(view, heavy, 2.0f)), Best(view, mean, heavy),
                        AsColumn(is_heavy[0]));
    ops.rows->Combine(kinds, is_heavy, Binary::kMax, kinds);
  }
  for (const auto& [of, kind] :
       {std::pair(TokenClass::kPunctuation, 3.0f), std::pair(TokenClass::kSpecial, 4.0f)}) {
    const Tensor is = view.OfClass(of, head).Reshape({1, n});
    ops.rows->Affine(is, kind, 0.0f, is);
    ops.rows->Combine(kinds, is, Binary::kMax, kinds);
  }
  return kinds;
}

class FastGenScore final : public Scorer {
 public:
  explicit FastGenScore(const Params& params)
      : shares_{params.Real("heavy"), params.Real("recent")} {}

  Needs needs() const override { return {.column_sums = true, .token_classes = true}; }

  void Score(LayerView& view, Tensor out) const override {
    RowOps& rows = *view.ops().rows;
    const Tensor mean = MeanAttention(view);
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const Tensor own = mean.Slice(h, h + 1);
      const Tensor kinds = KindsOf(view, shares_, h, own);
      // A share of attention may round to a little more than 1.
      rows.Affine(own, 0.5f, 0.0f, own);
      rows.Combine(kinds, own, Binary::kAdd, out.Slice(h, h + 1));
    }
  }

 private:
  Shares shares_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "fastgen",
    .paper = "arXiv:2310.01801",
    .summary = "special tokens, then punctuation, what draws attention, the last ones, all others",
    .departures = {"one set of entries per KV head, by the mean of its query heads"},
    .params = {RealParam("heavy", 0.3, 0, 1, "share of the prompt that draws most attention"),
               RealParam("recent", 0.3, 0, 1, "share of the prompt that is last")},
    .make = Make<FastGenScore>(),
});

}  // namespace
}  // namespace kvgauge
