// SPDX-License-Identifier: Apache-2.0
// Panels with AVX2, FMA and F16C. For files named *_avx2.cpp.
#pragma once

#include "cpu/isa/vector_math_avx2.h"
#include "cpu/linear/panel.h"

namespace kvgauge {
namespace {

struct Panels {
  using ThreadScope = NoThreadScope;
  using Vec = Avx2Vector;
  using F32 = F32Panel<Avx2Vector>;
  using F16 = F16Panel<Avx2Vector>;
  using Bf16 = Bf16WidenPanel<Avx2Vector>;
};

}  // namespace
}  // namespace kvgauge
