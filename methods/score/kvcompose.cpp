// SPDX-License-Identifier: Apache-2.0
// The most attention that an entry gets when the prompt is read again, averaged over the query
// heads of a KV head, and the mean of all heads.
//
// Paper: KVCompose, arXiv:2509.05165; after kvpress's KVComposePress without prompts of a task.
// Probes: the prompt itself, behind itself.
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class KvCompose final : public Scorer {
 public:
  explicit KvCompose(const Params& params) : mean_(params.Bool("mean")) {}

  int64_t ProbeRows(int64_t prompt) const override { return prompt; }

  Result<std::vector<Probe>> Probes(const ProbeInput& input) const override {
    return std::vector<Probe>{{.ids = {input.prompt.begin(), input.prompt.end()},
                               .end = static_cast<int64_t>(input.prompt.size())}};
  }

  void Score(LayerView& view, Tensor out) const override {
    RowOps& ops = *view.ops().rows;
    const int64_t group = view.shape().group();
    const Tensor maxima = view.ProbeMaxima();
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      ops.ReduceColumns(maxima.Slice(h * group, (h + 1) * group), Reduction::kMean, out[h]);
    }
    if (!mean_) return;
    const Tensor mean = view.Scratch(DType::kF32, {view.width()});
    ops.ReduceColumns(out, Reduction::kMean, mean);
    ops.Combine(out, mean, Binary::kAdd, out);
  }

 private:
  bool mean_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "kvcompose",
    .paper = "arXiv:2509.05165",
    .summary = "the most attention that an entry gets when the prompt is read again",
    .departures = {"pictures are not read again; their entries count by the rows of the text"},
    .params = {BoolParam("mean", true, "add the mean over the heads of the layer")},
    .make = Make<KvCompose>(),
});

}  // namespace
}  // namespace kvgauge
