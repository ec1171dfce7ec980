// SPDX-License-Identifier: Apache-2.0
// Entries whose keys are short score high: attention tends to favour them.
//
// Paper: arXiv:2406.11430. Needs nothing but keys; turning them does not change their length.
#include "methods/registry.h"

namespace kvgauge {
namespace {

class KeyNorm final : public Scorer {
 public:
  explicit KeyNorm(const Params&) {}

  bool any_time() const override { return true; }

  void Score(LayerView& view, Tensor out) const override {
    RowOps& ops = *view.ops().rows;
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t n = view.lengths()[h];
      if (n > 0) ops.ReduceRows(view.Keys(h), Reduction::kNorm, out[h].Slice(0, n));
    }
    ops.Affine(out, -1.0f, 0.0f, out);
  }
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "knorm",
    .version = 2,
    .paper = "arXiv:2406.11430",
    .summary = "entries whose keys are short",
    .departures = {"every layer gives up entries; the paper leaves the first two whole"},
    .make = Make<KeyNorm>(),
    .goes_by_layer = true,
});

}  // namespace
}  // namespace kvgauge
