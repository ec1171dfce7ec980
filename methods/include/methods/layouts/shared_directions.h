// SPDX-License-Identifier: Apache-2.0
// A layer that shares the directions of its keys and values with the layer before it.
#pragma once

#include "methods/store_plan.h"

namespace kvgauge {

// Both layers keep one direction of an entry, interpolated on the sphere, and a magnitude each.
// The layer before is Plain in its own plan and is changed with this one.
struct SharedDirections final : StoreLayout {
  double weight = 0.5;  // of this layer's direction; the rest is the other's
  double retain = 0.0;  // share of the keys, and of the values, that stay apart: the most distinct
  bool later = false;   // later entries share too, all of them, as soon as they are sealed
  int bits = 0;         // of a direction's number, with scale and zero; 0: uncoded
  int64_t group = 0;    // numbers of a direction that share them; 0: all

  static constexpr std::string_view kId = "shared_directions";
  std::string_view id() const override { return kId; }
  StoreTraits traits() const override {
    return {.exact = false, .seals = bits > 0, .by_head = false};
  }
  Status Check(const StoreUse& use) const override;
};

}  // namespace kvgauge
