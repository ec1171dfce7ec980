// SPDX-License-Identifier: Apache-2.0
// A model's own latents: the cache was made for them before the prefill, so nothing is converted.
#include "methods/layouts/mla_latent.h"

#include "src/cache/layouts/coded.h"

namespace kvgauge {
namespace {

class MlaLatentLayer final : public CodedLayer {
 public:
  std::string_view id() const override { return MlaLatent::kId; }
  std::unique_ptr<LayerLayout> Fork() const override {
    return std::make_unique<MlaLatentLayer>(*this);
  }

  Status Check(const LayerEntries& entries) const override {
    if (!entries.setup->values_in_keys) {
      return Unsupported(
          "mla_latent: the cache was filled with expanded keys; it must be made for latents before "
          "the prefill");
    }
    if (plan().values.coded()) {
      return Unsupported(
          "mla_latent goes with a codec for the keys alone: values are read from the same latents");
    }
    return CheckCodes(entries);
  }
};

}  // namespace
KVG_REGISTER_LAYOUT(mla_latent, MlaLatent, MlaLatentLayer)
}  // namespace kvgauge
