// SPDX-License-Identifier: Apache-2.0
// Whole numbers from shares, with an exact sum.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "methods/stages.h"

namespace kvgauge {

// Whole numbers in [least, most], in proportion to `weights` as far as the bounds allow, that sum
// to `total`. What does not divide goes to the largest remainders, among equals to the first.
// Preconditions: weights finite and not negative; least * size <= total <= most * size.
std::vector<int64_t> SplitByWeight(std::span<const double> weights, int64_t total, int64_t least,
                                   int64_t most);

// Divides what is not protected of the budget among layers whose heads are alike, in proportion to
// `weights`. Each layer gets `floor` of the prompt at least, as far as there is so much. Without
// any weight all get alike.
Allocation SplitLayersByWeight(const AllocationInput& input, std::span<const double> weights,
                               double floor);

// How many of `count` holders can hold `whole` each when all others hold `less` and all together at
// most `total`. Precondition: count * less <= total.
inline int64_t CountWhole(int64_t count, int64_t total, int64_t whole, int64_t less) {
  if (less >= whole) return count;
  return std::min(count, (total - count * less) / (whole - less));
}

}  // namespace kvgauge
