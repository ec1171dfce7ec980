// SPDX-License-Identifier: Apache-2.0
#include "methods/layouts/layer_inputs.h"

namespace kvgauge {

LayerInputs::LayerInputs(const ModelShape& shape) : Coded(shape) {
  keys.dim = shape.hidden_size;
  values.dim = 0;
}

StoreTraits LayerInputs::traits() const {
  return {.exact = false, .seals = keys.coded(), .by_head = false, .raw_keys = true};
}

Status LayerInputs::Check(const StoreUse& use) const {
  const ModelShape& shape = *use.shape;
  if (shape.latent_dim > 0) {
    return BadInput("keeps inputs of attention, and this model has latents of its own");
  }
  if (shape.key_norm) {
    return BadInput(
        "keys of this model are normed after their projection, so that the projection alone does "
        "not make them again");
  }
  if (!use.has_bases) {
    return BadInput(
        "needs the projections that make keys and values again; add \"prepare\": {\"id\": "
        "\"projections\"}");
  }
  return Coded::Check(use);
}

// All heads have the stream together.
double LayerInputs::HeadBytes(const ModelShape& shape, int64_t entries) const {
  return StreamBytes(keys, seal_keys, sinks, entries) / static_cast<double>(shape.kv_heads);
}

int64_t LayerInputs::EntryBits(const ModelShape& shape) const {
  return EntryCodeBits(keys) / shape.kv_heads;
}

int64_t LayerInputs::PlannedLayerBytes(const ModelShape& shape, int64_t entries,
                                       int64_t fresh) const {
  constexpr int64_t kPositionBytes = 4;
  // Plain entries are held until the inputs are stored; what codes plan for heads is not.
  // NOLINTNEXTLINE(bugprone-parent-virtual-call)
  const int64_t plain = StoreLayout::PlannedLayerBytes(shape, entries, fresh);
  return plain + PlannedStreamBytes(keys, seal_keys, sinks, entries, fresh) +
         shape.kv_heads * entries * kPositionBytes;
}

}  // namespace kvgauge
