// SPDX-License-Identifier: Apache-2.0
// A sequence's cache as a file: another process reads it and goes on, bit for bit.
//
// The cache's bytes (KvCache::Serialize) are cut into blocks; each becomes a page of a size of its
// own, coded by entropy (core/entropy.h), with a checksum. docs/formats/cache.md has the layout.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "methods/method.h"
#include "methods/visual_span.h"
#include "runner/compressor.h"
#include "runner/kv_cache.h"
#include "runner/model.h"
#include "runner/prompt.h"

namespace kvgauge {

struct SavedCache {
  std::string model;   // Model::fingerprint
  std::string method;  // Method::ToJson as text; empty: none
  std::string budget;
  std::string loaded_for;      // id of a method that loading needs again; empty: none
  int64_t planned_length = 0;  // the cache's
  std::vector<int32_t> ids;    // of the sequence; the last one is yet to be read
  // The prompt's, without what embeds and turns their rows.
  std::vector<VisualSpan> spans;
  std::string bytes;  // KvCache::Serialize
  std::string state;  // Compressor::SaveState, of a method that acts in decode steps
};

// An error if what the method's stages know while decoding cannot be saved.
Status CheckSavable(const Method& method);
// `spans`: of the prompt that the model read. `compressor`: of the sequence; null where the method
// does not act in decode steps.
Result<SavedCache> SaveCache(const Model& model, const Method* method, const std::string& budget,
                             const std::vector<int32_t>& ids, const std::vector<VisualSpan>& spans,
                             const KvCache& cache, Compressor* compressor);
// Whether a model that was loaded for this method (null: none) is that of the cache. A method that
// made the model over, kept the model's own latents or acts in decode steps is needed again, the
// same in all parameters. `origin` begins every message.
Status CheckLoadedFor(const SavedCache& saved, const Method* method, const std::string& origin);
// A cache of this model that holds what was saved, for a sequence of up to `length` tokens; bytes
// may come from anywhere.
Result<KvCache> LoadCache(const SavedCache& saved, Model& model, const Method* method,
                          int64_t length, const std::string& origin);
// What the method knew then, for the compressor of such a sequence; null where the method does not
// act in decode steps. The sequence, all but the newest token of which the cache has seen, and the
// others outlive it.
Result<std::unique_ptr<Compressor>> LoadCompressor(const SavedCache& saved, const Model& model,
                                                   const Method* method, const Prompt& sequence,
                                                   KvCache& cache, const std::string& origin);
// The tokens of a loaded cache and behind it, where it says that they stand. Positions of pictures
// have no rows to embed: what these gave is in the cache.
Prompt SequenceOf(const SavedCache& saved, const KvCache& cache);

std::string PackSaved(const SavedCache& saved);
Result<SavedCache> UnpackSaved(std::string_view file, const std::string& origin);

}  // namespace kvgauge
