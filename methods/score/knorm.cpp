// SPDX-License-Identifier: Apache-2.0
// Entries whose keys are short score high: attention tends to favour them.
//
// Paper: arXiv:2406.11430. Needs nothing but keys; turning them does not change their length.
// Departures: every layer gives up entries, as in kvpress; the paper leaves the first two whole.
#include <cmath>

#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class KeyNorm final : public Scorer {
 public:
  explicit KeyNorm(const Params&) {}

  bool any_time() const override { return true; }

  void Score(LayerView& view, Tensor out) const override {
    Ops& ops = view.ops();
    const int64_t dim = view.shape().key_dim;
    const Tensor ones = Filled(view, dim, 1.0f);
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t n = view.lengths()[h];
      if (n == 0) continue;
      // A key times its direction is its length; the direction comes with a length of sqrt(dim).
      const Tensor keys = view.Keys(h), products = view.Scratch(DType::kF32, {n, dim});
      ops.rows->RmsNorm(keys, ones, 0.0f, 1e-20f, products);
      ops.rows->Combine(keys, products, Binary::kMultiply, products);
      ops.rows->ReduceRows(products, Reduction::kSum, out[h].Slice(0, n));
    }
    ops.rows->Affine(out, -1.0f / std::sqrt(static_cast<float>(dim)), 0.0f, out);
  }
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "knorm",
    .paper = "arXiv:2406.11430",
    .summary = "entries whose keys are short",
    .departures = {"every layer gives up entries; the paper leaves the first two whole"},
    .make = Make<KeyNorm>(),
});

}  // namespace
}  // namespace kvgauge
