// SPDX-License-Identifier: Apache-2.0
// VisionZip: the patches that the class token looks at, and the rest merged into a few.
//
// The class token's row and the dominant - 1 patches with the most attention, summed over heads,
// stay as they are, in the order of the picture. Every k-th of the rest is a target, `contextual`
// of them; each other patch goes to the target with the most similar key (mean over heads, by
// angle), and a target becomes itself plus the mean of those. Without a class token: attention
// received, and no class row.
#include <algorithm>
#include <cmath>

#include "methods/registry.h"
#include "methods/tile_math.h"

namespace kvgauge {
namespace {

class VisionZip final : public See {
 public:
  explicit VisionZip(const Params& params)
      : dominant_(params.Int("dominant")),
        contextual_(params.Int("contextual")),
        share_(params.Real("share")) {}

  SeeNeeds sees() const override { return {.attention = true, .keys = true}; }

  std::vector<SeenRow> Reduce(const TileView& tile) const override {
    const bool has_class = !tile.keys.class_key.empty();
    const auto [dominant, contextual] = CountsFor(tile.patches, has_class);
    std::vector<int32_t> chosen = LargestFirst(MeanAttention(tile), dominant - has_class);
    std::sort(chosen.begin(), chosen.end());
    std::vector<SeenRow> rows;
    if (has_class) rows.push_back({SeenRow::kNowhere, {{SeenRow::kClass, 1.0f}}, false});
    for (const int32_t patch : chosen) rows.push_back(SeenRow::Kept(patch));
    std::vector<int32_t> rest;
    for (int32_t patch = 0; patch < tile.patches; ++patch) {
      if (!std::binary_search(chosen.begin(), chosen.end(), patch)) rest.push_back(patch);
    }
    AddContext(tile, rest, contextual, rows);
    return rows;
  }

 private:
  struct Counts {
    int64_t dominant, contextual;
  };
  // Shares divide as the paper's 54 + 10 of 64 do.
  Counts CountsFor(int64_t patches, bool has_class) const {
    Counts counts = {dominant_, contextual_};
    if (share_ > 0) {
      const auto all = std::max<int64_t>(2, std::llround(share_ * static_cast<double>(patches)));
      counts.contextual = std::max<int64_t>(1, (all * 10 + 32) / 64);
      counts.dominant = all - counts.contextual;
    }
    counts.dominant = std::min(counts.dominant, patches + has_class);
    counts.contextual = std::min(counts.contextual, patches + has_class - counts.dominant);
    return counts;
  }

  static std::vector<float> MeanKeys(const TileView& tile, std::span<const int32_t> patches) {
    const int64_t dim = tile.width / tile.heads;
    std::vector<float> means;
    means.reserve(patches.size() * static_cast<size_t>(dim));
    for (const int32_t patch : patches) {
      const std::span<const float> key = RowAt(tile.keys.keys, patch, tile.width);
      for (int64_t i = 0; i < dim; ++i) {
        double sum = 0;
        for (int64_t h = 0; h < tile.heads; ++h)
          sum += double{key[static_cast<size_t>(h * dim + i)]};
        means.push_back(static_cast<float>(sum / static_cast<double>(tile.heads)));
      }
    }
    return means;
  }

  static void AddContext(const TileView& tile, const std::vector<int32_t>& rest, int64_t contextual,
                         std::vector<SeenRow>& rows) {
    if (contextual == 0) return;
    const int64_t dim = tile.width / tile.heads;
    const std::vector<float> keys = OfUnitLength(MeanKeys(tile, rest), dim);
    const int64_t step = std::max<int64_t>(1, std::ssize(rest) / contextual);
    std::vector<int64_t> targets;
    for (int64_t i = 0; i < std::ssize(rest) && std::ssize(targets) < contextual; i += step) {
      targets.push_back(i);
    }
    std::vector<std::vector<int32_t>> given(targets.size());
    for (int64_t i = 0; i < std::ssize(rest); ++i) {
      if (std::find(targets.begin(), targets.end(), i) != targets.end()) continue;
      size_t best = 0;
      double most = -2;
      for (size_t t = 0; t < targets.size(); ++t) {
        const auto alike =
            static_cast<float>(Dot(RowAt(keys, i, dim), RowAt(keys, targets[t], dim)));
        if (double{alike} <= most) continue;
        most = double{alike};
        best = t;
      }
      given[best].push_back(rest[static_cast<size_t>(i)]);
    }
    for (size_t t = 0; t < targets.size(); ++t) {
      SeenRow row = SeenRow::Kept(rest[static_cast<size_t>(targets[t])]);
      row.apart = true;
      const float weight = given[t].empty() ? 0 : 1.0f / static_cast<float>(given[t].size());
      for (const int32_t patch : given[t]) row.mix.emplace_back(patch, weight);
      rows.push_back(std::move(row));
    }
  }

  const int64_t dominant_, contextual_;
  const double share_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kSee,
    .id = "visionzip",
    .paper = "arXiv:2412.04467",
    .summary = "patches that the class token looks at; the rest is merged into a few by their keys",
    .departures = {"without a class token patches are ranked by the attention they get, and no "
                   "class row is shown",
                   "counts never exceed the rows of a tile",
                   "where a row is made of a square of patches, squares are ranked and merged by "
                   "the means of their patches, behind the projector"},
    .params = {IntParam("dominant", 191, 1, 1 << 20,
                        "rows that stay as they are, the class token's included"),
               IntParam("contextual", 30, 0, 1 << 20, "rows that the rest is merged into"),
               RealParam("share", 0, 0, 1,
                         "of a tile's rows, instead of both counts, 54 to 10; 0: the counts")},
    .make = Make<VisionZip>(),
});

}  // namespace
}  // namespace kvgauge
