// SPDX-License-Identifier: Apache-2.0
// Panels with AMX tiles for bf16, AVX-512 for the rest. For files named *_amx.cpp.
#pragma once

#include "cpu/isa/tiles_amx.h"
#include "cpu/isa/vector_math_avx512.h"
#include "cpu/linear/panel_tiles.h"

namespace kvgauge {
namespace {

struct Panels {
  using ThreadScope = AmxEngine::ThreadScope;
  using Vec = Avx512Vector;
  using F32 = F32Panel<Avx512Vector>;
  using F16 = F16Panel<Avx512Vector>;
  using Bf16 = Bf16TilePanel<AmxEngine>;
};

}  // namespace
}  // namespace kvgauge
