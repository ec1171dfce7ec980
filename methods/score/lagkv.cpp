// SPDX-License-Identifier: Apache-2.0
// How unevenly an entry's channels lie within the ranges that the following run of entries spans.
//
// Paper: LagKV, arXiv:2504.04704. Needs keys and values alone. After the first `sinks` entries come
// runs of `lag`. Each channel of a run is scaled by the least and the largest number that it takes
// in the next run; an entry's spread is the standard deviation over its scaled channels; spreads
// become shares by a softmax over the run, for keys and values, and the score is their mean. The
// last whole run and what follows it have nothing after them: they score above all others, later
// ones higher. The same holds for everything if there are no two whole runs. First entries score
// above all shares, too. The reducer `partitions` gives runs equal shares, as the paper does; with
// top_k runs compete, as with kvpress's cross_scoring.
#include <algorithm>
#include <cmath>
#include <vector>

#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

// Ranges of channels that do not change in a run.
constexpr float kLeastRange = 1e-6f;

class LagKv final : public Scorer {
 public:
  explicit LagKv(const Params& params) : sinks_(params.Int("sinks")), lag_(params.Int("lag")) {}

  Status Check(const ModelShape& shape) const override {
    if (shape.key_dim > 1 && shape.value_dim > 1) return {};
    return BadInput("measures how a head's dims differ, and this model has one");
  }

  bool any_time() const override { return true; }

  void Score(LayerView& view, Tensor out) const override {
    RowOps& ops = *view.ops().rows;
    std::vector<Head> heads;  // those that have two whole runs
    int64_t most_runs = 0;
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t n = view.lengths()[h];
      if (n == 0) continue;
      // From 1 to 2 by position.
      const Tensor own = out[h].Slice(0, n).Reshape({1, n});
      const auto tokens = static_cast<float>(view.tokens());
      ops.Convert(view.Positions(h).Reshape({1, n}), own);
      ops.Affine(own, 1.0f / tokens, 1.0f, own);
      if (const int64_t sinks = std::min(sinks_, n); sinks > 0) {
        const Tensor first = Columns(own, 0, sinks);
        ops.Fill(1.0f, first);
      }
      const int64_t runs = n > sinks_ ? (n - sinks_) / lag_ : 0;
      if (runs < 2) continue;
      heads.emplace_back(view, h, runs, lag_, own);
      most_runs = std::max(most_runs, runs);
    }
    constexpr double kNumber_ns = 1;
    const auto numbers =
        static_cast<double>(lag_ * (view.shape().key_dim + view.shape().value_dim) * most_runs);
    view.ops().tasks->ForEach(std::ssize(heads), kNumber_ns * numbers,
                              [&](int64_t i) { ScoreRuns(ops, heads[static_cast<size_t>(i)]); });
  }

 private:
  // What one run takes at a time, for rows of so many dims.
  struct Room {
    Room(LayerView& view, int64_t lag, int64_t dim)
        : low(view.Scratch(DType::kF32, {dim})),
          range(view.Scratch(DType::kF32, {1, dim})),
          scaled(view.Scratch(DType::kF32, {lag, dim})),
          products(view.Scratch(DType::kF32, {lag, dim})),
          ones(Filled(view, dim, 1.0f)),
          least(Filled(view, dim, kLeastRange)) {}

    Tensor low, range, scaled, products, ones, least;
  };

  // A head with memory of its own, since heads are scored side by side.
  struct Head {
    Head(LayerView& view, int64_t head, int64_t whole_runs, int64_t lag, const Tensor& of_entries)
        : keys(view.Keys(head)),
          values(view.Values(head)),
          scores(of_entries),
          spread(view.Scratch(DType::kF32, {1, lag})),
          key_room(view, lag, view.shape().key_dim),
          value_room(view, lag, view.shape().value_dim),
          runs(whole_runs) {}

    Tensor keys, values, scores, spread;
    Room key_room, value_room;
    int64_t runs;
  };

  void ScoreRuns(RowOps& ops, const Head& head) const {
    for (int64_t p = 0; p + 1 < head.runs; ++p) {
      const int64_t begin = sinks_ + p * lag_;
      const Tensor shares = Columns(head.scores, begin, begin + lag_);
      Shares(ops, head.keys, begin, head.key_room, shares);
      Shares(ops, head.values, begin, head.value_room, head.spread);
      ops.Combine(shares, head.spread, Binary::kAdd, shares);
      ops.Affine(shares, 0.5f, 0.0f, shares);
    }
  }

  // The run from `begin` on, against the one that follows; shares: [1, lag].
  void Shares(RowOps& ops, const Tensor& rows, int64_t begin, const Room& room,
              Tensor shares) const {
    const int64_t dim = rows.shape[1], middle = begin + lag_;
    const Tensor next = rows.Slice(middle, middle + lag_);
    ops.ReduceColumns(next, Reduction::kMin, room.low);
    ops.ReduceColumns(next, Reduction::kMax, room.range.Reshape({dim}));
    ops.Combine(room.range, room.low, Binary::kSubtract, room.range);
    ops.Combine(room.range, room.least, Binary::kMax, room.range);
    ops.Combine(rows.Slice(begin, middle), room.low, Binary::kSubtract, room.scaled);
    ops.Combine(room.scaled, room.range.Reshape({dim}), Binary::kDivide, room.scaled);
    // A row times itself centred and of unit deviation is `dim` deviations.
    ops.LayerNorm(room.scaled, room.ones, Tensor(), 1e-20f, room.products);
    ops.Combine(room.scaled, room.products, Binary::kMultiply, room.products);
    ops.ReduceRows(room.products, Reduction::kSum, shares.Reshape({lag_}));
    const auto d = static_cast<double>(dim);
    ops.Affine(shares, static_cast<float>(std::sqrt(d / (d - 1)) / d), 0.0f, shares);
    ops.Softmax(shares, 1.0f, shares);
  }

  int64_t sinks_, lag_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "lagkv",
    .paper = "arXiv:2504.04704",
    .summary = "entries whose channels lie unevenly in the ranges of the run that follows",
    .departures = {"the newest entries score by position, not alike"},
    .params = {IntParam("sinks", 4, 0, 4096, "first entries, outside of all runs"),
               IntParam("lag", 128, 2, 1 << 16, "entries of a run")},
    .make = Make<LagKv>(),
    .goes_by_layer = true,
});

}  // namespace
}  // namespace kvgauge
