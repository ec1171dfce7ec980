// SPDX-License-Identifier: Apache-2.0
// Leverage of keys and attention inside chunks, both standardised over the layer, added.
//
// Paper: Compactor, arXiv:2507.08143; after kvpress's CompactorPress. Needs keys before rotation
// and the sums of attention inside chunks. The first and last entries are in neither half and stay.
#include <algorithm>

#include "methods/compactor_scores.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class Compactor final : public Scorer {
 public:
  explicit Compactor(const Params& params)
      : of_({.rows = params.Int("chunk"),
             .first = params.Int("sinks"),
             .last = params.Int("last"),
             .padded = params.Bool("compat")}),
        sketch_(params.Int("sketch")),
        blending_(static_cast<float>(params.Real("blending"))) {}

  Needs needs() const override { return {.chunk_sums = {of_}, .raw_keys = true}; }
  Status Check(const ModelShape& shape) const override { return CheckRawKeys(shape); }
  bool takes_uneven() const override { return true; }

  void Score(LayerView& view, Tensor out) const override {
    Ops& ops = view.ops();
    const int64_t heads = view.shape().kv_heads, n = view.width() - of_.first - of_.last;
    if (n <= 0) return ops.rows->Fill(kForcedScore, out);
    ops.rows->Fill(kForcedScore, Columns(out, 0, of_.first));
    ops.rows->Fill(kForcedScore, Columns(out, of_.first + n, view.width()));
    const Tensor body = Columns(out, of_.first, of_.first + n);
    const Tensor leverage = view.Scratch(DType::kF32, {heads, n});
    NonCausalScores(view, of_, body);
    LeverageScores(view, sketch_, of_.first, leverage);
    ops.rows->Affine(leverage, blending_, 0.0f, leverage);
    ops.rows->Combine(body, leverage, Binary::kAdd, body);
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t length = view.lengths()[static_cast<size_t>(h)];
      if (length == view.width() || length == 0) continue;
      const Tensor last =
          Columns(out.Slice(h, h + 1), std::max<int64_t>(length - of_.last, 0), length);
      if (of_.last > 0) ops.rows->Fill(kForcedScore, last);
    }
  }

 private:
  ChunkAttention of_;
  int64_t sketch_;
  float blending_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "compactor",
    .paper = "arXiv:2507.08143",
    .summary = "leverage of keys, and attention inside chunks times the length of the value",
    .departures = {"the weight of leverage is a number; kvpress takes the evicted share of the "
                   "prompt unless it is given one",
                   "a last chunk that is not full is not filled up with zeros, whose queries and "
                   "keys count in kvpress; compat reproduces them"},
    .params = {IntParam("chunk", 256, 2, 1 << 16, "rows of a chunk"), SketchParam(),
               RealParam("blending", 0.35, 0, 100, "weight of leverage beside attention"),
               IntParam("sinks", 8, 0, 4096, "first entries, which stay"),
               IntParam("last", 4, 0, 4096, "last entries, which stay"),
               BoolParam("compat", false, "fill the last chunk up with zeros, as kvpress does")},
    .make = Make<Compactor>(),
});

}  // namespace
}  // namespace kvgauge
