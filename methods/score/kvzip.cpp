// SPDX-License-Identifier: Apache-2.0
// The most attention that an entry gets while the model repeats the prompt.
//
// Paper: KVzip, arXiv:2505.23416; KVzip+ in arXiv:2510.00636 (KVPress); after kvpress's KVzipPress.
// Probes: for each chunk of the prompt an instruction to repeat it, and the chunk itself, measured
// over the first entries, the chunk and the probe. The chunks end where the prompt does.
#include <algorithm>
#include <string_view>

#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

// Arrays: a view that is handed on by reference would be a variable of the stage.
constexpr char kRepeatAll[] = "\n\nRepeat the previous context exactly.";
constexpr char kRepeatPart[] = "\n\nRepeat the part of the previous context exactly, starting with";
constexpr char kBegin[] = "\n";
constexpr int64_t kOverlap = 8;  // tokens of the chunk before that say where to start

class KvZip final : public Scorer {
 public:
  explicit KvZip(const Params& params)
      : chunk_(params.Int("chunk")), sinks_(params.Int("sinks")), plus_(params.Bool("plus")) {}

  Needs needs() const override { return {.output_weights = plus_, .encoder = true}; }

  // A text has at most as many tokens as bytes, and one that some tokenizers put before it.
  int64_t ProbeRows(int64_t prompt) const override {
    return std::min(prompt, chunk_) + kOverlap +
           static_cast<int64_t>(sizeof(kRepeatPart) + sizeof(kBegin));
  }

  Result<std::vector<Probe>> Probes(const ProbeInput& input) const override {
    const auto n = static_cast<int64_t>(input.prompt.size());
    KVG_ASSIGN(const std::vector<int32_t> begins, input.encode(kBegin));
    std::vector<Probe> probes;
    for (int64_t begin = 0; begin < n; begin += chunk_) {
      Probe probe = {.ids = {},
                     .sinks = std::min(sinks_, begin),
                     .begin = begin,
                     .end = std::min(begin + chunk_, n),
                     .over_input_length = plus_};
      const auto add = [&](std::span<const int32_t> ids) {
        probe.ids.insert(probe.ids.end(), ids.begin(), ids.end());
      };
      KVG_ASSIGN(const std::vector<int32_t> asks,
                 input.encode(begin == 0 ? kRepeatAll : kRepeatPart));
      add(asks);
      const int64_t before = std::min(kOverlap, begin);
      add(input.prompt.subspan(static_cast<size_t>(begin - before), static_cast<size_t>(before)));
      add(begins);
      add(input.prompt.subspan(static_cast<size_t>(begin), static_cast<size_t>(probe.end - begin)));
      probes.push_back(std::move(probe));
    }
    return probes;
  }

  void Score(LayerView& view, Tensor out) const override {
    RowOps& ops = *view.ops().rows;
    const int64_t group = view.shape().group(), n = view.width();
    const Tensor maxima = view.ProbeMaxima();
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      Tensor own = maxima.Slice(h * group, (h + 1) * group);
      if (plus_) own = TimesOutputs(view, h, own);
      ops.ReduceColumns(own, Reduction::kMax, out[h]);
    }
    if (sinks_ > 0) ops.Fill(kForcedScore, Columns(out, 0, std::min(sinks_, n)));
  }

 private:
  // Times how long the value is behind the output projection of each query head. [group, n]
  static Tensor TimesOutputs(LayerView& view, int64_t head, const Tensor& maxima) {
    Ops& ops = view.ops();
    const int64_t group = maxima.shape[0], n = maxima.shape[1], dim = view.shape().value_dim;
    const int64_t hidden = view.shape().hidden_size;
    const Tensor values = view.Values(head).Reshape({1, n, dim});
    const Tensor across = view.Scratch(DType::kF32, {1, dim, dim});
    const Tensor turned = view.Scratch(DType::kF32, {1, n, dim});
    const Tensor out = view.Scratch(DType::kF32, {group, n});
    for (int64_t g = 0; g < group; ++g) {
      const Tensor weights = view.OutputWeights(head * group + g).Reshape({1, dim, hidden});
      ops.linear->MatMulNT(weights, weights, 1.0f, across);
      ops.linear->MatMulNN(values, across, 1.0f, turned);
      ops.rows->Combine(turned.Reshape({n, dim}), values.Reshape({n, dim}), Binary::kMultiply,
                        turned.Reshape({n, dim}));
      const Tensor lengths = out.Slice(g, g + 1);
      ops.rows->ReduceRows(turned.Reshape({n, dim}), Reduction::kSum, out[g]);
      // Rounding may leave less than nothing of a value that no output sees.
      ops.rows->Combine(lengths, Filled(view, n, 0.0f), Binary::kMax, lengths);
      ops.rows->Activate(lengths, Activation::kSqrt, lengths);
      ops.rows->Combine(lengths, maxima.Slice(g, g + 1), Binary::kMultiply, lengths);
    }
    return out;
  }

  int64_t chunk_, sinks_;
  bool plus_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "kvzip",
    .paper = "arXiv:2505.23416",
    .summary = "the most attention that an entry gets while the model repeats the prompt",
    .departures = {"the whole prompt is repeated, with what a chat template puts around it, and "
                   "the instruction ends with a line break as it does without a template",
                   "pictures are not repeated; their entries count by the rows of the text"},
    .params = {IntParam("chunk", 2048, 1, 1 << 20, "tokens of the prompt that a probe repeats"),
               IntParam("sinks", 4, 0, 4096,
                        "first entries, which every probe is measured over; they stay"),
               BoolParam("plus", false,
                         "KVzip+: rows count by one over the length of their layer's input, "
                         "entries by the length of what their value adds to the output")},
    .make = Make<KvZip>(),
});

}  // namespace
}  // namespace kvgauge
