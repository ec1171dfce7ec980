// SPDX-License-Identifier: Apache-2.0
// The reference backend: plain loops with double accumulation, one thread. The twin that every
// other backend is held against; read it to learn what an operation means.
#pragma once

#include <memory>

#include "kernels/ops.h"

namespace kvgauge {

std::unique_ptr<LinearOps> MakeReferenceLinear();
std::unique_ptr<RowOps> MakeReferenceRows();
std::unique_ptr<SelectOps> MakeReferenceSelect();
std::unique_ptr<AlgebraOps> MakeReferenceAlgebra();
std::unique_ptr<StateOps> MakeReferenceState();
std::unique_ptr<CodecOps> MakeReferenceCodec();
std::unique_ptr<AttentionOps> MakeReferenceAttention();

}  // namespace kvgauge
