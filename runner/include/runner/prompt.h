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

struct PromptPosition {
  int32_t token_id = -1;       // -1: the position is an embedding
  int32_t embedding_row = -1;  // row of Prompt::embeddings
  Modality modality = Modality::kText;
  RopePosition rope_position = {};
};

struct Prompt {
  std::vector<PromptPosition> positions;
  Tensor embeddings;  // [rows, hidden] f32 on the host, or empty; owned by the caller
  // Rows that are added to the hidden states behind text layer i, at the places of the embeddings;
  // shapes and owner as there.
  std::vector<Tensor> deepstack = {};
  std::vector<VisualSpan> spans = {};  // ascending
  // Where the next token stands: behind the largest one so far, on all three axes.
  int32_t next_rope_position = 0;

  int64_t size() const { return static_cast<int64_t>(positions.size()); }

  // Text: position i of the sequence has rope position first_position + i.
  static Prompt FromTokens(std::span<const int32_t> ids, int64_t first_position = 0);

  void AppendText(int32_t id);
  // Tokens with pictures among them: the positions of `spans`, counted from the first of `ids`, are
  // rows of `embeddings` from embedding_row on. With `three_axes` such a span turns by its times,
  // rows and columns, else every position by its place in the sequence.
  void Append(std::span<const int32_t> ids, std::span<const VisualSpan> spans, bool three_axes);
};

}  // namespace kvgauge
