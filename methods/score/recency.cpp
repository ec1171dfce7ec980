// SPDX-License-Identifier: Apache-2.0
// Later entries score higher: with protected first entries, a sliding window with sinks.
//
// Paper: StreamingLLM, arXiv:2309.17453, together with a store that counts positions in the cache.
// Needs nothing.
#include "methods/registry.h"

namespace kvgauge {
namespace {

class Recency final : public Scorer {
 public:
  explicit Recency(const Params&) {}

  bool any_time() const override { return true; }

  void Score(LayerView& view, Tensor out) const override {
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      view.ops().rows->Convert(view.Positions(h), out[h].Slice(0, view.lengths()[h]));
    }
  }
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "recency",
    .paper = "arXiv:2309.17453",
    .summary = "later entries score higher",
    .make = Make<Recency>(),
    .goes_by_layer = true,
});

}  // namespace
}  // namespace kvgauge
