// SPDX-License-Identifier: Apache-2.0
#include "methods/see.h"

#include <numeric>

namespace kvgauge {

std::vector<SeenRow> See::Reduce(const TileView& tile) const {
  std::vector<SeenRow> rows;
  rows.reserve(static_cast<size_t>(tile.patches));
  for (int32_t patch = 0; patch < tile.patches; ++patch) rows.push_back(SeenRow::Kept(patch));
  return rows;
}

std::vector<int32_t> See::Join(const FrameView& view) const {
  std::vector<int32_t> first(view.frames.size());
  std::iota(first.begin(), first.end(), 0);
  return first;
}

}  // namespace kvgauge
