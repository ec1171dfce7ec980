// SPDX-License-Identifier: Apache-2.0
// Thin stages for models that were trained to condense texts: behind each chunk of the context the
// model reads a few tokens of the stage's own, whose entries stay in the place of the chunk's.
//
// Later chunks and the question see the entries that stayed, the memory, and their own chunk. The
// tokens of the stage turn by the places that follow the chunk; they take up none, so what follows
// stands where it stands in a whole prefill. Nothing else is captured of such a prefill.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/check.h"
#include "methods/row_adapters.h"
#include "methods/thin.h"

namespace kvgauge {

class CondensingThin : public Thin {
 public:
  std::vector<int64_t> Layers(const ModelShape&) const final { return {}; }
  bool reads_again() const final { return false; }
  Tensor Choose(LayerView&) const final {
    KVG_CHECK(false, "what is condensed is not chosen");
    return {};
  }

  // The most tokens of a chunk, where nobody says how the context divides.
  virtual int64_t chunk_tokens() const = 0;
  // How many tokens stand behind a chunk, and how many of the prompt's first stay as they are.
  virtual int64_t slots() const = 0;
  virtual int64_t sinks() const = 0;
  // Whether the memory is the mean over chunks of what they became; otherwise each chunk adds to
  // it.
  virtual bool averages() const = 0;
  // What the model reads in the place of a token's row of its table: [slots, hidden_size].
  virtual std::vector<float> Embeddings(const ModelShape& shape) const = 0;
  // What is added to the projections of these tokens alone. Ops outlives it.
  virtual std::unique_ptr<RowAdapters> Load(const ModelShape& shape, Ops& ops) const = 0;
  // Bytes of both, which count as bytes of the method. Precondition: Check.
  virtual int64_t WeightBytes(const ModelShape& shape) const = 0;
  // Bytes that it takes beside them while a prompt is read, for the plan of a run.
  virtual int64_t WorkingBytes(const ModelShape& shape) const = 0;
};

}  // namespace kvgauge
