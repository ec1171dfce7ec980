// SPDX-License-Identifier: Apache-2.0
// Panels with AVX-512, no bf16 instructions. For files named *_avx512.cpp.
#pragma once

#include "cpu/vec_avx512.h"

namespace kvgauge {
namespace {

struct Panels {
  using ThreadScope = NoThreadScope;
  using Vec = Avx512Vec;
  using F32 = F32Panel<Avx512Vec>;
  using F16 = F16Panel<Avx512Vec>;
  using Bf16 = Bf16WidenPanel<Avx512Vec>;
};

}  // namespace
}  // namespace kvgauge
