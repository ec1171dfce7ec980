// SPDX-License-Identifier: Apache-2.0
// One sequence from prompt to text: prefill in chunks, then decode until a stop.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runner/compressor.h"
#include "runner/model.h"
#include "runner/sampler.h"

namespace kvgauge {

struct GenerateOptions {
  int64_t max_new_tokens = 128;
  std::vector<int32_t> stop_ids;  // generation ends at any of them; the stop is not part of ids
  SamplingOptions sampling;
  int64_t valid_vocab = 0;
  int64_t chunk_rows = Model::kChunkRows;
};

struct GenerateResult {
  std::vector<int32_t> ids;
  bool stopped = false;  // by a stop id or the callback, not by the limit
  double prefill_s = 0;
  double decode_s = 0;  // of all steps after the first token
  int64_t decode_steps = 0;
  int64_t cache_payload_bytes = 0;
  int64_t cache_resident_bytes = 0;
};

// Appends prompt rows [cache.tokens(), prompt.size()) in chunks. `want_all` calls `on_logits` with
// the logits of every row in order, otherwise only with the last row's. The tokens of a first block
// but its last have none (ModelConfig::blocks).
using LogitsCallback = std::function<Status(const Tensor& rows)>;
Status Prefill(Model& model, const Prompt& prompt, KvCache& cache, int64_t chunk_rows,
               bool want_all, const LogitsCallback& on_logits);

// Goes on with a cache that holds the first tokens of the sequence, all but the last at most; the
// answer is what comes behind it. `compressor`: of a method that acts in decode steps; then a token
// is left, and all that follow are such steps. Null: none.
Result<GenerateResult> GenerateFrom(Model& model, const Prompt& sequence, KvCache& cache,
                                    const GenerateOptions& options,
                                    const std::function<bool(int32_t)>& on_token,
                                    Compressor* compressor = nullptr);

// The same from an empty cache. `on_token` sees every new id at once and returns whether to go on;
// null goes on to the limit.
Result<GenerateResult> Generate(Model& model, const Prompt& prompt, const GenerateOptions& options,
                                const std::function<bool(int32_t)>& on_token);

}  // namespace kvgauge
