// SPDX-License-Identifier: Apache-2.0
// Entries turned by a Hadamard matrix in 2 bits, but for those that attention looks for: text in
// the first layers in 4 bits, in later ones the entries with most attention uncoded.
//
// Paper: AKVQ-VL, arXiv:2501.15021. Needs scores of the prompt's entries and the modality of
// tokens. Codes have a scale and a zero for each entry of a head; the newest entries stay
// uncoded.
#include <algorithm>
#include <string>

#include "core/strings.h"
#include "methods/layouts/classes.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

constexpr int32_t kBetter = 0, kOthers = 1;  // classes

class Akvq final : public Store {
 public:
  explicit Akvq(const Params& params)
      : text_layers_(params.Int("text_layers")),
        pivots_(params.Int("pivots")),
        bits_(params.Int("bits")),
        text_bits_(params.Int("text_bits")),
        clip_(static_cast<float>(params.Real("clip"))),
        text_clip_(static_cast<float>(params.Real("text_clip"))),
        recent_(params.Int("recent")),
        wait_(params.Int("wait")) {}

  Needs needs() const override { return {.modality = true}; }
  bool classifies() const override { return true; }
  bool needs_scores() const override { return true; }

  Status Check(const ModelShape& shape) const override {
    if (shape.latent_dim == 0) return {};
    return BadInput("codes entries of heads, and this model keeps latents in their place");
  }

  Result<StorePlan> Plan(const ModelShape& shape, int64_t layer) const override {
    const bool text = layer < text_layers_;
    Classes layout;
    layout.classes.resize(2);
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      const bool keys = side == KvSide::kKeys;
      KvCodec codec;
      codec.side = side;
      codec.dim = keys ? shape.key_dim : shape.value_dim;
      codec.dtype = shape.cache_dtype;
      KvCodec coded = codec;
      coded.kind = KvCodecKind::kAffine;
      coded.group = codec.dim;
      for (const int32_t at : {kBetter, kOthers}) {
        coded.bits = static_cast<int>(at == kBetter ? text_bits_ : bits_);
        coded.clip = at == kBetter ? text_clip_ : clip_;
        Classes::Class& one = layout.classes[static_cast<size_t>(at)];
        const bool whole = at == kBetter && !text;
        (keys ? one.keys : one.values) = whole ? codec : coded;
      }
    }
    // How much of a prompt is text is unknown; prices are those of text alone.
    layout.classes[text ? kBetter : kOthers].share = 1;
    layout.waiting = wait_ + recent_;
    layout.turns_keys = layout.turns_values = true;
    return PlanOf(std::move(layout));
  }

  void Classify(LayerView& view, const ClassInput& input, Tensor classes) const override {
    Ops& ops = view.ops();
    const bool text = view.layer() < text_layers_;
    const auto whole = [&](int64_t length) { return length == view.tokens(); };
    const bool together =
        std::all_of(view.lengths().begin(), view.lengths().end(), whole) && !input.scores.empty();
    Tensor mean;  // of all heads
    if (together) {
      mean = view.Scratch(DType::kF32, {1, view.tokens()});
      ops.rows->ReduceColumns(input.scores, Reduction::kMean, mean[0]);
    }
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const auto at = static_cast<size_t>(h);
      const int64_t length = view.lengths()[at], classed = input.classed[at];
      const int64_t end = length - std::min(recent_, length - classed);
      const Tensor row = classes[h].Slice(0, length);
      if (end > classed) {
        ops.memory->Copy(Numbers(view, end - classed, kOthers, 0), row.Slice(classed, end));
      }
      if (text && end > classed) {
        PutText(view, h, classed, row.Slice(classed, end));
      } else if (!text && classed == 0 && length > 0 && !input.scores.empty()) {
        const Tensor scores = together ? mean : Columns(input.scores.Slice(h, h + 1), 0, length);
        const int64_t count = std::min(pivots_, length);
        if (count == 0) continue;
        ops.select->Scatter(AsColumn(Numbers(view, count, kBetter, 0)), Best(view, scores, count),
                            AsColumn(row));
      }
    }
  }

 private:
  // Those that are text, of the entries from `first` on that `row` [n] is of.
  static void PutText(LayerView& view, int64_t head, int64_t first, const Tensor& row) {
    Ops& ops = view.ops();
    const int64_t n = row.shape[0];
    const Tensor text = view.OfModality(Modality::kText, head, first).Slice(0, n).Reshape({1, n});
    const Tensor sum = view.Scratch(DType::kF32, {1});
    ops.rows->ReduceRows(text, Reduction::kSum, sum);
    const auto count = static_cast<int64_t>(Fetch(ops, sum)[0]);
    if (count == 0) return;
    ops.select->Scatter(AsColumn(Numbers(view, count, kBetter, 0)), Best(view, text, count),
                        AsColumn(row));
  }

  int64_t text_layers_, pivots_, bits_, text_bits_;
  float clip_, text_clip_;
  int64_t recent_, wait_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kStore,
    .id = "akvq",
    .paper = "arXiv:2501.15021",
    .summary = "2 bits behind a Hadamard rotation; text of the first layers 4, pivots uncoded",
    .departures =
        {"pivots are the prompt's entries with the best scores, all heads of a layer together",
         "the paper finds pivots by massive activations",
         "both ends of a range are multiplied by the clipping ratio",
         "a scale and a zero are of an entry of a head; the paper's groups have 128 numbers",
         "zeros are stored as numbers", "the rotation of values is not folded into weights",
         "new entries are coded `wait` at a time"},
    .bytes = "for each side: dim * bits / 8 + 4 an entry; pivots and the newest whole",
    .params = {IntParam("text_layers", 2, 0, 1024, "first layers, where text has more bits"),
               IntParam("pivots", 15, 0, 1 << 20, "entries of the prompt that stay uncoded"),
               IntParam("bits", 2, 1, 8, "bits of a code: 1, 2, 3, 4 or 8"),
               IntParam("text_bits", 4, 1, 8, "the same of text in the first layers"),
               RealParam("clip", 0.8, 0.01, 1, "part of an entry's range that codes span"),
               RealParam("text_clip", 1, 0.01, 1, "the same of text in the first layers"),
               IntParam("recent", 128, 0, 1 << 20, "newest entries that stay uncoded"),
               IntParam("wait", 32, 1, 1 << 20, "new entries that are coded at a time")},
    .make = Make<Akvq>(),
});

}  // namespace
}  // namespace kvgauge
