// SPDX-License-Identifier: Apache-2.0
// Attention of the last prompt rows, less how much an entry's key repeats those of others.
//
// Paper: R-KV, arXiv:2505.24133. Needs the queries of the last `window` rows. Attention: of
// the query heads of a KV head the highest logit counts, before a softmax over what came before the
// window; averaged over rows and pooled. Redundancy: the cosine of every pair of keys, but of each
// entry that with the last one that is more alike than `threshold`; averaged over the others, and a
// softmax over entries. The score is `mix` of the one less 1 - `mix` of the other.
#include <algorithm>
#include <numeric>

#include "core/strings.h"
#include "methods/attention.h"
#include "methods/tensors.h"
#include "methods/window_scorer.h"

namespace kvgauge {
namespace {

class Rkv final : public WindowScorer {
 public:
  explicit Rkv(const Params& params)
      : WindowScorer(params, /*slides=*/true),
        kernel_(params.Int("kernel")),
        mix_(static_cast<float>(params.Real("mix"))),
        threshold_(static_cast<float>(params.Real("threshold"))) {}

  Status Check(const ModelShape&) const override {
    if (kernel_ % 2 == 1) return {};
    return BadInput(
        StrCat("kernel ", kernel_, " is even; pooling needs an odd width, such as ", kernel_ + 1));
  }

  Needs needs() const override {
    Needs needs = WindowScorer::needs();
    needs.products = true;
    return needs;
  }

 protected:
  void ScoreBefore(LayerView& view, int64_t rows, Tensor out) const override {
    RowOps& ops = *view.ops().rows;
    const Room room(view, view.width());
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t before = view.lengths()[static_cast<size_t>(h)] - (view.width() - out.shape[1]);
      if (before == 0) continue;
      const Tensor scores = Columns(out.Slice(h, h + 1), 0, before);
      const Tensor redundancy = Redundancy(view, h, room);
      ops.Affine(redundancy, mix_ - 1, 0.0f, redundancy);
      Attention(view, h, rows, scores);
      ops.Affine(scores, mix_, 0.0f, scores);
      ops.Combine(scores, Columns(redundancy, 0, before), Binary::kAdd, scores);
    }
  }

 private:
  // Keys that are compared with all others at once.
  static constexpr int64_t kColumns = 128;

  // What heads share, for blocks [n, columns].
  struct Room {
    Room(LayerView& view, int64_t n)
        : columns(std::min(kColumns, n)),
          numbers(view.Scratch(DType::kF32, {n, columns})),
          likeness(view.Scratch(DType::kF32, {n * columns})),
          work(view.Scratch(DType::kF32, {n * columns})),
          last(view.Scratch(DType::kF32, {2, columns})),
          sums(view.Scratch(DType::kF32, {1, n})),
          part(view.Scratch(DType::kF32, {1, n})),
          keys(view.Scratch(DType::kF32, {n, view.shape().key_dim})) {
      std::vector<float> counted(static_cast<size_t>(n));
      std::iota(counted.begin(), counted.end(), 0.0f);
      const Tensor rows = Upload(view, std::span<const float>(counted)).Reshape({1, n, 1});
      view.ops().linear->MatMulNN(rows, Filled(view, columns, 1.0f).Reshape({1, 1, columns}), 1.0f,
                                  numbers.Reshape({1, n, columns}));
      ones = Filled(view, view.shape().key_dim, 1.0f);
      threshold_room = view.Scratch(DType::kF32, {1, columns});
    }
    int64_t columns;
    Tensor numbers;         // [n, columns], each row its own number
    Tensor likeness, work;  // [n * columns]
    Tensor last;            // [2, columns]
    Tensor sums, part;      // [1, n]
    Tensor keys;            // [n, key_dim] of one length
    Tensor ones, threshold_room;
  };

  // most_rows: of the window. scores: [1, before], of a row that may be strided.
  void Attention(LayerView& view, int64_t head, int64_t most_rows, const Tensor& scores) const {
    Ops& ops = view.ops();
    const ModelShape& shape = view.shape();
    const int64_t dim = shape.key_dim, before = scores.shape[1], group = shape.group();
    const Tensor queries = view.WindowQueries(most_rows);
    const int64_t rows = queries.shape[0];
    const Tensor own = view.Scratch(DType::kF32, {rows, dim});
    const Tensor logits = view.Scratch(DType::kF32, {rows, before});
    const Tensor most = view.Scratch(DType::kF32, {rows, before});
    const Tensor keys = view.Keys(head).Slice(0, before).Reshape({1, before, dim});
    for (int64_t g = 0; g < group; ++g) {
      Tensor strided(queries[0][head * group + g].data, DType::kF32, {rows, dim}, queries.device);
      strided.stride[0] = queries.stride[0];
      ops.rows->Convert(strided, own);
      const Tensor to = g == 0 ? most : logits;
      ops.linear->MatMulNT(own.Reshape({1, rows, dim}), keys, 1.0f, to.Reshape({1, rows, before}));
      if (g > 0) ops.rows->Combine(most, logits, Binary::kMax, most);
    }
    AttentionOfProducts(view, head, 0, QueryRows::Last(view, rows), most, most);
    const Tensor mean = view.Scratch(DType::kF32, {1, before});
    ops.rows->ReduceColumns(most, Reduction::kMean, mean[0]);
    ops.select->Pool(mean, kernel_, Pooling::kMax, scores);
  }

  // [1, n] of the head's entries, in the room.
  Tensor Redundancy(LayerView& view, int64_t head, const Room& room) const {
    Ops& ops = view.ops();
    RowOps& rows = *ops.rows;
    const int64_t dim = view.shape().key_dim, n = view.lengths()[static_cast<size_t>(head)];
    const Tensor keys = room.keys.Slice(0, n), all_numbers = room.numbers.Slice(0, n);
    const Tensor sums = Columns(room.sums, 0, n), part = Columns(room.part, 0, n);
    // Each of a length of sqrt(dim).
    rows.RmsNorm(view.Keys(head), room.ones, 0.0f, 1e-20f, keys);
    rows.Fill(0.0f, sums);
    rows.Fill(threshold_, room.threshold_room);
    for (int64_t first = 0; first < n; first += room.columns) {
      const int64_t count = std::min(room.columns, n - first);
      const Tensor likeness = room.likeness.Slice(0, n * count).Reshape({n, count});
      const Tensor work = room.work.Slice(0, n * count).Reshape({n, count});
      const Tensor numbers = Columns(all_numbers, 0, count);
      ops.linear->MatMulNT(keys.Reshape({1, n, dim}),
                           keys.Slice(first, first + count).Reshape({1, count, dim}),
                           1.0f / static_cast<float>(dim), likeness.Reshape({1, n, count}));
      std::vector<int32_t> itself;
      for (int64_t i = 0; i < count; ++i) {
        itself.push_back(static_cast<int32_t>((first + i) * count + i));
      }
      const Tensor zeros = Filled(view, count, 0.0f);
      ops.select->Scatter(AsColumn(zeros), Upload(view, std::span<const int32_t>(itself)),
                          likeness.Reshape({n * count, 1}));
      // The last of those that are alike; the first of all where none is, as in the reference.
      const Tensor last = Columns(room.last.Slice(0, 1), 0, count);
      const Tensor below = Columns(room.last.Slice(1, 2), 0, count);
      rows.Affine(likeness, -1.0f, 0.0f, work);
      rows.Affine(Columns(room.threshold_room, 0, count), -1.0f, 0.0f, below);
      rows.Combine(work, below[0], Binary::kLess, work);
      rows.Combine(work, numbers, Binary::kMultiply, work);
      rows.ReduceColumns(work, Reduction::kMax, last[0]);
      // All but that one: those before it and those behind it.
      rows.Combine(numbers, last[0], Binary::kLess, work);
      rows.Combine(work, likeness, Binary::kMultiply, work);
      rows.ReduceRows(work, Reduction::kSum, part[0]);
      rows.Combine(sums, part, Binary::kAdd, sums);
      rows.Affine(numbers, -1.0f, 0.0f, work);
      rows.Affine(last, -1.0f, 0.0f, below);
      rows.Combine(work, below[0], Binary::kLess, work);
      rows.Combine(work, likeness, Binary::kMultiply, work);
      rows.ReduceRows(work, Reduction::kSum, part[0]);
      rows.Combine(sums, part, Binary::kAdd, sums);
    }
    rows.Softmax(sums, 1.0f / static_cast<float>(n), sums);
    return sums;
  }

  int64_t kernel_;
  float mix_, threshold_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "rkv",
    .paper = "arXiv:2505.24133",
    .summary = "attention of the last prompt rows, less how much a key repeats others",
    .params = {WindowScorer::WindowParam(8),
               IntParam("kernel", 7, 1, 1023, "width of the pooling, odd"),
               RealParam("mix", 0.07, 0, 1, "share of attention; the rest is redundancy's"),
               RealParam("threshold", 0.5, -1, 1, "cosine above which two keys are alike")},
    .make = Make<Rkv>(),
});

}  // namespace
}  // namespace kvgauge
