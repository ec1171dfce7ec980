// SPDX-License-Identifier: Apache-2.0
// Keeps the best entry of each cell of what is new, and evenly spaced ones of what was kept before.
//
// Paper: BUZZ, arXiv:2410.23079. Needs scores (attention received so far). Between the first
// `sinks` and the last `recent` entries lie those that stayed the last time and those that came
// since. Every `stride`-th of the former stays, whatever its score; the latter are cut into as many
// cells as the budget has room for, and the best of each stays.
#include <algorithm>

#include "methods/registry.h"
#include "methods/state_fields.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class Buzz final : public Reducer {
 public:
  explicit Buzz(const Params& params)
      : sinks_(params.Int("sinks")), recent_(params.Int("recent")), stride_(params.Int("stride")) {}

  // How many entries behind the first ones stayed the last time, by head.
  struct Kept final : State {
    std::vector<int64_t> old;
    Status Fields(StateFields& fields, int64_t heads, int64_t tokens) override {
      if (!fields.reads()) old.resize(static_cast<size_t>(heads));
      return fields.Numbers("entries that stayed the last time", heads, 0, tokens, &old);
    }
  };
  std::unique_ptr<State> Begin() const override { return std::make_unique<Kept>(); }

  std::vector<HeadPlan> Reduce(LayerView& view, const ReduceInput& input,
                               State* state) const override {
    std::vector<int64_t>& old = static_cast<Kept*>(state)->old;
    old.resize(static_cast<size_t>(view.shape().kv_heads));
    std::vector<HeadPlan> plans;
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t length = view.lengths()[h], kept = std::min(length, input.allocated[h]);
      const Tensor scores = Columns(input.scores.Slice(h, h + 1), 0, length);
      const int64_t room = kept - sinks_ - recent_;
      int64_t& of_head = old[static_cast<size_t>(h)];
      HeadPlan plan;
      if (kept == length || room <= 0) {
        plan.keep = Best(view, scores, kept);
      } else {
        plan.keep = Choose(view, scores, kept, std::min(of_head, length - sinks_ - recent_));
        of_head = room;
      }
      plans.push_back(plan);
    }
    return plans;
  }

 private:
  Tensor Choose(LayerView& view, const Tensor& scores, int64_t kept, int64_t old) const {
    Ops& ops = view.ops();
    const int64_t length = scores.shape[1], room = kept - sinks_ - recent_;
    const int64_t fresh = length - sinks_ - recent_ - old, begin = sinks_ + old;
    const int64_t sampled = std::max((old + stride_ - 1) / stride_, room - fresh);
    const int64_t cells = room - sampled;
    // 1 for what stays.
    const Tensor stays = view.Scratch(DType::kF32, {1, length});
    const auto keep_all = [&](int64_t from, int64_t to) {
      if (from == to) return;
      const Tensor part = Columns(stays, from, to);
      ops.rows->Fill(1.0f, part);
    };
    keep_all(0, sinks_);
    keep_all(length - recent_, length);
    if (sampled > 0) {
      std::vector<int32_t> evenly;
      for (int64_t i = 0; i < sampled; ++i) {
        evenly.push_back(static_cast<int32_t>(sinks_ + i * old / sampled));
      }
      ops.select->Scatter(AsColumn(Filled(view, sampled, 1.0f)),
                          Upload(view, std::span<const int32_t>(evenly)),
                          stays.Reshape({length, 1}));
    }
    if (cells > 0) {
      // The first cells have one entry more where they do not divide.
      const int64_t size = fresh / cells, larger = fresh % cells,
                    split = begin + larger * (size + 1);
      MarkCells(view, scores, begin, larger, size + 1, stays);
      MarkCells(view, scores, split, cells - larger, size, stays);
    }
    return Best(view, stays, kept);
  }

  static void MarkCells(LayerView& view, const Tensor& scores, int64_t begin, int64_t cells,
                        int64_t size, const Tensor& stays) {
    if (cells == 0) return;
    const int64_t end = begin + cells * size;
    const Tensor rows = view.Scratch(DType::kF32, {cells, size});
    view.ops().rows->Convert(Columns(scores, begin, end), rows.Reshape({1, cells * size}));
    view.ops().rows->Convert(MarkBest(view, rows).Reshape({1, cells * size}),
                             Columns(stays, begin, end));
  }

  int64_t sinks_, recent_, stride_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kReduce,
    .id = "buzz",
    .paper = "arXiv:2410.23079",
    .summary = "the best entry of each cell of what is new, every second of what was kept before",
    .departures = {"cells are as large as the budget makes them, where the reference fixes their "
                   "size",
                   "one set of entries per KV head"},
    .params = {IntParam("sinks", 4, 0, 4096, "first entries, which stay"),
               IntParam("recent", 4, 0, 1 << 20, "last entries, which stay"),
               IntParam("stride", 2, 1, 64, "one of so many entries that were kept before stays")},
    .make = Make<Buzz>(),
});

}  // namespace
}  // namespace kvgauge
