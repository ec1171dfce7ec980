// SPDX-License-Identifier: Apache-2.0
// Entries of the prompt as coordinates that neighbouring layers share, in bases that were found in
// the prompt itself.
#pragma once

#include <cmath>
#include <utility>

#include "core/strings.h"
#include "kernels/attention.h"
#include "methods/store_plan.h"

namespace kvgauge {

// The plan of every layer of a group. When the uppermost one is stored, all entries that the group
// holds become coordinates: keys before rotation, all heads of all layers side by side. Each layer
// has its rows of the basis; the coordinates count with the lowest layer. Later entries are whole.
struct GroupBasis final : StoreLayout {
  int64_t layers = 1;                    // of the group
  int64_t below = 0;                     // of these, below this one
  int64_t key_rank = 0, value_rank = 0;  // numbers of an entry, all heads and layers; 0: side whole

  bool uppermost() const { return below + 1 == layers; }

  static constexpr std::string_view kId = "group_basis";
  std::string_view id() const override { return kId; }
  StoreTraits traits() const override;
  Status Check(const StoreUse& use) const override;
  double HeadBytes(const ModelShape& shape, int64_t entries) const override;
  int64_t EntryBits(const ModelShape& shape) const override;
  int64_t PlannedLayerBytes(const ModelShape& shape, int64_t entries, int64_t fresh) const override;

 private:
  // Numbers that a head of one layer has of an entry, on average.
  double Share(const ModelShape& shape, int64_t rank, int64_t dim) const {
    if (rank == 0) return static_cast<double>(dim);
    return static_cast<double>(rank) / static_cast<double>(shape.kv_heads * layers);
  }
};

inline StoreTraits GroupBasis::traits() const {
  return {.exact = false, .by_head = false, .raw_keys = key_rank > 0};
}

inline Status GroupBasis::Check(const StoreUse& use) const {
  const ModelShape& shape = *use.shape;
  if (shape.latent_dim > 0) {
    return BadInput(
        "keeps coordinates of keys before rotation, but latent attention rotates a part of its "
        "own; use store.mla_latent");
  }
  const int64_t key_width = layers * shape.kv_heads * shape.key_dim;
  const int64_t value_width = layers * shape.kv_heads * shape.value_dim;
  if (key_rank < 0 || key_rank > key_width || value_rank < 0 || value_rank > value_width) {
    return BadInput(StrCat("ranks ", key_rank, " and ", value_rank, " of ", layers,
                           " layers; right is 0 .. ", key_width, " for keys and 0 .. ", value_width,
                           " for values"));
  }
  return {};
}

inline double GroupBasis::HeadBytes(const ModelShape& shape, int64_t entries) const {
  const auto size = static_cast<double>(SizeOf(shape.cache_dtype));
  const auto side = [&](int64_t rank, int64_t dim) {
    return static_cast<double>(entries) * Share(shape, rank, dim) * size +
           static_cast<double>(dim * rank * SizeOf(DType::kF32));
  };
  return side(key_rank, shape.key_dim) + side(value_rank, shape.value_dim);
}

inline int64_t GroupBasis::EntryBits(const ModelShape& shape) const {
  return std::llround(
      8 * static_cast<double>(SizeOf(shape.cache_dtype)) *
      (Share(shape, key_rank, shape.key_dim) + Share(shape, value_rank, shape.value_dim)));
}

// Layers of a group are whole until the uppermost one is stored.
inline int64_t GroupBasis::PlannedLayerBytes(const ModelShape& shape, int64_t entries,
                                             int64_t fresh) const {
  int64_t bytes = StoreLayout::PlannedLayerBytes(shape, entries, fresh);
  for (const auto& [rank, dim] :
       {std::pair{key_rank, shape.key_dim}, std::pair{value_rank, shape.value_dim}}) {
    bytes += kKvPageEntries * (rank + shape.kv_heads * dim) * SizeOf(shape.cache_dtype);
    bytes += entries * rank * SizeOf(shape.cache_dtype) / layers;
    bytes += shape.kv_heads * dim * rank * SizeOf(DType::kF32);
  }
  return bytes;
}

}  // namespace kvgauge
