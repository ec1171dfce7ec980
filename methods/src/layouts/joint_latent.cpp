// SPDX-License-Identifier: Apache-2.0
#include "methods/layouts/joint_latent.h"

namespace kvgauge {

Status JointLatent::Check(const StoreUse& use) const {
  if (use.shape->latent_dim > 0) {
    return BadInput("joins keys and values, and this model has latents of its own");
  }
  if (use.has_bases) return {};
  return BadInput(
      "keeps coordinates that keys and values share, but no prepare stage writes the bases they "
      "are in; add \"prepare\": {\"id\": \"joint_svd\"}");
}

}  // namespace kvgauge
