// SPDX-License-Identifier: Apache-2.0
// Layers hold as many of their best entries as give every layer the same share of its attention.
//
// Paper: PrefixKV, arXiv:2412.03409. Needs a calibration, or scores that add up, the same for all
// heads of a layer. Sorted from the best on, a layer's scores sum to a share of all of them; the
// largest share is sought that all layers can hold within the budget: on the prompt itself, or by a
// calibration on texts, whose `share` they keep; a layer then has the mean over the texts.
// Departures: protected entries are left out of the shares; the budget is spent to the last entry,
// where the reference ends its search within five of it.
#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

#include "core/strings.h"
#include "methods/calibration.h"
#include "methods/registry.h"
#include "methods/split_by_weight.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

// How many of a layer's best entries hold given shares of its scores.
class PrefixCurve {
 public:
  // scores: [1, n], not negative.
  PrefixCurve(LayerView& view, const Tensor& scores) : view_(view), scores_(scores) {
    whole_ = SumOfBest(scores.shape[1]);
  }

  // The least number of entries in (too_few, enough] whose scores sum to `share` of all; too_few
  // are too few.
  int64_t Count(double share, int64_t too_few, int64_t enough) {
    while (enough - too_few > 1) {
      const int64_t middle = (too_few + enough + 1) / 2;
      (SumOfBest(middle) >= share * whole_ ? enough : too_few) = middle;
    }
    return enough;
  }

  double ShareOf(int64_t count) { return SumOfBest(count) / whole_; }

 private:
  double SumOfBest(int64_t count) {
    if (count <= 0) return 0;
    const auto known = sums_.find(count);
    if (known != sums_.end()) return known->second;
    Ops& ops = view_.ops();
    const int64_t n = scores_.shape[1];
    const Tensor best = view_.Scratch(DType::kF32, {1, count});
    const Tensor sum = view_.Scratch(DType::kF32, {1});
    ops.select->Gather(scores_.Reshape({n, 1}), Best(view_, scores_, count),
                       best.Reshape({count, 1}));
    ops.rows->ReduceRows(best, Reduction::kSum, sum);
    return sums_[count] = double{Fetch(ops, sum)[0]};
  }

  LayerView& view_;
  Tensor scores_;
  double whole_ = 0;
  std::map<int64_t, double> sums_;
};

// Entries of each layer for the largest share that all can hold within `total`.
std::vector<int64_t> CommonPrefix(std::vector<PrefixCurve>& curves, int64_t length, int64_t total) {
  const size_t layers = curves.size();
  std::vector<int64_t> few(layers, 0), many(layers, length);
  if (total >= static_cast<int64_t>(layers) * length) return many;
  while (true) {
    // The next share to try is that of the layer which is least known, in the middle of what is
    // open.
    size_t at = 0;
    for (size_t l = 1; l < layers; ++l) {
      if (many[l] - few[l] > many[at] - few[at]) at = l;
    }
    if (many[at] - few[at] <= 1) break;
    std::vector<int64_t> counts(layers);
    counts[at] = (few[at] + many[at] + 1) / 2;
    const double share = curves[at].ShareOf(counts[at]);
    for (size_t l = 0; l < layers; ++l) {
      if (l != at) counts[l] = curves[l].Count(share, few[l] - 1, many[l]);
    }
    const int64_t sum = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    (sum <= total ? few : many) = counts;
  }
  // One more entry each at most: those come first that suffice for the least share without it.
  std::vector<std::pair<double, size_t>> next;
  for (size_t l = 0; l < layers; ++l) {
    if (many[l] > few[l]) next.emplace_back(curves[l].ShareOf(few[l]), l);
  }
  std::sort(next.begin(), next.end());
  int64_t left = total - std::accumulate(few.begin(), few.end(), int64_t{0});
  for (const auto& [share, l] : next) {
    if (left-- > 0) ++few[l];
  }
  return few;
}

class PrefixKv final : public Allocator {
 public:
  explicit PrefixKv(const Params& params) : learned_(!params.Text(kCalibrationParam).empty()) {}

  bool needs_scores() const override { return !learned_; }

  void Use(std::shared_ptr<const Calibration> calibration) override {
    calibration_ = std::move(calibration);
  }

  Status Check(const ModelShape& shape) const override {
    if (calibration_ == nullptr) return {};
    KVG_ASSIGN(const Tensor shares, Shares(shape));
    for (int64_t l = 0; l < shape.layers; ++l) {
      if (shares.f32()[l] >= 0) continue;
      return BadInput(StrCat(calibration_->path, ": table 'layers' holds ", shares.f32()[l],
                             "; a layer's share is at least 0"));
    }
    return {};
  }

  Result<Allocation> Allocate(const AllocationInput& input) const override {
    const int64_t layers = input.shape->layers, length = input.length;
    const int64_t per_head = std::min(input.per_head, length), kept = input.protected_entries;
    std::vector<double> weights;
    if (calibration_ != nullptr) {
      KVG_ASSIGN(const Tensor shares, Shares(*input.shape));
      weights.assign(shares.f32(), shares.f32() + layers);
    } else {
      weights = Found(input, length - kept, layers * (per_head - kept));
    }
    Allocation allocation;
    for (const int64_t entries : SplitByWeight(weights, layers * per_head, kept, length)) {
      allocation.emplace_back(static_cast<size_t>(input.shape->kv_heads), entries);
    }
    return allocation;
  }

 private:
  Result<Tensor> Shares(const ModelShape& shape) const {
    return calibration_->Find("layers", std::array{shape.layers, int64_t{1}});
  }

  // Entries of each layer, protected ones among them.
  static std::vector<double> Found(const AllocationInput& input, int64_t open, int64_t total) {
    const int64_t kept = input.protected_entries;
    if (open == 0 || total == 0) {
      return std::vector<double>(input.views.size(), static_cast<double>(input.per_head));
    }
    std::vector<PrefixCurve> curves;
    for (size_t l = 0; l < input.views.size(); ++l) {
      LayerView& view = *input.views[l];
      RowOps& ops = *view.ops().rows;
      const Tensor scores = input.scores[l].Slice(0, 1);
      const int64_t n = scores.shape[1];
      const Tensor free = view.Scratch(DType::kF32, {1, n}),
                   own = view.Scratch(DType::kF32, {1, n});
      const Tensor forced = Filled(view, n, kForcedFrom);
      ops.Combine(scores, forced, Binary::kLess, free);
      ops.Combine(scores, forced, Binary::kMin, own);
      ops.Combine(own, free, Binary::kMultiply, own);
      ops.Combine(own, Filled(view, n, 0.0f), Binary::kMax, own);
      curves.emplace_back(view, own);
    }
    std::vector<double> entries;
    for (const int64_t count : CommonPrefix(curves, open, total)) {
      entries.push_back(static_cast<double>(count + kept));
    }
    return entries;
  }

  bool learned_;
  std::shared_ptr<const Calibration> calibration_;
};

class PrefixKvCalibrator final : public Calibrator {
 public:
  PrefixKvCalibrator(const Params& params, const ModelShape& shape, std::span<const int64_t>)
      : shape_(shape), share_(params.Real("share")), sums_(static_cast<size_t>(shape.layers)) {}

  Needs needs(int) const override { return {.column_sums = true}; }

  void Observe(int, LayerView& view) override {
    const int64_t n = view.width();
    const Tensor mean = view.Scratch(DType::kF32, {n});
    view.ops().rows->ReduceColumns(view.ColumnSums(), Reduction::kMean, mean);
    std::vector<float> sorted = Fetch(view.ops(), mean);
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    // Of the layer at hand: the share of all that its best entries hold, by their number less 1.
    std::vector<double> held(sorted.size());
    std::partial_sum(sorted.begin(), sorted.end(), held.begin(), std::plus<double>());
    for (double& sum : held) sum /= held.back();
    held_.push_back(std::move(held));
    if (view.layer() + 1 < shape_.layers) return;
    // All layers of a text: the largest common share by halving.
    const double total = share_ * static_cast<double>(n * shape_.layers);
    double low = 0, high = 1;
    for (int i = 0; i < 50; ++i) {
      const double middle = (low + high) / 2;
      (Sum(middle) <= total ? low : high) = middle;
    }
    for (size_t l = 0; l < held_.size(); ++l) {
      sums_[l] += static_cast<double>(Count(held_[l], low)) / static_cast<double>(n);
    }
    held_.clear();
    ++texts_;
  }

  Calibration::Tables Finish(Ops&) override {
    Calibration::Table table{{shape_.layers, 1}, {}};
    for (const double sum : sums_) {
      table.values.push_back(static_cast<float>(sum / static_cast<double>(std::max(texts_, 1))));
    }
    return {{"layers", std::move(table)}};
  }

 private:
  static int64_t Count(const std::vector<double>& held, double share) {
    const auto at = std::lower_bound(held.begin(), held.end(), share);
    return std::min<int64_t>(at - held.begin() + 1, std::ssize(held));
  }
  double Sum(double share) const {
    double sum = 0;
    for (const auto& held : held_) sum += static_cast<double>(Count(held, share));
    return sum;
  }

  const ModelShape shape_;
  const double share_;
  int texts_ = 0;
  std::vector<double> sums_;
  std::vector<std::vector<double>> held_;  // layers of the text at hand
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kAllocate,
    .id = "prefixkv",
    .paper = "arXiv:2412.03409",
    .summary = "layers hold as many entries as give all the same share of their attention",
    .departures = {"protected entries are left out of the shares",
                   "the budget is spent to the last entry, where the reference ends its search "
                   "within five"},
    .params = {RealParam("share", 0.2, 0.001, 1, "share of a text that a calibration is made for"),
               CalibrationParam()},
    .make = Make<PrefixKv>(),
    .calibrate = MakeCalibrator<PrefixKvCalibrator>,
    .calibrated_params = {"share"},
});

}  // namespace
}  // namespace kvgauge
