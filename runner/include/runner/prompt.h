// SPDX-License-Identifier: Apache-2.0
// A prompt: positions that are token ids or ready embeddings.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/tensor.h"

namespace kvgauge {

enum class Modality : uint8_t { kText, kImage, kVideo, kAudio };

struct PromptPosition {
  int32_t token_id = -1;       // -1: the position is an embedding
  int32_t embedding_row = -1;  // row of Prompt::embeddings
  Modality modality = Modality::kText;
  // The positions of the rotary embedding: time, height, width. They are equal for text.
  std::array<int32_t, 3> rope_position = {};
};

struct Prompt {
  std::vector<PromptPosition> positions;
  Tensor embeddings;  // [rows, hidden] f32 on the host, or empty; owned by the caller

  int64_t size() const { return static_cast<int64_t>(positions.size()); }

  // Text: position i of the sequence has rope position first_position + i.
  static Prompt FromTokens(std::span<const int32_t> ids, int64_t first_position = 0);
};

}  // namespace kvgauge
