// SPDX-License-Identifier: Apache-2.0
// Entries whose keys point away from the mean direction score high.
//
// Paper: KeyDiff, arXiv:2504.15364. Needs nothing but keys, as attention sees them.
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class KeyDiff final : public Scorer {
 public:
  explicit KeyDiff(const Params&) {}

  bool any_time() const override { return true; }

  void Score(LayerView& view, Tensor out) const override {
    Ops& ops = view.ops();
    const int64_t dim = view.shape().key_dim;
    const Tensor ones = Filled(view, dim, 1.0f);
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t n = view.lengths()[h];
      if (n == 0) continue;
      const Tensor keys = view.Keys(h);
      // Unit vectors times the root of dim: the anchor's length does not matter.
      Tensor units = view.Scratch(DType::kF32, {n, dim}), anchor = view.Scratch(DType::kF32, {dim});
      ops.rows->RmsNorm(keys, ones, 0.0f, 1e-20f, units);
      ops.rows->ReduceColumns(units, Reduction::kMean, anchor);
      ops.algebra->CosineSimilarity(keys, anchor.Reshape({1, dim}),
                                    out[h].Slice(0, n).Reshape({n, 1}));
    }
    ops.rows->Affine(out, -1.0f, 0.0f, out);
  }
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "keydiff",
    .paper = "arXiv:2504.15364",
    .summary = "entries whose keys point away from the mean direction",
    .departures = {"the whole prompt is scored at once, not block by block"},
    .make = Make<KeyDiff>(),
});

}  // namespace
}  // namespace kvgauge
