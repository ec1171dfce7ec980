// SPDX-License-Identifier: Apache-2.0
#include "methods/visual_span.h"

#include "core/check.h"

namespace kvgauge {

std::string_view NameOf(Modality modality) {
  switch (modality) {
    case Modality::kText:
      return "text";
    case Modality::kImage:
      return "image";
    case Modality::kVideo:
      return "video";
    case Modality::kAudio:
      return "audio";
  }
  return "";
}

VisualPlace PlaceIn(const VisualSpan& span, int64_t position) {
  int64_t at = position - span.first;
  KVG_CHECK(at >= 0 && at < span.count, "a position outside of the span");
  VisualPlace place;
  if (!span.places.empty()) at = span.places[static_cast<size_t>(at)];
  if (at < 0) {
    place.nowhere = true;
    return place;
  }
  if (span.piece == VisualSpan::Piece::kNewline) {
    place.newline = true;
    return place;
  }
  const int64_t line = span.grid[2] + (span.newlines ? 1 : 0);
  const int64_t row = at / line, column = at % line;
  place.frame = static_cast<int32_t>(row / span.grid[1]);
  place.row = static_cast<int32_t>(row % span.grid[1]);
  place.column = static_cast<int32_t>(column);
  place.newline = column == span.grid[2];
  return place;
}

}  // namespace kvgauge
