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
#include <array>

#include "kernels/buffer_bytes.h"
#include "methods/attention.h"
#include "methods/largest_channels.h"
#include "methods/registry.h"
#include "methods/repeating_reader.h"
#include "methods/repeating_view.h"
#include "methods/state_fields.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class SparQ final : public Reader, public RepeatingReader {
 public:
  explicit SparQ(const Params& params)
      : tokens_(params.Int("tokens")), rank_(params.Int("rank")), local_(params.Int("local")) {}

  // The sum of the values of a head's first entries is in that row.
  struct Sum {
    int64_t entries = 0;
    int32_t row = 0;
  };
  struct Sums final : State {
    // [2 * kv_heads, value_dim] f32: those before the newest entries stay, in case that a step is
    // begun again.
    Buffer values;
    Buffer shares;                         // [query_heads] f32, of what is read
    std::vector<bool> partial;             // [kv_heads]: not all of it is read
    std::vector<std::array<Sum, 2>> sums;  // [kv_heads]
    int64_t value_dim = 0;

    int64_t bytes() const override { return values.size_bytes() / 2; }
    Tensor Values() const { return values.As(DType::kF32, {2 * std::ssize(sums), value_dim}); }
    Tensor Shares() const {
      return shares.As(DType::kF32, {shares.size_bytes() / SizeOf(DType::kF32)});
    }
    const Sum& Of(int64_t head, int64_t entries) const {
      const std::array<Sum, 2>& two = sums[static_cast<size_t>(head)];
      return two[0].entries == entries ? two[0] : two[1];
    }
  };

  int64_t MostBytes(const ModelShape& shape, int64_t layer, int64_t) const override {
    const ModelShape own = shape.OfLayer(layer);
    return HostBufferBytes(2 * own.kv_heads * own.value_dim * SizeOf(DType::kF32)) / 2;
  }

  std::unique_ptr<State> Begin(LayerView& view) const override {
    const ModelShape& shape = view.shape();
    MemoryOps& memory = *view.ops().memory;
    auto sums = std::make_unique<Sums>();
    sums->value_dim = shape.value_dim;
    sums->partial.assign(static_cast<size_t>(shape.kv_heads), false);
    for (int32_t h = 0; h < shape.kv_heads; ++h) {
      sums->sums.push_back({Sum{.row = 2 * h}, Sum{.row = 2 * h + 1}});
    }
    sums->values = memory.Allocate(2 * shape.kv_heads * shape.value_dim * SizeOf(DType::kF32));
    sums->shares = memory.Allocate(shape.query_heads * SizeOf(DType::kF32));
    Append(view, std::vector<int64_t>(static_cast<size_t>(shape.kv_heads)), *sums);
    return sums;
  }

  void Append(LayerView& view, std::span<const int64_t> first, State& state) const override {
    auto& sums = static_cast<Sums&>(state);
    Ops& ops = view.ops();
    const int64_t dim = sums.value_dim;
    const Tensor more = view.Scratch(DType::kF32, {view.shape().kv_heads, dim});
    std::vector<int32_t> before, after;
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t length = view.lengths()[h];
      if (first[h] >= length) continue;
      ops.rows->ReduceColumns(NewValues(view, h, first[h]), Reduction::kSum,
                              more[std::ssize(after)]);
      const Sum& old = sums.Of(h, first[h]);
      KVG_CHECK(old.entries == first[h], "entries that follow others than were summed");
      Sum& sum = sums.sums[static_cast<size_t>(h)][1 - old.row % 2];
      sum.entries = length;
      before.push_back(old.row);
      after.push_back(sum.row);
    }
    const int64_t heads = std::ssize(after);
    if (heads == 0) return;
    // Which of the two rows is sent with the lists.
    const Tensor rows = view.Scratch(DType::kF32, {heads, dim});
    ops.select->Gather(sums.Values(), Upload(view, before), rows);
    ops.rows->Combine(rows, more.Slice(0, heads), Binary::kAdd, rows);
    ops.select->Scatter(rows, Upload(view, after), sums.Values());
  }

  bool saves() const override { return true; }
  // A step sets the rest.
  Status Fields(LayerView& view, State& state, StateFields& fields) const override {
    auto& own = static_cast<Sums&>(state);
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t length = view.lengths()[h];
      for (Sum& sum : own.sums[static_cast<size_t>(h)]) {
        int64_t row = sum.row;
        KVG_TRY(fields.Number("entries in a sum of values", 0, length, &sum.entries));
        KVG_TRY(fields.Number("row of a sum of values", 2 * h, 2 * h + 1, &row));
        sum.row = static_cast<int32_t>(row);
      }
      if (own.Of(h, length).entries == length) continue;
      return BadInput("state of the method: no sum of values is of all entries");
    }
    return fields.Rows("sums of values", view.ops(), own.Values());
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
      const Tensor chosen = Choose(view, products, length, read);
      sums.partial[static_cast<size_t>(h)] = read < length;
      ShareOf(view, h, products, chosen[0].Slice(0, read), sums.Shares().Slice(begin, end));
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
    const Tensor means = Means(view, sums);
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      if (!sums.partial[static_cast<size_t>(h)]) continue;
      const Tensor mean = means[h];
      const Tensor result = out.Slice(h * group, (h + 1) * group);
      const Tensor shares = sums.Shares().Slice(h * group, (h + 1) * group);
      rows.Combine(result, mean, Binary::kSubtract, result);
      rows.Combine(result, Spread(view, shares, dim), Binary::kMultiply, result);
      rows.Combine(result, mean, Binary::kAdd, result);
    }
  }

 private:
  // [n, value_dim]
  static Tensor NewValues(LayerView& view, int64_t head, int64_t first) {
    RepeatingView* const repeating = Repeating(view);
    if (repeating == nullptr || first + 1 < view.lengths()[head]) return view.Values(head, first);
    return repeating->Filled(KvSide::kValues, head, first, 1);
  }

  // [kv_heads, value_dim]: the mean of each head's values.
  static Tensor Means(LayerView& view, const Sums& sums) {
    Ops& ops = view.ops();
    const int64_t heads = view.shape().kv_heads, dim = sums.value_dim;
    std::vector<int32_t> newest;
    std::vector<float> scales;
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t length = view.lengths()[h];
      newest.push_back(sums.Of(h, length).row);
      scales.push_back(1.0f / static_cast<float>(length));
    }
    const Tensor rows = view.Scratch(DType::kF32, {heads, dim});
    const Tensor means = view.Scratch(DType::kF32, {heads, dim});
    ops.select->Gather(sums.Values(), Upload(view, newest), rows);
    if (ops.device == Device::kHost) {
      for (int64_t h = 0; h < heads; ++h) {
        ops.rows->Affine(rows.Slice(h, h + 1), scales[static_cast<size_t>(h)], 0.0f,
                         means.Slice(h, h + 1));
      }
      return means;
    }
    // The same numbers; a graph of a device repeats what is no list.
    ops.linear->MatMulNN(Upload(view, scales).Reshape({heads, 1, 1}), rows.Reshape({heads, 1, dim}),
                         1.0f, means.Reshape({heads, 1, dim}));
    return means;
  }

  // Approximate products of the query heads with the keys: [group, length or more].
  // q: [group, key_dim]
  Tensor Products(LayerView& view, int64_t head, const Tensor& q) const {
    Ops& ops = view.ops();
    const int64_t group = q.shape[0], dim = q.shape[1];
    const Tensor query = QueriesOfLargestChannels(view, q, rank_);
    const Tensor keys = KeysWithRoom(view, head, 0);
    const int64_t room = keys.shape[0];
    const Tensor products = view.Scratch(DType::kF32, {group, room});
    ops.linear->MatMulNT(query.Reshape({1, group, dim}), keys.Reshape({1, room, dim}), 1.0f,
                         products.Reshape({1, group, room}));
    return products;
  }

  // [1, read or more] i32, for all query heads of the KV head alike.
  Tensor Choose(LayerView& view, const Tensor& products, int64_t length, int64_t read) const {
    Ops& ops = view.ops();
    const int64_t last = std::min({local_ + 1, read, length});
    const Tensor roomy = view.Scratch(DType::kF32, {1, products.shape[1]});
    ops.rows->ReduceColumns(products, Reduction::kSum, roomy[0]);
    const Tensor votes = Columns(roomy, 0, length);
    ops.rows->FillColumns(kForcedScore, length - last, length, votes);
    const auto count = static_cast<int32_t>(read);
    const Tensor chosen = view.Scratch(DType::kI32, {1, ChoiceColumns(view, read, tokens_ + 1)});
    ops.select->TopK(votes, Upload(view, std::span(&count, 1)), chosen);
    return chosen;
  }

  // shares: [group], what a softmax of the products gives to the chosen entries [read].
  static void ShareOf(LayerView& view, int64_t head, const Tensor& products, const Tensor& chosen,
                      const Tensor& shares) {
    Ops& ops = view.ops();
    const int64_t length = view.lengths()[head];
    const Tensor is_read = view.Scratch(DType::kF32, {products.shape[1]});
    ops.select->Scatter(AsColumn(Filled(view, chosen.shape[0], 1.0f)), chosen, AsColumn(is_read));
    AttentionOfLogits(view, head, 0, QueryRows::Newest(view), length, products);
    ops.rows->Combine(products, is_read, Binary::kMultiply, products);
    ops.rows->ReduceRows(Columns(products, 0, length), Reduction::kSum, shares);
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
