// SPDX-License-Identifier: Apache-2.0
// Low-bit codes: keys by channel over groups of entries, values by entry over groups of dims.
//
// Paper: KIVI, arXiv:2402.02750. Needs nothing. Keys are coded `residual` entries at a time, the
// rest of them stays as it is; of values the last `residual` do.
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
        sinks_(params.Int("sinks")),
        basis_(params) {}

  Status Check(const ModelShape& shape) const override {
    KVG_TRY(basis_.Check(shape, nullptr));
    return CheckKiviLayout(shape, group_, residual_);
  }

  Result<StorePlan> Plan(const ModelShape& shape, int64_t layer) const override {
    const auto bits = static_cast<int>(bits_);
    Coded layout = KiviLayout(shape, bits, bits, group_, residual_);
    layout.sinks = sinks_;
    return basis_.Plan(shape, layer, std::move(layout), {}, nullptr);
  }

 private:
  int64_t bits_, group_, residual_, sinks_;
  BasisChoice basis_;
};

std::vector<ParamSpec> KiviParams() {
  std::vector<ParamSpec> specs = {
      IntParam("bits", 2, 1, 8, "bits of a code: 1, 2, 3, 4 or 8"),
      IntParam("group", 32, 16, 128, "numbers that share a scale: 16, 32, 64 or 128"),
      IntParam("residual", 128, 16, 4096,
               "keys are coded so many at a time; so many newest values are not"),
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
