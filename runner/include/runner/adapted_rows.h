// SPDX-License-Identifier: Apache-2.0
// The hook of a step whose last rows get low-rank additions to their projections.
//
// It is the one hook that changes what a pass computes. Rows before `first`, and those of other
// steps, keep their bits. The model's layers have plain projections, each its own.
#pragma once

#include <cstdint>

#include "methods/row_adapters.h"
#include "runner/layer_hook.h"

namespace kvgauge {

class AdaptedRows final : public LayerHook {
 public:
  // Rows of the step from `first` on. The adapters outlive the hook.
  AdaptedRows(RowAdapters& adapters, int64_t first) : adapters_(adapters), first_(first) {}

  RowAdapters& adapters() const { return adapters_; }
  int64_t first() const { return first_; }

  void BeforeAttend(int64_t, const Tensor&) override {}
  void AfterAttend(int64_t, const Tensor&, const Tensor&, const Tensor&) override {}

 private:
  RowAdapters& adapters_;
  int64_t first_;
};

}  // namespace kvgauge
