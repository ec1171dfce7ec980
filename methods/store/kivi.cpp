// SPDX-License-Identifier: Apache-2.0
// Low-bit codes: keys by channel over groups of entries, values by entry over groups of dims.
//
// Paper: KIVI, arXiv:2402.02750. Needs nothing. Keys are coded `residual` entries at a time, the
// rest of them stays as it is; of values the last `residual` do. With `prompt_unit` the prompt's
// keys and values are coded so many at a time, and only later ones wait for `residual`, both alike:
// MiniKV's cache (arXiv:2411.18077).
#include "core/strings.h"
#include "methods/basis_change.h"
#include "methods/kivi_layout.h"
#include "methods/registry.h"

namespace kvgauge {
namespace {

class Kivi final : public Store {
 public:
  explicit Kivi(const Params& params)
      : bits_(params.Int("bits")),
        group_(params.Int("group")),
        residual_(params.Int("residual")),
        prompt_unit_(params.Int("prompt_unit")),
        sinks_(params.Int("sinks")),
        basis_(params) {}

  Status Check(const ModelShape& shape) const override {
    KVG_TRY(basis_.Check(shape, nullptr));
    if (prompt_unit_ % group_ != 0) {
      return BadInput(
          StrCat("prompt_unit ", prompt_unit_, " must be a multiple of group ", group_));
    }
    return CheckKiviLayout(shape, group_, residual_);
  }

  Result<StorePlan> Plan(const ModelShape& shape, int64_t layer) const override {
    const auto bits = static_cast<int>(bits_);
    Coded layout = KiviLayout(shape, bits, bits, group_, residual_);
    layout.sinks = sinks_;
    if (prompt_unit_ > 0) {
      const SealRule later = {.unit = residual_, .keep_recent = 0};
      layout.later = LaterCodes{layout.keys, layout.values, later, later};
      layout.seal_keys = layout.seal_values = {.unit = prompt_unit_, .keep_recent = 0};
    }
    return basis_.Plan(shape, layer, std::move(layout), {}, nullptr);
  }

 private:
  int64_t bits_, group_, residual_, prompt_unit_, sinks_;
  BasisChoice basis_;
};

std::vector<ParamSpec> KiviParams() {
  std::vector<ParamSpec> specs = {
      IntParam("bits", 2, 1, 8, "bits of a code: 1, 2, 3, 4 or 8"),
      IntParam("group", 32, 16, 128, "numbers that share a scale: 16, 32, 64 or 128"),
      IntParam("residual", 128, 16, 4096,
               "keys are coded so many at a time; so many newest values are not"),
      IntParam("prompt_unit", 0, 0, 4096,
               "entries of the prompt that are coded at a time, keys and values alike, and later "
               "ones `residual` at a time; 0: all as KIVI has it"),
      IntParam("sinks", 0, 0, 4096, "first entries that stay uncoded")};
  for (ParamSpec& spec : BasisParams(LearnedBasis::kNo)) specs.push_back(std::move(spec));
  return specs;
}

KVG_REGISTER_STAGE({
    .kind = StageKind::kStore,
    .id = "kivi",
    .paper = "arXiv:2402.02750",
    .summary = "n-bit keys by channel, n-bit values by entry, the newest uncoded",
    .departures =
        {"the default group is the published 32, not the command line's 128",
         "in groups of 128 the scale of a channel of keys stands twice, in each page of 64 "
         "entries, so its keys take the bytes of groups of 64",
         "a value of fewer than 128 dims is one group of 128, where the reference refuses it",
         "scales and zeros are f16 whatever the model's type"},
    .bytes = "(key_dim + value_dim) * (bits / 8 + 4 / group), and up to `residual` entries uncoded",
    .params = KiviParams(),
    .make = Make<Kivi>(),
    .goes_by_layer = true,
});

}  // namespace
}  // namespace kvgauge
