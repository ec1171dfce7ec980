// SPDX-License-Identifier: Apache-2.0
// Coordinates in the bases that a prepare stage wrote, coded or not.
#pragma once

#include "methods/layouts/coded.h"

namespace kvgauge {

// Keys are projected before rotation. What it takes follows from the bases' ranks, which nobody
// knows before the model is prepared: until then it counts as full entries.
struct Latent final : Coded {
  using Coded::Coded;

  static constexpr std::string_view kId = "latent";
  std::string_view id() const override { return kId; }
  StoreTraits traits() const override;
  Status Check(const StoreUse& use) const override;
};

}  // namespace kvgauge
