// SPDX-License-Identifier: Apache-2.0
#include "methods/layouts/shared_directions.h"

#include "core/strings.h"

namespace kvgauge {

Status SharedDirections::Check(const StoreUse& use) const {
  if (use.layer > 0) return {};
  return BadInput("the first layer would share with the layer before it, and there is none");
}

}  // namespace kvgauge
