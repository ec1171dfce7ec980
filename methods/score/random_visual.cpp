// SPDX-License-Identifier: Apache-2.0
// A random number below 1 for each entry of a picture or a video; text scores above, later text
// higher.
//
// No paper. Needs what entries show. With top_k, rows of pictures are given up at random, and text
// only when none of them is left: the floor under every method for pictures. A prompt without
// pictures keeps its newest tokens.
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class RandomVisual final : public Scorer {
 public:
  explicit RandomVisual(const Params&) {}

  Needs needs() const override { return {.modality = true}; }
  bool any_time() const override { return true; }

  void Score(LayerView& view, Tensor out) const override {
    RowOps& rows = *view.ops().rows;
    const int64_t heads = view.shape().kv_heads;
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t n = view.lengths()[h];
      if (n == 0) continue;
      const Tensor scores = Columns(out.Slice(h, h + 1), 0, n);
      const Tensor number = view.Scratch(DType::kF32, {n});
      rows.Uniform(view.seed(), static_cast<uint64_t>(view.layer() * heads + h), view.Positions(h),
                   number);
      ScoreText(view, h, scores);
      // Text is at least 1, and the numbers are below.
      rows.Combine(scores, number.Reshape({1, n}), Binary::kMax, scores);
    }
  }
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "random_visual",
    .summary = "a random number for each row of a picture or video, below all text",
    .make = Make<RandomVisual>(),
});

}  // namespace
}  // namespace kvgauge
