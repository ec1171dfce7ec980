// SPDX-License-Identifier: Apache-2.0
// The safetensors header, apart from files: what the loader, its tests and its fuzz target share.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "src/checkpoint/stored_weights.h"

namespace kvgauge {

// Reads the header of a whole file and checks every claim in it against the others and against the
// size of the file: on success all entries lie in `file`, touch each other without overlap and
// cover it to the end, and have exactly the bytes that dtype and shape need. Entries are sorted by
// name. `origin` begins every message.
Result<std::vector<StoredEntry>> ParseSafetensorsHeader(std::span<const uint8_t> file,
                                                        std::string_view origin);

inline constexpr StoredFormat kSafetensors = {.single = "model.safetensors",
                                              .index = "model.safetensors.index.json",
                                              .ending = ".safetensors",
                                              .read = ParseSafetensorsHeader};

}  // namespace kvgauge
