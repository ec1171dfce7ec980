// SPDX-License-Identifier: Apache-2.0
// Queries of a few channels, as SparQ and RocketKV take them.
#pragma once

#include <cstdint>

#include "methods/layer_view.h"

namespace kvgauge {

// The queries of a group with 0 in all channels but the `rank` whose magnitudes sum to most over
// the group, times the model's scale over the root of the share of a query's magnitude that is
// left: so products with keys are logits, about. q: [group, key_dim]; [group, key_dim] f32.
Tensor QueriesOfLargestChannels(LayerView& view, const Tensor& q, int64_t rank);

}  // namespace kvgauge
