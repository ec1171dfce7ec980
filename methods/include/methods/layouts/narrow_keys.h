// SPDX-License-Identifier: Apache-2.0
// Keys without some of their numbers, each head its own; values as they are.
#pragma once

#include <vector>

#include "kernels/tensor.h"
#include "methods/store_plan.h"

namespace kvgauge {

// All entries held when the plan is executed, but for the first `sinks` and the last `recent` of a
// head, give up numbers of their keys: `dim` stay, or as many as `kept` says of the head; the
// others count as 0. Later entries are whole.
struct NarrowKeys final : StoreLayout {
  int64_t dim = 0;                 // the most of a head
  std::vector<int64_t> kept = {};  // [kv_heads]; empty: `dim` of all
  int64_t sinks = 0, recent = 0;
  // Those that stay: i32 [kv_heads, dim], of a row the first `kept`, ascending. Set by
  // Store::Calibrate, or of the model.
  Tensor channels;

  int64_t width(int64_t head) const { return kept.empty() ? dim : kept[static_cast<size_t>(head)]; }

  static constexpr std::string_view kId = "narrow_keys";
  std::string_view id() const override { return kId; }
  StoreTraits traits() const override { return {.exact = false}; }
  Status Check(const StoreUse& use) const override;
  double HeadBytes(const ModelShape& shape, int64_t entries) const override;
  int64_t EntryBits(const ModelShape& shape) const override;
};

}  // namespace kvgauge
