// SPDX-License-Identifier: Apache-2.0
// Reads the entries whose keys fit the query best by its largest numbers alone; all others count as
// the mean value, with the share of attention that they seem to have.
//
// Paper: SparQ Attention, arXiv:2312.04985. Needs the query of each decode step. A query keeps the
// `rank` numbers with the largest sum of magnitudes over the query heads of a KV head, and products
// with keys are taken over these, at the model's scale over the root of the share of the query's
// magnitude that they hold. The `tokens` entries with the largest sum of products over the
// query heads are read beside the newest, the last `local` among them. With s the share that a
// softmax of the products gives to what is read, the result is s * attention + (1 - s) * mean
// value.
#include <algorithm>

#include "methods/attention.h"
#include "methods/largest_channels.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class SparQ final : public Reader {
 public:
  explicit SparQ(const Params& params)
      : tokens_(params.Int("tokens")), rank_(params.Int("rank")), local_(params.Int("local")) {}

  struct Sums final : State {
    Buffer values;              // [kv_heads, value_dim] f32: of the values that are held
    Buffer shares;              // [query_heads] f32, of what is read
    std::vector<bool> partial;  // [kv_heads]: not all of it is read
    int64_t value_dim = 0;

    int64_t bytes() const override { return values.size_bytes(); }
    Tensor Values(int64_t head) const {
      return values.As(DType::kF32, {std::ssize(partial), value_dim})[head];
    }
    Tensor Shares() const {
      return shares.As(DType::kF32, {shares.size_bytes() / SizeOf(DType::kF32)});
    }
  };

  std::unique_ptr<State> Begin(LayerView& view) const override {
    const ModelShape& shape = view.shape();
    MemoryOps& memory = *view.ops().memory;
    auto sums = std::make_unique<Sums>();
    sums->value_dim = shape.value_dim;
    sums->partial.assign(static_cast<size_t>(shape.kv_heads), false);
    sums->values = memory.Allocate(shape.kv_heads * shape.value_dim * SizeOf(DType::kF32));
    sums->shares = memory.Allocate(shape.query_heads * SizeOf(DType::kF32));
    Append(view, std::vector<int64_t>(static_cast<size_t>(shape.kv_heads)), *sums);
    return sums;
  }

  void Append(LayerView& view, std::span<const int64_t> first, State& state) const override {
    auto& sums = static_cast<Sums&>(state);
    RowOps& rows = *view.ops().rows;
    const Tensor more = view.Scratch(DType::kF32, {1, sums.value_dim});
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      if (first[h] >= view.lengths()[h]) continue;
      rows.ReduceColumns(view.Values(h, first[h]), Reduction::kSum, more[0]);
      const Tensor sum = sums.Values(h).Reshape({1, sums.value_dim});
      rows.Combine(sum, more, Binary::kAdd, sum);
    }
  }

  bool ReadsFew(int64_t, int64_t length) const override { return AreFew(tokens_, length); }

  bool Select(LayerView& view, State& state, const Tensor& q, Tensor words) const override {
    auto& sums = static_cast<Sums&>(state);
    const auto lengths = view.lengths();
    const auto fits = [this](int64_t length) { return length <= tokens_ + 1; };
    if (std::all_of(lengths.begin(), lengths.end(), fits)) return false;
    const int64_t group = view.shape().group();
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t length = lengths[h], begin = h * group, end = begin + group;
      if (length == 0) continue;
      const int64_t read = std::min(length, tokens_ + 1);
      const Tensor products = Products(view, h, q.Slice(begin, end));
      const Tensor chosen = Choose(view, products, read);
      sums.partial[static_cast<size_t>(h)] = read < length;
      ShareOf(view, h, products, chosen, sums.Shares().Slice(begin, end));
      Tensor marked = chosen;
      marked.shape[0] = group;
      marked.stride[0] = 0;
      view.ops().select->MarkRuns(marked, 1, length,
                                  Columns(words.Slice(begin, end), 0, (length + 63) / 64));
    }
    return true;
  }

  bool corrects() const override { return true; }

  void Correct(LayerView& view, State& state, Tensor out) const override {
    const auto& sums = static_cast<const Sums&>(state);
    RowOps& rows = *view.ops().rows;
    const int64_t group = view.shape().group(), dim = sums.value_dim;
    const Tensor mean = view.Scratch(DType::kF32, {1, dim});
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      if (!sums.partial[static_cast<size_t>(h)]) continue;
      rows.Affine(sums.Values(h).Reshape({1, dim}), 1.0f / static_cast<float>(view.lengths()[h]),
                  0.0f, mean);
      const Tensor result = out.Slice(h * group, (h + 1) * group);
      const Tensor shares = sums.Shares().Slice(h * group, (h + 1) * group);
      rows.Combine(result, mean[0], Binary::kSubtract, result);
      rows.Combine(result, Spread(view, shares, dim), Binary::kMultiply, result);
      rows.Combine(result, mean[0], Binary::kAdd, result);
    }
  }

 private:
  // Approximate products of the query heads with the keys: [group, length]. q: [group, key_dim]
  Tensor Products(LayerView& view, int64_t head, const Tensor& q) const {
    Ops& ops = view.ops();
    const int64_t group = q.shape[0], dim = q.shape[1], length = view.lengths()[head];
    const Tensor query = QueriesOfLargestChannels(view, q, rank_);
    const Tensor products = view.Scratch(DType::kF32, {group, length});
    ops.linear->MatMulNT(query.Reshape({1, group, dim}), view.Keys(head).Reshape({1, length, dim}),
                         1.0f, products.Reshape({1, group, length}));
    return products;
  }

  // [1, read] i32, for all query heads of the KV head alike.
  Tensor Choose(LayerView& view, const Tensor& products, int64_t read) const {
    Ops& ops = view.ops();
    const int64_t length = products.shape[1], last = std::min({local_ + 1, read, length});
    const Tensor votes = view.Scratch(DType::kF32, {1, length});
    ops.rows->ReduceColumns(products, Reduction::kSum, votes[0]);
    const Tensor newest = Columns(votes, length - last, length);
    ops.rows->Fill(kForcedScore, newest);
    const auto count = static_cast<int32_t>(read);
    const Tensor chosen = view.Scratch(DType::kI32, {1, read});
    ops.select->TopK(votes, Upload(view, std::span(&count, 1)), chosen);
    return chosen;
  }

  // shares: [group], what a softmax of the products gives to the chosen entries.
  static void ShareOf(LayerView& view, int64_t head, const Tensor& products, const Tensor& chosen,
                      const Tensor& shares) {
    Ops& ops = view.ops();
    const int64_t length = products.shape[1];
    const Tensor is_read = view.Scratch(DType::kF32, {length});
    ops.select->Scatter(AsColumn(Filled(view, chosen.shape[1], 1.0f)), chosen[0],
                        AsColumn(is_read));
    AttentionOfLogits(view, head, 0, QueryRows::Newest(view), products, products);
    ops.rows->Combine(products, is_read, Binary::kMultiply, products);
    ops.rows->ReduceRows(products, Reduction::kSum, shares);
  }

  int64_t tokens_, rank_, local_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kRead,
    .id = "sparq",
    .paper = "arXiv:2312.04985",
    .summary = "reads what fits the query's largest numbers; the rest counts as the mean value",
    .departures = {"keys lie once, where the reference keeps a second copy by channel",
                   "the mean value is that of the entries that are held"},
    .bytes = "4 * value_dim a head for the sum of its values, beside the cache",
    .params = {IntParam("tokens", 128, 1, 1 << 24, "entries that are read beside the newest"),
               IntParam("rank", 32, 1, 4096, "numbers of a query that choose them"),
               IntParam("local", 32, 0, 1 << 20, "last entries that are always among them")},
    .make = Make<SparQ>(),
    .goes_by_layer = true,
});

}  // namespace
}  // namespace kvgauge
