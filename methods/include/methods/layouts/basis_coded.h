// SPDX-License-Identifier: Apache-2.0
// Entries that went through a transform coder and came back: whole in memory, small in a file.
#pragma once

#include <vector>

#include "kernels/tensor.h"
#include "methods/store_plan.h"

namespace kvgauge {

// The entries held when the plan is executed, but for the first `sinks` and the newest `recent`,
// are rounded: without their mean, in a basis, all heads of the layer side by side. Coordinates lie
// in groups; those of a token and a group have even steps between the least and the largest, or are
// given up. A written cache holds the steps, coded by entropy; in memory entries stay in the
// cache's dtype, with their steps beside them. Later entries are as they are.
struct BasisCoded final : StoreLayout {
  struct Group {
    int64_t size = 0;  // neighbouring coordinates
    int bits = 0;      // of a step; 0: given up
  };
  struct Side {
    Tensor mean;                // f32 [1, width]; width: heads * dim
    Tensor basis;               // f32 [width, width], orthonormal columns, the strongest first
    std::vector<Group> groups;  // that make up all coordinates
  };
  Side keys, values;  // empty until Store::Calibrate
  int64_t sinks = 0, recent = 0;

  static constexpr int kMostStepBits = 8;
  static constexpr std::string_view kId = "basis_coded";
  std::string_view id() const override { return kId; }
  StoreTraits traits() const override { return {.exact = false, .by_head = false}; }
  Status Check(const StoreUse& use) const override;
};

// Sizes and numbers of a side; `name` for messages.
Status CheckBasisCoded(std::string_view name, const BasisCoded::Side& side, int64_t width);

// The groups, of 8, 16, 32, 64 or 128 coordinates, and bits that lose least where coordinates have
// these variances, in at most `budget` bits a token: a group takes its steps' and 32 for its scale.
std::vector<BasisCoded::Group> BestGroups(const std::vector<float>& variances, int64_t budget);

}  // namespace kvgauge
