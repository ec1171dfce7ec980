// SPDX-License-Identifier: Apache-2.0
#include "methods/layouts/narrow_keys.h"

#include <algorithm>
#include <cmath>

#include "core/strings.h"

namespace kvgauge {

Status NarrowKeys::Check(const StoreUse& use) const {
  if (use.merges_keys_later.empty()) return {};
  return BadInput(StrCat("keys give up numbers, each head its own, and ", use.merges_keys_later,
                         " would merge them with whole keys while decoding; use trigger.prefill, "
                         "which merges before that, or store.plain"));
}

namespace {

// The mean width of the heads' keys.
double MeanKept(const NarrowKeys& layout, const ModelShape& shape) {
  double sum = 0;
  for (int64_t h = 0; h < shape.kv_heads; ++h) sum += static_cast<double>(layout.width(h));
  return sum / static_cast<double>(shape.kv_heads);
}

}  // namespace

double NarrowKeys::HeadBytes(const ModelShape& shape, int64_t entries) const {
  const double kept_dims = MeanKept(*this, shape);
  const auto narrow = static_cast<double>(std::max<int64_t>(0, entries - sinks - recent));
  const double gone = narrow * (static_cast<double>(shape.key_dim) - kept_dims) *
                      static_cast<double>(SizeOf(shape.cache_dtype));
  return StoreLayout::HeadBytes(shape, entries) - gone +
         kept_dims * static_cast<double>(SizeOf(DType::kI32));
}

int64_t NarrowKeys::EntryBits(const ModelShape& shape) const {
  return std::llround(8 * static_cast<double>(SizeOf(shape.cache_dtype)) *
                      (MeanKept(*this, shape) + static_cast<double>(shape.value_dim)));
}

}  // namespace kvgauge
