// SPDX-License-Identifier: Apache-2.0
// KIVI's codes with more bits in the lower layers, and in more of them for keys than for values.
//
// Paper: AsymKV, arXiv:2410.13212. Needs nothing. The keys of the first `key_share` of the layers
// and the values of the first `value_share` have `high` bits, all others `low`. Keys are coded by
// channel `residual` entries at a time; of values the last `residual` are not coded.
#include <cmath>

#include "core/strings.h"
#include "methods/kivi_layout.h"
#include "methods/registry.h"

namespace kvgauge {
namespace {

class AsymKv final : public Store {
 public:
  explicit AsymKv(const Params& params)
      : key_share_(params.Real("key_share")),
        value_share_(params.Real("value_share")),
        high_(params.Int("high")),
        low_(params.Int("low")),
        group_(params.Int("group")),
        residual_(params.Int("residual")) {}

  Status Check(const ModelShape& shape) const override {
    if (low_ > high_) return BadInput(StrCat("low ", low_, " is more bits than high ", high_));
    return CheckKiviLayout(shape, group_, residual_);
  }

  Result<StorePlan> Plan(const ModelShape& shape, int64_t layer) const override {
    const auto bits = [&](double share) {
      const auto rich = std::llround(share * static_cast<double>(shape.layers));
      return static_cast<int>(layer < rich ? high_ : low_);
    };
    return PlanOf(KiviLayout(shape, bits(key_share_), bits(value_share_), group_, residual_));
  }

 private:
  double key_share_, value_share_;
  int64_t high_, low_, group_, residual_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kStore,
    .id = "asymkv",
    .paper = "arXiv:2410.13212",
    .summary = "KIVI's codes with more bits in the lower layers, more so for keys",
    .departures = {"scales are f16 whatever the model's type"},
    .bytes =
        "(key_dim * key_bits + value_dim * value_bits) / 8 + 4 * (key_dim + value_dim) / group, "
        "and up to `residual` entries uncoded",
    .params = {RealParam("key_share", 0.5, 0, 1, "share of the layers whose keys have high bits"),
               RealParam("value_share", 0, 0, 1, "share of the layers whose values have high bits"),
               IntParam("high", 2, 1, 8, "bits of a code: 1, 2, 3, 4 or 8"),
               IntParam("low", 1, 1, 8, "bits of a code: 1, 2, 3, 4 or 8"),
               IntParam("group", 32, 16, 64, "numbers that share a scale: 16, 32 or 64"),
               IntParam("residual", 128, 16, 4096,
                        "keys are coded so many at a time; so many newest values are not")},
    .make = Make<AsymKv>(),
    .goes_by_layer = true,
});

}  // namespace
}  // namespace kvgauge
