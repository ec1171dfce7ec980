// SPDX-License-Identifier: Apache-2.0
// Reads the fewest entries that together have a share of the attention, as many as that takes.
//
// Paper: Twilight, arXiv:2502.02770, its pruner over full attention. Needs the query of each decode
// step. Each query head takes its entries by what its softmax gives them, the largest first, until
// their sum reaches `share`.
#include "methods/attention.h"
#include "methods/largest_sums.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class TopP final : public Reader {
 public:
  explicit TopP(const Params& params)
      : share_(static_cast<float>(params.Real("share"))),
        dense_layers_(params.Int("dense_layers")) {}

  struct NoIndex final : State {
    int64_t bytes() const override { return 0; }
  };

  std::unique_ptr<State> Begin(LayerView&) const override { return std::make_unique<NoIndex>(); }
  void Append(LayerView&, std::span<const int64_t>, State&) const override {}

  bool Select(LayerView& view, State&, const Tensor& q, Tensor words) const override {
    if (view.layer() < dense_layers_ || share_ >= 1 || view.width() == 0) return false;
    MarkFewest(view, Attention(view, q), share_, view.width(), words);
    return true;
  }

 private:
  // [query_heads, width], 0 beyond a head's own entries.
  static Tensor Attention(LayerView& view, const Tensor& q) {
    Ops& ops = view.ops();
    const int64_t heads = view.shape().query_heads, group = view.shape().group(), dim = q.shape[1];
    const Tensor given = view.Scratch(DType::kF32, {heads, view.width()});
    const Tensor query = view.Scratch(DType::kF32, {group, dim});
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t length = view.lengths()[h];
      if (length == 0) continue;
      const Tensor products = view.Scratch(DType::kF32, {group, length});
      ops.rows->Convert(q.Slice(h * group, (h + 1) * group), query);
      ops.linear->MatMulNT(query.Reshape({1, group, dim}), view.Keys(h).Reshape({1, length, dim}),
                           1.0f, products.Reshape({1, group, length}));
      AttentionOfProducts(view, h, 0, QueryRows::Newest(view), products,
                          Columns(given.Slice(h * group, (h + 1) * group), 0, length));
    }
    return given;
  }

  float share_;
  int64_t dense_layers_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kRead,
    .id = "top_p",
    .paper = "arXiv:2502.02770",
    .summary = "reads the fewest entries that together have a share of the attention",
    .departures =
        {"attention is that of the keys as they are stored, where the reference estimates "
         "it by a copy of them in 4 bits",
         "all entries are candidates, where the reference also prunes what another "
         "method chose"},
    .params = {RealParam("share", 0.85, 0.001, 1, "share of its attention that a query head reads"),
               IntParam("dense_layers", 2, 0, 1000, "first layers that read everything")},
    .make = Make<TopP>(),
});

}  // namespace
}  // namespace kvgauge
