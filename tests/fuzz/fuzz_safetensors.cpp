// SPDX-License-Identifier: Apache-2.0
// A header that is accepted keeps its promises, whatever the bytes.
#include <algorithm>

#include "core/check.h"
#include "src/checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using kvgauge::StoredEntry;
  auto parsed = kvgauge::ParseSafetensorsHeader({data, size}, "fuzz");
  if (!parsed.ok()) {
    KVG_CHECK(parsed.error().message.starts_with("fuzz"), "a message without its origin");
    return 0;
  }
  std::vector<StoredEntry> entries = *parsed;
  for (size_t i = 1; i < entries.size(); ++i) {
    KVG_CHECK(entries[i - 1].name < entries[i].name, "names are sorted and differ");
  }
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t covered = entries.empty() ? size : entries.front().begin;
  for (const StoredEntry& entry : entries) {
    KVG_CHECK(entry.begin == covered && entry.end >= entry.begin, "entries tile the data");
    covered = entry.end;
    if (!entry.dtype) continue;
    uint64_t bytes = static_cast<uint64_t>(kvgauge::SizeOf(*entry.dtype));
    for (const int64_t dim : entry.shape) bytes *= static_cast<uint64_t>(dim);
    KVG_CHECK(bytes == entry.end - entry.begin, "a tensor has the bytes of its shape");
  }
  KVG_CHECK(covered == size, "entries reach the end of the file");
  return 0;
}
