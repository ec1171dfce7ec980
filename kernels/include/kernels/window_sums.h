// SPDX-License-Identifier: Apache-2.0
// Sums over windows of rows, composed of operations that every backend has.
#pragma once

#include <cstdint>

#include "kernels/ops.h"

namespace kvgauge {

enum class WindowSide { kAhead, kBehind };

// out[i] = x[i] + x[i + 1] + ... + x[i + width - 1] (kAhead), or x[i] + ... + x[i - width + 1]
// (kBehind); rows beyond the ends count as nothing. Some 2 log2(width) passes, in an order that
// depends on n and width alone. x, out: [n, d] f32; spare: [2 n, d], overwritten; all apart and
// contiguous. Precondition: width >= 1.
void WindowSums(Ops& ops, const Tensor& x, int64_t width, WindowSide side, const Tensor& spare,
                const Tensor& out);

}  // namespace kvgauge
