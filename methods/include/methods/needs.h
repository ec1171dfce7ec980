// SPDX-License-Identifier: Apache-2.0
// What a stage needs captured. The runner captures the union over all methods of a plan and nothing
// else.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "methods/gate.h"

namespace kvgauge {

// Attention inside chunks of the prompt: every row of a chunk attends over all entries of it, those
// behind it included, with scores that are the bare products of query and key.
struct ChunkAttention {
  int64_t rows = 0;             // of a chunk; the last one holds what is left
  int64_t first = 0, last = 0;  // tokens at either end of the prompt that are in no chunk
  bool padded = false;          // the last chunk is filled up with queries and keys of zeros

  auto operator<=>(const ChunkAttention&) const = default;
};

struct Needs {
  int64_t window = 0;  // queries of the last `window` prompt rows, and their attention
  // The same of all prompt rows behind the last picture or video, of the last so many at most.
  int64_t question_rows = 0;
  // Layers whose attention of the last prompt row the views of all layers show; ascending.
  std::vector<int64_t> last_row_of = {};
  bool column_sums = false;     // sum over all prompt rows of each entry's attention
  bool column_squares = false;  // the same for its square
  // Sum over the rows of an entry's chunk of the attention it gets there; ascending.
  std::vector<ChunkAttention> chunk_sums = {};
  // Mean and covariance of the prompt's queries before rotation, without the first so many tokens:
  // one pair for each number, ascending.
  std::vector<int64_t> query_moments = {};
  // Scores that gates give each entry where it is made, from the input of its layer's attention,
  // normed where the model norms it; in prefill and in decode. Ascending.
  std::vector<GateNeed> gates = {};
  // Gates of the rows that enter a layer (Gate::rows_of), in decode alone. Ascending.
  std::vector<GateNeed> step_gates = {};
  bool inputs = false;          // of each layer's attention, normed likewise, for all prompt rows
  int64_t first_rows = 0;       // queries of the first so many prompt rows
  bool surprise = false;        // how little each token of the prompt was expected
  bool raw_keys = false;        // keys before rotation
  bool output_weights = false;  // the output projection, by query head
  // At every decode step the queries of the last so many rows, those of the prompt among them, and
  // their attention to what is held.
  int64_t step_window = 0;
  bool step_attention = false;  // the newest query's attention row at every decode step
  bool step_queries = false;    // its queries
  // For a reader, in a decode step: the queries that a layer would have if its attention had the
  // input of the layer below.
  bool guessed_queries = false;
  // The stage weighs products of queries and keys that it makes itself, by what the view has of
  // them. Where scores are more than products (ModelShape::distances) it is refused.
  bool products = false;
  bool token_classes = false;  // the class of each entry's token
  bool encoder = false;        // the model's tokenizer, for texts of the stage's own
  bool modality = false;       // which picture or video each entry shows, and which piece of it

  // The most rows that a window may have.
  int64_t most_window() const { return window > question_rows ? window : question_rows; }

  Needs& operator|=(const Needs& other);
  bool operator==(const Needs&) const = default;
};

}  // namespace kvgauge
