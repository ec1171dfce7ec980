// SPDX-License-Identifier: Apache-2.0
#include "methods/score_reduction.h"

#include <utility>

#include "core/strings.h"

namespace kvgauge {

std::vector<ParamSpec> ScoreReduction::Declare(const ScoreReduction& defaults,
                                               std::vector<ParamSpec> others) {
  constexpr const char* kGroups[] = {"mean", "max", "sum"};
  std::vector<ParamSpec> specs = std::move(others);
  specs.push_back(ChoiceParam("group", kGroups[static_cast<int>(defaults.group)],
                              {"mean", "max", "sum"},
                              "how the query heads of a KV head become one score"));
  specs.push_back(IntParam("kernel", defaults.kernel, 1, 255,
                           "odd width of pooling along the entries; 1: none"));
  specs.push_back(ChoiceParam("pool", defaults.pooling == Pooling::kMax ? "max" : "avg",
                              {"avg", "max"}, "kind of pooling; avg counts zeros past the ends"));
  specs.push_back(ChoiceParam("order", defaults.pool_first ? "pool_first" : "group_first",
                              {"group_first", "pool_first"},
                              "which comes first; matters with max pooling"));
  return specs;
}

ScoreReduction ScoreReduction::From(const Params& params) {
  ScoreReduction reduction;
  const std::string& group = params.Text("group");
  reduction.group = group == "mean" ? Group::kMean : group == "max" ? Group::kMax : Group::kSum;
  reduction.kernel = params.Int("kernel");
  reduction.pooling = params.Text("pool") == "max" ? Pooling::kMax : Pooling::kAverage;
  reduction.pool_first = params.Text("order") == "pool_first";
  return reduction;
}

Status ScoreReduction::Check() const {
  if (kernel % 2 == 1) return {};
  return BadInput(
      StrCat("kernel ", kernel, " is even; pooling needs an odd width, such as ", kernel + 1));
}

void ScoreReduction::Apply(LayerView& view, const Tensor& rows, Tensor out) const {
  Ops& ops = view.ops();
  const int64_t n = rows.shape[1], kv_heads = out.shape[0], heads = rows.shape[0] / kv_heads;
  if (n == 0) return;
  const Reduction kind = group == Group::kMean  ? Reduction::kMean
                         : group == Group::kMax ? Reduction::kMax
                                                : Reduction::kSum;
  const auto reduce_groups = [&](const Tensor& from, const Tensor& to) {
    for (int64_t h = 0; h < kv_heads; ++h) {
      ops.rows->ReduceColumns(from.Slice(h * heads, (h + 1) * heads), kind, to[h]);
    }
  };
  if (kernel == 1) return reduce_groups(rows, out);
  if (pool_first) {
    Tensor pooled = view.Scratch(DType::kF32, {rows.shape[0], n});
    ops.select->Pool(rows, kernel, pooling, pooled);
    reduce_groups(pooled, out);
  } else {
    Tensor grouped = view.Scratch(DType::kF32, {kv_heads, n});
    reduce_groups(rows, grouped);
    ops.select->Pool(grouped, kernel, pooling, out);
  }
}

}  // namespace kvgauge
