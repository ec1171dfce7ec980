// SPDX-License-Identifier: Apache-2.0
// Prompts with pictures among their texts, rendered: a placeholder for every row of a picture.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/result.h"
#include "datasets/sample.h"
#include "runner/chat_template.h"
#include "runner/config.h"
#include "runner/tokenizer.h"
#include "runner/visual_prompt.h"

namespace kvgauge {

struct PicturePrompt {
  std::string text;
  size_t context_end = 0;  // bytes; the pictures of the context stand before it
  // [begin, end) of what is the sample's own text; ascending. All else is the template's, or
  // placeholders.
  std::vector<std::pair<size_t, size_t>> plain;
  // Bytes [begin, end) of the sample's context stand at `at`.
  struct Piece {
    size_t begin = 0, end = 0, at = 0;
  };
  std::vector<Piece> context;
};

// One question of the sample behind its context, with `shown`: the pictures of both, in order. A
// chat template gets texts and pictures as parts of one message; where it gives them back in
// another order (pictures first), they are marks within one text. Text of the sample that looks
// like a picture's mark is an error: it would become one.
Result<PicturePrompt> RenderPicturePrompt(const ChatTemplate& chat, const ModelConfig& config,
                                          const Tokenizer& tokenizer, const Sample& sample,
                                          int64_t question, std::span<const ShownVisual> shown);

}  // namespace kvgauge
