// SPDX-License-Identifier: Apache-2.0
// Entries between the first and the newest as coordinates in bases that go on learning.
#pragma once

#include "kernels/ops.h"
#include "methods/store_plan.h"

namespace kvgauge {

// Each head has a basis for its keys and one for its values. When a head holds `every` entries more
// than the newest `recent`, the oldest of these become coordinates: the `every` newest change the
// basis first, by OjaStep. Coordinates that were there before stay as they are, and are read in the
// new basis; or, where `turns`, they become what the new basis holds of what they stood for.
struct LearningBasis final : StoreLayout {
  int64_t key_rank = 0, value_rank = 0;  // coordinates of an entry of a head
  int64_t sinks = 0, recent = 0, every = 1;
  float step = 0;  // 0: bases stay
  bool turns = false;
  // Orthonormal columns, f32 [kv_heads * dim, rank]; set by Store::Calibrate.
  Tensor key_basis, value_basis;

  static constexpr std::string_view kId = "learning_basis";
  std::string_view id() const override { return kId; }
  StoreTraits traits() const override { return {.exact = false}; }
  Status Check(const StoreUse& use) const override;
  double HeadBytes(const ModelShape& shape, int64_t entries) const override;
  int64_t EntryBits(const ModelShape& shape) const override;
  int64_t PlannedLayerBytes(const ModelShape& shape, int64_t entries, int64_t fresh) const override;
};

// One step of Oja's rule over a batch: the orthonormal factor of basis + step * C * basis, where C
// is the mean of x x^T over `rows` [n, dim], n > 0, contiguous. basis: [dim, rank], in place.
void OjaStep(Ops& ops, const Tensor& rows, float step, const Tensor& basis);

}  // namespace kvgauge
