// SPDX-License-Identifier: Apache-2.0
#include "methods/video_frames.h"

#include <algorithm>
#include <optional>
#include <tuple>

namespace kvgauge {

VideoFrames FramesOf(LayerView& view) {
  VideoFrames frames;
  for (const VisualSpan& span : view.VisualSpans()) {
    if (span.piece == VisualSpan::Piece::kNewline) continue;
    const bool whole =
        span.piece == VisualSpan::Piece::kWhole || span.piece == VisualSpan::Piece::kFrames;
    const bool alike =
        frames.count == 0 || (frames.rows == span.grid[1] && frames.columns == span.grid[2]);
    // A stage before the text model may have taken rows out.
    if (!whole || !alike || !span.places.empty()) return {};
    frames.rows = span.grid[1];
    frames.columns = span.grid[2];
    frames.count += span.grid[0];
    const int64_t line = span.grid[2] + (span.newlines ? 1 : 0);
    for (int64_t row = 0; row < int64_t{span.grid[0]} * span.grid[1]; ++row) {
      for (int64_t column = 0; column < span.grid[2]; ++column) {
        frames.entries.push_back(static_cast<int32_t>(span.first + row * line + column));
      }
    }
  }
  return frames;
}

std::vector<int64_t> FrameStarts(LayerView& view) {
  std::vector<int64_t> starts;
  std::optional<std::tuple<Modality, int32_t, int32_t>> shown;  // which time of which of them
  for (const VisualSpan& span : view.VisualSpans()) {
    if (span.piece == VisualSpan::Piece::kNewline) continue;
    const int64_t end = std::min(span.first + span.count, view.tokens());
    for (int64_t at = span.first; at < end; ++at) {
      const VisualPlace place = PlaceIn(span, at);
      const std::tuple own = {span.modality, span.index, span.frame + place.frame};
      if (place.nowhere || shown == own) continue;
      shown = own;
      starts.push_back(at);
    }
  }
  return starts;
}

}  // namespace kvgauge
