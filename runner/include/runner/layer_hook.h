// SPDX-License-Identifier: Apache-2.0
// Interface of captures, readers and observers, which see a sequence's attention while the model
// runs.
#pragma once

#include <cstdint>

#include "kernels/tensor.h"

namespace kvgauge {

// Called for one sequence of a Forward call, layer by layer, in order; layers are numbered among
// those that have a cache. Hooks of different sequences may be called side by side. Views are valid
// during the call only; rows may be strided. A hook may change which entries heads read
// (KvCache::SetRead) and nothing else.
class LayerHook {
 public:
  virtual ~LayerHook() = default;
  // Whether AfterAttend wants log-sum-exps.
  virtual bool wants_log_sum_exp() const { return false; }
  // True if the hook reads nothing from the device during a pass and may be called again for a pass
  // that was already begun. A device may then take the pass at once.
  virtual bool repeatable() const { return false; }
  // Called before a pass through the layers [first, end) where hooks are repeatable. `again`: the
  // pass begins anew, and nothing came of the calls since the last of these.
  virtual void BeginPass(int64_t /*first*/, int64_t /*end*/, bool /*again*/) {}
  // Whether LayerInput is called: with the rows that a layer's attention projects, normed where the
  // model norms them. [rows, hidden_size], f32 or the type of the weights; before BeforeAttend.
  virtual bool wants_inputs() const { return false; }
  virtual void LayerInput(int64_t, const Tensor&) {}
  // Whether LayerResidual is called, before LayerInput: with the rows that enter a layer, before it
  // norms them. [rows, hidden_size] f32.
  virtual bool wants_residuals() const { return false; }
  virtual void LayerResidual(int64_t, const Tensor&) {}
  // Whether LayerGuess is called, before BeforeAttend, for all layers but the model's first: with
  // the queries that a layer's projection makes of the input that the layer below had, rotated as
  // its own. [rows, query_heads, key_dim].
  virtual bool wants_guesses() const { return false; }
  virtual void LayerGuess(int64_t, const Tensor&) {}
  // Whether TakeSurprise is called, behind the last layer of a pass through all of them: with minus
  // the natural log of the chance that each row gives the prompt's next token, 0 where there is
  // none. [rows] f32.
  virtual bool wants_surprise() const { return false; }
  virtual void TakeSurprise(const Tensor&) {}
  // Called after the new entries are written and before attention. q: [rows, query_heads, key_dim],
  // rotated.
  virtual void BeforeAttend(int64_t layer, const Tensor& q) = 0;
  // The tensor for the sums over these rows of each entry's probability, [query_heads, columns]
  // f32; empty: not wanted. Called after BeforeAttend; requires wants_log_sum_exp.
  virtual Tensor ColumnSumsOfRows(int64_t) { return {}; }
  // out: [rows, query_heads, value_dim]; log_sum_exp: [query_heads, rows] or empty.
  virtual void AfterAttend(int64_t layer, const Tensor& q, const Tensor& log_sum_exp,
                           const Tensor& out) = 0;
};

}  // namespace kvgauge
