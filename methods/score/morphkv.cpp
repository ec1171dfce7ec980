// SPDX-License-Identifier: Apache-2.0
// What the last rows pay to entries before them, among those alone: summed over the rows, or the
// most of one; of the query heads of a KV head the highest counts.
//
// Paper: MorphKV, arXiv:2503.00979; after the released code. Needs the queries of the last `window`
// rows, in decode those of the answer. The first of these rows does not count, as the reference
// looks back after the next token has taken its place.
#include <algorithm>

#include "methods/attention.h"
#include "methods/tensors.h"
#include "methods/window_scorer.h"

namespace kvgauge {
namespace {

class MorphKv final : public WindowScorer {
 public:
  explicit MorphKv(const Params& params)
      : WindowScorer(params, /*slides=*/true), most_(params.Text("fusion") == "max") {}

  Needs needs() const override {
    Needs needs = WindowScorer::needs();
    needs.products = true;
    return needs;
  }

 protected:
  void ScoreBefore(LayerView& view, int64_t rows, Tensor out) const override {
    Ops& ops = view.ops();
    const ModelShape& shape = view.shape();
    const int64_t dim = shape.key_dim, group = shape.group();
    const Tensor queries = view.WindowQueries(std::max<int64_t>(rows - 1, 1));
    const int64_t counted = queries.shape[0], window = view.width() - out.shape[1];
    const Tensor own = view.Scratch(DType::kF32, {counted, dim});
    for (int64_t h = 0; h < shape.kv_heads; ++h) {
      const int64_t before = view.lengths()[static_cast<size_t>(h)] - window;
      if (before == 0) continue;
      const Tensor keys = view.Keys(h).Slice(0, before).Reshape({1, before, dim});
      const Tensor most = view.Scratch(DType::kF32, {counted, before});
      const Tensor shares = view.Scratch(DType::kF32, {counted, before});
      for (int64_t g = 0; g < group; ++g) {
        Tensor strided(queries[0][h * group + g].data, DType::kF32, {counted, dim}, queries.device);
        strided.stride[0] = queries.stride[0];
        ops.rows->Convert(strided, own);
        const Tensor to = g == 0 ? most : shares;
        ops.linear->MatMulNT(own.Reshape({1, counted, dim}), keys, 1.0f,
                             to.Reshape({1, counted, before}));
        AttentionOfProducts(view, h, 0, QueryRows::Last(view, counted), to, to);
        if (g > 0) ops.rows->Combine(most, shares, Binary::kMax, most);
      }
      ops.rows->ReduceColumns(most, most_ ? Reduction::kMax : Reduction::kSum,
                              out[h].Slice(0, before));
    }
  }

 private:
  bool most_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "morphkv",
    .paper = "arXiv:2503.00979",
    .summary = "what the last rows pay to entries before them, among those alone",
    .departures = {"the entries go behind the step that makes them too many, not inside the next"},
    .params = {WindowScorer::WindowParam(32, "last rows that look back"),
               ChoiceParam("fusion", "sum", {"sum", "max"}, "how rows become one score")},
    .make = Make<MorphKv>(),
});

}  // namespace
}  // namespace kvgauge
