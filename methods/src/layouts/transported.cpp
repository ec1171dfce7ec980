// SPDX-License-Identifier: Apache-2.0
#include "methods/layouts/transported.h"

#include "core/strings.h"

namespace kvgauge {

Status Transported::Check(const StoreUse& use) const {
  if (use.shape->latent_dim > 0) {
    return BadInput(
        "codes keys and values of heads, and this model keeps latents; take a store "
        "that says mla_latent");
  }
  for (const int64_t bins : {key_bins, value_bins}) {
    if (bins >= 4 && bins <= kMostBins && bins % 2 == 0) continue;
    return BadInput(StrCat(bins, " bins; right is an even number, 4 .. ", kMostBins));
  }
  return {};
}

}  // namespace kvgauge
