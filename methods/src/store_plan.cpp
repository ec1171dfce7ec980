// SPDX-License-Identifier: Apache-2.0
#include "methods/store_plan.h"

#include "kernels/attention.h"
#include "methods/layouts/plain.h"

namespace kvgauge {

Status StoreLayout::Check(const StoreUse&) const { return {}; }

double StoreLayout::HeadBytes(const ModelShape& shape, int64_t entries) const {
  return static_cast<double>(entries * shape.EntryBytes());
}

int64_t StoreLayout::EntryBits(const ModelShape& shape) const { return 8 * shape.EntryBytes(); }

int64_t StoreLayout::PlannedLayerBytes(const ModelShape& shape, int64_t entries, int64_t) const {
  // The last page is part filled, and what is written next may need another.
  const int64_t pages = (entries + kKvPageEntries - 1) / kKvPageEntries + 1;
  return shape.kv_heads * pages * kKvPageEntries * shape.EntryBytes();
}

StorePlan::StorePlan() {
  static const auto kPlain = std::make_shared<const Plain>();
  layout = kPlain;
}

bool StorePlan::IsPlain() const { return layout->traits().plain && turn == KeyTurn(); }

}  // namespace kvgauge
