// SPDX-License-Identifier: Apache-2.0
#include "runner/prompt.h"

namespace kvgauge {

Prompt Prompt::FromTokens(std::span<const int32_t> ids, int64_t first_position) {
  Prompt prompt;
  prompt.positions.reserve(ids.size());
  for (const int32_t id : ids) {
    const auto position = static_cast<int32_t>(first_position + prompt.size());
    prompt.positions.push_back({.token_id = id, .rope_position = {position, position, position}});
  }
  return prompt;
}

}  // namespace kvgauge
