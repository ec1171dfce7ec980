// SPDX-License-Identifier: Apache-2.0
// What a GGUF file's tensors say of ropes.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "src/checkpoint/gguf/file.h"

namespace kvgauge {

// The numbers of a small f32 tensor, or none.
std::optional<std::vector<double>> GgufNumbers(const GgufFile& file, std::string_view name);

}  // namespace kvgauge
