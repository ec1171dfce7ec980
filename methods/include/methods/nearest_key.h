// SPDX-License-Identifier: Apache-2.0
// Where what goes is merged into: the entry that stays and whose key is most like it.
#pragma once

#include "methods/layer_view.h"

namespace kvgauge {

struct NearestKeys {
  Tensor gone;      // [n] i32 entries that go, ascending; empty where none goes or none stays
  Tensor nearest;   // [n] i32 the entry that stays and is most like each
  Tensor likeness;  // [n] their cosine
};

// keep: [k] i32 ascending, of the head's entries. Keys are as attention sees them.
NearestKeys NearestKept(LayerView& view, int64_t head, const Tensor& keep);

}  // namespace kvgauge
