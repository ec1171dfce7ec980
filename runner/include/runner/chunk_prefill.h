// SPDX-License-Identifier: Apache-2.0
// A prefill in chunks, each of which is compressed before the next one is read: the rows of a chunk
// attend over what the chunks before left and over themselves. So a cache holds what the budget
// allows and one chunk, however long the prompt is.
//
// It belongs to one contender. Chunks are as even as can be, none longer than `chunk_tokens`, so
// that the last of them is long enough to look back from. A budget is one of the whole prompt, and
// nothing leaves before more than that was read.
#pragma once

#include <cstdint>
#include <memory>

#include "core/result.h"
#include "methods/method.h"
#include "runner/capture.h"
#include "runner/compressor.h"
#include "runner/kv_cache.h"
#include "runner/model.h"

namespace kvgauge {

// Whether a method reduces prompts at all; others read them whole, whatever the chunks.
bool ReducesPrompts(const Method& method);
// An error if it does and cannot do so chunk by chunk: it names the stage, what it needs and what
// would be right.
Status CheckChunks(const Method& method, int64_t chunk_tokens);
// The most rows that a chunk of a prompt of so many tokens has.
int64_t LongestChunk(int64_t prompt_tokens, int64_t chunk_tokens);

class ChunkPrefill {
 public:
  // Reads a prompt into an empty cache, which `compressor` then holds compressed. All outlive it.
  // Preconditions: ReducesPrompts, CheckChunks, and CheckMethod for the whole prompt.
  ChunkPrefill(Model& model, const Method& method, const Prompt& prompt, uint64_t seed,
               int64_t chunk_tokens, Compressor& compressor, KvCache& cache);

  // The next pass over the weights and, with the last one of a chunk, its compression. The logits
  // of the prompt's last row at the end, empty before.
  Result<Tensor> Next();
  bool done() const { return cache_.tokens() == prompt_.size(); }
  // The most that captures have held.
  int64_t capture_bytes() const { return capture_bytes_; }

 private:
  void BeginChunk();
  Status EndChunk();
  // Whether what is put behind a chunk can be beside pictures, the last of which ends at `shown`.
  Status CheckEndOfPrompt(int64_t shown) const;

  Model& model_;
  const Method& method_;
  const Prompt& prompt_;
  const uint64_t seed_;
  const int64_t chunks_;    // how many there are
  const int64_t behind_;    // rows of the prompt's end that look back at each of them; 0: its own
  const bool of_pictures_;  // and that look at pictures alone
  Compressor& compressor_;
  KvCache& cache_;
  std::unique_ptr<PrefillCapture> capture_;  // of the chunk that is being read
  int64_t chunk_ = 0;                        // which that is
  int64_t chunk_end_ = 0;
  int64_t capture_bytes_ = 0;
};

}  // namespace kvgauge
