// SPDX-License-Identifier: Apache-2.0
// Panels in vector extensions of the compiler: runs on any processor.
#pragma once

#include "cpu/isa/vector_math_portable.h"
#include "cpu/linear/panel.h"

namespace kvgauge {
namespace {

struct Panels {
  using ThreadScope = NoThreadScope;
  using Vec = PortableVector;
  using F32 = F32Panel<PortableVector>;
  using F16 = F16Panel<PortableVector>;
  using Bf16 = Bf16WidenPanel<PortableVector>;
};

}  // namespace
}  // namespace kvgauge
