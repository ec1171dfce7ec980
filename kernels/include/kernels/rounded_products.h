// SPDX-License-Identifier: Apache-2.0
// Products by rows that are rounded as a file says of the inputs of a matrix: what backends can
// beside LinearOps.
#pragma once

#include "kernels/linear.h"
#include "kernels/row_rounding.h"

namespace kvgauge {

class RoundedProducts {
 public:
  virtual ~RoundedProducts() = default;
  // Null where the backend has none.
  static RoundedProducts* Of(LinearOps& linear) { return dynamic_cast<RoundedProducts*>(&linear); }

  // From now on products with the matrix, which this backend packed as floats, round their rows to
  // its type, then so, then to its type again (ProductRows::kFile). Sets are collected behind it.
  // Not while a product is under way.
  void RoundRowsOf(PackedMatrix& matrix, const RowRounding& rounding);

 private:
  virtual void DoRoundRowsOf(PackedMatrix& matrix, const RowRounding& rounding) = 0;
};

}  // namespace kvgauge
