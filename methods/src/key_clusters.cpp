// SPDX-License-Identifier: Apache-2.0
#include "methods/key_clusters.h"

#include <algorithm>
#include <vector>

#include "methods/tensors.h"

namespace kvgauge {

KeyClusters ClusterKeys(LayerView& view, int64_t head, int64_t first, int64_t members,
                        int64_t count, int iterations) {
  KeyClusters clusters;
  clusters.count = count;
  clusters.members = members;
  if (count == 0) return clusters;
  Ops& ops = view.ops();
  const int64_t dim = view.shape().key_dim;
  clusters.means = ops.memory->Allocate(count * dim * SizeOf(DType::kF32));
  clusters.sizes = ops.memory->Allocate(count * SizeOf(DType::kF32));
  clusters.assignment = ops.memory->Allocate(members * SizeOf(DType::kI32));
  const Tensor means = clusters.Means(dim), assignment = clusters.Assignment();
  const Tensor keys = view.Keys(head, first).Slice(0, members);
  const Tensor directions = view.Scratch(DType::kF32, {members, dim});
  ops.rows->RmsNorm(keys, Filled(view, dim, 1.0f), 0.0f, 1e-20f, directions);
  std::vector<int32_t> start;
  for (int64_t c = 0; c < count; ++c) {
    start.push_back(static_cast<int32_t>(c * members / count));
  }
  const Tensor centres = view.Scratch(DType::kF32, {count, dim});
  ops.select->Gather(directions, Upload(view, start), centres);
  ops.algebra->KMeans(directions, iterations, centres, assignment);
  // What a query is compared with are means of the keys themselves.
  const Tensor sizes = view.Scratch(DType::kF32, {count, 1});
  ops.select->ScatterAdd(keys, assignment, Tensor(), means);
  ops.select->ScatterAdd(AsColumn(Filled(view, members, 1.0f)), assignment, Tensor(), sizes);
  ops.memory->Copy(sizes.Reshape({count}), clusters.Sizes());
  const Tensor row = sizes.Reshape({1, count});
  ops.rows->Combine(row, Filled(view, count, 1.0f), Binary::kMax, row);
  ops.rows->Combine(means, Spread(view, row[0], dim), Binary::kDivide, means);
  return clusters;
}

Status KeyClusters::Fields(LayerView& view, int64_t most, StateFields& fields) {
  Ops& ops = view.ops();
  KVG_TRY(fields.Number("entries in clusters", 0, most, &members));
  KVG_TRY(fields.Number("clusters of a head", std::min<int64_t>(1, members), members, &count));
  KVG_TRY(fields.Memory("mean keys of clusters", ops, DType::kF32, count * view.shape().key_dim,
                        &means));
  KVG_TRY(fields.Indices("clusters of entries", ops, members, count, &assignment));
  if (!fields.reads()) return {};
  sizes = Buffer();
  if (count == 0) return {};
  sizes = ops.memory->Allocate(count * SizeOf(DType::kF32));
  std::vector<float> of_each(static_cast<size_t>(count));
  std::vector<int32_t> of_entries(static_cast<size_t>(members));
  ops.memory->Copy(Assignment(), View(of_entries, {members}));
  for (const int32_t cluster : of_entries) of_each[static_cast<size_t>(cluster)] += 1;
  ops.memory->Copy(View(of_each, {count}), Sizes());
  return {};
}

}  // namespace kvgauge
