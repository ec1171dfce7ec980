// SPDX-License-Identifier: Apache-2.0
// Entries of the prompt as coordinates in bases that were found in the prompt itself.
#pragma once

#include "kernels/tensor.h"
#include "methods/store_plan.h"

namespace kvgauge {

// All entries held when the plan is executed are kept as coordinates, which all heads of the layer
// share: keys before rotation. Later entries are whole.
struct PromptBasis final : StoreLayout {
  int64_t key_rank = 0, value_rank = 0;  // numbers of an entry, all heads together; 0: side whole
  // Orthonormal columns, f32 [kv_heads * dim, rank]; set by Store::Calibrate.
  Tensor key_basis, value_basis;

  static constexpr std::string_view kId = "prompt_basis";
  std::string_view id() const override { return kId; }
  StoreTraits traits() const override;
  Status Check(const StoreUse& use) const override;
  double HeadBytes(const ModelShape& shape, int64_t entries) const override;
  int64_t EntryBits(const ModelShape& shape) const override;
  int64_t PlannedLayerBytes(const ModelShape& shape, int64_t entries, int64_t fresh) const override;
};

}  // namespace kvgauge
