// SPDX-License-Identifier: Apache-2.0
// Heads that find what was read before stay whole; all others hold first and last entries.
//
// Paper: RazorAttention, arXiv:2407.15891. Needs a calibration, or the attention of the last
// `window` prompt rows. The calibration reads the first quarter of a text four times over and
// follows each of the last rows back: its induction is the attention that it gives to the tokens
// behind its earlier copies, its echo that to the copies themselves, at most over the query heads
// of a KV head. The table has the induction of each KV head, and 1 more for the hundredth of heads
// with the largest echo. Without a calibration a head counts by the share of the last rows'
// attention that goes beyond protected entries of this prompt. With reduce.compensate one of a
// head's entries stands for all that go. Departures: the probe repeats the texts of the
// calibration, where the reference repeats random tokens; as many heads stay whole as the budget
// allows, where the reference takes 15 of 100; heads without the property hold `streaming` entries,
// whatever the length of the prompt.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "methods/head_numbers.h"
#include "methods/registry.h"
#include "methods/tensors.h"
#include "methods/whole_heads.h"

namespace kvgauge {
namespace {

constexpr int64_t kRazorRows = 64;
constexpr int64_t kCopies = 4;

class Razor final : public Allocator {
 public:
  explicit Razor(const Params& params)
      : streaming_(params.Int("streaming")),
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
    const Result<std::vector<float>> numbers = HeadNumbers(*calibration_, shape);
    return numbers.ok() ? Status() : numbers.error();
  }

  Status CheckBudget(const AllocationInput& input) const override {
    return CheckHoldWhole(input, streaming_);
  }

  Result<Allocation> Allocate(const AllocationInput& input) const override {
    return HoldWhole(input, streaming_, [&] { return Numbers(input); });
  }

 private:
  std::vector<float> Numbers(const AllocationInput& input) const {
    if (calibration_ != nullptr) {
      const Result<std::vector<float>> learned = HeadNumbers(*calibration_, *input.shape);
      KVG_CHECK(learned.ok(), "a calibration that was not checked");
      return *learned;
    }
    std::vector<float> all;
    for (size_t layer = 0; layer < input.views.size(); ++layer) {
      const std::vector<float> shares =
          AttentionBeyond(*input.views[layer], input.scores[layer], window_);
      all.insert(all.end(), shares.begin(), shares.end());
    }
    return all;
  }

  int64_t streaming_, window_;
  bool learned_;
  std::shared_ptr<const Calibration> calibration_;
};

class RazorCalibrator final : public Calibrator {
 public:
  RazorCalibrator(const Params&, const ModelShape& shape, std::span<const int64_t>)
      : shape_(shape),
        induction_(static_cast<size_t>(shape.layers * shape.kv_heads)),
        echo_(induction_.size()) {}

  std::vector<int32_t> Reads(std::span<const int32_t> text) const override {
    const std::span<const int32_t> part = text.first(text.size() / kCopies);
    if (part.empty()) return {text.begin(), text.end()};
    std::vector<int32_t> all;
    for (int64_t i = 0; i < kCopies; ++i) all.insert(all.end(), part.begin(), part.end());
    return all;
  }

  Needs needs(int) const override { return {.window = kRazorRows}; }

  void Observe(int, LayerView& view) override {
    const int64_t heads = shape_.query_heads, n = view.width(), period = n / kCopies;
    const int64_t rows = std::min(kRazorRows, period);
    if (rows < 2) return;
    const std::vector<float> attention =
        Fetch(view.ops(), view.WindowAttention(rows).Reshape({heads * rows * n}));
    for (int64_t h = 0; h < heads; ++h) {
      double induction = 0, echo = 0;
      for (int64_t r = 0; r < rows; ++r) {
        const float* row = attention.data() + (h * rows + r) * n;
        for (int64_t copy = n - rows + r - period; copy >= 0; copy -= period) {
          echo += double{row[copy]} / static_cast<double>(rows);
          induction += double{row[copy + 1]} / static_cast<double>(rows);
        }
      }
      const auto at = static_cast<size_t>(view.layer() * shape_.kv_heads + h / shape_.group());
      of_text_[at].first = std::max(of_text_[at].first, induction);
      of_text_[at].second = std::max(of_text_[at].second, echo);
    }
    for (int64_t h = 0; h < shape_.kv_heads; ++h) {
      const auto at = static_cast<size_t>(view.layer() * shape_.kv_heads + h);
      induction_[at] += of_text_[at].first;
      echo_[at] += of_text_[at].second;
      of_text_[at] = {};
    }
    texts_ += view.layer() == 0 ? 1 : 0;
  }

  Calibration::Tables Finish(Ops&) override {
    HeadMeans numbers(shape_, std::max<int64_t>(texts_, 1));
    std::vector<size_t> order(echo_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return echo_[a] > echo_[b]; });
    const auto chosen = static_cast<size_t>(std::ceil(0.01 * static_cast<double>(order.size())));
    for (size_t i = 0; i < order.size(); ++i) {
      const auto at = static_cast<int64_t>(order[i]);
      const double more = i < chosen ? static_cast<double>(std::max<int64_t>(texts_, 1)) : 0;
      numbers.Add(at / shape_.kv_heads, at % shape_.kv_heads, induction_[order[i]] + more);
    }
    return numbers.ToTables();
  }

 private:
  const ModelShape shape_;
  int64_t texts_ = 0;
  std::vector<double> induction_, echo_;                 // [layers * kv_heads], summed over texts
  std::map<size_t, std::pair<double, double>> of_text_;  // both, of the layer at hand
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kAllocate,
    .id = "razor",
    .paper = "arXiv:2407.15891",
    .summary =
        "heads that find what was read before stay whole, others hold first and last entries",
    .departures = {"the probe repeats texts, where the reference repeats random tokens",
                   "without a calibration heads count by how far the prompt's last rows look back",
                   "as many heads stay whole as the budget allows",
                   "the others hold a fixed number of entries, whatever the length of the prompt"},
    .params = {IntParam("streaming", 256, 1, 1 << 20, "entries of a head that does not retrieve"),
               IntParam("window", 32, 1, 4096, "without a calibration: prompt rows that tell"),
               CalibrationParam()},
    .make = Make<Razor>(),
    .calibrate = MakeCalibrator<RazorCalibrator>,
});

}  // namespace
}  // namespace kvgauge
