// SPDX-License-Identifier: Apache-2.0
// One row of coordinates for the keys and the values of all heads of an entry.
#pragma once

#include "methods/store_plan.h"

namespace kvgauge {

// In the bases that a prepare stage wrote for both sides of a layer, one for all heads each, whose
// columns go together: stacked, they are orthonormal. Keys are those before rotation. What it takes
// follows from their rank, which is known once the model is prepared: before, it counts as full
// entries.
struct JointLatent final : StoreLayout {
  static constexpr std::string_view kId = "joint_latent";
  std::string_view id() const override { return kId; }
  StoreTraits traits() const override {
    return {.exact = false, .by_head = false, .raw_keys = true};
  }
  Status Check(const StoreUse& use) const override;
  // Both forms are held while one becomes the other.
  int64_t PlannedLayerBytes(const ModelShape& shape, int64_t entries,
                            int64_t fresh) const override {
    return 2 * StoreLayout::PlannedLayerBytes(shape, entries, fresh);
  }
};

}  // namespace kvgauge
