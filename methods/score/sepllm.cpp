// SPDX-License-Identifier: Apache-2.0
// Separators score above all other entries, and of both kinds later ones higher: what stands
// between two separators is taken to be summed up in the second.
//
// Paper: SepLLM, arXiv:2412.12094, without training. Needs the classes of tokens. With the first
// entries and a share of the last protected, the rest of a budget goes to separators, newest first,
// at most `separators` of them, and what is left to the newest others. In decode a trigger with
// slack gives up entries in batches, as the reference's cache does when it is full.
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class SepLlm final : public Scorer {
 public:
  explicit SepLlm(const Params& params) : most_(params.Int("separators")) {}

  Needs needs() const override { return {.token_classes = true}; }
  bool any_time() const override { return true; }

  void Score(LayerView& view, Tensor out) const override {
    Ops& ops = view.ops();
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t n = view.lengths()[h];
      if (n == 0) continue;
      const Tensor scores = out.Slice(h, h + 1);
      const Tensor own = Columns(scores, 0, n);
      // Below 1, so that a separator is above every other.
      ops.rows->Convert(view.Positions(h).Reshape({1, n}), own);
      ops.rows->Affine(own, 1.0f / static_cast<float>(view.tokens()), 0.0f, own);
      const Tensor separates = view.OfClass(TokenClass::kSeparator, h).Reshape({1, n});
      if (most_ > 0 && most_ < n) KeepNewest(view, separates);
      ops.rows->Combine(own, separates, Binary::kAdd, own);
    }
  }

 private:
  // Only the last few of those in a row.
  void KeepNewest(LayerView& view, const Tensor& separates) const {
    Ops& ops = view.ops();
    const int64_t n = separates.shape[1];
    std::vector<float> places(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) places[static_cast<size_t>(i)] = static_cast<float>(i + 1);
    const Tensor ranked = view.Scratch(DType::kF32, {1, n});
    ops.rows->Combine(separates, Upload(view, std::span<const float>(places)), Binary::kMultiply,
                      ranked);
    const Tensor newest = view.Scratch(DType::kF32, {n});
    ops.select->Scatter(AsColumn(Filled(view, most_, 1.0f)), Best(view, ranked, most_),
                        AsColumn(newest));
    ops.rows->Combine(separates, newest, Binary::kMultiply, separates);
  }

  int64_t most_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "sepllm",
    .paper = "arXiv:2412.12094",
    .summary = "separators first, later ones before earlier, then the newest others",
    .departures =
        {"separators are found by the text of tokens, not by lists of ids",
         "room that separators leave goes to the newest others",
         "the prompt is read with full attention before it is cut; with compress_at chunk "
         "it is cut while it is read"},
    .params = {IntParam("separators", 0, 0, 1 << 20,
                        "at most so many separators score above others; 0: all")},
    .make = Make<SepLlm>(),
});

}  // namespace
}  // namespace kvgauge
