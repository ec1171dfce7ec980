// SPDX-License-Identifier: Apache-2.0
// Reads the entries that bounds of their page give most, in the channels where queries are largest.
//
// Paper: RocketKV, arXiv:2502.14051, its hybrid sparse attention. Needs the query of each decode
// step. The index holds the smallest and the largest number of each channel over the keys of a
// page. The `rank` channels with the largest mean magnitude of a KV head's queries count, and that
// bound of each with which the sum of these queries has the larger product. A softmax over the
// entries, at the scale of SparQ, makes shares of the products; its mean over the query heads
// chooses `tokens` entries for all of them.
#include <algorithm>
#include <cmath>

#include "methods/attention.h"
#include "methods/largest_channels.h"
#include "methods/page_bounds.h"
#include "methods/registry.h"
#include "methods/repeating_reader.h"
#include "methods/repeating_view.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class RocketKv final : public Reader, public RepeatingReader {
 public:
  explicit RocketKv(const Params& params)
      : page_(params.Int("page")), rank_(params.Int("rank")), tokens_(params.Int("tokens")) {}

  int64_t MostBytes(const ModelShape& shape, int64_t layer, int64_t entries) const override {
    const ModelShape own = shape.OfLayer(layer);
    return own.kv_heads * ((entries + page_ - 1) / page_) * PageBounds::BytesOfPage(own);
  }

  std::unique_ptr<State> Begin(LayerView& view) const override {
    auto index = std::make_unique<PageIndex>();
    index->Begin(view, page_);
    return index;
  }

  void Append(LayerView& view, std::span<const int64_t> first, State& state) const override {
    static_cast<PageIndex&>(state).Append(view, first);
  }

  bool saves() const override { return true; }
  Status Fields(LayerView& view, State& state, StateFields& fields) const override {
    return static_cast<PageIndex&>(state).Fields(view, fields);
  }

  // Pages of 16 entries and more are read as fast where they lie.
  bool ReadsFew(int64_t, int64_t length) const override {
    return page_ < 16 && AreFew(tokens_, length);
  }

  bool Select(LayerView& view, State& state, const Tensor& q, Tensor words) const override {
    const auto& index = static_cast<const PageIndex&>(state);
    const auto fits = [this](int64_t length) { return length <= tokens_; };
    if (std::all_of(view.lengths().begin(), view.lengths().end(), fits)) return false;
    const int64_t group = view.shape().group();
    int64_t columns = 0;
    for (const PageBounds& head : index.heads) columns = std::max(columns, head.columns(view));
    const Tensor limits = view.Scratch(DType::kF32, {columns, view.shape().key_dim});
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t length = view.lengths()[h], begin = h * group, end = begin + group;
      if (length == 0) continue;
      const PageBounds& bounds = index.heads[h];
      const Tensor logits = Logits(view, h, bounds, q.Slice(begin, end), limits);
      Tensor chosen = Choose(view, logits, bounds.pages(), length);
      chosen.shape[0] = group;
      chosen.stride[0] = 0;
      view.ops().select->MarkRuns(chosen, 1, length,
                                  Columns(words.Slice(begin, end), 0, (length + 63) / 64));
    }
    return true;
  }

 private:
  // Logits of the group's queries with pages: [group, pages or more]. q: [group, key_dim]
  Tensor Logits(LayerView& view, int64_t head, const PageBounds& bounds, const Tensor& q,
                const Tensor& limits) const {
    Ops& ops = view.ops();
    const int64_t group = q.shape[0], dim = q.shape[1], columns = bounds.columns(view);
    const Tensor query = QueriesOfLargestChannels(view, q, rank_);
    const Tensor upper = MeetsUpper(view, q);
    const Tensor logits = view.Scratch(DType::kF32, {group, columns});
    const Tensor part = view.Scratch(DType::kF32, {group, columns});
    const Tensor half = view.Scratch(DType::kF32, {group, dim});
    for (const bool high : {true, false}) {
      if (!high) ops.rows->Affine(upper, -1.0f, 1.0f, upper);
      ops.rows->Combine(query, upper[0], Binary::kMultiply, half);
      const Tensor bound = high ? bounds.High(view, limits) : bounds.Low(view, limits);
      ops.linear->MatMulNT(half.Reshape({1, group, dim}), bound.Reshape({1, columns, dim}), 1.0f,
                           part.Reshape({1, group, columns}));
      ops.rows->Combine(logits, part, Binary::kAdd, logits);
    }
    CapLogits(view, logits);
    HideFromNewest(view, head, 0, page_, bounds.pages(), logits);
    return logits;
  }

  // [1, dim]: 1 for channels in which the queries sum to more than 0.
  static Tensor MeetsUpper(LayerView& view, const Tensor& q) {
    RowOps& rows = *view.ops().rows;
    const Tensor query = view.Scratch(DType::kF32, {q.shape[0], q.shape[1]});
    const Tensor sum = view.Scratch(DType::kF32, {1, q.shape[1]});
    const Tensor upper = view.Scratch(DType::kF32, {1, q.shape[1]});
    rows.Convert(q, query);
    rows.ReduceColumns(query, Reduction::kSum, sum[0]);
    rows.Combine(upper, sum, Binary::kLess, upper);
    return upper;
  }

  // Numbers of one column, which is another from step to step, and so is `value`: a graph of a
  // device repeats what is no list.
  static void ChangeColumn(LayerView& view, const Tensor& matrix, int64_t column, Binary op,
                           float value) {
    Ops& ops = view.ops();
    if (ops.device == Device::kHost) {
      const bool adds = op == Binary::kAdd;
      const Tensor one = Columns(matrix, column, column + 1);
      return ops.rows->Affine(one, adds ? 1.0f : value, adds ? value : 0.0f, one);
    }
    const int64_t rows = matrix.shape[0], columns = matrix.shape[1];
    std::vector<int32_t> at;
    for (int64_t i = 0; i < rows; ++i) at.push_back(static_cast<int32_t>(i * columns + column));
    const std::vector<float> values(at.size(), value);
    const Tensor cells = AsColumn(matrix.Reshape({rows * columns})), places = Upload(view, at);
    const Tensor own = view.Scratch(DType::kF32, {1, rows});
    ops.select->Gather(cells, places, AsColumn(own[0]));
    ops.rows->Combine(own, Upload(view, values), op, own);
    ops.select->Scatter(AsColumn(own[0]), places, cells);
  }

  // The best entries for all of the group: [1, read or more] i32. logits: [group, pages or more],
  // used up.
  Tensor Choose(LayerView& view, const Tensor& logits, int64_t pages, int64_t length) const {
    RowOps& rows = *view.ops().rows;
    const int64_t columns = logits.shape[1];
    // The last page holds fewer: what a softmax over entries gives it is less, and what it gives
    // one of them is not.
    const float filled =
        static_cast<float>(length - (pages - 1) * page_) / static_cast<float>(page_);
    const Tensor own = Columns(logits, 0, pages);
    ChangeColumn(view, logits, pages - 1, Binary::kAdd, std::log(filled));
    rows.Softmax(own, 1.0f, own);
    ChangeColumn(view, logits, pages - 1, Binary::kMultiply, 1.0f / filled);
    const Tensor shares = view.Scratch(DType::kF32, {columns});
    rows.ReduceColumns(logits, Reduction::kMean, shares);
    const Tensor entries = Spread(view, shares, page_).Reshape({1, columns * page_});
    const auto read = static_cast<int32_t>(std::min(tokens_, length));
    const Tensor chosen = view.Scratch(DType::kI32, {1, ChoiceColumns(view, read, tokens_)});
    view.ops().select->TopK(Columns(entries, 0, length), Upload(view, std::span(&read, 1)), chosen);
    return chosen;
  }

  int64_t page_, rank_, tokens_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kRead,
    .id = "rocketkv",
    .paper = "arXiv:2502.14051",
    .summary = "reads the entries that bounds of their page give most in the largest channels",
    .departures = {"`page` and `rank` are numbers; the reference makes them of a ratio of sizes, "
                   "page its root rounded up and rank key_dim * page / ratio"},
    .bytes = "2 * key_dim / page of the cache's type an entry and head, beside the cache",
    .params = {IntParam("page", 4, 1, 1024, "entries of a page"),
               IntParam("rank", 32, 1, 4096, "channels that count"),
               IntParam("tokens", 256, 1, 1 << 24, "entries that are read")},
    .make = Make<RocketKv>(),
});

}  // namespace
}  // namespace kvgauge
