// SPDX-License-Identifier: Apache-2.0
// Panels with AVX-512, no bf16 instructions. For files named *_avx512.cpp.
#pragma once

#include "cpu/isa/vector_math_avx512.h"
#include "cpu/linear/panel.h"

namespace kvgauge {
namespace {

struct Panels {
  using ThreadScope = NoThreadScope;
  using Vec = Avx512Vector;
  using F32 = F32Panel<Avx512Vector>;
  using F16 = F16Panel<Avx512Vector>;
  using Bf16 = Bf16WidenPanel<Avx512Vector>;
};

}  // namespace
}  // namespace kvgauge
