// SPDX-License-Identifier: Apache-2.0
// Multi-head latent attention as it is meant: a layer keeps one latent and one rotated key for all
// its heads, and the up-projections are absorbed into queries and outputs.
//
// Paper: DeepSeek-V2, arXiv:2405.04434. Needs a model with latents. Without this stage
// such a model's cache holds the keys and values of every head.
#include "methods/layouts/mla_latent.h"

#include "methods/registry.h"

namespace kvgauge {
namespace {

class MlaLatentStore final : public Store {
 public:
  explicit MlaLatentStore(const Params&) {}

  Result<StorePlan> Plan(const ModelShape& shape, int64_t) const override {
    return PlanOf(MlaLatent(shape));
  }
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kStore,
    .id = "mla_latent",
    .paper = "arXiv:2405.04434",
    .summary = "one latent and one rotated key a layer, as multi-head latent attention has them",
    .bytes = "(latent_dim + rotary_dim) * bytes of the cache's type, for all heads together",
    .make = Make<MlaLatentStore>(),
});

}  // namespace
}  // namespace kvgauge
