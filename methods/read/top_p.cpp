// SPDX-License-Identifier: Apache-2.0
// Reads the fewest entries that together have a share of the attention, as many as that takes.
//
// Paper: Twilight, arXiv:2502.02770, its pruner: over full attention, or over what another reader
// chose. Needs the query of each decode step. Each query head takes its candidates by what a
// softmax over them gives, the largest first, until their sum reaches `share`.
#include <cmath>
#include <utility>
#include <vector>

#include "methods/attention.h"
#include "methods/largest_sums.h"
#include "methods/narrowing_reader.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class TopP final : public NarrowingReader {
 public:
  explicit TopP(const Params& params)
      : share_(static_cast<float>(params.Real("share"))),
        dense_layers_(params.Int("dense_layers")) {}

  struct NoIndex final : State {
    int64_t bytes() const override { return 0; }
  };

  std::unique_ptr<State> Begin(LayerView&) const override { return std::make_unique<NoIndex>(); }
  void Append(LayerView&, std::span<const int64_t>, State&) const override {}
  bool saves() const override { return true; }
  Status Fields(LayerView&, State&, StateFields&) const override { return {}; }

  // How many entries the share takes shows with each query, so ReadsFew says nothing of them.

  bool NarrowAll(LayerView& view, const Tensor& q, Tensor words) const override {
    if (ReadsAll(view)) return false;
    MarkFewest(view, Attention(view, q, {}), share_, view.width(), words);
    return true;
  }

  bool Narrow(LayerView& view, const Tensor& q, Tensor words) const override {
    if (view.layer() < dense_layers_) return false;
    if (ReadsAll(view)) return true;
    const int64_t heads = view.shape().query_heads;
    const Tensor chosen = view.Scratch(DType::kF32, {heads, view.width()});
    const Tensor counts = view.Scratch(DType::kF32, {heads});
    view.ops().select->ReadBits(words, 0, chosen);
    view.ops().rows->ReduceRows(chosen, Reduction::kSum, counts);
    std::vector<int32_t> most;
    for (const float count : Fetch(view.ops(), counts)) {
      most.push_back(static_cast<int32_t>(std::lround(count)));
    }
    const Tensor given = Attention(view, q, chosen);
    // Candidates before all others where neither is given anything.
    view.ops().rows->Affine(chosen, kNothing, 0.0f, chosen);
    view.ops().rows->Combine(given, chosen, Binary::kAdd, given);
    view.ops().memory->Clear(words);
    MarkFewest(view, given, share_, std::move(most), words);
    return true;
  }

 private:
  static constexpr float kNothing = 1e-30f;  // lost in every sum

  bool ReadsAll(const LayerView& view) const {
    return view.layer() < dense_layers_ || share_ >= 1 || view.width() == 0;
  }

  // [query_heads, width], 0 beyond a head's own entries. `chosen`, of that shape or empty: 1 for
  // candidates, 0 for others.
  static Tensor Attention(LayerView& view, const Tensor& q, const Tensor& chosen) {
    Ops& ops = view.ops();
    const int64_t heads = view.shape().query_heads, group = view.shape().group(), dim = q.shape[1];
    const Tensor given = view.Scratch(DType::kF32, {heads, view.width()});
    const Tensor query = view.Scratch(DType::kF32, {group, dim});
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t length = view.lengths()[h], begin = h * group, end = begin + group;
      if (length == 0) continue;
      const Tensor products = view.Scratch(DType::kF32, {group, length});
      const Tensor own = Columns(given.Slice(begin, end), 0, length);
      ops.rows->Convert(q.Slice(begin, end), query);
      ops.linear->MatMulNT(query.Reshape({1, group, dim}), view.Keys(h).Reshape({1, length, dim}),
                           1.0f, products.Reshape({1, group, length}));
      if (chosen.empty()) {
        AttentionOfProducts(view, h, 0, QueryRows::Newest(view), products, own);
        continue;
      }
      LogitsOfProducts(view, products);
      HideFromNewest(view, h, 0, 1, products);
      const Tensor logs = view.Scratch(DType::kF32, {group, length});
      ops.rows->Activate(Columns(chosen.Slice(begin, end), 0, length), Activation::kLog, logs);
      ops.rows->Combine(products, logs, Binary::kAdd, products);
      ops.rows->Softmax(products, 1.0f, own);
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
    .summary = "reads the fewest entries that together have a share of the attention; alone, or as "
               "\"narrow\" of what another reader chose",
    .departures =
        {"attention is that of the keys as they are stored, where the reference estimates "
         "it by a copy of them in 4 bits"},
    .params = {RealParam("share", 0.85, 0.001, 1, "share of its attention that a query head reads"),
               IntParam("dense_layers", 2, 0, 1000, "first layers that read everything")},
    .make = Make<TopP>(),
    .goes_by_layer = true,
});

}  // namespace
}  // namespace kvgauge
