// SPDX-License-Identifier: Apache-2.0
// Text scores by its position, from 1 on; entries of pictures and videos score 0.
//
// No paper. Needs what entries show. With the reducer even_rest, pictures become coarser and text
// stays.
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class TextFirst final : public Scorer {
 public:
  explicit TextFirst(const Params&) {}

  Needs needs() const override { return {.modality = true}; }
  bool any_time() const override { return true; }

  void Score(LayerView& view, Tensor out) const override {
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t n = view.lengths()[h];
      if (n > 0) ScoreText(view, h, Columns(out.Slice(h, h + 1), 0, n));
    }
  }
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "text_first",
    .summary = "text by its position; pictures and videos score 0",
    .make = Make<TextFirst>(),
});

}  // namespace
}  // namespace kvgauge
