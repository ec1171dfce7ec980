// SPDX-License-Identifier: Apache-2.0
// What thin stages share: which rows may leave a prefill at all, and the choice of the best of
// them.
#pragma once

#include <cstdint>
#include <vector>

#include "core/params.h"
#include "methods/layer_view.h"

namespace kvgauge {

// The candidates: rows that show pictures or videos, or all of the prompt. The first `sinks` and
// the last `recent` rows are none, whatever they show.
class RowChoice {
 public:
  // The parameters "rows", "sinks" and "recent", and others.
  static std::vector<ParamSpec> Declare(const std::string& rows, std::vector<ParamSpec> others);

  explicit RowChoice(const Params& params);

  // The signals of which a choice is made.
  Needs needs() const { return {.modality = visual_}; }
  // How many candidates the prompt had before any row left.
  int64_t CandidatesOf(LayerView& view) const;
  // Those of them that are among the rows that are left, ascending.
  std::vector<int32_t> CandidatesLeft(LayerView& view) const;
  // The rows that are no candidates, and the best `count` of those that are, as far as there are as
  // many: [kept] i32. scores: [1, rows], finite; changed.
  Tensor Best(LayerView& view, const Tensor& scores, int64_t count) const;

 private:
  bool visual_;
  int64_t sinks_, recent_;
};

// A share of a number of rows, as the references cut it: int(share * rows).
int64_t ShareOf(int64_t rows, double share);

// The mean over query heads of what the last row of the prompt pays to each entry: [1, rows]. A
// window of a row was declared.
Tensor AttentionOfLastRow(LayerView& view);

}  // namespace kvgauge
