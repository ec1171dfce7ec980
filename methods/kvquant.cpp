// SPDX-License-Identifier: Apache-2.0
// Codes into unevenly spaced levels: keys before rotation with a fixed range for each channel and
// numbers beyond it kept apart, values with a range for each entry.
//
// Paper: KVQuant, arXiv:2401.18079. Needs keys before rotation. A channel's range leaves out
// `outliers` of the numbers that the prompt's own keys have in it.
// Departures, all for want of a calibration run: ranges come from the prompt itself; the levels are
// those that are best for normal numbers within these ranges, not weighted k-means of calibration
// data. Outliers of values are not kept apart: the range of an entry is from its smallest number to
// its largest. Keys wait uncoded until a page of 64 is full.
#include <algorithm>
#include <array>

#include "methods/registry.h"
#include "methods/tensors.h"
#include "methods/uncoded_plan.h"

namespace kvgauge {
namespace {

// Lloyd-Max levels of the normal distribution cut at its 0.5 % and 99.5 % points, scaled to [-1,
// 1].
constexpr std::array<float, 2> kLevels1 = {-0.301547f, 0.301547f};
constexpr std::array<float, 4> kLevels2 = {-0.554432f, -0.167985f, 0.167985f, 0.554432f};
constexpr std::array<float, 8> kLevels3 = {-0.744945f, -0.478627f, -0.272013f, -0.088527f,
                                           0.088527f,  0.272013f,  0.478627f,  0.744945f};
constexpr std::array<float, 16> kLevels4 = {
    -0.865545f, -0.690053f, -0.552038f, -0.434060f, -0.328142f, -0.229812f, -0.136178f, -0.045118f,
    0.045118f,  0.136178f,  0.229812f,  0.328142f,  0.434060f,  0.552038f,  0.690053f,  0.865545f};

std::span<const float> Levels(int64_t bits) {
  switch (bits) {
    case 1:
      return kLevels1;
    case 2:
      return kLevels2;
    case 3:
      return kLevels3;
    default:
      return kLevels4;
  }
}

class KvQuant final : public Store {
 public:
  explicit KvQuant(const Params& params)
      : bits_(params.Int("bits")),
        sinks_(params.Int("sinks")),
        outliers_(params.Real("outliers")) {}

  Needs needs() const override { return {.raw_keys = true}; }

  Result<StorePlan> Plan(const ModelShape& shape, int64_t) const override {
    StorePlan plan = UncodedPlan(shape);
    const std::span<const float> levels = Levels(bits_);
    for (KvCodec* codec : {&plan.keys, &plan.values}) {
      codec->kind = KvCodecKind::kCodebook;
      codec->bits = static_cast<int>(bits_);
      codec->levels = View(levels, {static_cast<int64_t>(levels.size())});
    }
    plan.keys.axis = CodeAxis::kChannel;
    plan.values.group = shape.value_dim;
    plan.seal_keys = SealWhole(plan.keys);
    plan.seal_values = SealWhole(plan.values);
    plan.raw_keys = shape.rotary_dim > 0;
    plan.sinks = sinks_;
    return plan;
  }

  void Calibrate(LayerView& view, StorePlan& plan) const override {
    const int64_t heads = view.shape().kv_heads, dim = view.shape().key_dim;
    plan.key_low = view.Scratch(DType::kF32, {heads, dim});
    plan.key_high = view.Scratch(DType::kF32, {heads, dim});
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t length = view.lengths()[h], first = length > sinks_ ? sinks_ : 0;
      if (length == 0) continue;
      const auto trim = static_cast<int64_t>(outliers_ / 2 * static_cast<double>(length - first));
      const Tensor keys = plan.raw_keys ? view.RawKeys(h, first) : view.Keys(h, first);
      view.ops().select->ColumnRanges(keys, trim, plan.key_low[h], plan.key_high[h]);
    }
  }

 private:
  int64_t bits_, sinks_;
  double outliers_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kStore,
    .id = "kvquant",
    .paper = "arXiv:2401.18079",
    .summary = "unevenly spaced levels; keys before rotation, by channel, with outliers",
    .departures = {"ranges of key channels come from the prompt itself, not from calibration",
                   "levels are those of a normal distribution, not k-means of calibration data",
                   "values keep no outliers"},
    .bytes = "(key_dim + value_dim) * bits / 8 + 4 for the range of a value + 4 for each outlier; "
             "8 * key_dim a head for the ranges of keys",
    .params = {IntParam("bits", 4, 1, 4, "bits of a code"),
               RealParam("outliers", 0.01, 0, 0.4, "share of key numbers that are kept apart"),
               IntParam("sinks", 5, 0, 4096, "first entries that stay uncoded")},
    .make = Make<KvQuant>(),
});

}  // namespace
}  // namespace kvgauge
