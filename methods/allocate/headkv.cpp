// SPDX-License-Identifier: Apache-2.0
// Heads that retrieve hold more: every head has the same part of the budget, and the rest goes by
// importance.
//
// Paper: HeadKV, arXiv:2410.19258. Of what the budget gives a head beside protected entries, 1 /
// `beta` goes into a pool, and each head of the model gets of that pool in proportion to its
// importance, raised to `sharpness`. Needs a calibration, or the attention of the last `window`
// prompt rows. The calibration reads texts twice: a head is as important as the attention that it
// gives, in the second reading, to the token in the first that comes next, over the last rows and
// the texts. Without one a head is as important as the share of the last rows' attention that goes
// beyond protected entries of this prompt.
// Departures: the reference's probe hides a needle and its reasoning in other text and follows the
// answer (a side-file may hold its scores); importance is the mean over the query heads of a KV
// head; the sum over heads is exactly the budget, where the reference rounds each head by itself.
#include <algorithm>
#include <cmath>

#include "core/strings.h"
#include "methods/head_numbers.h"
#include "methods/registry.h"
#include "methods/split_by_weight.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

constexpr int64_t kProbeRows = 64;

class HeadKv final : public Allocator {
 public:
  explicit HeadKv(const Params& params)
      : beta_(params.Real("beta")),
        sharpness_(params.Real("sharpness")),
        window_(params.Int("window")),
        learned_(!params.Text(kCalibrationParam).empty()) {}

  Needs needs() const override { return learned_ ? Needs{} : Needs{.window = window_}; }
  // Protected entries are told by their scores.
  bool needs_scores() const override { return !learned_; }

  void Use(std::shared_ptr<const Calibration> calibration) override {
    calibration_ = std::move(calibration);
  }

  Status Check(const ModelShape& shape) const override {
    if (calibration_ == nullptr) return {};
    KVG_ASSIGN(const std::vector<float> importance, HeadNumbers(*calibration_, shape));
    const float least = *std::min_element(importance.begin(), importance.end());
    if (least >= 0) return {};
    return BadInput(StrCat(calibration_->path, ": table 'heads' holds ", least,
                           "; importance is not negative"));
  }

  Result<Allocation> Allocate(const AllocationInput& input) const override {
    const int64_t layers = input.shape->layers, heads = input.shape->kv_heads;
    const int64_t all = layers * heads, kept = input.protected_entries;
    const int64_t base = std::min(input.per_head, input.length) - kept;
    const auto pooled = static_cast<int64_t>(static_cast<double>(base) / beta_);
    const int64_t sure = kept + base - pooled;
    std::vector<double> weights = Importance(input);
    const double most = *std::max_element(weights.begin(), weights.end());
    for (double& weight : weights) {
      weight = most > 0 ? std::pow(weight / most, sharpness_) : 1.0;
    }
    const std::vector<int64_t> more = SplitByWeight(weights, all * pooled, 0, input.length - sure);
    Allocation allocation(static_cast<size_t>(layers));
    for (int64_t i = 0; i < all; ++i) {
      allocation[static_cast<size_t>(i / heads)].push_back(sure + more[static_cast<size_t>(i)]);
    }
    return allocation;
  }

 private:
  // [layers * kv_heads]
  std::vector<double> Importance(const AllocationInput& input) const {
    if (calibration_ != nullptr) {
      const Result<std::vector<float>> learned = HeadNumbers(*calibration_, *input.shape);
      KVG_CHECK(learned.ok(), "a calibration that was not checked");
      return {learned->begin(), learned->end()};
    }
    std::vector<double> importance;
    for (size_t layer = 0; layer < input.views.size(); ++layer) {
      const std::vector<float> shares =
          AttentionBeyond(*input.views[layer], input.scores[layer], window_);
      importance.insert(importance.end(), shares.begin(), shares.end());
    }
    return importance;
  }

  double beta_, sharpness_;
  int64_t window_;
  bool learned_;
  std::shared_ptr<const Calibration> calibration_;
};

class HeadKvCalibrator final : public Calibrator {
 public:
  HeadKvCalibrator(const Params&, const ModelShape& shape, std::span<const int64_t> lengths)
      : shape_(shape), means_(shape, std::ssize(lengths)) {}

  std::vector<int32_t> Reads(std::span<const int32_t> text) const override {
    if (text.size() < 2) return {text.begin(), text.end()};
    const std::span<const int32_t> half = text.first(text.size() / 2);
    std::vector<int32_t> twice(half.begin(), half.end());
    twice.insert(twice.end(), half.begin(), half.end());
    return twice;
  }

  Needs needs(int) const override { return {.window = kProbeRows}; }

  void Observe(int, LayerView& view) override {
    const int64_t heads = shape_.query_heads, n = view.width(), half = n / 2;
    const int64_t rows = std::min(kProbeRows, half);
    if (rows < 2) return;
    const std::vector<float> attention =
        Fetch(view.ops(), view.WindowAttention(rows).Reshape({heads * rows * n}));
    for (int64_t h = 0; h < heads; ++h) {
      double given = 0;
      // What comes after the last row is not known.
      for (int64_t r = 0; r + 1 < rows; ++r) {
        const int64_t next = half - rows + r + 1;
        given += attention[static_cast<size_t>((h * rows + r) * n + next)];
      }
      const double mean = given / static_cast<double>(rows - 1);
      means_.Add(view.layer(), h / shape_.group(), mean / static_cast<double>(shape_.group()));
    }
  }

  Calibration::Tables Finish(Ops&) override { return means_.ToTables(); }

 private:
  const ModelShape shape_;
  HeadMeans means_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kAllocate,
    .id = "headkv",
    .paper = "arXiv:2410.19258",
    .summary = "every head has the same part, the rest of the budget goes to heads that retrieve",
    .departures = {"heads are probed by texts that are read twice, where the reference hides "
                   "needles; a side-file may hold its scores",
                   "without a calibration by how far the prompt's last rows look back",
                   "importance is the mean over the query heads of a KV head",
                   "the sum over heads is exactly the budget"},
    .params = {RealParam("beta", 1.2, 1, 1000, "one part in so many goes by importance"),
               RealParam("sharpness", 1, 0, 16, "power of the importance; 0: all are alike"),
               IntParam("window", 32, 1, 4096, "without a calibration: prompt rows that tell"),
               CalibrationParam()},
    .make = Make<HeadKv>(),
    .calibrate = MakeCalibrator<HeadKvCalibrator>,
});

}  // namespace
}  // namespace kvgauge
