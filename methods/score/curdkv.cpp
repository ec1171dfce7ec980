// SPDX-License-Identifier: Apache-2.0
// Squared lengths of keys and values, as shares of their neighbourhood, multiplied: leverage scores
// without a factorisation.
//
// Paper: CurDKV, arXiv:2509.15038; after kvpress's CURPress. Needs keys and values alone. Runs of
// `local` entries are neighbourhoods; a run cut short by the end is one too, so its shares are
// larger, as in the reference.
#include <algorithm>

#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

// Under any sum of squares of a run that has a number other than zero.
constexpr float kLeastSum = 1e-30f;

class CurDkv final : public Scorer {
 public:
  explicit CurDkv(const Params& params)
      : local_(params.Int("local")),
        sinks_(params.Int("sinks")),
        leverage_(params.Text("leverage")) {}

  bool any_time() const override { return true; }

  void Score(LayerView& view, Tensor out) const override {
    RowOps& ops = *view.ops().rows;
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t n = view.lengths()[h], sinks = std::min(sinks_, n);
      if (n == 0) continue;
      const Tensor own = out[h].Slice(0, n).Reshape({1, n});
      if (leverage_ == "values") {
        ops.Convert(Shares(view, view.Values(h)), own);
      } else {
        ops.Convert(Shares(view, view.Keys(h)), own);
        if (leverage_ != "keys") {
          ops.Combine(own, Shares(view, view.Values(h)),
                      leverage_ == "mean" ? Binary::kAdd : Binary::kMultiply, own);
        }
      }
      DivideBySums(view, own);
      const Tensor first = Columns(own, 0, sinks);
      if (sinks > 0) ops.Fill(1.0f, first);
    }
  }

 private:
  // Squared lengths of rows over those of their run: [1, n].
  Tensor Shares(LayerView& view, const Tensor& rows) const {
    const int64_t n = rows.shape[0], width = local_ == 0 ? n : local_,
                  runs = (n + width - 1) / width;
    const Tensor squares = view.Scratch(DType::kF32, {runs, width});
    view.ops().rows->ReduceRows(rows, Reduction::kSumSquares,
                                squares.Reshape({runs * width}).Slice(0, n));
    if (local_ > 0) DivideBySums(view, squares);
    return Columns(squares.Reshape({1, runs * width}), 0, n);
  }

  // Every row by its own sum.
  static void DivideBySums(LayerView& view, const Tensor& rows) {
    Ops& ops = view.ops();
    const int64_t m = rows.shape[0], n = rows.shape[1];
    const Tensor sums = view.Scratch(DType::kF32, {m}), all = view.Scratch(DType::kF32, {m, n});
    ops.rows->ReduceRows(rows, Reduction::kSum, sums);
    ops.rows->Combine(sums.Reshape({1, m}), Filled(view, m, kLeastSum), Binary::kMax,
                      sums.Reshape({1, m}));
    ops.linear->MatMulNN(sums.Reshape({1, m, 1}), Filled(view, n, 1.0f).Reshape({1, 1, n}), 1.0f,
                         all.Reshape({1, m, n}));
    ops.rows->Combine(rows, all, Binary::kDivide, rows);
  }

  int64_t local_, sinks_;
  std::string leverage_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "curdkv",
    .paper = "arXiv:2509.15038",
    .summary = "squared lengths of key and value, each as a share of its neighbourhood",
    .departures = {"no random projections, which are off in the reference too"},
    .params = {IntParam("local", 16, 0, 1 << 20, "entries of a neighbourhood; 0: all are one"),
               IntParam("sinks", 4, 0, 4096, "first entries, which score 1"),
               ChoiceParam("leverage", "product", {"product", "mean", "keys", "values"},
                           "whose shares count")},
    .make = Make<CurDkv>(),
    .goes_by_layer = true,
});

}  // namespace
}  // namespace kvgauge
