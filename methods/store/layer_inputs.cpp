// SPDX-License-Identifier: Apache-2.0
// The inputs of each layer's attention in the place of its keys and values, which are made of them
// again whenever they are read; coded, if wanted, groups of an input's numbers by themselves.
//
// Papers: XQuant, arXiv:2508.10395, and HCache, arXiv:2410.05004. Needs the inputs of the layers
// for all rows of the prompt, and prepare.projections.
#include "methods/layouts/layer_inputs.h"

#include <algorithm>
#include <utility>

#include "methods/registry.h"

namespace kvgauge {
namespace {

class InputsStore final : public Store {
 public:
  explicit InputsStore(const Params& params)
      : bits_(params.Int("bits")),
        group_(params.Int("group")),
        recent_(params.Int("keep_recent")) {}

  Needs needs() const override { return {.inputs = true}; }

  Result<StorePlan> Plan(const ModelShape& shape, int64_t) const override {
    LayerInputs layout(shape);
    if (bits_ > 0) {
      layout.keys.kind = KvCodecKind::kAffine;
      layout.keys.bits = static_cast<int>(bits_);
      layout.keys.group = std::min(group_, shape.hidden_size);
      layout.seal_keys = SealWhole(layout.keys, recent_);
    }
    return PlanOf(std::move(layout), {.raw = shape.rotary_dim > 0});
  }

  void Calibrate(LayerView& view, StorePlan& plan) const override {
    LayerInputs layout = *plan.Get<LayerInputs>();
    layout.inputs = view.Inputs();
    plan = PlanOf(std::move(layout), plan.turn);
  }

 private:
  int64_t bits_, group_, recent_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kStore,
    .id = "layer_inputs",
    .paper = "arXiv:2508.10395",
    .summary = "inputs of attention, of which keys and values are made again when they are read",
    .departures =
        {"inputs are those behind the layer's norm, so that one product makes keys and values "
         "again",
         "projections stand beside the model's weights once more, in f32, and are counted",
         "where a projection has a bias, an input ends in a 1, which codes keep if `group` divides "
         "it",
         "models whose keys are normed are refused"},
    .bytes = "hidden_size * bytes of the cache's type, or * (bits / 8 + 4 / group), for all heads "
             "of a layer together; the projections once a model",
    .params = {IntParam("bits", 0, 0, 8, "1, 2, 3, 4 or 8; 0: uncoded"),
               IntParam("group", 128, 1, 4096,
                        "numbers of an input that share a scale; at most an input"),
               IntParam("keep_recent", 0, 0, 1 << 20, "newest entries that stay uncoded")},
    .make = Make<InputsStore>(),
});

}  // namespace
}  // namespace kvgauge
