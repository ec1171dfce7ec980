// SPDX-License-Identifier: Apache-2.0
// What the rows of a chunk pay to each other, later ones included, times the length of the value.
//
// Paper: the attention half of Compactor, arXiv:2507.08143; after kvpress's NonCausalAttnPress.
// Needs the sums of attention inside chunks.
#include "methods/compactor_scores.h"
#include "methods/registry.h"

namespace kvgauge {
namespace {

class NonCausal final : public Scorer {
 public:
  explicit NonCausal(const Params& params)
      : of_({.rows = params.Int("chunk"), .padded = params.Bool("compat")}) {}

  Needs needs() const override { return {.chunk_sums = {of_}}; }
  bool takes_uneven() const override { return true; }
  void Score(LayerView& view, Tensor out) const override { NonCausalScores(view, of_, out); }

 private:
  ChunkAttention of_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "noncausal",
    .paper = "arXiv:2507.08143",
    .summary = "attention inside chunks, later rows included, times the length of the value",
    .departures = {"a last chunk that is not full is not filled up with zeros, whose queries and "
                   "keys count in kvpress; compat reproduces them"},
    .params = {IntParam("chunk", 256, 2, 1 << 16, "rows of a chunk"),
               BoolParam("compat", false, "fill the last chunk up with zeros, as kvpress does")},
    .make = Make<NonCausal>(),
});

}  // namespace
}  // namespace kvgauge
