// SPDX-License-Identifier: Apache-2.0
// How many of the best entries hold a share of all scores.
#pragma once

#include <cstdint>

#include "methods/layer_view.h"

namespace kvgauge {

// The least number of the best of scores [1, n], contiguous, whose sum is at least `share` of the
// sum of all. Forced and infinite ones are among them and count nothing; nor do negative ones. With
// a share of 1 it is n.
int64_t CoveringCount(LayerView& view, const Tensor& scores, double share);

}  // namespace kvgauge
