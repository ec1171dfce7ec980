// SPDX-License-Identifier: Apache-2.0
// Rows leave several times on the way up: each time those to which the prompt's last row pays
// least.
//
// Paper: PyramidDrop, arXiv:2410.17247; after Cooperx521/PyramidDrop. What a row is paid is the
// mean over the query heads of the layer below. Before each of `times` layers, evenly spaced, a
// share of what was left before leaves, counted from what the prompt had. With rows=all, this is
// the pruning of LazyLLM, arXiv:2407.14057.
#include <algorithm>
#include <cmath>

#include "core/strings.h"
#include "methods/registry.h"
#include "methods/row_choice.h"

namespace kvgauge {
namespace {

class PyramidDrop final : public Thin {
 public:
  explicit PyramidDrop(const Params& params)
      : choice_(params), times_(params.Int("times")), drop_(params.Real("drop")) {}

  Needs needs() const override {
    Needs needs = choice_.needs();
    needs.window = 1;
    return needs;
  }

  Status Check(const ModelShape& shape) const override {
    if (shape.layers > 1) return {};
    return BadInput("the model has one layer, so no layer is left above one; expected 2 or more");
  }

  std::vector<int64_t> Layers(const ModelShape& shape) const override {
    std::vector<int64_t> layers;
    for (int64_t time = 1; time <= times_; ++time) {
      const int64_t layer = LayerOf(shape, time);
      if (layers.empty() || layers.back() < layer) layers.push_back(layer);
    }
    return layers;
  }

  Tensor Choose(LayerView& view) const override {
    // In models of few layers several times fall on one.
    int64_t time = 0;
    while (time < times_ && LayerOf(view.shape(), time + 1) <= view.layer() + 1) ++time;
    const double share = std::pow(1 - drop_, static_cast<double>(time));
    return choice_.Best(view, AttentionOfLastRow(view), ShareOf(choice_.CandidatesOf(view), share));
  }

 private:
  int64_t LayerOf(const ModelShape& shape, int64_t time) const {
    return std::max<int64_t>(shape.layers * time / (times_ + 1), 1);
  }

  RowChoice choice_;
  int64_t times_;
  double drop_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kThin,
    .id = "pyramiddrop",
    .paper = "arXiv:2410.17247",
    .summary = "rows to which the last row pays least leave several times on the way up",
    .departures = {"the attention is that of the layer below, which is computed anyway; the "
                   "reference projects queries and keys of the layer itself for it",
                   "rows keep their positions; the reference numbers them anew",
                   "all pictures of a prompt are ranked together; the reference ranks each"},
    .bytes = "from the first of its layers on what is left of the prompt, and 4 bytes an entry for "
             "its position",
    .params = RowChoice::Declare("visual",
                                 {IntParam("times", 3, 1, 64, "how often rows leave"),
                                  RealParam("drop", 0.5, 0, 1, "the share that leaves each time")}),
    .make = Make<PyramidDrop>(),
});

}  // namespace
}  // namespace kvgauge
