// SPDX-License-Identifier: Apache-2.0
// Factorisations in double for the cpu backend.
#pragma once

#include "core/threads.h"
#include "cpu/algebra/algebra_kernels.h"
#include "kernels/tensor.h"

namespace kvgauge {

// AlgebraOps::Qr and AlgebraOps::Svd.
void FactorQr(const AlgebraKernels& k, ThreadSettings threads, const Tensor& a, Tensor q, Tensor r);
void FactorSvd(const AlgebraKernels& k, ThreadSettings threads, const Tensor& a, Tensor u, Tensor s,
               Tensor vt);

}  // namespace kvgauge
