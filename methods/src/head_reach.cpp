// SPDX-License-Identifier: Apache-2.0
#include "methods/head_reach.h"

#include "methods/attention.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

constexpr int64_t kReachPositions = 500;

}  // namespace

Needs ReachNeeds() { return {.query_moments = {0}, .raw_keys = true}; }

std::vector<float> HeadReaches(LayerView& view) {
  Ops& ops = view.ops();
  const ModelShape& shape = view.shape();
  const int64_t dim = shape.key_dim, group = shape.group(), n = kReachPositions;
  const Tensor rotations = view.Rotations(0, n), queries = view.QueryMean(0);
  // Attention to a position counts by how many positions are not before it.
  std::vector<float> areas;
  for (int64_t i = 0; i < n; ++i) {
    areas.push_back(static_cast<float>(n - i) / static_cast<float>(n));
  }
  const Tensor ramp = Upload(view, std::span<const float>(areas)).Reshape({1, 1, n});
  const Tensor same = view.Scratch(DType::kI32, {n});  // zeros
  const Tensor mean = view.Scratch(DType::kF32, {1, dim});
  const Tensor keys = view.Scratch(DType::kF32, {n, dim});
  const Tensor query = view.Scratch(DType::kF32, {group, dim});
  const Tensor attention = view.Scratch(DType::kF32, {group, n});
  const Tensor reached = view.Scratch(DType::kF32, {group, 1});
  const Tensor reaches = view.Scratch(DType::kF32, {shape.kv_heads});
  for (int64_t h = 0; h < shape.kv_heads; ++h) {
    ops.rows->ReduceColumns(view.RawKeys(h), Reduction::kMean, mean[0]);
    ops.select->Gather(mean, same, keys);
    ops.rows->Rope(rotations[0], rotations[1], shape.rope_layout, RopeDirection::kForward,
                   keys.Reshape({n, 1, dim}));
    ops.rows->Convert(queries.Slice(h * group, (h + 1) * group), query);
    ops.rows->Rope(rotations[0].Slice(n - 1, n), rotations[1].Slice(n - 1, n), shape.rope_layout,
                   RopeDirection::kForward, query.Reshape({1, group, dim}));
    ops.linear->MatMulNT(query.Reshape({1, group, dim}), keys.Reshape({1, n, dim}), 1.0f,
                         attention.Reshape({1, group, n}));
    SoftmaxOfProducts(view, attention, attention);
    ops.linear->MatMulNT(attention.Reshape({1, group, n}), ramp, 1.0f,
                         reached.Reshape({1, group, 1}));
    ops.rows->ReduceColumns(reached, Reduction::kMean, reaches.Slice(h, h + 1));
  }
  return Fetch(ops, reaches);
}

ReachCalibrator::ReachCalibrator(const Params&, const ModelShape& shape,
                                 std::span<const int64_t> lengths)
    : means_(shape, std::ssize(lengths)) {}

Needs ReachCalibrator::needs(int) const { return ReachNeeds(); }

void ReachCalibrator::Observe(int, LayerView& view) {
  const std::vector<float> reaches = HeadReaches(view);
  for (int64_t h = 0; h < std::ssize(reaches); ++h) {
    means_.Add(view.layer(), h, double{reaches[static_cast<size_t>(h)]});
  }
}

Calibration::Tables ReachCalibrator::Finish(Ops&) { return means_.ToTables(); }

Result<Calibration::Tables> ImportHeadGates(const Calibration::Tables& published) {
  const auto found = published.find("values");
  if (found == published.end()) {
    return BadInput("has no rows of numbers; expected full_attention_heads.tsv");
  }
  Calibration::Tables tables;
  tables["heads"] = found->second;
  return tables;
}

}  // namespace kvgauge
