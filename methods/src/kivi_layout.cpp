// SPDX-License-Identifier: Apache-2.0
#include "methods/kivi_layout.h"

#include "core/strings.h"
#include "methods/uncoded_plan.h"

namespace kvgauge {

Status CheckKiviLayout(const ModelShape& shape, int64_t group, int64_t residual) {
  if (residual % group != 0) {
    return BadInput(StrCat("residual ", residual, " must be a multiple of group ", group));
  }
  if (shape.value_dim % group != 0) {
    return BadInput(
        StrCat("group ", group, " must divide the ", shape.value_dim, " dims of a value"));
  }
  return {};
}

StorePlan KiviLayout(const ModelShape& shape, int key_bits, int value_bits, int64_t group,
                     int64_t residual) {
  StorePlan plan = UncodedPlan(shape);
  for (KvCodec* codec : {&plan.keys, &plan.values}) {
    codec->kind = KvCodecKind::kAffine;
    codec->group = group;
  }
  plan.keys.bits = key_bits;
  plan.values.bits = value_bits;
  plan.keys.axis = CodeAxis::kChannel;
  plan.seal_keys = {.unit = residual, .keep_recent = 0};
  plan.seal_values = {.unit = 1, .keep_recent = residual};
  return plan;
}

}  // namespace kvgauge
