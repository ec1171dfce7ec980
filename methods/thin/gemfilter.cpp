// SPDX-License-Identifier: Apache-2.0
// An early layer picks the prompt's rows by the product of their keys with the last row's queries;
// the model then reads these rows alone, from the first layer on.
//
// Paper: GemFilter, arXiv:2409.17422; after SalesforceAIResearch/GemFilter. Needs the last row's
// queries. Products are summed over the query heads and averaged along the rows.
#include <algorithm>

#include "core/strings.h"
#include "methods/registry.h"
#include "methods/row_choice.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class GemFilter final : public Thin {
 public:
  explicit GemFilter(const Params& params)
      : layer_(params.Int("layer")), drop_(params.Real("drop")), kernel_(params.Int("kernel")) {}

  Needs needs() const override { return {.window = 1, .products = true}; }

  Status Check(const ModelShape& shape) const override {
    if (kernel_ % 2 == 0) {
      return BadInput(StrCat("kernel ", kernel_, " is even; expected an odd number"));
    }
    if (layer_ < shape.layers && shape.layers > 1) return {};
    return BadInput(StrCat("layer is ", layer_, ", and the model has ", shape.layers,
                           " layers; expected 1 .. ", shape.layers - 1, ", or 0"));
  }

  // The reference's: layer 13 of 32 chooses.
  std::vector<int64_t> Layers(const ModelShape& shape) const override {
    return {layer_ > 0 ? layer_ : std::max<int64_t>(shape.layers * 14 / 32, 1)};
  }

  bool reads_again() const override { return true; }

  Tensor Choose(LayerView& view) const override {
    Ops& ops = view.ops();
    const ModelShape& shape = view.shape();
    const int64_t rows = view.width(), group = shape.group(), dim = shape.key_dim;
    const Tensor queries = view.WindowQueries(1).Reshape({shape.query_heads, dim});
    const Tensor sum = view.Scratch(DType::kF32, {1, rows});
    const Tensor products = view.Scratch(DType::kF32, {1, rows});
    const Tensor query = view.Scratch(DType::kF32, {dim});
    for (int64_t h = 0; h < shape.kv_heads; ++h) {
      // The heads of a group have the same keys.
      ops.rows->ReduceColumns(queries.Slice(h * group, (h + 1) * group), Reduction::kSum, query);
      ops.linear->MatMulNT(query.Reshape({1, 1, dim}), view.Keys(h, 0).Reshape({1, rows, dim}),
                           1.0f, products.Reshape({1, 1, rows}));
      ops.rows->Combine(sum, products, Binary::kAdd, sum);
    }
    const Tensor scores = view.Scratch(DType::kF32, {1, rows});
    ops.select->Pool(sum, kernel_, Pooling::kAverage, scores);
    ops.rows->Fill(kForcedScore, Columns(scores, rows - 1, rows));
    return Best(view, scores, std::clamp<int64_t>(ShareOf(rows, 1 - drop_), 1, rows));
  }

 private:
  int64_t layer_;
  double drop_;
  int64_t kernel_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kThin,
    .id = "gemfilter",
    .paper = "arXiv:2409.17422",
    .summary = "an early layer picks rows, which are then read by themselves",
    .departures = {"rows keep their positions; the reference numbers them anew",
                   "the last row is among those that are picked; the reference may leave it out",
                   "a share of the prompt; the paper picks 1024 rows or more, of any prompt"},
    .bytes = "what is left of the prompt, and 4 bytes an entry for its position",
    .params = {IntParam("layer", 0, 0, 1 << 16,
                        "the layer above the one that picks; 0: 14 of 32, and so on"),
               RealParam("drop", 0.9, 0, 1, "the share of the prompt that is left out"),
               IntParam("kernel", 5, 1, 4095, "rows that are averaged; odd")},
    .make = Make<GemFilter>(),
});

}  // namespace
}  // namespace kvgauge
