// SPDX-License-Identifier: Apache-2.0
// Heads hold what a curve learned offline gives them at the budget's percent.
//
// Paper: LU-KV, arXiv:2602.08585; after kvpress's LUKVPress. Needs a calibration: for 1 to 99
// percent of entries that go, the share that each head gives up, so that what is lost later is
// least over all heads. Without one, an entry is worth its share of the scores of its head's
// entries that may go, and the budget takes the best of all heads.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/strings.h"
#include "methods/calibration.h"
#include "methods/registry.h"
#include "methods/split_by_weight.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

constexpr const char* kCurveTable = "curve";
constexpr int64_t kPercents = 99;

class LuKv final : public Allocator {
 public:
  explicit LuKv(const Params& params) : learned_(!params.Text(kCalibrationParam).empty()) {}

  bool needs_scores() const override { return !learned_; }

  void Use(std::shared_ptr<const Calibration> calibration) override {
    calibration_ = std::move(calibration);
  }

  Status Check(const ModelShape& shape) const override {
    if (calibration_ == nullptr) return {};
    KVG_ASSIGN(const Tensor curve, Curve(shape));
    for (int64_t i = 0; i < curve.Numel(); ++i) {
      const float share = curve.f32()[i];
      if (share >= 0 && share <= 1) continue;
      return BadInput(StrCat(calibration_->path, ": table 'curve' holds ", share,
                             "; the share that a head gives up is in [0, 1]"));
    }
    return {};
  }

  Result<Allocation> Allocate(const AllocationInput& input) const override {
    const int64_t heads = input.shape->kv_heads, all = input.shape->layers * heads;
    const int64_t total = all * std::min(input.per_head, input.length);
    const std::vector<int64_t> entries =
        calibration_ != nullptr ? ByCurve(input, total) : ByScores(input, total);
    Allocation allocation(static_cast<size_t>(input.shape->layers));
    for (int64_t i = 0; i < all; ++i) {
      allocation[static_cast<size_t>(i / heads)].push_back(entries[static_cast<size_t>(i)]);
    }
    return allocation;
  }

 private:
  // [percents * layers * kv_heads]
  Result<Tensor> Curve(const ModelShape& shape) const {
    return calibration_->Find(kCurveTable, std::array{kPercents, shape.layers, shape.kv_heads});
  }

  std::vector<int64_t> ByCurve(const AllocationInput& input, int64_t total) const {
    const Result<Tensor> curve = Curve(*input.shape);
    KVG_CHECK(curve.ok(), "a calibration that was not checked");
    const double kept = static_cast<double>(std::min(input.per_head, input.length)) /
                        static_cast<double>(std::max<int64_t>(input.length, 1));
    const auto percent = static_cast<int64_t>(std::nearbyint(100 * (1 - kept)));
    const int64_t all = input.shape->layers * input.shape->kv_heads;
    const int64_t first = (std::clamp<int64_t>(percent, 1, kPercents) - 1) * all;
    std::vector<double> weights;
    for (int64_t i = first; i < first + all; ++i) weights.push_back(1 - double{curve->f32()[i]});
    return SplitByWeight(weights, total, input.protected_entries, input.length);
  }

  static std::vector<int64_t> ByScores(const AllocationInput& input, int64_t total) {
    struct Entry {
      double worth;
      size_t head;
    };
    const int64_t heads = input.shape->kv_heads, n = input.length;
    std::vector<Entry> entries;
    for (size_t layer = 0; layer < input.scores.size(); ++layer) {
      const std::vector<float> scores = Fetch(input.views[layer]->ops(), input.scores[layer]);
      for (int64_t h = 0; h < heads; ++h) {
        const std::span<const float> own =
            std::span(scores).subspan(static_cast<size_t>(h * n), static_cast<size_t>(n));
        const auto may_go = [](float score) { return std::isfinite(score) && score < kForcedFrom; };
        double least = std::numeric_limits<double>::infinity(), sum = 0;
        for (const float score : own) {
          if (may_go(score)) least = std::min(least, double{score});
        }
        for (const float score : own) sum += may_go(score) ? score - least : 0;
        for (const float score : own) {
          if (score == -std::numeric_limits<float>::infinity()) continue;  // not this head's
          const double worth = !may_go(score) ? 2 : sum > 0 ? (score - least) / sum : 0;
          entries.push_back({worth, layer * static_cast<size_t>(heads) + static_cast<size_t>(h)});
        }
      }
    }
    std::stable_sort(entries.begin(), entries.end(),
                     [](const Entry& a, const Entry& b) { return a.worth > b.worth; });
    std::vector<int64_t> counts(static_cast<size_t>(input.shape->layers * heads));
    const auto best = std::min(static_cast<size_t>(total), entries.size());
    for (size_t i = 0; i < best; ++i) ++counts[entries[i].head];
    return counts;
  }

  bool learned_;
  std::shared_ptr<const Calibration> calibration_;
};

// A published curve, one array [99, layers, kv_heads] of shares that heads give up.
Result<Calibration::Tables> ImportCurve(const Calibration::Tables& published) {
  const auto found = published.find(kCurveTable);
  if (found == published.end() || found->second.shape.size() != 3 ||
      found->second.shape[0] != kPercents) {
    return BadInput("has no tensor 'curve' [99, layers, kv_heads]");
  }
  Calibration::Tables tables;
  tables[kCurveTable] = found->second;
  return tables;
}

KVG_REGISTER_STAGE({
    .kind = StageKind::kAllocate,
    .id = "lukv",
    .paper = "arXiv:2602.08585",
    .summary = "heads hold what a curve learned offline gives them at the budget's percent",
    .departures = {"the sum over heads is exactly the budget, where the reference takes that of "
                   "the nearest percent, layer by layer",
                   "a head holds at least the protected entries",
                   "without a calibration by each prompt's own scores"},
    .params = {CalibrationParam()},
    .make = Make<LuKv>(),
    .import = ImportCurve,
});

}  // namespace
}  // namespace kvgauge
