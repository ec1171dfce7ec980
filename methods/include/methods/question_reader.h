// SPDX-License-Identifier: Apache-2.0
// Readers that choose once for a question, by all its rows, and read that while it is answered.
//
// A question behind a compressed context comes as rows of a few passes (compress_at context). The
// runner lets such a reader choose in every layer before these rows attend, so that they read what
// was chosen, too. A question that was read with the prompt has chosen in Begin.
#pragma once

#include "methods/stages.h"

namespace kvgauge {

class QuestionReader : public Reader {
 public:
  // In place of Select. q: [rows, query_heads, key_dim], of the newest rows, whose own entries are
  // the last of every head. `anew`: they begin a question. words are as of Select, for all of the
  // rows alike: a row never reads what stands behind it. places: [width] i32 where it moves(), the
  // position of each entry on entry; keys of what is read turn by what stands there afterwards,
  // which must be positions of tokens that were seen. Returns false to read everything, where it
  // stands.
  virtual bool Choose(LayerView& view, State& state, const Tensor& q, bool anew, Tensor words,
                      Tensor places) const = 0;
  // Whether keys turn by positions of the reader's own. It then goes with no stage that evicts;
  // otherwise heads of a layer may hold different entries, but as many of them.
  virtual bool moves() const { return true; }
  // What is read, where it stands.
  bool Select(LayerView& view, State& state, const Tensor& q, Tensor words) const final {
    return Choose(view, state, q.Reshape({1, q.shape[0], q.shape[1]}), false, words,
                  view.Scratch(DType::kI32, {view.width()}));
  }
};

}  // namespace kvgauge
