// SPDX-License-Identifier: Apache-2.0
// The architectures whose files are read: which family each is, and its names.
#pragma once

#include <span>

#include "src/checkpoint/gguf/names.h"

namespace kvgauge {

// Those of one name stand side by side, the first that fits in front.
std::span<const GgufArchitecture> GgufArchitectures();

}  // namespace kvgauge
