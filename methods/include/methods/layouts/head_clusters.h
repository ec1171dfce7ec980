// SPDX-License-Identifier: Apache-2.0
// Keys of some KV heads alone; values of all.
#pragma once

#include <vector>

#include "methods/store_plan.h"

namespace kvgauge {

// Heads in clusters: the first head of each keeps its keys, and the others attend by its attention,
// with values of their own.
struct HeadClusters final : StoreLayout {
  int64_t clusters = 1;
  // [kv_heads] the first head of each head's cluster. Set by Store::Calibrate.
  std::vector<int64_t> first = {};

  static constexpr std::string_view kId = "head_clusters";
  std::string_view id() const override { return kId; }
  StoreTraits traits() const override { return {.exact = false, .by_head = false}; }
  Status Check(const StoreUse& use) const override;
  double HeadBytes(const ModelShape& shape, int64_t entries) const override;
  int64_t EntryBits(const ModelShape& shape) const override;
  int64_t PlannedLayerBytes(const ModelShape& shape, int64_t entries, int64_t fresh) const override;
};

}  // namespace kvgauge
