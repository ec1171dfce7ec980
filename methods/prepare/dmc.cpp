// SPDX-License-Identifier: Apache-2.0
// Rows that join the newest entry of their head instead of making one: a model that was trained to
// compress its cache while it writes it.
//
// Paper: Dynamic Memory Compression, arXiv:2403.09636 (NVIDIA/Megatron-LM, branch dmc, d36bf8d5,
// megatron/contrib/dmc). Needs a checkpoint that was retrofitted: one number of each key decides,
// one of the queries weighs, and there are no weights beside the model's own.
#include "core/strings.h"
#include "methods/registry.h"

namespace kvgauge {
namespace {

class Dmc final : public Prepare {
 public:
  explicit Dmc(const Params& params)
      : means_{.merges = params.Bool("merge"),
               .offset = static_cast<float>(params.Real("offset")),
               .window = params.Int("window")} {}

  Status Check(const ModelShape& shape) const override {
    const auto refuse = [](std::string_view why) {
      return Unsupported(StrCat(why,
                                "; expected a model whose layers all have keys and values of their "
                                "own and see the whole prompt, such as Llama"));
    };
    if (shape.latent_dim > 0) return refuse("averages keys and values, and this model has latents");
    if (shape.shared_caches) return refuse("layers of this model read the caches of others");
    if (shape.state_bytes > 0) return refuse("layers of this model keep a state of constant size");
    if (shape.distances) {
      return refuse(
          "scores of this model count how far a key is from its query (ALiBi), and an entry is at "
          "the place of its newest row");
    }
    for (size_t layer = 0; layer < shape.windows.size(); ++layer) {
      if (shape.windows[layer] == 0) continue;
      return refuse(StrCat("layer ", layer, " sees a window of ", shape.windows[layer],
                           " positions, out of which an entry of several rows never slides"));
    }
    return {};
  }

  ModelShape ShapeAfter(const ModelShape& shape) const override {
    ModelShape after = shape;
    after.running_entries = true;
    after.state_bytes += shape.layers * SizeOf(DType::kF32) *
                         means_.numbers(shape.kv_heads, shape.key_dim, shape.value_dim);
    return after;
  }

  Status Transform(WeightView& weights) const override { return weights.MeanEntries(means_); }

 private:
  EntryMeans means_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kPrepare,
    .id = "dmc",
    .paper = "arXiv:2403.09636",
    .summary = "rows join the newest entry of their head, by a number of their key",
    .departures =
        {"decides by the last numbers of a key and of the queries, and a mean counts the last "
         "`window` rows, as in the code; the paper says the first, and no bound at inference",
         "decides by f32 and keeps f32 means; the reference's decoding has bf16 and f16",
         "the queries of a KV head weigh by their mean, as where the reference trains; it decodes "
         "as many queries as keys",
         "fidelity is against the checkpoint with its two numbers in sight and no row joined, "
         "which nobody trained; merge=false is the model's own full cache"},
    .bytes = "kv_heads * ((window - 1) * (key_dim + value_dim + 1) + 1) * 4 for each layer, beside "
             "the entries that rows left",
    .params = {RealParam("offset", 5, -1000, 1000,
                         "above it a row joins; also added to what weighs (dmc-init-val)"),
               IntParam("window", 12, 1, 256, "rows of an entry that count (dmc-window-size)"),
               BoolParam("merge", true,
                         "false: every row makes an entry, as the model's own full cache")},
    .make = Make<Dmc>(),
});

}  // namespace
}  // namespace kvgauge
