// SPDX-License-Identifier: Apache-2.0
// Keys of a page that is being filled, for readers whose steps are to be alike.
#pragma once

#include <cstdint>

#include "kernels/tensor.h"

namespace kvgauge {

// A LayerView of a device is one.
class FilledKeys {
 public:
  virtual ~FilledKeys() = default;
  // [rows, key_dim]: as LayerView::Keys, and the last entry's key again in the rows that have no
  // entry. At least one has one, and no entry is behind them. What the device is given to do is the
  // same however many there are, where keys lie in floats as attention sees them.
  virtual Tensor Filled(int64_t head, int64_t first, int64_t rows) = 0;
};

}  // namespace kvgauge
