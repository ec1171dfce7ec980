// SPDX-License-Identifier: Apache-2.0
#include "methods/layouts/latent.h"

namespace kvgauge {

StoreTraits Latent::traits() const {
  StoreTraits traits = Coded::traits();
  traits.plain = traits.exact = traits.by_head = false;
  traits.raw_keys = true;
  return traits;
}

Status Latent::Check(const StoreUse& use) const {
  KVG_TRY(Coded::Check(use));
  if (use.shape->latent_dim > 0) {
    return BadInput(
        "keeps keys before rotation, but latent attention rotates a part of its own; use a store "
        "that keeps them rotated");
  }
  if (use.has_bases) return {};
  return BadInput(
      "keeps latents, but no prepare stage writes the bases they are coordinates in; add one, such "
      "as palu");
}

}  // namespace kvgauge
