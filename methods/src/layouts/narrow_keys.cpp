// SPDX-License-Identifier: Apache-2.0
#include "methods/layouts/narrow_keys.h"

#include <algorithm>

#include "core/strings.h"

namespace kvgauge {

Status NarrowKeys::Check(const StoreUse& use) const {
  if (use.merges_keys_later.empty()) return {};
  return BadInput(StrCat("keys give up numbers, each head its own, and ", use.merges_keys_later,
                         " would merge them with whole keys while decoding; use trigger.prefill, "
                         "which merges before that, or store.plain"));
}

double NarrowKeys::HeadBytes(const ModelShape& shape, int64_t entries) const {
  const int64_t narrow = std::max<int64_t>(0, entries - recent);
  const int64_t gone = narrow * (shape.key_dim - dim) * SizeOf(shape.cache_dtype);
  return StoreLayout::HeadBytes(shape, entries) - static_cast<double>(gone) +
         static_cast<double>(dim * SizeOf(DType::kI32));
}

int64_t NarrowKeys::EntryBits(const ModelShape& shape) const {
  return 8 * SizeOf(shape.cache_dtype) * (dim + shape.value_dim);
}

}  // namespace kvgauge
