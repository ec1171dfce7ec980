// SPDX-License-Identifier: Apache-2.0
// A prefill that goes chunk by chunk: behind each chunk of the context the model reads the tokens
// of a stage, whose entries take the places of the chunk's last ones or are averaged into those
// that stayed before (methods/condensing_thin.h).
//
// The cache counts the prompt's tokens alone. Without a chunk rows have the bits of an ordinary
// prefill. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "methods/condensing_thin.h"
#include "runner/model.h"

namespace kvgauge {

// Where chunks of a prompt end, ascending; the question follows the last of them. Each chunk has
// more tokens than stay of it, so a short one is part of its neighbour. `context` and `passages`
// are those of ThinPrefill.
std::vector<int64_t> ChunkEnds(const CondensingThin& stage, int64_t prompt_tokens, int64_t context,
                               std::span<const int64_t> passages);

class CondensedPrefill {
 public:
  // As ThinPrefill; `owner` names the stage in messages. All but the name and passages outlive it.
  CondensedPrefill(Model& model, std::string owner, const CondensingThin& stage,
                   const Prompt& prompt, int64_t context, std::span<const int64_t> passages,
                   KvCache& cache);

  bool done() const { return done_; }
  // The next pass over the weights, and what stays of a chunk behind its last one. Logits of the
  // last row when it is done, [1, vocab]; otherwise empty.
  Result<Tensor> Next();

  // Bytes beside the cache of the prompt, for the plan of a run.
  static int64_t PlannedBytes(const CondensingThin& stage, const ModelShape& shape);

 private:
  bool condensing() const { return chunk_ < ends_.size(); }
  void Begin();
  void BeginChunk();
  Status Condense();

  Model& model_;
  const std::string owner_;
  const CondensingThin& stage_;
  const Prompt& prompt_;
  KvCache& cache_;
  const std::vector<int64_t> ends_;
  size_t chunk_ = 0;       // that is being read; behind the last: the question
  int64_t chunk_end_ = 0;  // without the stage's tokens
  std::vector<float> embeddings_;
  std::unique_ptr<RowAdapters> adapters_;
  Prompt read_;  // the prompt as far as it is read, and the stage's tokens behind it
  bool begun_ = false, done_ = false;
};

}  // namespace kvgauge
