// SPDX-License-Identifier: Apache-2.0
#include "runner/prompt.h"

#include <algorithm>

#include "core/check.h"
#include "runner/config.h"

namespace kvgauge {
namespace {

// Behind all times, rows and columns of a piece, from its own beginning.
int32_t EndOf(const VisualSpan& span) {
  const auto last = static_cast<int32_t>((span.grid[0] - 1) * span.time_step);
  return 1 + std::max({last, span.grid[1] - 1, span.grid[2] - 1});
}

int32_t Largest(const RopePosition& place) { return std::max({place[0], place[1], place[2]}); }

}  // namespace

Prompt Prompt::FromTokens(std::span<const int32_t> ids, int64_t first_position) {
  Prompt prompt;
  prompt.positions.reserve(ids.size());
  for (const int32_t id : ids) {
    const auto position = static_cast<int32_t>(first_position + prompt.size());
    prompt.positions.push_back({.token_id = id, .rope_position = {position, position, position}});
  }
  prompt.next_rope_position = static_cast<int32_t>(first_position + prompt.size());
  return prompt;
}

void Prompt::AppendText(int32_t id) {
  const int32_t next = next_rope_position++;
  positions.push_back({.token_id = id, .rope_position = {next, next, next}});
}

void Prompt::Append(std::span<const int32_t> ids, std::span<const VisualSpan> added,
                    bool three_axes) {
  const int64_t begin = size();
  int32_t next = next_rope_position, most = next;
  size_t span = 0;
  const auto count = static_cast<int64_t>(ids.size());
  for (int64_t i = 0; i < count; ++i) {
    while (span < added.size() && added[span].first + added[span].count <= i) ++span;
    const bool text = span == added.size() || i < added[span].first;
    if (text) {
      positions.push_back(
          {.token_id = ids[static_cast<size_t>(i)], .rope_position = {next, next, next}});
      most = std::max(most, ++next);
      continue;
    }
    VisualSpan placed = added[span];
    KVG_CHECK(placed.first == i && placed.first + placed.count <= count,
              "spans ascend, do not overlap and lie inside their tokens");
    placed.first += begin;
    spans.push_back(placed);
    int32_t end = next;
    for (int64_t k = 0; k < placed.count; ++k) {
      RopePosition at = {next, next, next};
      if (three_axes) {
        const VisualPlace place = PlaceIn(placed, placed.first + k);
        const auto time = static_cast<int32_t>(place.frame * placed.time_step);
        at = {next + time, next + place.row, next + place.column};
      } else {
        at.fill(next + static_cast<int32_t>(k));
      }
      end = std::max(end, Largest(at) + 1);
      positions.push_back({.embedding_row = static_cast<int32_t>(placed.embedding_row + k),
                           .modality = placed.modality,
                           .rope_position = at});
    }
    // What was taken out of a picture moves no text.
    if (three_axes && !placed.places.empty()) end = std::max(end, next + EndOf(placed));
    most = std::max(most, end);
    next =
        three_axes && placed.next_by_sides ? next + std::max(placed.grid[1], placed.grid[2]) : end;
    i += placed.count - 1;
  }
  next_rope_position = most;
}

std::vector<int32_t> RowsAhead(const ModelConfig& config, const Prompt& prompt, int64_t begin,
                               int64_t end) {
  std::vector<int32_t> ahead;
  if (!config.mutual_pictures) return ahead;
  for (const VisualSpan& span : prompt.spans) {
    const int64_t from = std::max(begin, span.first), to = std::min(end, span.first + span.count);
    if (from >= to) continue;
    ahead.resize(static_cast<size_t>(end - begin), 0);
    for (int64_t i = from; i < to; ++i) {
      ahead[static_cast<size_t>(i - begin)] = static_cast<int32_t>(to - 1 - i);
    }
  }
  return ahead;
}

int64_t PassEnd(const ModelConfig& config, const Prompt& prompt, int64_t begin, int64_t most) {
  if (config.prompt_passes > 1) {
    // As LCKV's code has it: a prompt that is no longer than it has passes goes row by row.
    return prompt.size() - begin > config.prompt_passes ? prompt.size() : begin + 1;
  }
  const int64_t end = std::min(begin + most, prompt.size());
  if (!config.mutual_pictures) return end;
  for (const VisualSpan& span : prompt.spans) {
    const int64_t last = span.first + span.count;
    if (span.first >= end || last <= end) continue;
    return span.first > begin ? span.first : last;
  }
  return end;
}

std::shared_ptr<const RopePlaces> RopePlaces::Of(const Prompt& prompt) {
  std::vector<RopePosition> places;
  places.reserve(prompt.positions.size());
  bool plain = true;
  for (const PromptPosition& position : prompt.positions) {
    const auto own = static_cast<int32_t>(places.size());
    plain = plain && position.rope_position == RopePosition{own, own, own};
    places.push_back(position.rope_position);
  }
  if (plain) return nullptr;
  return std::make_shared<const RopePlaces>(std::move(places), prompt.next_rope_position);
}

}  // namespace kvgauge
