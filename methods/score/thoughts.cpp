// SPDX-License-Identifier: Apache-2.0
// Which kind of thought each token of an answer is part of, by how sparse attention is where the
// thought begins.
//
// Paper: ThinKV, arXiv:2510.01290. Needs the newest queries at decode steps. A thought begins every
// `period` tokens. Its first row says of which kind it is: logits are the largest of a KV head's
// queries, shares their softmax, averaged over KV heads; the row's sparsity is the part of the
// entries whose share is below a hundredth of the largest. Above `sparse` it is a transition, below
// `dense` execution, between them reasoning. Two numbers of an entry are kept, its kind and the
// position at which its thought begins; the score is made of both (methods/thoughts.h).
#include "methods/thoughts.h"

#include <algorithm>

#include "core/strings.h"
#include "methods/attention.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

constexpr float kNegligible = 0.01f;  // of the largest share

class ThoughtKinds final : public Scorer {
 public:
  explicit ThoughtKinds(const Params& params)
      : period_(params.Int("period")),
        dense_(params.Real("dense")),
        sparse_(params.Real("sparse")) {}

  Needs needs() const override { return {.step_queries = true, .products = true}; }
  bool ages() const override { return true; }
  int64_t numbers() const override { return 2; }

  Status Check(const ModelShape&) const override {
    if (dense_ <= sparse_) return {};
    return BadInput(StrCat("dense ", dense_, " is above sparse ", sparse_,
                           "; thoughts between the two are reasoning"));
  }

  void Score(LayerView& view, Tensor out) const override {
    const Tensor numbers = view.Scratch(DType::kF32, {2, out.shape[0], view.width()});
    Start(view, numbers);
    Rank(view, numbers, out);
  }

  void Start(LayerView& view, Tensor numbers) const override {
    const auto lengths = view.lengths();
    const bool whole =
        std::ranges::all_of(lengths, [&](int64_t length) { return length == view.tokens(); });
    for (int64_t h = 0; h < numbers.shape[1]; ++h) {
      const int64_t n = lengths[static_cast<size_t>(h)];
      view.ops().rows->Fill(static_cast<float>(ThoughtKind::kPrompt), numbers[0][h].Slice(0, n));
      const Tensor starts = numbers[1][h].Slice(0, n);
      if (whole && h > 0) {
        view.ops().memory->Copy(numbers[1][0].Slice(0, n), starts);
      } else if (n > 0) {
        PartsOfPrompt(view, h, starts.Reshape({1, n}));
      }
    }
  }

  void Age(LayerView& view, Tensor numbers) const override {
    const auto newest = static_cast<float>(view.tokens() - 1);
    const auto [kind, start] = Running(view, numbers);
    const bool begins = kind == static_cast<float>(ThoughtKind::kPrompt) ||
                        newest - start >= static_cast<float>(period_);
    const float own_kind = begins ? static_cast<float>(KindOfNewest(view)) : kind;
    const float own_start = begins ? newest : start;
    for (int64_t h = 0; h < numbers.shape[1]; ++h) {
      const int64_t n = view.lengths()[static_cast<size_t>(h)];
      view.ops().rows->Fill(own_kind, numbers[0][h].Slice(n - 1, n));
      view.ops().rows->Fill(own_start, numbers[1][h].Slice(n - 1, n));
    }
  }

  void Rank(LayerView& view, const Tensor& numbers, Tensor out) const override {
    const Tensor starts = view.Scratch(DType::kF32, {out.shape[0], out.shape[1]});
    view.ops().rows->Affine(numbers[1], kThoughtStart, 0.0f, starts);
    view.ops().rows->Combine(numbers[0], starts, Binary::kAdd, out);
  }

 private:
  struct Newest {
    float kind = static_cast<float>(ThoughtKind::kPrompt), start = 0;
  };

  // The thought that began last among all entries but the newest, whose numbers are 0 yet.
  static Newest Running(LayerView& view, const Tensor& numbers) {
    const int64_t n = view.lengths()[0];
    if (n < 2) return {};
    const Tensor both = view.Scratch(DType::kF32, {1, n}), most = view.Scratch(DType::kF32, {1});
    view.ops().rows->Affine(numbers[1][0].Slice(0, n).Reshape({1, n}), 4.0f, 0.0f, both);
    view.ops().rows->Combine(both, numbers[0][0].Slice(0, n).Reshape({1, n}), Binary::kAdd, both);
    view.ops().rows->ReduceRows(both, Reduction::kMax, most);
    const auto code = static_cast<int64_t>(Fetch(view.ops(), most)[0]);
    const int64_t start = code / 4;
    return {static_cast<float>(code % 4), static_cast<float>(start)};
  }

  // The position at which the part of the prompt begins that each entry is in. starts: [1, n], 0.
  void PartsOfPrompt(LayerView& view, int64_t head, const Tensor& starts) const {
    RowOps& ops = *view.ops().rows;
    const int64_t n = starts.shape[1];
    const Tensor positions = view.Scratch(DType::kF32, {1, n});
    const Tensor behind = view.Scratch(DType::kF32, {1, n}), ones = Filled(view, n, 1.0f);
    ops.Convert(view.Positions(head).Reshape({1, n}), positions);
    for (int64_t begin = period_; begin < view.tokens(); begin += period_) {
      ops.Affine(positions, 1.0f, static_cast<float>(1 - begin), behind);
      ops.Activate(behind, Activation::kRelu, behind);
      ops.Combine(behind, ones, Binary::kMin, behind);
      ops.Combine(starts, behind, Binary::kAdd, starts);
    }
    ops.Affine(starts, static_cast<float>(period_), 0.0f, starts);
  }

  ThoughtKind KindOfNewest(LayerView& view) const {
    const double sparsity = SparsityOfNewest(view);
    if (sparsity > sparse_) return ThoughtKind::kTransition;
    return sparsity < dense_ ? ThoughtKind::kExecution : ThoughtKind::kReasoning;
  }

  // Where heads hold different entries, each counts for itself.
  static double SparsityOfNewest(LayerView& view) {
    RowOps& ops = *view.ops().rows;
    const int64_t heads = view.shape().kv_heads, width = view.width();
    const Tensor shares = view.Scratch(DType::kF32, {heads, width});
    bool even = true;
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t n = view.lengths()[static_cast<size_t>(h)];
      even &= n == width;
      SharesOfNewest(view, h, Columns(shares.Slice(h, h + 1), 0, n));
    }
    if (even) {
      const Tensor mean = view.Scratch(DType::kF32, {1, width});
      ops.ReduceColumns(shares, Reduction::kMean, mean[0]);
      return NegligiblePart(view, mean);
    }
    double sum = 0;
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t n = view.lengths()[static_cast<size_t>(h)];
      sum += NegligiblePart(view, Columns(shares.Slice(h, h + 1), 0, n));
    }
    return sum / static_cast<double>(heads);
  }

  // out: [1, n], of the largest logits of a KV head's queries.
  static void SharesOfNewest(LayerView& view, int64_t head, const Tensor& out) {
    Ops& ops = view.ops();
    const int64_t group = view.shape().group(), dim = view.shape().key_dim, n = out.shape[1];
    const Tensor q = view.StepQueries().Slice(head * group, (head + 1) * group);
    const Tensor logits = view.Scratch(DType::kF32, {group, n});
    ops.linear->MatMulNT(q.Reshape({1, group, dim}), view.Keys(head).Reshape({1, n, dim}), 1.0f,
                         logits.Reshape({1, group, n}));
    LogitsOfProducts(view, logits);
    const Tensor most = view.Scratch(DType::kF32, {1, n});
    ops.rows->ReduceColumns(logits, Reduction::kMax, most[0]);
    AttentionOfLogits(view, head, 0, QueryRows::Newest(view), most, out);
  }

  // shares: [1, n]
  static double NegligiblePart(LayerView& view, const Tensor& shares) {
    RowOps& ops = *view.ops().rows;
    const int64_t n = shares.shape[1];
    const Tensor number = view.Scratch(DType::kF32, {1}), few = view.Scratch(DType::kF32, {1, n});
    ops.ReduceRows(shares, Reduction::kMax, number);
    const float least = kNegligible * Fetch(view.ops(), number)[0];
    ops.Combine(shares, Filled(view, n, least), Binary::kLess, few);
    ops.ReduceRows(few, Reduction::kSum, number);
    return double{Fetch(view.ops(), number)[0]} / static_cast<double>(n);
  }

  int64_t period_;
  double dense_, sparse_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "thoughts",
    .paper = "arXiv:2510.01290",
    .summary = "kinds of thought in an answer, by how sparse attention is where they begin",
    .departures =
        {"each layer says for itself of which kind a thought is; the paper takes the mean sparsity "
         "of four layers for all",
         "`dense` and `sparse` are parameters, whose defaults are those of no model; the paper has "
         "the two least likely sparsities between three peaks of 100 prompts' answers",
         "what is read before an answer is cut into parts as long as thoughts, which matter more "
         "than any of these"},
    .bytes = "with a trigger in decode: 8 bytes an entry for its kind and where its thought begins",
    .params = {IntParam("period", 128, 1, 1 << 20, "tokens of a thought"),
               RealParam("dense", 0.5, 0, 1, "sparsity below which a thought is execution"),
               RealParam("sparse", 0.75, 0, 1, "sparsity above which it is a transition")},
    .make = Make<ThoughtKinds>(),
});

}  // namespace
}  // namespace kvgauge
