// SPDX-License-Identifier: Apache-2.0
// The directory of a zip archive as PyTorch writes it: entries stored as they are, sizes in 32 or
// 64 bits, no comment behind it. Reads no content.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "core/result.h"

namespace kvgauge {

// Bytes [begin, end) of the whole file.
struct ZipEntry {
  uint64_t begin = 0;
  uint64_t end = 0;
};

// Entries by their names. On success they lie in the file, before its directory, and none touches
// another. Compressed and encrypted entries, and names that come twice, are errors. Checksums are
// not looked at: PyTorch can be told to leave them out.
Result<std::map<std::string, ZipEntry>> ReadZipDirectory(std::span<const uint8_t> file,
                                                         std::string_view origin);

}  // namespace kvgauge
