// SPDX-License-Identifier: Apache-2.0
// Entries whose values are long score high: what little attention they get moves the output far.
//
// An example, after the value norms that arXiv:2406.12335 multiplies attention with.
#include "methods/registry.h"

namespace kvgauge {
namespace {

class ValueNorm final : public Scorer {
 public:
  explicit ValueNorm(const Params& params) : sign_(params.Bool("shortest") ? -1.0f : 1.0f) {}

  // Values are there in decode steps as well.
  bool any_time() const override { return true; }

  // out: [kv_heads, longest length]
  void Score(LayerView& view, Tensor out) const override {
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const Tensor scores = out[h].Slice(0, view.lengths()[h]);
      view.ops().rows->ReduceRows(view.Values(h), Reduction::kSumSquares, scores);
    }
    view.ops().rows->Affine(out, sign_, 0.0f, out);
  }

 private:
  float sign_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "value_norm",
    .version = 1,
    .paper = "arXiv:2406.12335",
    .summary = "entries whose values are long",
    .departures = {"squares of L2 norms alone; the paper multiplies attention with L1 norms"},
    .params = {BoolParam("shortest", false, "keep the entries whose values are short instead")},
    .make = Make<ValueNorm>(),
});

}  // namespace
}  // namespace kvgauge
