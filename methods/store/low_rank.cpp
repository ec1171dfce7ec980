// SPDX-License-Identifier: Apache-2.0
// Entries are kept as coordinates in the bases that a prepare stage wrote, keys before rotation.
//
// Paper: Palu, arXiv:2407.21118. Needs nothing.
#include "methods/layouts/latent.h"
#include "methods/registry.h"

namespace kvgauge {
namespace {

class LowRank final : public Store {
 public:
  explicit LowRank(const Params&) {}

  Result<StorePlan> Plan(const ModelShape& shape, int64_t) const override {
    return PlanOf(Latent(shape), {.raw = shape.rotary_dim > 0});
  }
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kStore,
    .id = "low_rank",
    .paper = "arXiv:2407.21118",
    .summary = "coordinates in the bases that the prepare stage wrote",
    .departures = {"latents are not quantised"},
    .bytes = "ranks of a layer's groups * bytes of the cache's type; the bases once a model",
    .make = Make<LowRank>(),
});

}  // namespace
}  // namespace kvgauge
