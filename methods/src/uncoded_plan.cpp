// SPDX-License-Identifier: Apache-2.0
#include "methods/uncoded_plan.h"

namespace kvgauge {

StorePlan UncodedPlan(const ModelShape& shape) {
  StorePlan plan;
  plan.keys.side = KvSide::kKeys;
  plan.keys.dim = shape.key_dim;
  plan.values.side = KvSide::kValues;
  plan.values.dim = shape.value_dim;
  plan.keys.dtype = plan.values.dtype = shape.cache_dtype;
  return plan;
}

SealRule SealWhole(const KvCodec& codec, int64_t keep_recent) {
  return {.unit = SealUnit(codec), .keep_recent = keep_recent};
}

}  // namespace kvgauge
