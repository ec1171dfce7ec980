// SPDX-License-Identifier: Apache-2.0
#include "methods/row_choice.h"

#include <algorithm>
#include <cmath>

#include "methods/tensors.h"

namespace kvgauge {

std::vector<ParamSpec> RowChoice::Declare(const std::string& rows, std::vector<ParamSpec> others) {
  std::vector<ParamSpec> all = {
      ChoiceParam("rows", rows, {"visual", "all"},
                  "which rows may leave: those of pictures and videos, or any"),
      IntParam("sinks", 0, 0, 1 << 20, "first rows that never leave"),
      IntParam("recent", 1, 1, 1 << 20, "last rows that never leave; the last one cannot")};
  all.insert(all.end(), others.begin(), others.end());
  return all;
}

RowChoice::RowChoice(const Params& params)
    : visual_(params.Text("rows") == "visual"),
      sinks_(params.Int("sinks")),
      recent_(params.Int("recent")) {}

int64_t RowChoice::CandidatesOf(LayerView& view) const {
  const int64_t first = sinks_, end = view.tokens() - recent_;
  if (!visual_) return std::max<int64_t>(end - first, 0);
  int64_t rows = 0;
  for (const VisualSpan& span : view.VisualSpans()) {
    rows +=
        std::max<int64_t>(std::min(span.first + span.count, end) - std::max(span.first, first), 0);
  }
  return rows;
}

std::vector<int32_t> RowChoice::CandidatesLeft(LayerView& view) const {
  std::vector<float> text;
  if (visual_) text = Fetch(view.ops(), view.OfModality(Modality::kText, 0));
  std::vector<int32_t> rows;
  // Rows leave from between, so the first and the last of the prompt are those of what is left.
  for (int64_t row = sinks_; row < view.width() - recent_; ++row) {
    if (!visual_ || text[static_cast<size_t>(row)] == 0) rows.push_back(static_cast<int32_t>(row));
  }
  return rows;
}

Tensor RowChoice::Best(LayerView& view, const Tensor& scores, int64_t count) const {
  RowOps& ops = *view.ops().rows;
  const int64_t rows = scores.shape[1];
  if (visual_) {
    const Tensor forced = view.Scratch(DType::kF32, {1, rows});
    ops.Affine(view.OfModality(Modality::kText, 0).Reshape({1, rows}), kForcedScore, 0.0f, forced);
    ops.Combine(scores, forced, Binary::kMax, scores);
  }
  // Rows leave from between, so the first and the last of the prompt are those of what is left.
  const int64_t first = std::min(sinks_, rows), last = std::max(rows - recent_, first);
  if (first > 0) ops.Fill(kForcedScore, Columns(scores, 0, first));
  if (last < rows) ops.Fill(kForcedScore, Columns(scores, last, rows));
  const int64_t forced = visual_ ? CountForced(view, scores) : first + rows - last;
  return kvgauge::Best(view, scores, std::min(forced + count, rows));
}

int64_t ShareOf(int64_t rows, double share) {
  // 0.1 * 30 is a little more than 3, and 0.7 * 10 a little less than 7.
  return static_cast<int64_t>(std::floor(share * static_cast<double>(rows) + 1e-9));
}

Tensor AttentionOfLastRow(LayerView& view) {
  const int64_t heads = view.shape().query_heads, rows = view.width();
  const Tensor mean = view.Scratch(DType::kF32, {rows});
  view.ops().rows->ReduceColumns(view.WindowAttention(1).Reshape({heads, rows}), Reduction::kMean,
                                 mean);
  return mean.Reshape({1, rows});
}

}  // namespace kvgauge
