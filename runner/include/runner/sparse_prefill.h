// SPDX-License-Identifier: Apache-2.0
// A prefill that goes layer by layer, as a stage chooses what its rows attend to (methods/attend.h)
// when it has the queries and the keys of the whole prompt. Each layer has two passes over the
// rows: up to the queries, and from attention on.
//
// Rows have the bits of an ordinary prefill as long as all of them see everything. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/result.h"
#include "methods/method.h"
#include "runner/capture.h"
#include "runner/model.h"

namespace kvgauge {

class PromptReach;

class SparsePrefill {
 public:
  // A prefill of the whole prompt into an empty cache that holds keys, not latents. `capture` is of
  // that cache. All outlive the prefill.
  SparsePrefill(Model& model, const StageChoice& attend, const Prompt& prompt, KvCache& cache,
                PrefillCapture& capture, uint64_t seed);
  ~SparsePrefill();

  bool done() const { return done_; }
  // Runs up to Model::kChunkRows rows through one pass of a layer. Logits of the last row when it
  // is done, [1, vocab], valid until the model runs again; otherwise empty. After an error the
  // prefill is not to be used. Precondition: not done.
  Result<Tensor> Next();

  // Bytes beside the cache and the captures, for the plan of a run.
  static int64_t PlannedBytes(const ModelConfig& config, int64_t rows);

 private:
  int64_t rows() const { return std::ssize(places_); }
  Tensor Queries() const;
  Status Choose();
  Result<Tensor> Project(int64_t begin, int64_t end);
  Result<Tensor> Attend(int64_t begin, int64_t end);
  void CaptureLayer();

  Model& model_;
  const StageChoice& choice_;
  std::unique_ptr<Stage> stage_;
  const Prompt& prompt_;
  KvCache& cache_;
  PrefillCapture& capture_;
  const ModelShape shape_;
  const uint64_t seed_;
  std::vector<int32_t> places_;         // of all rows
  Buffer hidden_;                       // [rows, hidden_size]: what the next pass reads
  Buffer queries_;                      // [rows, query_heads, key_dim], of the layer
  Buffer attended_;                     // [a chunk's rows, query_heads, value_dim]
  Buffer chunk_sums_;                   // [query_heads, a chunk's rows]: log-sum-exps
  Buffer log_sums_;                     // [query_heads, rows]
  std::shared_ptr<PromptReach> reach_;  // of the layer, once chosen; null where all is seen
  int64_t layer_ = 0;
  bool chosen_ = false;   // the layer's second pass
  int64_t next_row_ = 0;  // of the pass
  bool done_ = false;
};

}  // namespace kvgauge
