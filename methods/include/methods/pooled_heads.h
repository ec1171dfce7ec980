// SPDX-License-Identifier: Apache-2.0
// Heads of a projection that become one.
#pragma once

#include <cstdint>

#include "kernels/ops.h"

namespace kvgauge {

// The mean of each `pooled` neighbouring heads. rows: [heads * dim, columns]; the result:
// [heads / pooled * dim, columns]. Precondition: `pooled` divides the heads.
Buffer PooledHeads(Ops& ops, const Tensor& rows, int64_t dim, int64_t pooled);

}  // namespace kvgauge
