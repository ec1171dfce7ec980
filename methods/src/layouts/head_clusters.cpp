// SPDX-License-Identifier: Apache-2.0
#include "methods/layouts/head_clusters.h"

#include <cmath>

#include "kernels/attention.h"

namespace kvgauge {
namespace {

// Numbers of an entry in all heads.
int64_t NumbersOf(const HeadClusters& layout, const ModelShape& shape) {
  return layout.clusters * shape.key_dim + shape.kv_heads * shape.value_dim;
}

}  // namespace

Status HeadClusters::Check(const StoreUse& use) const {
  if (use.shape->latent_dim == 0) return {};
  return BadInput(
      "drops keys of heads, and this model's heads share latents; use a model whose "
      "heads have keys of their own");
}

double HeadClusters::HeadBytes(const ModelShape& shape, int64_t entries) const {
  return static_cast<double>(entries * NumbersOf(*this, shape) * SizeOf(shape.cache_dtype)) /
         static_cast<double>(shape.kv_heads);
}

int64_t HeadClusters::EntryBits(const ModelShape& shape) const {
  return std::llround(8 * HeadBytes(shape, 1));
}

int64_t HeadClusters::PlannedLayerBytes(const ModelShape& shape, int64_t entries, int64_t) const {
  const int64_t pages = (entries + kKvPageEntries - 1) / kKvPageEntries + 1;
  return pages * kKvPageEntries * NumbersOf(*this, shape) * SizeOf(shape.cache_dtype);
}

}  // namespace kvgauge
