// SPDX-License-Identifier: Apache-2.0
// Budgets under which some heads hold the whole prompt and the others a few entries.
#pragma once

#include <functional>
#include <vector>

#include "methods/stages.h"

namespace kvgauge {

// As many heads as the budget allows hold everything: those with the largest of `numbers`, [layers
// * kv_heads], which is not called where all do; of equal numbers the later head. The others hold
// `streaming` entries, or those that are protected, if these are more.
Allocation HoldWhole(const AllocationInput& input, int64_t streaming,
                     const std::function<std::vector<float>()>& numbers);
// An error where the budget is below what such heads hold.
Status CheckHoldWhole(const AllocationInput& input, int64_t streaming);

}  // namespace kvgauge
