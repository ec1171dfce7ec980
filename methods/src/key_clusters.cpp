// SPDX-License-Identifier: Apache-2.0
#include "methods/key_clusters.h"

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

}  // namespace kvgauge
