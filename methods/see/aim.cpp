// SPDX-License-Identifier: Apache-2.0
// AIM's first half: every second row of a picture joins the row that is most like it.
//
// Paper: arXiv:2412.03248; after LaVi-Lab/AIM. Looks at rows as the text model would be shown them.
// Rows of even number are sources, those of odd number targets. Each source has the target of the
// smallest angle; the most alike sources join theirs by the mean. What is left are the other
// sources, the most alike first, then the targets. The first time half of the rows go, then half of
// what is left, and so on.
#include <algorithm>
#include <numeric>

#include "methods/registry.h"
#include "methods/tile_math.h"

namespace kvgauge {
namespace {

class AimMerge final : public See {
 public:
  explicit AimMerge(const Params& params) : times_(params.Int("times")) {}

  SeeNeeds sees() const override { return {.rows = true, .mixes_shown = true}; }

  std::vector<SeenRow> Reduce(const TileView& tile) const override {
    std::vector<SeenRow> rows;
    for (int32_t patch = 0; patch < tile.patches; ++patch) rows.push_back(SeenRow::Kept(patch));
    std::vector<float> values(tile.rows.begin(), tile.rows.end());
    for (int64_t time = 1; time <= times_; ++time) {
      const int64_t count = std::min(tile.patches >> time, std::ssize(rows) / 2);
      if (count > 0) Merge(count, tile.hidden, rows, values);
    }
    return rows;
  }

 private:
  static void Merge(int64_t count, int64_t width, std::vector<SeenRow>& rows,
                    std::vector<float>& values) {
    const std::vector<float> unit = OfUnitLength(values, width);
    const int64_t sources = (std::ssize(rows) + 1) / 2, targets = std::ssize(rows) / 2;
    std::vector<float> most(static_cast<size_t>(sources), -2.0f);
    std::vector<int64_t> target(static_cast<size_t>(sources), 0);
    for (int64_t s = 0; s < sources; ++s) {
      for (int64_t t = 0; t < targets; ++t) {
        const auto alike =
            static_cast<float>(Dot(RowAt(unit, 2 * s, width), RowAt(unit, 2 * t + 1, width)));
        if (alike <= most[static_cast<size_t>(s)]) continue;
        most[static_cast<size_t>(s)] = alike;
        target[static_cast<size_t>(s)] = t;
      }
    }
    const std::vector<int32_t> order = LargestFirst(most, sources);
    std::vector<std::vector<int64_t>> joined(static_cast<size_t>(targets));  // rows of each target
    for (int64_t t = 0; t < targets; ++t) joined[static_cast<size_t>(t)] = {2 * t + 1};
    for (int64_t i = 0; i < count; ++i) {
      const int32_t source = order[static_cast<size_t>(i)];
      joined[static_cast<size_t>(target[static_cast<size_t>(source)])].push_back(2 * source);
    }
    std::vector<std::vector<int64_t>> left;
    for (int64_t i = count; i < sources; ++i) left.push_back({2 * order[static_cast<size_t>(i)]});
    left.insert(left.end(), joined.begin(), joined.end());
    Mean(left, width, rows, values);
  }

  // Each new row is the mean of some old ones, and stands in the place of the first.
  static void Mean(const std::vector<std::vector<int64_t>>& of, int64_t width,
                   std::vector<SeenRow>& rows, std::vector<float>& values) {
    std::vector<SeenRow> new_rows;
    std::vector<float> new_values;
    for (const std::vector<int64_t>& parts : of) {
      const float weight = 1.0f / static_cast<float>(parts.size());
      SeenRow row{rows[static_cast<size_t>(parts[0])].place, {}, false};
      std::vector<double> sum(static_cast<size_t>(width));
      for (const int64_t part : parts) {
        for (const auto& [patch, share] : rows[static_cast<size_t>(part)].mix) {
          row.mix.emplace_back(patch, share * weight);
        }
        const std::span<const float> value = RowAt(values, part, width);
        for (size_t c = 0; c < sum.size(); ++c) sum[c] += double{value[c]} * double{weight};
      }
      new_rows.push_back(std::move(row));
      for (const double one : sum) new_values.push_back(static_cast<float>(one));
    }
    rows = std::move(new_rows);
    values = std::move(new_values);
  }

  const int64_t times_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kSee,
    .id = "aim",
    .paper = "arXiv:2412.03248",
    .summary = "every second row joins the row most like it, by the mean; then again",
    .departures = {"frames of videos whose rows are pooled behind the projector cannot be reduced"},
    .params = {IntParam("times", 2, 1, 8, "how often half of what is left goes")},
    .make = Make<AimMerge>(),
});

}  // namespace
}  // namespace kvgauge
