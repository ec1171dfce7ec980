// SPDX-License-Identifier: Apache-2.0
// Attention of the newest row alone, one score for all heads of a layer.
//
// Paper: TOVA, arXiv:2401.06104. Needs the attention of the prompt's last row and of every decode
// step. As in the reference, the newest entry is not protected by itself.
#include "methods/registry.h"

namespace kvgauge {
namespace {

class Tova final : public Scorer {
 public:
  explicit Tova(const Params&) {}

  Needs needs() const override { return {.window = 1, .step_attention = true}; }
  bool any_time() const override { return true; }

  void Score(LayerView& view, Tensor out) const override {
    const int64_t heads = view.shape().query_heads, n = view.width();
    const Tensor rows =
        view.decoding() ? view.StepAttention() : view.WindowAttention(1).Reshape({heads, n});
    for (int64_t h = 0; h < out.shape[0]; ++h) {
      view.ops().rows->ReduceColumns(rows, Reduction::kMean, out[h]);
    }
  }
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "tova",
    .version = 2,
    .paper = "arXiv:2401.06104",
    .summary = "attention of the newest row, the same for all heads of a layer",
    .make = Make<Tova>(),
    .goes_by_layer = true,
});

}  // namespace
}  // namespace kvgauge
