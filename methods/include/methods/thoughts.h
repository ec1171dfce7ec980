// SPDX-License-Identifier: Apache-2.0
// Thoughts: runs of tokens of an answer that are of one kind, and the parts of a prompt.
#pragma once

#include <cstdint>
#include <string_view>

#include "methods/stages.h"

namespace kvgauge {

// By importance, which is the whole part of an entry's score.
enum class ThoughtKind : uint8_t { kTransition, kExecution, kReasoning, kPrompt };

// The rest of the score is the position at which the entry's thought begins, times this: both are
// exact below 2^22 tokens.
inline constexpr float kThoughtStart = 1.0f / (1 << 22);

// A reducer that understands the scores of one scorer alone, and keeps the same entries in all
// heads of a layer.
class LayerReducer : public Reducer {
 public:
  virtual std::string_view reads_scores_of() const = 0;  // its id
};

}  // namespace kvgauge
