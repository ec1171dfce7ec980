// SPDX-License-Identifier: Apache-2.0 Base of scorers that observe the prompt from its last rows,
// the window. The window itself always stays; the entries before it are scored.
#pragma once

#include "methods/registry.h"

namespace kvgauge {

class WindowScorer : public Scorer {
 public:
  // The parameter "window" of such a scorer.
  static ParamSpec WindowParam(int64_t rows, std::string help = "prompt rows that look back");

  Needs needs() const override { return {.window = window_}; }
  int64_t protects() const override { return window_; }
  void Score(LayerView& view, Tensor out) const final;

 protected:
  explicit WindowScorer(const Params& params) : window_(params.Int("window")) {}

  // rows: those of the window, at least 1. out: [kv_heads, entries before the window], may be
  // strided; there is at least one such entry.
  virtual void ScoreBefore(LayerView& view, int64_t rows, Tensor out) const = 0;

  // The attention of each query head's rows to the first `before` entries, averaged over the rows:
  // [query_heads, before].
  static Tensor MeanAttention(LayerView& view, int64_t rows, int64_t before);

 private:
  int64_t window_;
};

// Over the rows of a [rows, n]: the mean and the unbiased variance of each column, both [n].
// centred: [rows, n] working memory.
void RowMoments(RowOps& ops, const Tensor& a, const Tensor& centred, const Tensor& mean,
                const Tensor& variance);

}  // namespace kvgauge
