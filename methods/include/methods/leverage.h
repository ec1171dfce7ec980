// SPDX-License-Identifier: Apache-2.0
// Leverage scores: how much a row adds to the space that all rows span.
#pragma once

#include "methods/layer_view.h"

namespace kvgauge {

// out[i] = x[i] (x^T diag(weight) x + ridge I)^-1 x[i]^T. x: [n, d], contiguous; weight: [n], not
// negative, or empty: 1; ridge > 0; out: [n], contiguous. The inverse is found by Newton's
// iteration, whose number of rounds follows from the matrix: its error is that of f32.
void RidgeLeverage(LayerView& view, const Tensor& x, const Tensor& weight, float ridge, Tensor out);

}  // namespace kvgauge
