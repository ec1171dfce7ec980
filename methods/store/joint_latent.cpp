// SPDX-License-Identifier: Apache-2.0
// One row of coordinates for the keys and the values of all heads.
//
// Paper: as the joint form of MHA2MLA, arXiv:2502.14837. Needs prepare.joint_svd.
#include "methods/layouts/joint_latent.h"

#include "methods/registry.h"

namespace kvgauge {
namespace {

class JointStore final : public Store {
 public:
  explicit JointStore(const Params&) {}

  Result<StorePlan> Plan(const ModelShape& shape, int64_t) const override {
    return PlanOf(JointLatent(), {.raw = shape.rotary_dim > 0});
  }
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kStore,
    .id = "joint_latent",
    .paper = "arXiv:2502.14837",
    .summary = "coordinates that keys before rotation and values of all heads share",
    .bytes = "rank * bytes of the cache's type an entry, all heads and both sides together; bases "
             "4 * rank * heads * (key_dim + value_dim) a layer, once a model",
    .make = Make<JointStore>(),
});

}  // namespace
}  // namespace kvgauge
