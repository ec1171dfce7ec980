// SPDX-License-Identifier: Apache-2.0
// Where a prompt holds pictures and videos, and which piece of one each of its positions shows.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace kvgauge {

enum class Modality : uint8_t { kText, kImage, kVideo, kAudio };
inline constexpr int kModalities = 4;
std::string_view NameOf(Modality modality);  // "text", "image", ...

// Consecutive positions of a prompt that show one piece of a picture or a video, row by row, frame
// by frame.
struct VisualSpan {
  enum class Piece {
    kWhole,    // all of the picture
    kTile,     // the tile in row tile_row and column tile_column
    kCanvas,   // all tiles as one picture
    kFrames,   // grid[0] times of a video from `frame` on
    kNewline,  // one position that stands for the end of a line
  };
  int64_t first = 0, count = 0;  // positions of the sequence
  Modality modality = Modality::kImage;
  Piece piece = Piece::kWhole;
  int32_t index = 0;                        // of the picture, or of the video, in the prompt
  int32_t frame = 0;                        // kFrames: the first, counted as the model does
  std::array<int32_t, 3> grid = {1, 1, 1};  // times, rows, columns
  bool newlines = false;                    // each row of the grid ends in one more position
  int32_t tile_row = -1, tile_column = -1;
  int64_t embedding_row = 0;  // of Prompt::embeddings, for position `first`
  // Models whose positions have three axes: how far apart in time the model holds two times of the
  // grid; and whether text goes on behind the larger side alone, whatever the times.
  double time_step = 1;
  bool next_by_sides = false;
  // Where a stage took rows out, or text stands between the rows of a picture: which place of the
  // piece each position shows, counted row by row with the ends of lines; -1: none of it. Empty:
  // all of the piece, in order.
  std::vector<int32_t> places = {};

  bool operator==(const VisualSpan&) const = default;
};

// A position's place in its piece.
struct VisualPlace {
  int32_t frame = 0, row = 0, column = 0;
  bool newline = false;
  bool nowhere = false;  // a row that stands for no place of the piece; all else is 0
};
// `position`: of the sequence, inside the span.
VisualPlace PlaceIn(const VisualSpan& span, int64_t position);

}  // namespace kvgauge
