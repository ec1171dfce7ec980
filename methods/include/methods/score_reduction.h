// SPDX-License-Identifier: Apache-2.0
// From attention of query heads to one score for each KV head and entry: the reductions that papers
// differ in, as declared parameters shared by all attention-based scorers.
#pragma once

#include <vector>

#include "core/params.h"
#include "core/result.h"
#include "kernels/select.h"
#include "methods/layer_view.h"

namespace kvgauge {

struct ScoreReduction {
  enum class Group { kMean, kMax, kSum };
  Group group = Group::kMean;  // over the query heads of a KV head
  int64_t kernel = 1;          // pooling along the entries; 1: none
  Pooling pooling = Pooling::kAverage;
  bool pool_first = false;  // before the group is reduced (differs for max pooling only)

  // "group", "kernel", "pool", "order", with these defaults.
  static std::vector<ParamSpec> Declare(const ScoreReduction& defaults,
                                        std::vector<ParamSpec> others = {});
  static ScoreReduction From(const Params& params);

  Status Check() const;
  // rows: [query_heads, n] f32; out: [kv_heads, n], may be strided. Working memory is the view's.
  void Apply(LayerView& view, const Tensor& rows, Tensor out) const;
};

}  // namespace kvgauge
