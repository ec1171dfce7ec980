// SPDX-License-Identifier: Apache-2.0
// Stages that put a prompt's cache together from caches of texts that were read before.
//
// A text is a prompt from its beginning on, or a chunk that may stand anywhere. A chunk was read by
// itself, so what it holds is not what it would hold behind the texts that now stand before it; a
// stage says which of its tokens are computed again. The question behind the chunks always is. A
// method with such a stage shares its prefill only with methods that have the same one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "methods/stages.h"

namespace kvgauge {

enum class ReusedTexts {
  kPrefixes,  // of earlier prompts, as they are: nothing changes but the time
  kChunks,    // wherever they stand, with keys turned to their new places
  // Chunks that all follow the prompt's beginning, beside each other: they stand at the same
  // places, and what follows them behind the longest.
  kSideBySide,
};

// How what follows texts that stand beside each other attends to them: as a softmax of its own,
// whose products are divided by `temperature`. What it gives counts by `scale` * `temperature`
// times the log of its sum, against the log of the sum over all other entries.
struct SideBySide {
  int64_t first = 0, end = 0;  // the entries of the texts
  float temperature = 1, scale = 1;
};

// Chunks behind each other in a new prompt. Rows of tensors are the prompt's tokens, f32.
struct JoinedChunks {
  Ops* ops = nullptr;
  std::span<const int64_t> begins;  // of the chunks that were read by themselves, ascending
  int64_t end = 0;                  // of the last one: the question begins
  // Values of the checked layer, [tokens, kv_heads * value_dim]; empty where none is checked. Rows
  // from begins[0] on and before `end` are defined.
  Tensor fresh_values;   // computed behind all that stands before
  Tensor joined_values;  // as they were stored
};

class Reuse : public Stage {
 public:
  virtual ReusedTexts texts() const { return ReusedTexts::kChunks; }
  // The most tokens of a chunk, where nobody says how a prompt divides.
  virtual int64_t chunk_tokens() const { return 0; }
  // Called for kSideBySide alone; the entries are not yet known.
  virtual SideBySide attention() const { return {}; }
  // How many of the prompt's first tokens are put before a chunk when it is read by itself; their
  // own entries are not used. With kSideBySide it is all that stands before the first chunk.
  virtual int64_t lead_tokens() const { return 0; }
  // All tokens pass the layers below; then Choose sees this layer. 0: it sees places alone.
  virtual int64_t CheckedLayer(const ModelShape&) const { return 0; }
  // Which tokens of [begins[0], end) are computed again from the checked layer on: ascending.
  virtual std::vector<int32_t> Choose(const JoinedChunks&) const { return {}; }
};

}  // namespace kvgauge
