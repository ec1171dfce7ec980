// SPDX-License-Identifier: Apache-2.0
#include "methods/layouts/mla_latent.h"

#include "core/strings.h"

namespace kvgauge {
namespace {

// The codec of the one stream that all heads of a layer read.
KvCodec StreamCodec(const MlaLatent& layout, const ModelShape& shape) {
  KvCodec codec = layout.keys;
  codec.dim = shape.latent_dim + shape.rotary_dim;
  return codec;
}

}  // namespace

StoreTraits MlaLatent::traits() const {
  StoreTraits traits = Coded::traits();
  traits.plain = traits.by_head = false;
  traits.model_latents = true;
  return traits;
}

Status MlaLatent::Check(const StoreUse& use) const {
  KVG_TRY(Coded::Check(use));
  if (use.shape->latent_dim == 0) {
    return BadInput(
        "keeps a model's own latents, and this model has none; use it with multi-head latent "
        "attention");
  }
  if (use.corrects_reads.empty()) return {};
  return BadInput(StrCat("holds latents that all heads share, and ", use.corrects_reads,
                         " corrects what single heads read of values; leave out one of the two"));
}

double MlaLatent::HeadBytes(const ModelShape& shape, int64_t entries) const {
  return StreamBytes(StreamCodec(*this, shape), seal_keys, sinks, entries) /
         static_cast<double>(shape.kv_heads);
}

int64_t MlaLatent::PlannedLayerBytes(const ModelShape& shape, int64_t entries,
                                     int64_t fresh) const {
  return PlannedStreamBytes(StreamCodec(*this, shape), seal_keys, sinks, entries, fresh);
}

}  // namespace kvgauge
