// SPDX-License-Identifier: Apache-2.0
// A random number for each entry: the floor under every selection method.
//
// No paper. Needs nothing. The number follows from the sample's seed, layer, head and position, so
// an entry keeps it as long as it lives, and a smaller budget keeps a subset of a larger one.
#include "methods/registry.h"

namespace kvgauge {
namespace {

class Random final : public Scorer {
 public:
  explicit Random(const Params&) {}

  bool any_time() const override { return true; }

  void Score(LayerView& view, Tensor out) const override {
    const int64_t heads = view.shape().kv_heads;
    for (int64_t h = 0; h < heads; ++h) {
      const auto stream = static_cast<uint64_t>(view.layer() * heads + h);
      view.ops().rows->Uniform(view.seed(), stream, view.Positions(h),
                               out[h].Slice(0, view.lengths()[h]));
    }
  }
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "random",
    .summary = "a random number for each entry",
    .make = Make<Random>(),
    .goes_by_layer = true,
});

}  // namespace
}  // namespace kvgauge
