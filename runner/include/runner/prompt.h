// SPDX-License-Identifier: Apache-2.0
// A prompt: positions that are token ids or ready embeddings.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/tensor.h"
#include "methods/visual_span.h"
#include "runner/rope.h"

namespace kvgauge {

struct ModelConfig;

struct PromptPosition {
  int32_t token_id = -1;       // -1: the position is an embedding
  int32_t embedding_row = -1;  // row of Prompt::embeddings, all tables together
  Modality modality = Modality::kText;
  RopePosition rope_position = {};
};

// Ready rows of a prompt, as those of one picture; owned by the caller.
struct RowTable {
  Tensor rows;  // [n, hidden] f32, on the host or the device of the model
  // Rows that are added to the hidden states behind text layer i, at the places of the embeddings;
  // as there.
  std::vector<Tensor> deepstack = {};
};

struct Prompt {
  std::vector<PromptPosition> positions;
  std::vector<RowTable> embeddings = {};  // one behind the other
  std::vector<VisualSpan> spans = {};     // ascending
  // Where the next token stands: behind the largest one so far, on all three axes.
  int32_t next_rope_position = 0;

  int64_t size() const { return static_cast<int64_t>(positions.size()); }

  // Text: position i of the sequence has rope position first_position + i.
  static Prompt FromTokens(std::span<const int32_t> ids, int64_t first_position = 0);

  void AppendText(int32_t id);
  // Tokens with pictures among them: the positions of `spans`, counted from the first of `ids`, are
  // rows of the embeddings from embedding_row on. With `three_axes` such a span turns by its times,
  // rows and columns, else every position by its place in the sequence.
  void Append(std::span<const int32_t> ids, std::span<const VisualSpan> spans, bool three_axes);
};

// How many rows past its own each of [begin, end) sees: those of its picture, where the model's
// pictures see all of themselves (ModelConfig::mutual_pictures). Empty: no row sees ahead. What
// lies past `end` is not counted.
std::vector<int32_t> RowsAhead(const ModelConfig& config, const Prompt& prompt, int64_t begin,
                               int64_t end);
// Where a pass that begins at `begin` ends: after at most `most` rows, but a picture that sees all
// of itself is in one pass, however long it is. What goes through layers several times
// (ModelConfig::prompt_passes) does so as a whole, or row by row where that is shorter.
int64_t PassEnd(const ModelConfig& config, const Prompt& prompt, int64_t begin, int64_t most);

}  // namespace kvgauge
