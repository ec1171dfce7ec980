// SPDX-License-Identifier: Apache-2.0
// Memory of packed matrices.
#pragma once

#include <cstdint>

#include "kernels/tensor.h"

namespace kvgauge {

// Host memory for what is packed once and stays. Zero-filled, 64-byte aligned, of fresh pages that
// are touched when they are used. Matrices lie one behind the other in huge pages, so that most of
// their pages cost no fault of their own and hardly any is used in part. Freed, a matrix gives its
// pages back.
Buffer MatrixBuffer(int64_t size_bytes);

}  // namespace kvgauge
