// SPDX-License-Identifier: Apache-2.0
// HoloV: every part of the picture gets a quota by how much there is to see in it.
//
// Patches in reading order are cut into `crops` runs. A patch's score is its attention from the
// class token (mean over heads, by 1000) plus 0.09 of how much its similarity to the others of its
// run varies, brought to the scale of the attention. Runs share `keep` by their mean scores, what
// is left goes to the largest, and each keeps the patches with the most attention.
#include <algorithm>
#include <cmath>

#include "methods/registry.h"
#include "methods/tile_math.h"

namespace kvgauge {
namespace {

constexpr double kTiny = 1e-6;

struct Crop {
  int64_t first = 0, count = 0;
  float score = 0;
};

class HoloV final : public See {
 public:
  explicit HoloV(const Params& params)
      : keep_(params.Int("keep")), crops_(params.Int("crops")), share_(params.Real("share")) {}

  SeeNeeds sees() const override { return {.attention = true, .rows = true}; }

  std::vector<SeenRow> Reduce(const TileView& tile) const override {
    const std::vector<float> attention = MeanAttention(tile);
    std::vector<Crop> crops;
    const int64_t parts = std::min(crops_, tile.patches);
    for (int64_t i = 0, first = 0; i < parts; ++i) {
      const int64_t count = tile.patches / parts + (i < tile.patches % parts ? 1 : 0);
      crops.push_back({first, count, ScoreOf(tile, attention, first, count)});
      first += count;
    }
    const int64_t keep =
        share_ > 0 ? std::max<int64_t>(1, std::llround(share_ * static_cast<double>(tile.patches)))
                   : std::min(keep_, tile.patches);
    const std::vector<int64_t> quota = Quotas(crops, keep);
    std::vector<SeenRow> rows;
    for (size_t i = 0; i < crops.size(); ++i) {
      const Crop& crop = crops[i];
      if (quota[i] >= crop.count) {
        for (int64_t k = 0; k < crop.count; ++k) Add(crop.first + k, keep, rows);
        continue;
      }
      const auto own = std::span(attention).subspan(static_cast<size_t>(crop.first),
                                                    static_cast<size_t>(crop.count));
      for (const int32_t k : LargestFirst(own, quota[i])) Add(crop.first + k, keep, rows);
    }
    return rows;
  }

 private:
  static void Add(int64_t patch, int64_t most, std::vector<SeenRow>& rows) {
    if (std::ssize(rows) < most) rows.push_back(SeenRow::Kept(static_cast<int32_t>(patch)));
  }

  static float ScoreOf(const TileView& tile, const std::vector<float>& attention, int64_t first,
                       int64_t count) {
    const auto at = [&](int64_t i) { return double{attention[static_cast<size_t>(first + i)]}; };
    if (count == 1) return static_cast<float>(at(0));
    const std::vector<float> unit =
        OfUnitLength(tile.rows.subspan(static_cast<size_t>(first * tile.hidden),
                                       static_cast<size_t>(count * tile.hidden)),
                     tile.hidden, kTiny);
    const auto others = static_cast<double>(count - 1);
    double attended = 0, varied = 0;
    for (int64_t i = 0; i < count; ++i) {
      std::vector<double> alike;
      double sum = 0;
      for (int64_t k = 0; k < count; ++k) {
        alike.push_back(k == i ? 0 : Dot(RowAt(unit, i, tile.hidden), RowAt(unit, k, tile.hidden)));
        sum += alike.back();
      }
      // Its own 0 counts among the distances, as in the reference.
      for (const double one : alike) varied += (one - sum / others) * (one - sum / others) / others;
      attended += 1000 * at(i);
    }
    const auto n = static_cast<double>(count);
    const double scale = attended / n / (varied / n + kTiny);
    return static_cast<float>(attended / n + 0.09 * scale * varied / n);
  }

  static std::vector<int64_t> Quotas(const std::vector<Crop>& crops, int64_t keep) {
    double sum = kTiny;
    for (const Crop& crop : crops) sum += double{crop.score};
    std::vector<float> weights;
    std::vector<int64_t> quota;
    int64_t left = keep;
    for (const Crop& crop : crops) {
      weights.push_back(static_cast<float>(double{crop.score} / sum));
      quota.push_back(
          static_cast<int64_t>(std::floor(double{weights.back()} * static_cast<double>(keep))));
      left -= quota.back();
    }
    for (const int32_t i : LargestFirst(weights, left)) ++quota[static_cast<size_t>(i)];
    return quota;
  }

  const int64_t keep_, crops_;
  const double share_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kSee,
    .id = "holov",
    .paper = "arXiv:2510.02912",
    .summary = "quotas for parts of the picture by attention and variety; the most attended stay",
    .departures = {"no rows of zeros take the places that a run cannot fill"},
    .params = {IntParam("keep", 64, 1, 1 << 20, "rows of a tile that stay"),
               IntParam("crops", 16, 1, 1 << 12, "runs of patches with a quota each"),
               RealParam("share", 0, 0, 1, "of a tile's rows, instead of `keep`; 0: `keep`")},
    .make = Make<HoloV>(),
});

}  // namespace
}  // namespace kvgauge
