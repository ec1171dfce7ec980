// SPDX-License-Identifier: Apache-2.0
// Base of scorers that observe the prompt from its last rows, the window. The window itself always
// stays; the entries before it are scored. During decoding the last rows, those of the answer among
// them, are the window of scorers that slide; the newest row is that of others with any_time().
#pragma once

#include "methods/registry.h"

namespace kvgauge {

class WindowScorer : public Scorer {
 public:
  // The parameter "window" of such a scorer.
  static ParamSpec WindowParam(int64_t rows, std::string help = "prompt rows that look back");

  Needs needs() const override { return {.window = window_, .step_window = slides_ ? window_ : 0}; }
  int64_t protects() const override { return window_; }
  bool any_time() const override { return slides_; }
  bool takes_uneven() const override { return slides_; }
  void Score(LayerView& view, Tensor out) const final;

 protected:
  // `slides`: ScoreBefore goes on in decode, where heads may hold different numbers of entries.
  explicit WindowScorer(const Params& params, bool slides = false)
      : window_(params.Int("window")), slides_(slides) {}

  // rows: those of the window, at least 1; after a turn that is shorter, WindowAttention(rows) has
  // fewer. out: [kv_heads, entries before the window], may be strided; there is at least one such
  // entry. The window's entries are the last `rows` of each head: a shorter one has fewer before
  // them, and the rest of its row does not count.
  virtual void ScoreBefore(LayerView& view, int64_t rows, Tensor out) const = 0;
  // The same of the newest row alone, for scorers with any_time() that do not slide.
  virtual void ScoreStep(LayerView& view, Tensor out) const;

  // The attention of each query head's rows to the first `before` entries, averaged over the rows:
  // [query_heads, before]; 0 behind the last entry before the window of a shorter head.
  static Tensor MeanAttention(LayerView& view, int64_t rows, int64_t before);

 private:
  int64_t window_;
  bool slides_;
};

// Over the rows of a [rows, n]: the mean and the unbiased variance of each column, both [n].
// centred: [rows, n] working memory.
void RowMoments(RowOps& ops, const Tensor& a, const Tensor& centred, const Tensor& mean,
                const Tensor& variance);

}  // namespace kvgauge
