// SPDX-License-Identifier: Apache-2.0
// Directions in which rows vary most, for stages that find bases in a prompt.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "core/result.h"
#include "methods/layer_view.h"

namespace kvgauge {

// Whether squares of `dim` rows, one after the other, are orthogonal within the tolerance of bases.
// `name` begins the message: a file and one of its tables.
Status CheckOrthogonal(std::string_view name, std::span<const float> squares, int64_t dim);
// out = x^T. x: [n, width]; out: [width, n], contiguous. The bits of x.
void Transpose(LayerView& view, const Tensor& x, const Tensor& out);
// The sum of x^T x over rows x [n, width]: [width, width]; zeros without rows.
Tensor ColumnProducts(LayerView& view, const Tensor& rows);
// The first right singular vectors of rows [n, width]: columns of [width, rank].
Tensor LeadingDirections(LayerView& view, const Tensor& rows, int64_t rank);

}  // namespace kvgauge
