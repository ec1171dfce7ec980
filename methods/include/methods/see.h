// SPDX-License-Identifier: Apache-2.0
// Stages that reduce what the text model is shown of a picture: before it reads the prompt, so that
// all later stages see fewer rows.
//
// A picture comes tile by tile (a frame of a video is one), or the frames of a video come together.
// Everything here is plain numbers on the host, owned by the caller, computed once for each picture
// and shared by all samples that show it.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "methods/stages.h"

namespace kvgauge {

// What a stage may know of a tower before it runs.
struct EyesShape {
  // Each row that the text model is shown is one row of the tower, or is made of a square of them.
  bool by_row = false;
  // The two that follow are for towers of one row each.
  bool class_token = false;  // a tile has a row that stands for the whole
  bool behind = false;       // there is a block behind the last one that runs
  // The blocks that run whose rows see all of a tile, counted from 0, ascending.
  std::vector<int64_t> whole_blocks = {};
};

// Parts of the tower that a stage looks at; all else is not computed. All but `rows` need
// EyesShape::by_row.
struct SeeNeeds {
  bool attention = false;  // TileView::attention
  int64_t early = -1;   // TileView::early: of that block, one of EyesShape::whole_blocks; -1: none
  bool keys = false;    // TileView::keys
  bool behind = false;  // TileView::behind
  bool rows = false;    // TileView::rows
  // It mixes rows as the text model would be shown them, behind the projector. Needs `rows`.
  bool mixes_shown = false;
  // It joins frames of videos and leaves all pictures whole: Join is asked, Reduce is not.
  bool frames = false;

  bool tower() const { return attention || early >= 0 || keys || behind; }
};

// Queries and keys of one block for a tile, all heads side by side.
struct TileKeys {
  std::span<const float> class_query;  // [width]; empty without a class token
  std::span<const float> keys;         // [patches, width], without the class token's
  std::span<const float> class_key;    // [width]; empty without a class token
};

// Where a row is made of a square of the tower's rows, a patch is that square: its attention and
// its key are the means of theirs, there is no class token to see or to show, and what Reduce mixes
// are rows of the text model's width.
struct TileView {
  int64_t patches = 0;  // rows that the text model would be shown
  int64_t columns = 0;  // of these side by side; they come row by row
  int64_t width = 0;    // of the tower
  int64_t heads = 0;    // of the tower
  uint64_t seed = 0;    // for random choices: equal for equal pictures and tiles
  // How much attention the patches get in the block that makes the features, [heads, patches]: from
  // the class token; without one, from all patches, on average.
  std::span<const float> attention;
  std::span<const float> early;  // the same in the block that SeeNeeds::early names
  TileKeys keys;                 // of the same block
  TileKeys behind;               // of the block that reads the features
  // The rows as the text model would be shown them: [patches, hidden].
  std::span<const float> rows;
  int64_t hidden = 0;
};

// A row that goes on: what the tower made of a patch, or a sum of several.
struct SeenRow {
  static constexpr int32_t kClass = -1;  // the class token's row, in `mix`
  static constexpr int32_t kNowhere = -1;

  // The patch in whose place it stands, which gives it its row and column; kNowhere: it has none.
  int32_t place = kNowhere;
  // (patch or kClass, weight), summed before the projection, or behind it with
  // SeeNeeds::mixes_shown, where there is no kClass. One patch of weight 1 is kept as it is.
  std::vector<std::pair<int32_t, float>> mix;
  // Tiles that make one canvas show it row by row, across its tiles. Behind that come the rows of
  // no place, then those that are apart, tile after tile.
  bool apart = false;

  static SeenRow Kept(int32_t patch) { return {patch, {{patch, 1.0f}}, false}; }
};

// Frames of a video, one behind the other, each with as many rows as the others.
struct FrameView {
  // Each is [rows, hidden], as the text model would be shown it.
  std::vector<std::span<const float>> frames;
};

// Reduces pictures. Methods with equal See stages share prefills; others cannot, as their prompts
// differ. Rows that are shown stand in the prompt one behind the other, and text follows without a
// gap; where positions have three axes a row turns by the place of its patch, and text goes on
// where it would behind the whole picture.
class See : public Stage {
 public:
  virtual SeeNeeds sees() const { return {}; }
  // The rows that are shown of a tile, in the order of the prompt; at least one. A stage without
  // SeeNeeds::tower keeps patches and mixes none. By default all are kept.
  virtual std::vector<SeenRow> Reduce(const TileView& tile) const;
  // With SeeNeeds::frames: for each frame the first of those with which it becomes one, which is
  // its own number where it is that one. The mean of them all is shown in the place of the first.
  virtual std::vector<int32_t> Join(const FrameView& view) const;
};

}  // namespace kvgauge
