// SPDX-License-Identifier: Apache-2.0
#include "methods/kivi_layout.h"

#include "core/strings.h"

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

Coded KiviLayout(const ModelShape& shape, int key_bits, int value_bits, int64_t group,
                 int64_t residual) {
  Coded layout(shape);
  for (KvCodec* codec : {&layout.keys, &layout.values}) {
    codec->kind = KvCodecKind::kAffine;
    codec->group = group;
  }
  layout.keys.bits = key_bits;
  layout.values.bits = value_bits;
  layout.keys.axis = CodeAxis::kChannel;
  layout.seal_keys = {.unit = residual, .keep_recent = 0};
  layout.seal_values = {.unit = 1, .keep_recent = residual};
  return layout;
}

}  // namespace kvgauge
