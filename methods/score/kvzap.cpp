// SPDX-License-Identifier: Apache-2.0
// The score that KVzip would give an entry, predicted from the input of its layer's attention.
//
// Paper: KVzap, arXiv:2601.07891; after kvpress's KVzapPress. Needs the layers' inputs, in prefill
// and decode, and trained weights: one linear map for each layer, or two with a GELU between them.
// Scores are natural logs, as the published heads give them.
#include "methods/mlp_gate.h"

namespace kvgauge {
namespace {

class KvZap final : public MlpGateScorer {
 public:
  explicit KvZap(const Params& params)
      : MlpGateScorer(params, {.name = "kvzap",
                               .one_map = params.Text("kind") == "linear",
                               .inner = params.Int("inner")}) {}
};

// The published heads have these names already.
Result<Calibration::Tables> ImportKvZap(const Calibration::Tables& published) { return published; }

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "kvzap",
    .paper = "arXiv:2601.07891",
    .summary = "KVzip's score, predicted from the input of the entry's layer",
    .bytes =
        "4 bytes a weight of its gate, once a model; with a trigger in decode 4 bytes an entry",
    .params = GateTables::Declare(
        {ChoiceParam("kind", "mlp", {"mlp", "linear"}, "two maps with a GELU between them, or one"),
         IntParam("inner", 0, 0, 1 << 16, "numbers between the two; 0: an eighth of the model's")}),
    .make = Make<KvZap>(),
    .calibrated_params = {"kind", "inner"},
    .import = ImportKvZap,
});

}  // namespace
}  // namespace kvgauge
