// SPDX-License-Identifier: Apache-2.0
#include "src/model/saved_answer.h"

#include <cstdio>

#include "core/clock.h"
#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "src/cli/print.h"

namespace kvgauge {

Json CacheFileFacts::ToJson() const {
  return {{"file", path},
          {"tokens", tokens},
          {"cache_bytes", cache_bytes},
          {"file_bytes", file_bytes},
          {"seconds", seconds}};
}

std::string CacheFileFacts::Describe(const char* verb) const {
  char line[160];
  std::snprintf(line, sizeof(line), "%-8s %s of %lld tokens as %s in %.3f s: ", verb,
                HumanBytes(cache_bytes).c_str(), static_cast<long long>(tokens),
                HumanBytes(file_bytes).c_str(), seconds);
  return StrCat(line, path, "\n");
}

Result<CacheFileFacts> WriteCacheFile(const std::string& path, const SavedCache& saved,
                                      double serialize_s) {
  const double start = NowSeconds();
  const std::string file = PackSaved(saved);
  CacheFileFacts facts = {.path = path,
                          .tokens = std::ssize(saved.ids) - 1,
                          .cache_bytes = std::ssize(saved.bytes),
                          .file_bytes = std::ssize(file),
                          .seconds = serialize_s + NowSeconds() - start};
  KVG_TRY(WriteFile(path, file));
  return facts;
}

Result<LoadedCacheFile> ReadCacheFile(const std::string& path) {
  KVG_ASSIGN(const std::shared_ptr<const MappedFile> file, MappedFile::Open(path));
  const std::string_view bytes(reinterpret_cast<const char*>(file->bytes().data()),
                               file->bytes().size());
  const double start = NowSeconds();
  LoadedCacheFile loaded;
  KVG_ASSIGN(loaded.saved, UnpackSaved(bytes, path));
  loaded.facts = {.path = path,
                  .tokens = std::ssize(loaded.saved.ids) - 1,
                  .cache_bytes = std::ssize(loaded.saved.bytes),
                  .file_bytes = std::ssize(bytes),
                  .seconds = NowSeconds() - start};
  return loaded;
}

}  // namespace kvgauge
