// SPDX-License-Identifier: Apache-2.0
// Rows of pictures to which the prompt's last row pays least leave before one early layer.
//
// Paper: FastV, arXiv:2403.06764; after pkunlp-icler/FastV. What a row is paid is the mean over the
// query heads of the layer below. All pictures of a prompt are ranked together. With rows=all, rows
// of text may leave as well.
#include "core/strings.h"
#include "methods/registry.h"
#include "methods/row_choice.h"

namespace kvgauge {
namespace {

class FastV final : public Thin {
 public:
  explicit FastV(const Params& params)
      : choice_(params), layer_(params.Int("layer")), drop_(params.Real("drop")) {}

  Needs needs() const override {
    Needs needs = choice_.needs();
    needs.window = 1;
    return needs;
  }

  Status Check(const ModelShape& shape) const override {
    if (layer_ < shape.layers) return {};
    return BadInput(StrCat("layer is ", layer_, ", and the model has ", shape.layers,
                           " layers; expected 1 .. ", shape.layers - 1));
  }

  std::vector<int64_t> Layers(const ModelShape&) const override { return {layer_}; }

  Tensor Choose(LayerView& view) const override {
    const int64_t kept = ShareOf(choice_.CandidatesOf(view), 1 - drop_);
    return choice_.Best(view, AttentionOfLastRow(view), kept);
  }

 private:
  RowChoice choice_;
  int64_t layer_;
  double drop_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kThin,
    .id = "fastv",
    .paper = "arXiv:2403.06764",
    .summary = "rows of pictures to which the last row pays least leave before a layer",
    .departures = {"all pictures of a prompt are ranked together; the reference has one"},
    .bytes = "from its layer on what is left of the prompt, and 4 bytes an entry for its position",
    .params = RowChoice::Declare(
        "visual", {IntParam("layer", 2, 1, 1 << 16, "the first layer that fewer rows reach"),
                   RealParam("drop", 0.5, 0, 1, "the share of the candidates that leaves")}),
    .make = Make<FastV>(),
});

}  // namespace
}  // namespace kvgauge
