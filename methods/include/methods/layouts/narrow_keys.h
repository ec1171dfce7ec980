// SPDX-License-Identifier: Apache-2.0
// Keys without some of their numbers, each head its own; values as they are.
#pragma once

#include "kernels/tensor.h"
#include "methods/store_plan.h"

namespace kvgauge {

// All entries held when the plan is executed, but for the last `recent` of a head, give up numbers
// of their keys: `dim` stay, the others count as 0. Later entries are whole.
struct NarrowKeys final : StoreLayout {
  int64_t dim = 0;
  int64_t recent = 0;
  Tensor channels;  // those that stay: i32 [kv_heads, dim], ascending; set by Store::Calibrate

  static constexpr std::string_view kId = "narrow_keys";
  std::string_view id() const override { return kId; }
  StoreTraits traits() const override { return {.exact = false}; }
  Status Check(const StoreUse& use) const override;
  double HeadBytes(const ModelShape& shape, int64_t entries) const override;
  int64_t EntryBits(const ModelShape& shape) const override;
};

}  // namespace kvgauge
