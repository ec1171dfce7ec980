// SPDX-License-Identifier: Apache-2.0
// Readers that give what they read another weight: a number for each query head and entry that is
// added to the logit, such as the log of one over the chance with which the entry was drawn.
#pragma once

#include "methods/stages.h"

namespace kvgauge {

class BiasingReader : public Reader {
 public:
  // In place of Select. bias: [query_heads, width] f32, zero on entry; finite for what is read, and
  // of no effect for the rest. Added behind the model's soft cap.
  virtual bool Choose(LayerView& view, State& state, const Tensor& q, Tensor words,
                      Tensor bias) const = 0;
  // What is read, without its weights.
  bool Select(LayerView& view, State& state, const Tensor& q, Tensor words) const final {
    return Choose(view, state, q, words,
                  view.Scratch(DType::kF32, {view.shape().query_heads, view.width()}));
  }
};

}  // namespace kvgauge
