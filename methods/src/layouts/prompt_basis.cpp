// SPDX-License-Identifier: Apache-2.0
#include "methods/layouts/prompt_basis.h"

#include "core/strings.h"
#include "kernels/attention.h"

namespace kvgauge {

StoreTraits PromptBasis::traits() const {
  return {.exact = false, .by_head = false, .raw_keys = key_rank > 0};
}

Status PromptBasis::Check(const StoreUse& use) const {
  const ModelShape& shape = *use.shape;
  if (shape.latent_dim > 0) {
    return BadInput(
        "keeps coordinates of keys before rotation, but latent attention rotates a part of its "
        "own; use store.mla_latent");
  }
  const int64_t key_width = shape.kv_heads * shape.key_dim;
  const int64_t value_width = shape.kv_heads * shape.value_dim;
  if (key_rank < 0 || key_rank > key_width || value_rank < 0 || value_rank > value_width) {
    return BadInput(StrCat("ranks ", key_rank, " and ", value_rank, "; right is 0 .. ", key_width,
                           " for keys and 0 .. ", value_width, " for values"));
  }
  return {};
}

double PromptBasis::HeadBytes(const ModelShape& shape, int64_t entries) const {
  const auto heads = static_cast<double>(shape.kv_heads);
  const auto side = [&](int64_t rank, int64_t dim) {
    const auto size = static_cast<double>(SizeOf(shape.cache_dtype));
    if (rank == 0) return static_cast<double>(entries * dim) * size;
    return static_cast<double>(entries * rank) * size / heads +
           static_cast<double>(dim * rank * SizeOf(DType::kF32));
  };
  return side(key_rank, shape.key_dim) + side(value_rank, shape.value_dim);
}

int64_t PromptBasis::EntryBits(const ModelShape& shape) const {
  const auto numbers = [&](int64_t rank, int64_t dim) {
    return rank == 0 ? dim : (rank + shape.kv_heads - 1) / shape.kv_heads;
  };
  return 8 * SizeOf(shape.cache_dtype) *
         (numbers(key_rank, shape.key_dim) + numbers(value_rank, shape.value_dim));
}

// Later entries are whole, and their number is open: as if none were coordinates.
int64_t PromptBasis::PlannedLayerBytes(const ModelShape& shape, int64_t entries,
                                       int64_t fresh) const {
  int64_t bytes = StoreLayout::PlannedLayerBytes(shape, entries, fresh);
  for (const auto& [rank, dim] :
       {std::pair{key_rank, shape.key_dim}, std::pair{value_rank, shape.value_dim}}) {
    bytes += kKvPageEntries * (rank + shape.kv_heads * dim) * SizeOf(shape.cache_dtype);
    bytes += shape.kv_heads * dim * rank * SizeOf(DType::kF32);
  }
  return bytes;
}

}  // namespace kvgauge
