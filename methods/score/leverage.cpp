// SPDX-License-Identifier: Apache-2.0
// Keys that add directions which few others have score high: leverage scores of the prompt's keys.
//
// Paper: the other half of Compactor, arXiv:2507.08143; after kvpress's LeverageScorePress. Needs
// keys before rotation. The random directions are drawn for each sample, layer and head.
#include "methods/compactor_scores.h"
#include "methods/registry.h"

namespace kvgauge {
namespace {

class Leverage final : public Scorer {
 public:
  explicit Leverage(const Params& params) : sketch_(params.Int("sketch")) {}

  Needs needs() const override { return {.raw_keys = true}; }
  Status Check(const ModelShape& shape) const override { return CheckRawKeys(shape); }
  bool takes_uneven() const override { return true; }
  void Score(LayerView& view, Tensor out) const override { LeverageScores(view, sketch_, 0, out); }

 private:
  int64_t sketch_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "leverage",
    .paper = "arXiv:2507.08143",
    .summary = "leverage of keys before rotation, in random directions",
    .params = {SketchParam()},
    .make = Make<Leverage>(),
});

}  // namespace
}  // namespace kvgauge
