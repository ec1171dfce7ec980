// SPDX-License-Identifier: Apache-2.0
// `kvgauge generate --save-cache` and `--load-cache`: the file, and what that took.
#pragma once

#include <optional>
#include <string>

#include "core/json_fwd.h"
#include "runner/saved_cache.h"

namespace kvgauge {

struct CacheFileFacts {
  std::string path;
  int64_t tokens = 0;       // that the cache has seen
  int64_t cache_bytes = 0;  // as they are in memory, positions and tables included
  int64_t file_bytes = 0;
  double seconds = 0;  // of coding or decoding, without the disk

  Json ToJson() const;
  std::string Describe(const char* verb) const;  // a line for people
};

Result<CacheFileFacts> WriteCacheFile(const std::string& path, const SavedCache& saved,
                                      double serialize_s);
struct LoadedCacheFile {
  SavedCache saved;
  CacheFileFacts facts;
};
Result<LoadedCacheFile> ReadCacheFile(const std::string& path);

}  // namespace kvgauge
