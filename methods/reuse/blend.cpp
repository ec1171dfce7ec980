// SPDX-License-Identifier: Apache-2.0
// Caches of chunks behind each other, keys turned to their new places; the tokens whose values
// differ most on an early layer are computed again from there on.
//
// Paper: CacheBlend, arXiv:2405.16444; after YaoJiayi/CacheBlend. Every token passes the layers
// below the checked one. There the squared distances of values, over all KV heads, choose.
#include <algorithm>

#include "core/strings.h"
#include "methods/registry.h"
#include "methods/reuse.h"
#include "methods/row_choice.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class Blend final : public Reuse {
 public:
  explicit Blend(const Params& params)
      : chunk_(params.Int("chunk")),
        lead_(params.Int("lead")),
        layer_(params.Int("layer")),
        share_(params.Real("share")) {}

  Status Check(const ModelShape& shape) const override {
    if (layer_ < shape.layers) return {};
    return BadInput(StrCat("layer is ", layer_, ", and the model has ", shape.layers,
                           shape.layers == 1 ? " layer" : " layers", "; expected 1 .. ",
                           shape.layers - 1));
  }

  int64_t chunk_tokens() const override { return chunk_; }
  int64_t lead_tokens() const override { return lead_; }
  int64_t CheckedLayer(const ModelShape&) const override { return layer_; }

  std::vector<int32_t> Choose(const JoinedChunks& chunks) const override {
    Ops& ops = *chunks.ops;
    const int64_t first = chunks.begins[0], rows = chunks.end - first;
    // The reference takes a share of all tokens before the question.
    const int64_t count = std::min(ShareOf(chunks.end, share_), rows);
    if (count == 0) return {};
    const int64_t width = chunks.fresh_values.shape[1];
    const Buffer memory = ops.memory->Allocate((rows * width + rows + count + 1) * 4);
    const Tensor all = memory.As(DType::kF32, {rows * width + rows + count + 1});
    const Tensor difference = all.Slice(0, rows * width).Reshape({rows, width});
    const Tensor scores = all.Slice(rows * width, rows * width + rows);
    Tensor indices = all.Slice(rows * width + rows, all.shape[0]);
    indices.dtype = DType::kI32;
    const Tensor chosen = indices.Slice(0, count), counts = indices.Slice(count, count + 1);
    ops.rows->Combine(chunks.fresh_values.Slice(first, chunks.end),
                      chunks.joined_values.Slice(first, chunks.end), Binary::kSubtract, difference);
    ops.rows->ReduceRows(difference, Reduction::kSumSquares, scores);
    const auto wanted = static_cast<int32_t>(count);
    ops.memory->Copy(View(std::span(&wanted, 1), {1}), counts);
    ops.select->TopK(scores.Reshape({1, rows}), counts, chosen.Reshape({1, count}));
    std::vector<int32_t> host(static_cast<size_t>(count));
    ops.memory->Copy(chosen, View(host, {count}));
    for (int32_t& row : host) row += static_cast<int32_t>(first);
    return host;
  }

 private:
  int64_t chunk_, lead_, layer_;
  double share_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kReuse,
    .id = "blend",
    .paper = "arXiv:2405.16444",
    .summary = "caches of chunks behind each other; tokens that differ most are computed again",
    .departures = {"a token that is computed again sees what stands before it; the authors' code "
                   "aligns the mask of chosen rows with the end of the prompt, so that they also "
                   "see later tokens",
                   "all of the question is computed; the authors' scripts compute its last token "
                   "alone, by a length that they take of a list of lists",
                   "what stands before the first chunk is an exact prefix and is not computed "
                   "below the checked layer either"},
    .bytes = "caches of chunks that lie in the store, which are no part of the sequence",
    .params = {IntParam("chunk", 256, 1, 1 << 20,
                        "the most tokens of a chunk, where the task marks no passages"),
               IntParam("lead", 1, 0, 64,
                        "first tokens of the prompt that stand before a chunk when it is read"),
               IntParam("layer", 1, 1, 1 << 16, "the layer on which values are compared"),
               RealParam("share", 0.16, 0, 1,
                         "the share of the tokens before the question that are computed again")},
    .make = Make<Blend>(),
});

}  // namespace
}  // namespace kvgauge
