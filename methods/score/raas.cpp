// SPDX-License-Identifier: Apache-2.0
// When an entry was last of use: the time of the newest row that pays it `least` of its attention.
//
// Paper: RaaS, arXiv:2502.11147. Needs the newest row at decode steps, and the attention of the
// last `window` prompt rows. The query head of a KV head that pays most counts. The newest entry is
// of use.
#include "methods/recurrence.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class Raas final : public Scorer {
 public:
  explicit Raas(const Params& params)
      : window_(params.Int("window")), least_(static_cast<float>(params.Real("least"))) {}

  Needs needs() const override { return {.window = window_, .step_attention = true}; }
  bool ages() const override { return true; }

  void Score(LayerView& view, Tensor out) const override {
    ForLastRows(view, window_, [&](const Tensor& row, int64_t seen, float time) {
      Stamp(view, row, time, Columns(out, 0, seen));
      view.ops().rows->Fill(time, Columns(out, seen - 1, seen));
    });
  }

  void Age(LayerView& view, Tensor scores) const override {
    const auto time = static_cast<float>(view.tokens());
    Stamp(view, MostOfGroup(view, view.StepAttention()), time, scores);
    for (int64_t h = 0; h < scores.shape[0]; ++h) {
      const int64_t n = view.lengths()[static_cast<size_t>(h)];
      view.ops().rows->Fill(time, scores[h].Slice(n - 1, n));
    }
  }

 private:
  void Stamp(LayerView& view, const Tensor& row, float time, const Tensor& scores) const {
    const Tensor used = AtLeast(view, row, least_);
    view.ops().rows->Affine(used, time, 0.0f, used);
    view.ops().rows->Combine(scores, used, Binary::kMax, scores);
  }

  int64_t window_;
  float least_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "raas",
    .version = 2,
    .paper = "arXiv:2502.11147",
    .summary = "when an entry was last paid a share of attention",
    .departures = {"entry by entry, where the paper estimates for pages of 16",
                   "the prompt is not held whole: its entries begin with what its last rows pay"},
    .bytes = "with a trigger in decode: 4 bytes an entry for its time",
    .params = {IntParam("window", 32, 1, 4096, "prompt rows that are looked at"),
               RealParam("least", 1e-4, 0, 1, "attention that makes an entry of use")},
    .make = Make<Raas>(),
});

}  // namespace
}  // namespace kvgauge
