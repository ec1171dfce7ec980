// SPDX-License-Identifier: Apache-2.0
// What may look at a sequence's attention while the model runs: captures, readers, observers.
#pragma once

#include <cstdint>

#include "kernels/tensor.h"

namespace kvgauge {

// Called for one sequence of a Forward call, layer by layer, in order; hooks of different sequences
// may be called side by side. Views are valid during the call only; rows may be strided. A hook may
// change what heads read (KvCache::SetRead), else nothing.
class LayerHook {
 public:
  virtual ~LayerHook() = default;
  // Whether AfterAttend wants log-sum-exps.
  virtual bool wants_log_sum_exp() const { return false; }
  // Whether it asks nothing of the device in a pass, and may be called anew for a pass that was
  // begun before: then a device may take the pass at once.
  virtual bool repeatable() const { return false; }
  // The new entries are written, attention has not run. q: [rows, query_heads, key_dim], rotated.
  virtual void BeforeAttend(int64_t layer, const Tensor& q) = 0;
  // Where attention leaves the sums over these rows of each entry's probability, [query_heads,
  // columns] f32; empty: not wanted. Asked after BeforeAttend; goes with wants_log_sum_exp.
  virtual Tensor ColumnSumsOfRows(int64_t) { return {}; }
  // out: [rows, query_heads, value_dim]; log_sum_exp: [query_heads, rows] or empty.
  virtual void AfterAttend(int64_t layer, const Tensor& q, const Tensor& log_sum_exp,
                           const Tensor& out) = 0;
};

}  // namespace kvgauge
