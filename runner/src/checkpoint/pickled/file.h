// SPDX-License-Identifier: Apache-2.0
// A file that torch.save wrote: a zip archive with the pickle of a dictionary, and the storages of
// its tensors as they are.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "src/checkpoint/stored_weights.h"

namespace kvgauge {

// Tensors sorted by name, on success each within the storage that the archive has for it. Several
// may share one. Nothing of the file is ever run. `origin` begins every message.
Result<std::vector<StoredEntry>> ParsePickledWeights(std::span<const uint8_t> file,
                                                     std::string_view origin);

inline constexpr StoredFormat kPickled = {.single = "pytorch_model.bin",
                                          .index = "pytorch_model.bin.index.json",
                                          .ending = ".bin",
                                          .read = ParsePickledWeights};

}  // namespace kvgauge
