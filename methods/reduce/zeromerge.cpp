// SPDX-License-Identifier: Apache-2.0
// Top-k; what goes is merged into a few entries that stand for all that has gone.
//
// Paper: ZeroMerge, arXiv:2503.10714; after the released code. Needs nothing but scores and keys.
// What a prompt gives up is cut into `residual` runs, and each becomes its mean, in the place of
// its first entry. Later an entry that goes joins the one of these whose key has the largest
// product with its own: a mean by how many entries each stands for. `share` of the logarithm of
// that number is added to attention's logits. They are some of the entries that a head may hold.
#include <algorithm>
#include <cmath>
#include <vector>

#include "methods/merge_list.h"
#include "methods/registry.h"
#include "methods/state_fields.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class Residuals final : public Reducer {
 public:
  explicit Residuals(const Params& params)
      : residual_(params.Int("residual")), share_(params.Real("share")) {}

  bool merges_keys() const override { return true; }

  // Known by position, as entries move when others go.
  struct Head {
    std::vector<float> positions;
    std::vector<float> counts;
  };
  struct Held final : State {
    std::vector<Head> heads;
    Status Fields(StateFields& fields, int64_t count, int64_t tokens) override {
      heads.resize(static_cast<size_t>(count));
      for (Head& head : heads) {
        KVG_TRY(fields.UpTo("positions of entries that stand for others", tokens, &head.positions));
        KVG_TRY(fields.UpTo("entries that others stand for", tokens, &head.counts));
        const bool none = std::any_of(head.counts.begin(), head.counts.end(),
                                      [](float stands_for) { return stands_for < 1; });
        if (head.counts.size() == head.positions.size() && !none) continue;
        return BadInput(
            "state of the method: entries that stand for others, of none or without a "
            "position");
      }
      return {};
    }
  };
  std::unique_ptr<State> Begin() const override { return std::make_unique<Held>(); }

  std::vector<HeadPlan> Reduce(LayerView& view, const ReduceInput& input,
                               State* state) const override {
    auto& held = static_cast<Held*>(state)->heads;
    held.resize(static_cast<size_t>(view.shape().kv_heads));
    std::vector<HeadPlan> plans;
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t length = view.lengths()[static_cast<size_t>(h)];
      const int64_t kept = std::min(length, input.allocated[static_cast<size_t>(h)]);
      const Tensor scores = Columns(input.scores.Slice(h, h + 1), 0, length);
      Head& own = held[static_cast<size_t>(h)];
      const int64_t open = kept - CountForced(view, scores);
      HeadPlan plan;
      if (kept == length || open < std::max<int64_t>(1, std::ssize(own.counts))) {
        // Where protected entries take all places, nothing is left to stand for what goes.
        plan.keep = Best(view, scores, kept);
        if (kept < length) own = {};
      } else if (own.counts.empty() && input.step == 0) {
        Cut(view, h, scores, kept, std::min(open, residual_), own, plan);
      } else {
        if (own.counts.empty()) Adopt(view, h, std::min(open, residual_), own);
        Join(view, h, scores, kept, own, plan);
      }
      plans.push_back(plan);
    }
    return plans;
  }

 private:
  // Runs of all that goes become means.
  void Cut(LayerView& view, int64_t head, const Tensor& scores, int64_t kept, int64_t residual,
           Head& own, HeadPlan& plan) const {
    Ops& ops = view.ops();
    const int64_t length = scores.shape[1], top = kept - residual, rest = length - top;
    const Tensor best = Best(view, scores, top), others = Complement(view, best, length);
    std::vector<int32_t> first, from, to;
    int32_t at = 0;
    for (int64_t r = 0; r < residual; ++r) {
      const auto size = static_cast<int32_t>(rest / residual + (r < rest % residual ? 1 : 0));
      first.push_back(at);
      own.counts.push_back(static_cast<float>(size));
      for (int32_t i = 1; i < size; ++i) {
        from.push_back(at + i);
        to.push_back(at);
      }
      at += size;
    }
    const auto entries = [&](const std::vector<int32_t>& of) {
      const Tensor out = view.Scratch(DType::kI32, {std::ssize(of)});
      ops.select->Gather(AsColumn(others), Upload(view, of), AsColumn(out));
      return out;
    };
    const Tensor slots = entries(first);
    const Tensor stays = view.Scratch(DType::kF32, {length, 1});
    if (top > 0) ops.select->Scatter(AsColumn(Filled(view, top, 1.0f)), best, stays);
    ops.select->Scatter(AsColumn(Filled(view, residual, 1.0f)), slots, stays);
    plan.keep = Best(view, stays.Reshape({1, length}), kept);
    if (!from.empty()) {
      MergeList list;
      list.from = entries(from);
      list.to = entries(to);
      list.weight = Filled(view, std::ssize(from), 1.0f);
      NormalizeMerge(view, length, list);
      plan.keys = plan.values = list;
    }
    own.positions = PositionsOf(view, head, slots);
    plan.log_weight = LogWeights(view, length, slots, own.counts, plan.keep);
  }

  // The first entries of a head that gave up nothing yet stand for what will go.
  static void Adopt(LayerView& view, int64_t head, int64_t residual, Head& own) {
    own.counts.assign(static_cast<size_t>(residual), 1.0f);
    own.positions = PositionsOf(view, head, Numbers(view, residual));
  }

  void Join(LayerView& view, int64_t head, const Tensor& scores, int64_t kept, Head& own,
            HeadPlan& plan) const {
    Ops& ops = view.ops();
    const int64_t length = scores.shape[1], dim = view.shape().key_dim;
    const int64_t residual = std::ssize(own.counts), gone = length - kept;
    const Tensor slots = Find(view, head, own.positions);
    const Tensor ranked = view.Scratch(DType::kF32, {length, 1});
    ops.rows->Convert(scores, ranked.Reshape({1, length}));
    ops.select->Scatter(AsColumn(Filled(view, residual, kForcedScore)), slots, ranked);
    plan.keep = Best(view, ranked.Reshape({1, length}), kept);

    MergeList list;
    list.from = Complement(view, plan.keep, length);
    const Tensor nearest = view.Scratch(DType::kI32, {gone, 1});  // zeros: the only one
    if (residual > 1) {
      const Tensor keys = view.Keys(head);
      const Tensor going = view.Scratch(DType::kF32, {gone, dim});
      const Tensor standing = view.Scratch(DType::kF32, {residual, dim});
      const Tensor products = view.Scratch(DType::kF32, {gone, residual});
      ops.select->Gather(keys, list.from, going);
      ops.select->Gather(keys, slots, standing);
      ops.linear->MatMulNT(going.Reshape({1, gone, dim}), standing.Reshape({1, residual, dim}),
                           1.0f, products.Reshape({1, gone, residual}));
      const std::vector<int32_t> one(static_cast<size_t>(gone), 1);
      ops.select->TopK(products, Upload(view, one), nearest);
    }
    const Tensor joined = nearest.Reshape({gone});
    list.to = view.Scratch(DType::kI32, {gone});
    ops.select->Gather(AsColumn(slots), joined, AsColumn(list.to));
    std::vector<float> relative;
    for (const float count : own.counts) relative.push_back(1 / count);
    list.weight = view.Scratch(DType::kF32, {gone});
    ops.select->Gather(AsColumn(Upload(view, relative)), joined, AsColumn(list.weight));
    NormalizeMerge(view, length, list);
    plan.keys = plan.values = list;

    std::vector<float> came = {static_cast<float>(gone)};
    if (residual > 1) {
      const Tensor counts = view.Scratch(DType::kF32, {residual});
      ops.select->ScatterAdd(AsColumn(Filled(view, gone, 1.0f)), joined, {}, AsColumn(counts));
      came = Fetch(ops, counts);
    }
    for (size_t r = 0; r < came.size(); ++r) own.counts[r] += came[r];
    plan.log_weight = LogWeights(view, length, slots, own.counts, plan.keep);
  }

  Tensor LogWeights(LayerView& view, int64_t length, const Tensor& slots,
                    const std::vector<float>& counts, const Tensor& keep) const {
    std::vector<float> logs;
    for (const float count : counts) {
      logs.push_back(static_cast<float>(share_ * std::log(static_cast<double>(count))));
    }
    const Tensor all = view.Scratch(DType::kF32, {length, 1});
    view.ops().select->Scatter(AsColumn(Upload(view, logs)), slots, all);
    const Tensor out = view.Scratch(DType::kF32, {keep.shape[0]});
    view.ops().select->Gather(all, keep, AsColumn(out));
    return out;
  }

  static std::vector<float> PositionsOf(LayerView& view, int64_t head, const Tensor& entries) {
    const int64_t n = entries.shape[0];
    const Tensor own = view.Scratch(DType::kI32, {n, 1});
    const Tensor out = view.Scratch(DType::kF32, {n});
    view.ops().select->Gather(AsColumn(view.Positions(head)), entries, own);
    view.ops().rows->Convert(own.Reshape({1, n}), out.Reshape({1, n}));
    return Fetch(view.ops(), out);
  }

  // The entries at these positions: [n] i32.
  static Tensor Find(LayerView& view, int64_t head, const std::vector<float>& positions) {
    RowOps& ops = *view.ops().rows;
    const int64_t length = view.lengths()[static_cast<size_t>(head)], n = std::ssize(positions);
    const Tensor at = view.Scratch(DType::kF32, {1, length});
    const Tensor apart = view.Scratch(DType::kF32, {n, length});
    ops.Convert(view.Positions(head).Reshape({1, length}), at);
    for (int64_t r = 0; r < n; ++r) {
      const Tensor row = apart.Slice(r, r + 1);
      ops.Affine(at, 1.0f, -positions[static_cast<size_t>(r)], row);
      ops.Combine(row, row, Binary::kMultiply, row);
      ops.Affine(row, -1.0f, 0.0f, row);
    }
    const std::vector<int32_t> one(static_cast<size_t>(n), 1);
    const Tensor found = view.Scratch(DType::kI32, {n, 1});
    view.ops().select->TopK(apart, Upload(view, one), found);
    return found.Reshape({n});
  }

  int64_t residual_;
  double share_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kReduce,
    .id = "zeromerge",
    .paper = "arXiv:2503.10714",
    .summary = "top-k, and a few entries are the means of all that has gone",
    .departures = {"of several entries that go in one decode step or turn, each joins an entry as "
                   "it was before; one goes at a time in the reference"},
    .params = {IntParam("residual", 1, 1, 1024, "entries that stand for what has gone"),
               RealParam("share", 0.6, 0, 1,
                         "of the logarithm of how many entries one stands for, added to logits")},
    .make = Make<Residuals>(),
});

}  // namespace
}  // namespace kvgauge
