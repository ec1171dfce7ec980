// SPDX-License-Identifier: Apache-2.0
// Eigenvectors of symmetric matrices in double for the cpu backend.
#pragma once

#include "core/threads.h"
#include "cpu/algebra/algebra_kernels.h"
#include "kernels/tensor.h"

namespace kvgauge {

// AlgebraOps::Eigenvectors.
void SymmetricEigenvectors(const AlgebraKernels& k, ThreadSettings threads, const Tensor& a,
                           Tensor values, Tensor vectors);

}  // namespace kvgauge
