// SPDX-License-Identifier: Apache-2.0
// Directions in which rows vary most, for stages that find bases in a prompt.
#pragma once

#include <cstdint>

#include "methods/layer_view.h"

namespace kvgauge {

// out = x^T. x: [n, width]; out: [width, n], contiguous. The bits of x.
void Transpose(LayerView& view, const Tensor& x, const Tensor& out);
// The sum of x^T x over rows x [n, width]: [width, width]; zeros without rows.
Tensor ColumnProducts(LayerView& view, const Tensor& rows);
// The first right singular vectors of rows [n, width]: columns of [width, rank].
Tensor LeadingDirections(LayerView& view, const Tensor& rows, int64_t rank);

}  // namespace kvgauge
