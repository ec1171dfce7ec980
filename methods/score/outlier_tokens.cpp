// SPDX-License-Identifier: Apache-2.0
// Tokens that carry outliers first: marks of the format and separators, the first ones of a text
// before later ones. All others score 0.
//
// Paper: as PrefixQuant's outlier tokens, arXiv:2410.05265. Needs the classes of tokens.
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class OutlierTokens final : public Scorer {
 public:
  explicit OutlierTokens(const Params& params) : separators_(params.Bool("separators")) {}

  Needs needs() const override { return {.token_classes = true}; }
  bool any_time() const override { return true; }

  void Score(LayerView& view, Tensor out) const override {
    RowOps& ops = *view.ops().rows;
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t n = view.lengths()[static_cast<size_t>(h)];
      if (n == 0) continue;
      const Tensor own = Columns(out.Slice(h, h + 1), 0, n);
      const Tensor marked = view.OfClass(TokenClass::kSpecial, h).Reshape({1, n});
      if (separators_) {
        ops.Combine(marked, view.OfClass(TokenClass::kSeparator, h).Reshape({1, n}), Binary::kMax,
                    marked);
      }
      // As many as tokens follow, its own included.
      ops.Convert(view.Positions(h).Reshape({1, n}), own);
      ops.Affine(own, -1.0f, static_cast<float>(view.tokens()), own);
      ops.Combine(own, marked, Binary::kMultiply, own);
    }
  }

 private:
  bool separators_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "outlier_tokens",
    .paper = "arXiv:2410.05265",
    .summary = "marks of the format and separators, the first ones first",
    .departures = {"tokens are found by their text, not by the sizes of what they make a layer "
                   "compute"},
    .params = {BoolParam("separators", true, "false: marks of the format alone")},
    .make = Make<OutlierTokens>(),
});

}  // namespace
}  // namespace kvgauge
