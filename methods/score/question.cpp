// SPDX-License-Identifier: Apache-2.0
// Attention that an entry gets from the question: from all rows behind the last picture or video,
// summed.
//
// Paper: VL-Cache, arXiv:2410.23317; after EffiVLM-Bench's VlCacheKVCluster. Needs the rows behind
// the last picture. A prompt without pictures is observed from its last `rows` rows.
#include <algorithm>

#include "methods/registry.h"
#include "methods/score_reduction.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class QuestionScore final : public Scorer {
 public:
  explicit QuestionScore(const Params& params)
      : rows_(params.Int("rows")),
        all_heads_(params.Text("heads") == "layer"),
        reduction_(ScoreReduction::From(params)) {}

  Needs needs() const override { return {.question_rows = rows_}; }
  Status Check(const ModelShape&) const override { return reduction_.Check(); }

  void Score(LayerView& view, Tensor out) const override {
    RowOps& ops = *view.ops().rows;
    const int64_t heads = view.shape().query_heads, n = view.width();
    const Tensor attention = view.WindowAttention(std::min(view.QuestionRows(rows_), n));
    const Tensor sums = view.Scratch(DType::kF32, {heads, n});
    for (int64_t h = 0; h < heads; ++h) {
      ops.ReduceColumns(attention[h], Reduction::kSum, sums[h]);
    }
    if (!all_heads_) {
      reduction_.Apply(view, sums, out);
      return;
    }
    for (int64_t h = 0; h < out.shape[0]; ++h) ops.ReduceColumns(sums, Reduction::kSum, out[h]);
  }

 private:
  int64_t rows_;
  bool all_heads_;
  ScoreReduction reduction_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "question",
    .paper = "arXiv:2410.23317",
    .summary = "attention from all rows behind the last picture or video",
    .departures = {"of a longer question, its last rows"},
    .params = ScoreReduction::Declare(
        {.group = ScoreReduction::Group::kSum},
        {IntParam("rows", 256, 1, 4096, "rows of the question that are summed, at most"),
         ChoiceParam("heads", "group", {"group", "layer"},
                     "each KV head chooses by its own query heads, or all by those of the layer")}),
    .make = Make<QuestionScore>(),
});

}  // namespace
}  // namespace kvgauge
