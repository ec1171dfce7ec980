// SPDX-License-Identifier: Apache-2.0
// What rows of pictures get from the words of a question that its end looks at: AirCache's elite
// observation window, arXiv:2503.23956.
#pragma once

#include <cstdint>
#include <vector>

#include "core/params.h"
#include "methods/layer_view.h"
#include "methods/needs.h"

namespace kvgauge {

class EliteWindow {
 public:
  // "alpha" and "rows".
  static std::vector<ParamSpec> Declare();
  explicit EliteWindow(const Params& params);

  Needs needs() const { return {.question_rows = rows_, .modality = true}; }

  // [query_heads, width] f32: the mean weight over the rows of each query head's window, of a
  // softmax over pictures, videos and the window alone; 0 for text.
  Tensor Importance(LayerView& view) const;
  // [query_heads, width] f32: 1 for entries of pictures and videos, else 0.
  static Tensor Shown(LayerView& view);

 private:
  float alpha_;
  int64_t rows_;
};

}  // namespace kvgauge
