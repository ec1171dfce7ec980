// SPDX-License-Identifier: Apache-2.0
// Attention received so far, after a Gumbel number was added to each logit and the softmax was
// flattened.
//
// Paper: Keyformer, arXiv:2403.09054. Needs the attention of the last `window` prompt rows, and the
// newest row at decode steps. A row counts as softmax((logits + g) / tau); probabilities do for
// logits, as the softmax forgets what a row has in common. g is a function of the seed, the layer,
// the query head, the row and the entry's position.
// The reference raises tau from 1 to 2 over the answer.
#include <algorithm>

#include "methods/registry.h"
#include "methods/score_reduction.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

// Sets the draws apart from those of other stages.
constexpr uint64_t kKeyformerStream = 0x6b6579;
constexpr int kRowBits = 24, kHeadBits = 16;

class Keyformer final : public Scorer {
 public:
  explicit Keyformer(const Params& params)
      : window_(params.Int("window")),
        tau_(static_cast<float>(params.Real("tau"))),
        decode_tau_(static_cast<float>(params.Real("decode_tau"))),
        noise_(params.Bool("noise")),
        reduction_(ScoreReduction::From(params)) {}

  Needs needs() const override { return {.window = window_, .step_attention = true}; }
  Status Check(const ModelShape&) const override { return reduction_.Check(); }
  bool ages() const override { return true; }

  void Score(LayerView& view, Tensor out) const override {
    const int64_t n = view.width(), heads = view.shape().query_heads;
    if (n == 0) return;
    const Tensor attention = view.WindowAttention(std::min(window_, n));
    const int64_t rows = attention.shape[1];
    const Tensor work = view.Scratch(DType::kF32, {rows, n});
    const Tensor sums = view.Scratch(DType::kF32, {heads, n});
    for (int64_t h = 0; h < heads; ++h) {
      Flatten(view, h, view.tokens() - rows, attention[h], tau_, work);
      view.ops().rows->ReduceColumns(work, Reduction::kSum, sums[h]);
    }
    reduction_.Apply(view, sums, out);
  }

  void Age(LayerView& view, Tensor scores) const override {
    const int64_t heads = view.shape().query_heads, group = view.shape().group();
    const Tensor attention = view.StepAttention();
    const Tensor rows = view.Scratch(DType::kF32, {heads, view.width()});
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t n = view.lengths()[h / group];
      if (n == 0) continue;
      Flatten(view, h, view.tokens() - 1, Columns(attention.Slice(h, h + 1), 0, n), decode_tau_,
              Columns(rows.Slice(h, h + 1), 0, n));
    }
    const Tensor row = view.Scratch(DType::kF32, {scores.shape[0], scores.shape[1]});
    reduction_.Apply(view, rows, row);
    view.ops().rows->Combine(scores, row, Binary::kAdd, scores);
  }

 private:
  // Rows `first_row` and on of a query head's attention, [m, n], as they count.
  void Flatten(LayerView& view, int64_t head, int64_t first_row, const Tensor& attention, float tau,
               const Tensor& out) const {
    RowOps& ops = *view.ops().rows;
    const int64_t m = attention.shape[0], n = attention.shape[1];
    ops.Activate(attention, Activation::kLog, out);  // -inf where nothing is seen
    if (noise_) {
      const Tensor noise = view.Scratch(DType::kF32, {m, n});
      const Tensor positions = view.Positions(head / view.shape().group());
      const auto place = static_cast<uint64_t>(view.layer() * view.shape().query_heads + head);
      for (int64_t r = 0; r < m; ++r) {
        const uint64_t stream = (kKeyformerStream << kHeadBits | place) << kRowBits;
        Gumbel(view, stream | static_cast<uint64_t>(first_row + r), positions, noise[r]);
      }
      ops.Combine(out, noise, Binary::kAdd, out);
    }
    ops.Softmax(out, 1.0f / tau, out);
  }

  int64_t window_;
  float tau_, decode_tau_;
  bool noise_;
  ScoreReduction reduction_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "keyformer",
    .paper = "arXiv:2403.09054",
    .summary = "attention received so far, flattened and with Gumbel noise on its logits",
    .departures = {"the last `window` rows of the prompt count, not all",
                   "tau is one number for the prompt and one for decode steps",
                   "one set of entries per KV head, not per query head"},
    .bytes = "with a trigger in decode: 4 bytes an entry for its score",
    .params = ScoreReduction::Declare(
        {.group = ScoreReduction::Group::kSum},
        {IntParam("window", 64, 1, 4096, "prompt rows that are looked at"),
         RealParam("tau", 1, 0.05, 100, "temperature of prompt rows"),
         RealParam("decode_tau", 1.5, 0.05, 100, "temperature of decode steps"),
         BoolParam("noise", true, "whether logits get noise")}),
    .make = Make<Keyformer>(),
});

}  // namespace
}  // namespace kvgauge
