// SPDX-License-Identifier: Apache-2.0
// Weighted means as merge lists.
#pragma once

#include "methods/stages.h"

namespace kvgauge {

// Takes `weight` as weights relative to the entry that stays, which weighs 1: sets `self`, and
// divides both by the sum of all weights of that entry. `from`, `to` and `weight` are set,
// weights are not negative; `spread` is 1. length: entries before the reduction.
void NormalizeMerge(LayerView& view, int64_t length, MergeList& list);

}  // namespace kvgauge
