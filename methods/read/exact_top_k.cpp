// SPDX-License-Identifier: Apache-2.0
// Reads the entries whose keys match the query best, by their exact products; nothing is evicted.
//
// Paper: RetrievalAttention, arXiv:2409.10516, with an exact index, as MInference's retr_attn has
// it: what any index can find at best. Needs the query of each decode step. The first `sinks` and
// the last `local` entries are always read, and of those between each query head reads the `tokens`
// with the largest products.
#include <algorithm>

#include "methods/attention.h"
#include "methods/registry.h"
#include "methods/repeating_reader.h"
#include "methods/repeating_view.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class ExactTopK final : public Reader, public RepeatingReader {
 public:
  explicit ExactTopK(const Params& params)
      : tokens_(params.Int("tokens")), sinks_(params.Int("sinks")), local_(params.Int("local")) {}

  struct NoIndex final : State {
    int64_t bytes() const override { return 0; }
  };

  std::unique_ptr<State> Begin(LayerView&) const override { return std::make_unique<NoIndex>(); }
  void Append(LayerView&, std::span<const int64_t>, State&) const override {}
  bool saves() const override { return true; }
  Status Fields(LayerView&, State&, StateFields&) const override { return {}; }

  bool ReadsFew(int64_t, int64_t length) const override {
    return AreFew(sinks_ + local_ + tokens_, length);
  }

  bool Select(LayerView& view, State&, const Tensor& q, Tensor words) const override {
    const auto lengths = view.lengths();
    const int64_t most = sinks_ + local_ + tokens_, group = view.shape().group();
    if (std::all_of(lengths.begin(), lengths.end(), [&](int64_t n) { return n <= most; })) {
      return false;
    }
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t length = lengths[h], read = std::min(length, most), begin = h * group;
      if (length == 0) continue;
      const Tensor products = Products(view, h, q.Slice(begin, begin + group));
      const std::vector<int32_t> counts(static_cast<size_t>(group), static_cast<int32_t>(read));
      const Tensor chosen = view.Scratch(DType::kI32, {group, ChoiceColumns(view, read, most)});
      view.ops().select->TopK(products, Upload(view, counts), chosen);
      view.ops().select->MarkRuns(
          chosen, 1, length, Columns(words.Slice(begin, begin + group), 0, (length + 63) / 64));
    }
    return true;
  }

 private:
  // [group, length], forced for what is always read.
  Tensor Products(LayerView& view, int64_t head, const Tensor& q) const {
    Ops& ops = view.ops();
    const int64_t length = view.lengths()[head], group = q.shape[0], dim = q.shape[1];
    const Tensor query = view.Scratch(DType::kF32, {group, dim});
    const Tensor keys = KeysWithRoom(view, head, 0);
    const int64_t room = keys.shape[0];
    const Tensor roomy = view.Scratch(DType::kF32, {group, room});
    ops.rows->Convert(q, query);
    ops.linear->MatMulNT(query.Reshape({1, group, dim}), keys.Reshape({1, room, dim}), 1.0f,
                         roomy.Reshape({1, group, room}));
    const Tensor products = Columns(roomy, 0, length);
    HideFromNewest(view, head, 0, 1, length, roomy);
    const int64_t first = std::min(sinks_, length), last = std::max(first, length - local_);
    ops.rows->FillColumns(kForcedScore, 0, first, products);
    ops.rows->FillColumns(kForcedScore, last, length, products);
    return products;
  }

  int64_t tokens_, sinks_, local_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kRead,
    .id = "exact_top_k",
    .paper = "arXiv:2409.10516",
    .summary = "reads the entries whose keys match the query best, by exact products",
    .departures = {"an exact search: no graph index and no host memory"},
    .params = {IntParam("tokens", 2000, 1, 1 << 24, "entries that are searched for"),
               IntParam("sinks", 128, 0, 1 << 20, "first entries, always read"),
               IntParam("local", 512, 1, 1 << 20, "last entries, always read")},
    .make = Make<ExactTopK>(),
    .goes_by_layer = true,
});

}  // namespace
}  // namespace kvgauge
