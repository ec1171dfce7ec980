// SPDX-License-Identifier: Apache-2.0
// The inputs of a layer's attention in the place of its keys and values, coded or not.
#pragma once

#include "methods/layouts/coded.h"

namespace kvgauge {

// One stream for all heads, whose codec is `keys`. Attention multiplies it by the projections that
// a prepare stage wrote, keys before rotation.
struct LayerInputs final : Coded {
  LayerInputs() = default;
  explicit LayerInputs(const ModelShape& shape);

  Tensor inputs;  // of the entries that are there: f32 [entries, hidden_size]; set by Calibrate

  static constexpr std::string_view kId = "layer_inputs";
  std::string_view id() const override { return kId; }
  StoreTraits traits() const override;
  Status Check(const StoreUse& use) const override;
  double HeadBytes(const ModelShape& shape, int64_t entries) const override;
  int64_t EntryBits(const ModelShape& shape) const override;
  int64_t PlannedLayerBytes(const ModelShape& shape, int64_t entries, int64_t fresh) const override;
};

}  // namespace kvgauge
