// SPDX-License-Identifier: Apache-2.0
// What scorers share that guess queries to come from the prompt's.
#pragma once

#include "methods/layer_view.h"

namespace kvgauge {

// The mean rotation of the `count` positions to come: cosines, then sines, [2, rotary_dim / 2].
// Empty: the model has no rotation.
Tensor MeanRotationToCome(LayerView& view, int64_t count);
// Gives the first `sinks` entries of every head one more than the highest score of the layer. out:
// [kv_heads, n], n > sinks.
void RaiseFirst(LayerView& view, int64_t sinks, Tensor out);

}  // namespace kvgauge
