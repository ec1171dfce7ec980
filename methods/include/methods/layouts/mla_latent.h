// SPDX-License-Identifier: Apache-2.0
// The latents of a model with multi-head latent attention, coded or not: one latent and one rotated
// key a layer for all heads, with the up-projections absorbed into queries and outputs.
#pragma once

#include "methods/layouts/coded.h"

namespace kvgauge {

struct MlaLatent final : Coded {
  using Coded::Coded;

  static constexpr std::string_view kId = "mla_latent";
  std::string_view id() const override { return kId; }
  StoreTraits traits() const override;
  Status Check(const StoreUse& use) const override;
  double HeadBytes(const ModelShape& shape, int64_t entries) const override;
  int64_t PlannedLayerBytes(const ModelShape& shape, int64_t entries, int64_t fresh) const override;
};

}  // namespace kvgauge
