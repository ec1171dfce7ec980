// SPDX-License-Identifier: Apache-2.0
// The mean attention that an entry received from the rows that were counted: the last rows of the
// prompt, and every row decoded since.
//
// Paper: DiffKV, arXiv:2412.03131; after zyqCSL/DiffKV. Needs the attention of the last `window`
// prompt rows, and the newest row at decode steps. Two numbers of an entry build up, a sum and how
// many rows are in it. The query head of a KV head that pays most counts: its whole sum over the
// prompt's rows, then row by row.
#include <algorithm>

#include "methods/recurrence.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class DiffKv final : public Scorer {
 public:
  explicit DiffKv(const Params& params) : window_(params.Int("window")) {}

  Needs needs() const override { return {.window = window_, .step_attention = true}; }
  bool ages() const override { return true; }
  bool takes_uneven() const override { return true; }
  int64_t numbers() const override { return 2; }

  void Score(LayerView& view, Tensor out) const override {
    const Tensor numbers = view.Scratch(DType::kF32, {2, out.shape[0], view.width()});
    Start(view, numbers);
    Rank(view, numbers, out);
  }

  void Start(LayerView& view, Tensor numbers) const override {
    const int64_t width = view.width();
    if (width == 0) return;
    Ops& ops = view.ops();
    const Tensor attention = view.WindowAttention(std::min(window_, width));
    const int64_t heads = attention.shape[0], rows = attention.shape[1];
    const Tensor sums = view.Scratch(DType::kF32, {heads, width});
    for (int64_t h = 0; h < heads; ++h) {
      ops.rows->ReduceColumns(attention[h], Reduction::kSum, sums[h]);
    }
    ops.rows->Convert(MostOfGroup(view, sums), numbers[0]);
    const Tensor most = Filled(view, width, static_cast<float>(rows));
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t n = view.lengths()[static_cast<size_t>(h)];
      if (n == 0) continue;
      const Tensor counts = numbers[1][h].Slice(0, n).Reshape({1, n});
      ops.rows->Convert(view.Positions(h).Reshape({1, n}), counts);
      ops.rows->Affine(counts, -1.0f, static_cast<float>(view.tokens()), counts);
      ops.rows->Combine(counts, most.Slice(0, n), Binary::kMin, counts);
    }
  }

  void Age(LayerView& view, Tensor numbers) const override {
    RowOps& rows = *view.ops().rows;
    rows.Combine(numbers[0], MostOfGroup(view, view.StepAttention()), Binary::kAdd, numbers[0]);
    rows.Affine(numbers[1], 1.0f, 1.0f, numbers[1]);
  }

  void Rank(LayerView& view, const Tensor& numbers, Tensor out) const override {
    RowOps& rows = *view.ops().rows;
    rows.Combine(numbers[1], Filled(view, out.shape[1], 1.0f), Binary::kMax, out);
    rows.Combine(numbers[0], out, Binary::kDivide, out);
  }

 private:
  int64_t window_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "diffkv",
    .paper = "arXiv:2412.03131",
    .summary = "mean attention from the last prompt rows and all decoded ones",
    .bytes = "with a trigger in decode: 8 bytes an entry for its sum and the rows in it",
    .params = {IntParam("window", 64, 1, 4096, "prompt rows that count")},
    .make = Make<DiffKv>(),
});

}  // namespace
}  // namespace kvgauge
