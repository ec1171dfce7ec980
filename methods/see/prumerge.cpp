// SPDX-License-Identifier: Apache-2.0
// LLaVA-PruMerge: patches whose attention from the class token is an outlier, each with its
// neighbours added.
//
// The attention is a softmax of one head as wide as the tower, in the block that reads the
// features. Kept are so many of the largest as lie above the upper quartile by more than 1.5 times
// the distance of the quartiles. `spread` (PruMerge+) adds patches at even steps. To each kept
// patch the `neighbours` patches with the most similar keys are added by their attention, and a
// last row is the sum of all others, weighed likewise.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "methods/registry.h"
#include "methods/tile_math.h"

namespace kvgauge {
namespace {

// As NumPy has it, between neighbours.
double PercentileOf(std::vector<float> values, double share) {
  std::sort(values.begin(), values.end());
  const double at = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, values.size() - 1);
  const double rest = at - static_cast<double>(below);
  return double{values[below]} + rest * (double{values[above]} - double{values[below]});
}

class PruMerge final : public See {
 public:
  explicit PruMerge(const Params& params)
      : spread_(params.Bool("spread")), neighbours_(params.Int("neighbours")) {}

  SeeNeeds sees() const override { return {.behind = true}; }

  std::vector<SeenRow> Reduce(const TileView& tile) const override {
    const std::vector<float> attention = ClassAttention(tile);
    const std::vector<int32_t> kept = Choose(attention);
    const std::vector<float> keys = OfUnitLength(tile.behind.keys, tile.width, 0, 1e-12);
    std::vector<SeenRow> rows;
    for (const int32_t patch : kept) {
      SeenRow row = SeenRow::Kept(patch);
      for (const int32_t near : Nearest(tile, keys, kept, patch)) {
        row.mix.emplace_back(near, attention[static_cast<size_t>(near)]);
      }
      rows.push_back(std::move(row));
    }
    SeenRow others;
    for (int32_t patch = 0; patch < tile.patches; ++patch) {
      if (std::find(kept.begin(), kept.end(), patch) != kept.end()) continue;
      others.mix.emplace_back(patch, attention[static_cast<size_t>(patch)]);
    }
    if (!others.mix.empty()) rows.push_back(std::move(others));
    return rows;
  }

 private:
  // Softmax over all rows of the tile; what falls to the class token itself is left out.
  static std::vector<float> ClassAttention(const TileView& tile) {
    const double scale = 1.0 / std::sqrt(static_cast<double>(tile.width));
    std::vector<double> scores = {Dot(tile.behind.class_query, tile.behind.class_key) * scale};
    for (int64_t i = 0; i < tile.patches; ++i) {
      const std::span<const float> key = RowAt(tile.behind.keys, i, tile.width);
      scores.push_back(Dot(tile.behind.class_query, key) * scale);
    }
    const double most = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (double& score : scores) sum += score = std::exp(score - most);
    std::vector<float> attention;
    for (size_t i = 1; i < scores.size(); ++i) {
      attention.push_back(static_cast<float>(scores[i] / sum));
    }
    return attention;
  }

  std::vector<int32_t> Choose(const std::vector<float>& attention) const {
    const double low = PercentileOf(attention, 0.25), high = PercentileOf(attention, 0.75);
    const double bound = high + 1.5 * (high - low);
    const auto patches = std::ssize(attention);
    const auto outliers =
        std::max<int64_t>(1, std::count_if(attention.begin(), attention.end(),
                                           [&](float one) { return double{one} > bound; }));
    std::vector<int32_t> kept = LargestFirst(attention, outliers);
    if (!spread_) return kept;
    const auto every =
        static_cast<int64_t>(static_cast<double>(patches) / static_cast<double>(outliers));
    const int64_t step = std::max<int64_t>(1, every / 3);
    const std::vector<int32_t> first = kept;
    for (int64_t patch = 0; patch < patches - 1; patch += step) {
      const auto one = static_cast<int32_t>(patch);
      if (std::find(first.begin(), first.end(), one) == first.end()) kept.push_back(one);
    }
    return kept;
  }

  // The patches with the most similar keys, the kept ones before the others where equal.
  std::vector<int32_t> Nearest(const TileView& tile, const std::vector<float>& keys,
                               const std::vector<int32_t>& kept, int32_t patch) const {
    std::vector<int32_t> others;
    for (const int32_t other : kept) {
      if (other != patch) others.push_back(other);
    }
    for (int32_t other = 0; other < tile.patches; ++other) {
      if (std::find(kept.begin(), kept.end(), other) == kept.end()) others.push_back(other);
    }
    const std::span<const float> own = RowAt(keys, patch, tile.width);
    std::vector<float> alike;
    for (const int32_t other : others) {
      alike.push_back(static_cast<float>(Dot(own, RowAt(keys, other, tile.width))));
    }
    std::vector<int32_t> nearest;
    for (const int32_t i : LargestFirst(alike, neighbours_)) {
      nearest.push_back(others[static_cast<size_t>(i)]);
    }
    return nearest;
  }

  const bool spread_;
  const int64_t neighbours_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kSee,
    .id = "prumerge",
    .paper = "arXiv:2403.15388",
    .summary = "patches whose attention from the class token is an outlier, neighbours added",
    .departures = {"where no patch is an outlier the largest one stays; the reference then shows "
                   "the sum alone, or divides by zero",
                   "steps of `spread` are at least 1, and cover the tile whatever its size"},
    .params = {BoolParam("spread", false, "patches at even steps stay as well (PruMerge+)"),
               IntParam("neighbours", 32, 0, 1 << 16, "patches that are added to each kept one")},
    .make = Make<PruMerge>(),
});

}  // namespace
}  // namespace kvgauge
