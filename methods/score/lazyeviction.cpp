// SPDX-License-Identifier: Apache-2.0
// Entries to which attention is about to come back: a row that pays `least` is a hit, and the
// longest time between two hits is an entry's period.
//
// Paper: LazyEviction, arXiv:2506.15969. Needs the newest row at decode steps, and the attention of
// the last `window` prompt rows. Two numbers of an entry build up, the time of the last hit and the
// period. At time t the score is 2 s(-(t - hit) / period) + 2 s(-1 / period), s the sigmoid; 0
// without a period. The query head of a KV head that pays most counts.
//
// The authors' code (Halo-949/LazyEviction of October 2025, read in WeianMao/triattention e7a0eb18)
// does otherwise, which is `form` released: decode steps alone count, a new entry was hit one step
// ago, and the score is 2 s(-1 - (t - hit) / (period + 1e-5)) + 2 s(1 - period).
#include "methods/recurrence.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

// Beyond it exp is infinite.
constexpr float kMostExponent = 80;
// What the released form adds to a period before it divides.
constexpr float kAlmostNothing = 1e-5f;

class LazyEviction final : public Scorer {
 public:
  explicit LazyEviction(const Params& params)
      : window_(params.Int("window")),
        least_(static_cast<float>(params.Real("least"))),
        released_(params.Text("form") == "released") {}

  Needs needs() const override {
    return {.window = released_ ? 0 : window_, .step_attention = true};
  }
  bool ages() const override { return true; }
  int64_t numbers() const override { return 2; }

  void Score(LayerView& view, Tensor out) const override {
    const Tensor numbers = view.Scratch(DType::kF32, {2, out.shape[0], view.width()});
    Start(view, numbers);
    Rank(view, numbers, out);
  }

  // An entry's own row is its first hit; in the released form all of the prompt was hit at its end.
  void Start(LayerView& view, Tensor numbers) const override {
    RowOps& ops = *view.ops().rows;
    if (released_) {
      ops.Fill(static_cast<float>(view.tokens()), numbers[0]);
      return;
    }
    for (int64_t h = 0; h < numbers.shape[1]; ++h) {
      const int64_t n = view.lengths()[static_cast<size_t>(h)];
      const Tensor times = numbers[0][h].Slice(0, n).Reshape({1, n});
      ops.Convert(view.Positions(h).Reshape({1, n}), times);
      ops.Affine(times, 1.0f, 1.0f, times);
    }
    ForLastRows(view, window_, [&](const Tensor& row, int64_t seen, float time) {
      Hit(view, row, time, Columns(numbers[0], 0, seen), Columns(numbers[1], 0, seen));
    });
  }

  void Age(LayerView& view, Tensor numbers) const override {
    const auto time = static_cast<float>(view.tokens());
    for (int64_t h = 0; h < numbers.shape[1]; ++h) {
      const int64_t n = view.lengths()[static_cast<size_t>(h)];
      view.ops().rows->Fill(released_ ? time - 1 : time, numbers[0][h].Slice(n - 1, n));
    }
    Hit(view, MostOfGroup(view, view.StepAttention()), time, numbers[0], numbers[1]);
  }

  void Rank(LayerView& view, const Tensor& numbers, Tensor out) const override {
    RowOps& ops = *view.ops().rows;
    const int64_t heads = out.shape[0], n = out.shape[1];
    const auto time = static_cast<float>(view.tokens());
    const Tensor has = AtLeast(view, numbers[1], 0.5f);
    const Tensor period = view.Scratch(DType::kF32, {heads, n});
    const Tensor late = view.Scratch(DType::kF32, {heads, n});
    const Tensor rare = view.Scratch(DType::kF32, {heads, n});
    ops.Affine(numbers[0], -1.0f, time, late);
    if (released_) {
      ops.Affine(numbers[1], 1.0f, kAlmostNothing, period);
      ops.Combine(late, period, Binary::kDivide, late);
      ops.Affine(late, 1.0f, 1.0f, late);
      ops.Affine(numbers[1], 1.0f, -1.0f, rare);
    } else {
      ops.Combine(numbers[1], Filled(view, n, 1.0f), Binary::kMax, period);
      ops.Combine(late, period, Binary::kDivide, late);
      ops.Fill(1.0f, rare);
      ops.Combine(rare, period, Binary::kDivide, rare);
    }
    TwiceSigmoid(view, late);
    TwiceSigmoid(view, rare);
    ops.Combine(late, rare, Binary::kAdd, out);
    ops.Combine(out, has, Binary::kMultiply, out);
  }

 private:
  // x becomes 2 s(-x).
  static void TwiceSigmoid(LayerView& view, const Tensor& x) {
    RowOps& ops = *view.ops().rows;
    ops.Combine(x, Filled(view, x.shape[1], kMostExponent), Binary::kMin, x);
    ops.Activate(x, Activation::kExp, x);
    ops.Affine(x, 1.0f, 1.0f, x);
    const Tensor two = view.Scratch(DType::kF32, {x.shape[0], x.shape[1]});
    ops.Fill(2.0f, two);
    ops.Combine(two, x, Binary::kDivide, x);
  }

  // Where the row hits: the period grows to the time since the last hit, which is now.
  void Hit(LayerView& view, const Tensor& row, float time, const Tensor& last,
           const Tensor& period) const {
    RowOps& ops = *view.ops().rows;
    const Tensor hit = AtLeast(view, row, least_);
    const Tensor since = view.Scratch(DType::kF32, {row.shape[0], row.shape[1]});
    ops.Affine(last, -1.0f, time, since);
    ops.Combine(since, hit, Binary::kMultiply, since);
    ops.Combine(period, since, Binary::kMax, period);
    ops.Combine(last, since, Binary::kAdd, last);
  }

  int64_t window_;
  float least_;
  bool released_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "lazyeviction",
    .version = 2,
    .paper = "arXiv:2506.15969",
    .summary = "entries to which attention is about to come back",
    .departures = {"form paper: the prompt's last rows count as steps do, and the two terms are "
                   "added",
                   "one period for each KV head, by its query head that pays most; the released "
                   "code holds a cache for each query head"},
    .bytes = "with a trigger in decode: 8 bytes an entry for its last hit and its period",
    .params = {IntParam("window", 32, 1, 4096, "prompt rows that are looked at, of form paper"),
               RealParam("least", 1e-4, 0, 1, "attention that is a hit"),
               ChoiceParam("form", "paper", {"paper", "released"},
                           "released: as the authors' code: steps alone count, and short periods "
                           "count for more")},
    .make = Make<LazyEviction>(),
});

}  // namespace
}  // namespace kvgauge
