// SPDX-License-Identifier: Apache-2.0
// The safetensors header, apart from files: what the loader, its tests and its fuzz target share.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/result.h"

namespace kvgauge {

struct SafetensorsEntry {
  std::string name;
  std::string dtype_name;      // as in the file
  std::optional<DType> dtype;  // none: known to the format, not to this project
  std::vector<int64_t> shape;
  // Bytes [begin, end) of the whole file.
  uint64_t begin = 0;
  uint64_t end = 0;
};

// Reads the header of a whole file and checks every claim in it against the others and against the
// size of the file: on success all entries lie in `file`, touch each other without overlap and
// cover it to the end, and have exactly the bytes that dtype and shape need. Entries are sorted by
// name. `origin` begins every message.
Result<std::vector<SafetensorsEntry>> ParseSafetensorsHeader(std::span<const uint8_t> file,
                                                             std::string_view origin);

}  // namespace kvgauge
