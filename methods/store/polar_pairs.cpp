// SPDX-License-Identifier: Apache-2.0
// Keys as radius and angle of each pair of dims that turn together.
//
// Paper: PolarQuant, arXiv:2502.00527. Needs nothing. After rotary embedding the two dims of a pair
// go round a circle whose radius hardly changes, so codes of few bits fit the radius, and a loud
// dim makes no other coarse. A code stands for the middle of its step. Values are low-bit codes by
// entry. Both are coded `residual` entries at a time.
#include <algorithm>

#include "core/strings.h"
#include "methods/layouts/coded.h"
#include "methods/registry.h"

namespace kvgauge {
namespace {

class PolarPairs final : public Store {
 public:
  explicit PolarPairs(const Params& params)
      : key_bits_(params.Int("key_bits")),
        value_bits_(params.Int("value_bits")),
        group_(params.Int("group")),
        value_group_(params.Int("value_group")),
        residual_(params.Int("residual")) {}

  Status Check(const ModelShape& shape) const override {
    if (shape.latent_dim > 0) {
      return BadInput("codes pairs of a key's dims, and this model keeps latents of its own");
    }
    if (shape.key_dim % 2 != 0) {
      return BadInput(StrCat("keys have ", shape.key_dim, " dims, which make no pairs"));
    }
    if (residual_ % group_ == 0) return {};
    return BadInput(StrCat("residual ", residual_, " must be a multiple of group ", group_));
  }

  Result<StorePlan> Plan(const ModelShape& shape, int64_t) const override {
    Coded layout(shape);
    layout.keys.kind = KvCodecKind::kPolarPairs;
    layout.keys.bits = static_cast<int>(key_bits_);
    layout.keys.group = group_;
    const bool halves = shape.rope_layout == RopeLayout::kHalf && shape.rotary_dim == shape.key_dim;
    layout.keys.apart = halves ? shape.key_dim / 2 : 1;
    layout.seal_keys = {.unit = residual_, .keep_recent = 0};
    if (value_bits_ > 0) {
      layout.values.kind = KvCodecKind::kAffine;
      layout.values.bits = static_cast<int>(value_bits_);
      layout.values.group = std::min(value_group_, shape.value_dim);
      layout.seal_values = {.unit = residual_, .keep_recent = 0};
    }
    return PlanOf(std::move(layout));
  }

 private:
  int64_t key_bits_, value_bits_, group_, value_group_, residual_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kStore,
    .id = "polar_pairs",
    .paper = "arXiv:2502.00527",
    .summary = "keys as radius and angle of pairs of dims, values as low-bit codes",
    .departures = {"64 entries share the ranges of a pair, not 128, for they lie in one page",
                   "codes are computed with ranges as they are stored, in f16",
                   "attention rebuilds keys page by page, in place of sums of looked-up cosines",
                   "attention of the prompt reads uncoded entries"},
    .bytes =
        "key_dim * (key_bits / 8 + 4 / group) + value_dim * (value_bits / 8 + 4 / value_group), "
        "and up to `residual` entries uncoded",
    .params = {IntParam("key_bits", 4, 1, 8, "bits of a radius, and of an angle"),
               IntParam("value_bits", 4, 0, 8, "1, 2, 3, 4 or 8; 0: uncoded"),
               IntParam("group", 64, 16, 64, "entries that share a range: 16, 32 or 64"),
               IntParam("value_group", 128, 1, 4096,
                        "numbers of a value that share a scale; at most a value"),
               IntParam("residual", 128, 16, 4096, "entries are coded so many at a time")},
    .make = Make<PolarPairs>(),
});

}  // namespace
}  // namespace kvgauge
