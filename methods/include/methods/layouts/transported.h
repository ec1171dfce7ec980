// SPDX-License-Identifier: Apache-2.0
// Entries as they come out of a coder for transport: whole in memory, small in a file.
#pragma once

#include "methods/store_plan.h"

namespace kvgauge {

// The entries held when the plan is executed are rounded to an odd number of even steps: those of
// a token and a side, all heads of the layer together, between minus and plus their largest
// magnitude. A written cache holds the steps, coded by entropy; in memory entries stay in the
// cache's dtype. Later entries are as they are.
struct Transported final : StoreLayout {
  int64_t key_bins = 32, value_bins = 32;  // 4 .. kMostBins, even; bins - 1 steps

  static constexpr int64_t kMostBins = 256;
  static constexpr std::string_view kId = "transported";
  std::string_view id() const override { return kId; }
  StoreTraits traits() const override { return {.exact = false, .by_head = false}; }
  Status Check(const StoreUse& use) const override;
};

}  // namespace kvgauge
