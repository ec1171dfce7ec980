// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "methods/tensors.h"

namespace kvgauge {

// Columns [begin, begin + width) of x [m, n].
inline Tensor ColumnsFrom(const Tensor& x, int64_t begin, int64_t width) {
  return Columns(x, begin, begin + width);
}

}  // namespace kvgauge
