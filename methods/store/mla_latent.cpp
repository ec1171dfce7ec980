// SPDX-License-Identifier: Apache-2.0
// Multi-head latent attention as it is meant: a layer keeps one latent and one rotated key for all
// its heads, and the up-projections are absorbed into queries and outputs.
//
// Paper: DeepSeek-V2, arXiv:2405.04434. Needs a model with latents. Departures: none known; without
// this stage such a model's cache holds the keys and values of every head.
#include "methods/registry.h"
#include "methods/uncoded_plan.h"

namespace kvgauge {
namespace {

class MlaLatent final : public Store {
 public:
  explicit MlaLatent(const Params&) {}

  Result<StorePlan> Plan(const ModelShape& shape, int64_t) const override {
    StorePlan plan = UncodedPlan(shape);
    plan.mla_latent = true;
    return plan;
  }
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kStore,
    .id = "mla_latent",
    .paper = "arXiv:2405.04434",
    .summary = "one latent and one rotated key a layer, as multi-head latent attention has them",
    .bytes = "(latent_dim + rotary_dim) * bytes of the cache's type, for all heads together",
    .make = Make<MlaLatent>(),
});

}  // namespace
}  // namespace kvgauge
