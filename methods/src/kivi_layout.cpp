// SPDX-License-Identifier: Apache-2.0
#include "methods/kivi_layout.h"

#include <algorithm>
#include <string>
#include <vector>

#include "core/strings.h"
#include "kernels/attention.h"

namespace kvgauge {
namespace {

// Entries that have one range in two pages.
constexpr int64_t kTwoPages = 2 * kKvPageEntries;

}  // namespace

Status CheckKiviLayout(const ModelShape& shape, int64_t group, int64_t residual) {
  if (residual % group != 0) {
    return BadInput(StrCat("residual ", residual, " must be a multiple of group ", group));
  }
  const bool whole = group == kTwoPages && shape.value_dim < group;
  if (!whole && shape.value_dim % group != 0) {
    std::vector<std::string> right;
    for (const int64_t one : {16, 32, 64, 128}) {
      if (shape.value_dim % one == 0) right.push_back(StrCat(one));
    }
    return BadInput(
        StrCat("group ", group, " must divide the ", shape.value_dim, " dims of a value; ",
               right.empty() ? "none of 16, 32, 64 and 128 does, and store.affine takes others"
                             : StrCat("expected ", Join(right, " or "))));
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
  if (group == kTwoPages) {
    layout.keys.group = kKvPageEntries;
    layout.keys.range_pages = 2;
  }
  layout.values.group = std::min(group, shape.value_dim);
  layout.keys.bits = key_bits;
  layout.values.bits = value_bits;
  layout.keys.axis = CodeAxis::kChannel;
  layout.seal_keys = {.unit = residual, .keep_recent = 0};
  layout.seal_values = {.unit = 1, .keep_recent = residual};
  return layout;
}

}  // namespace kvgauge
