// SPDX-License-Identifier: Apache-2.0
// Prompts whose pictures lost rows before they are read.
#include <algorithm>

#include "core/check.h"
#include "runner/visual_prompt.h"

namespace kvgauge {
namespace {

// A visual among the rows of all visuals, before and after.
struct Shown {
  const SeenVisual* visual = nullptr;
  int64_t before = 0, after = 0;  // its first row
};

std::vector<Shown> RowsOf(std::span<const SeenVisual> visuals) {
  std::vector<Shown> shown;
  int64_t before = 0, after = 0;
  for (const SeenVisual& visual : visuals) {
    shown.push_back({&visual, before, after});
    before += visual.rows;
    if (visual.gone) continue;
    after += visual.places.empty() ? visual.rows : std::ssize(visual.places);
  }
  return shown;
}

// What is left of one piece; count 0: nothing.
VisualSpan Left(const VisualSpan& span, const std::vector<Shown>& shown) {
  const auto behind =
      std::upper_bound(shown.begin(), shown.end(), span.embedding_row,
                       [](int64_t row, const Shown& one) { return row < one.before; });
  KVG_CHECK(behind != shown.begin(), "a span of no visual");
  const Shown& own = *(behind - 1);
  VisualSpan left = span;
  if (own.visual->gone) {
    left.count = 0;
    return left;
  }
  const int64_t first = span.embedding_row - own.before;  // of the visual's layout
  if (own.visual->places.empty()) {
    left.embedding_row = own.after + first;
    return left;
  }
  left.count = 0;
  left.places.clear();
  int32_t last = 0;  // a row without a place belongs where the one before it does
  const std::vector<int32_t>& places = own.visual->places;
  for (int64_t i = 0; i < std::ssize(places); ++i) {
    const int32_t place = places[static_cast<size_t>(i)];
    if (place >= 0) last = place;
    if (last < first || last >= first + span.count) continue;
    if (left.count == 0) left.embedding_row = own.after + i;
    KVG_CHECK(left.embedding_row + left.count == own.after + i, "rows of a piece are apart");
    if (place < 0) {
      left.places.push_back(place);
    } else if (span.places.empty()) {
      left.places.push_back(place - static_cast<int32_t>(first));
    } else {
      left.places.push_back(span.places[static_cast<size_t>(place - first)]);
    }
    ++left.count;
  }
  return left;
}

}  // namespace

std::vector<int64_t> ShowLess(std::span<const SeenVisual> visuals, std::vector<int32_t>& ids,
                              std::vector<VisualSpan>& spans) {
  const std::vector<Shown> shown = RowsOf(visuals);
  std::vector<int32_t> kept_ids;
  std::vector<VisualSpan> kept_spans;
  std::vector<int64_t> now;
  now.reserve(ids.size() + 1);
  size_t next = 0;
  for (int64_t at = 0; at < std::ssize(ids);) {
    if (next == spans.size() || at < spans[next].first) {
      now.push_back(std::ssize(kept_ids));
      kept_ids.push_back(ids[static_cast<size_t>(at++)]);
      continue;
    }
    const VisualSpan& span = spans[next++];
    VisualSpan left = Left(span, shown);
    left.first = std::ssize(kept_ids);
    for (int64_t i = 0; i < span.count; ++i) now.push_back(left.first + std::min(i, left.count));
    kept_ids.insert(kept_ids.end(), static_cast<size_t>(left.count),
                    ids[static_cast<size_t>(span.first)]);
    if (left.count > 0) kept_spans.push_back(std::move(left));
    at = span.first + span.count;
  }
  now.push_back(std::ssize(kept_ids));
  ids = std::move(kept_ids);
  spans = std::move(kept_spans);
  return now;
}

}  // namespace kvgauge
