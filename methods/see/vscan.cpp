// SPDX-License-Identifier: Apache-2.0
// VScan's first half: the patches that an early block of the tower looks at in each part of a
// picture, those that its last one looks at anywhere, and the rest merged into them.
//
// Paper: VScan, arXiv:2505.22654; after Tencent/SelfEvolvingAgent. Attention is the mean over
// heads. Half of the rows are divided among square windows, each of which gives those with the most
// attention in the early block; the other rows are those with the most in the block that makes the
// features, windows' rows left out. Each patch that is left joins the row that is most like it by
// angle, behind the projector, and a row becomes the mean of all that it is made of. The other half
// of VScan is a `thin` stage.
#include <algorithm>
#include <cmath>

#include "core/strings.h"
#include "methods/registry.h"
#include "methods/tile_math.h"

namespace kvgauge {
namespace {

class VScan final : public See {
 public:
  explicit VScan(const Params& params)
      : rows_(params.Int("rows")),
        share_(params.Real("share")),
        local_(params.Real("local")),
        window_(params.Int("window")),
        block_(params.Int("block")) {}

  SeeNeeds sees() const override {
    return {.attention = true, .early = block_, .rows = true, .mixes_shown = true};
  }

  std::vector<SeenRow> Reduce(const TileView& tile) const override {
    const int64_t asked =
        share_ > 0 ? static_cast<int64_t>(share_ * static_cast<double>(tile.patches)) : rows_;
    const int64_t count = std::clamp<int64_t>(asked, 1, tile.patches);
    const auto local = static_cast<int64_t>(static_cast<double>(count) * local_);
    std::vector<bool> stays(static_cast<size_t>(tile.patches));
    ChooseInWindows(tile, local, stays);
    std::vector<float> attention = MeanAttention(tile);
    for (size_t i = 0; i < stays.size(); ++i) {
      if (stays[i]) attention[i] = 0;
    }
    for (const int32_t patch : LargestFirst(attention, count - local)) {
      stays[static_cast<size_t>(patch)] = true;
    }
    return Merge(tile, stays);
  }

 private:
  // As in the reference a window gives equally many, and what is left over is not given.
  void ChooseInWindows(const TileView& tile, int64_t count, std::vector<bool>& stays) const {
    TileView early = tile;
    early.attention = tile.early;
    const std::vector<float> attention = MeanAttention(early);
    const int64_t across = tile.columns / window_;
    const int64_t down = tile.patches / tile.columns / window_;
    if (across * down == 0) return;
    for (int64_t w = 0; w < across * down; ++w) {
      std::vector<int32_t> patches;
      std::vector<float> own;
      for (int64_t i = 0; i < window_ * window_; ++i) {
        const int64_t row = w / across * window_ + i / window_;
        const int64_t patch = row * tile.columns + w % across * window_ + i % window_;
        patches.push_back(static_cast<int32_t>(patch));
        own.push_back(attention[static_cast<size_t>(patch)]);
      }
      for (const int32_t best :
           LargestFirst(own, std::min(count / (across * down), window_ * window_))) {
        stays[static_cast<size_t>(patches[static_cast<size_t>(best)])] = true;
      }
    }
  }

  static std::vector<SeenRow> Merge(const TileView& tile, const std::vector<bool>& stays) {
    const std::vector<float> unit = OfUnitLength(tile.rows, tile.hidden);
    std::vector<SeenRow> rows;
    for (int32_t patch = 0; patch < tile.patches; ++patch) {
      if (stays[static_cast<size_t>(patch)]) rows.push_back(SeenRow::Kept(patch));
    }
    for (int32_t patch = 0; patch < tile.patches; ++patch) {
      if (stays[static_cast<size_t>(patch)]) continue;
      size_t best = 0;
      float most = -2;
      for (size_t r = 0; r < rows.size(); ++r) {
        const auto alike = static_cast<float>(
            Dot(RowAt(unit, patch, tile.hidden), RowAt(unit, rows[r].place, tile.hidden)));
        if (alike <= most) continue;
        most = alike;
        best = r;
      }
      rows[best].mix.emplace_back(patch, 1.0f);
    }
    for (SeenRow& row : rows) {
      if (row.mix.size() == 1) continue;
      for (auto& [patch, weight] : row.mix) weight = 1.0f / static_cast<float>(row.mix.size());
    }
    return rows;
  }

  const int64_t rows_;
  const double share_, local_;
  const int64_t window_, block_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kSee,
    .id = "vscan",
    .paper = "arXiv:2505.22654",
    .summary = "patches that an early block looks at in each window and the last one anywhere; the "
               "rest joins them",
    .departures = {"without a class token patches are ranked by the attention they get from all",
                   "counts never exceed the rows of a tile",
                   "windows that a picture does not fill give no rows of their own"},
    .params = {IntParam("rows", 96, 1, 1 << 20, "rows that stay of a tile"),
               RealParam("share", 0, 0, 1, "of a tile's rows, instead of their number; 0: that"),
               RealParam("local", 0.5, 0, 1, "share of the rows that windows give"),
               IntParam("window", 6, 1, 1 << 12, "sides of a window, in rows and columns"),
               IntParam("block", 5, 0, 1 << 12,
                        "block of the tower that windows look at, counted from 0")},
    .make = Make<VScan>(),
});

}  // namespace
}  // namespace kvgauge
