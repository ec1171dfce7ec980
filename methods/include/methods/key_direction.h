// SPDX-License-Identifier: Apache-2.0
// How far keys point away from their mean direction (KeyDiff).
#pragma once

#include "methods/layer_view.h"

namespace kvgauge {

// out[i] = minus the cosine of keys[i] and the mean of the keys' directions. keys: [n, key_dim],
// contiguous; out: [n], contiguous; n > 0.
void AwayFromMean(LayerView& view, const Tensor& keys, Tensor out);

}  // namespace kvgauge
