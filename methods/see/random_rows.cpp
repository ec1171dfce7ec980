// SPDX-License-Identifier: Apache-2.0
// Rows of a picture drawn at random: the floor under every method that reduces what is seen.
//
// No paper, and nothing of the tower is looked at, so it works for every family. The same picture
// loses the same rows wherever it is shown.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/rng.h"
#include "methods/registry.h"
#include "methods/tile_math.h"

namespace kvgauge {
namespace {

class RandomRows final : public See {
 public:
  explicit RandomRows(const Params& params) : share_(params.Real("share")) {}

  std::vector<SeenRow> Reduce(const TileView& tile) const override {
    Rng rng(tile.seed, 0x736565);
    std::vector<float> drawn(static_cast<size_t>(tile.patches));
    for (float& one : drawn) one = static_cast<float>(rng.NextDouble());
    const auto keep =
        std::max<int64_t>(1, std::llround(share_ * static_cast<double>(tile.patches)));
    std::vector<int32_t> kept = LargestFirst(drawn, keep);
    std::sort(kept.begin(), kept.end());
    std::vector<SeenRow> rows;
    for (const int32_t patch : kept) rows.push_back(SeenRow::Kept(patch));
    return rows;
  }

 private:
  const double share_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kSee,
    .id = "random_rows",
    .summary = "a share of each picture's rows, drawn at random",
    .params = {RealParam("share", 0.25, 0, 1, "of a picture's rows that stay, at least one")},
    .make = Make<RandomRows>(),
});

}  // namespace
}  // namespace kvgauge
