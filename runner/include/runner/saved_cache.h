// SPDX-License-Identifier: Apache-2.0
// A sequence's cache as a file: another process reads it and goes on, bit for bit.
//
// The cache's bytes (KvCache::Serialize) are cut into blocks; each becomes a page of a size of its
// own, coded by entropy (core/entropy.h), with a checksum. docs/formats/cache.md has the layout.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "methods/method.h"
#include "runner/kv_cache.h"
#include "runner/model.h"

namespace kvgauge {

struct SavedCache {
  std::string model;   // Model::fingerprint
  std::string method;  // Method::ToJson as text; empty: none
  std::string budget;
  int64_t planned_length = 0;  // the cache's
  std::vector<int32_t> ids;    // of the sequence; the last one is yet to be read
  std::string bytes;           // KvCache::Serialize
};

// Why what a method does while decoding is not all in the cache, if so. Null: no method.
Status CheckSavable(const Method* method, const KvCache& cache);
Result<SavedCache> SaveCache(const Model& model, const Method* method, const std::string& budget,
                             const std::vector<int32_t>& ids, const KvCache& cache);
// A cache of this model that holds what was saved, for a sequence of up to `length` tokens; bytes
// may come from anywhere. `origin` begins every message.
Result<KvCache> LoadCache(const SavedCache& saved, Model& model, int64_t length,
                          const std::string& origin);

std::string PackSaved(const SavedCache& saved);
Result<SavedCache> UnpackSaved(std::string_view file, const std::string& origin);

}  // namespace kvgauge
