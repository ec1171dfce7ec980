// SPDX-License-Identifier: Apache-2.0
// The geometry of tiles that are put together as one picture.
#pragma once

#include "images/preprocess.h"
#include "runner/vision_spec.h"

namespace kvgauge {

// Which rows and columns of a canvas of tiles show the picture, and how many they become.
struct CanvasCut {
  int64_t top = 0, left = 0;            // of the canvas, in feature rows
  int64_t rows = 0, columns = 0;        // that show the picture
  int64_t to_rows = 0, to_columns = 0;  // after shrinking; the same where nothing shrinks
};
// Precondition: the picture was cut into tiles.
CanvasCut CutCanvas(const VisionSpec& spec, const PixelValues& pixels);

// Feature rows and columns of one tile behind the tower's merging.
struct TileGrid {
  int64_t rows = 0, columns = 0;
  int64_t count() const { return rows * columns; }
};
TileGrid GridOfTile(const VisionSpec& spec);
// The same for a frame of a video.
TileGrid GridOfFrame(const VisionSpec& spec);

}  // namespace kvgauge
