// SPDX-License-Identifier: Apache-2.0
// The fewest columns and diagonals that hold a share of the attention of some rows of the prompt,
// drawn at random, for each head anew.
//
// Paper: LoopServe, arXiv:2507.13681, its prefill. No public code. Lines of both kinds are ranked
// together by what the drawn rows give along them; where two lines cross, a row's share counts once
// in what they hold.
#include <algorithm>

#include "methods/attention.h"
#include "methods/prompt_attention.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

constexpr uint64_t kDrawStream = uint64_t{0x6C6F6F70} << 16;

// What drawn rows of a prompt attend to, one query head after the other in the same memory.
class DrawnRows {
 public:
  DrawnRows(LayerView& view, const Tensor& queries, std::vector<int32_t> rows)
      : view_(view), queries_(queries), rows_(std::move(rows)), prompt_(queries.shape[0]) {
    const auto count = std::ssize(rows_);
    index_ = Upload(view, std::span<const int32_t>(rows_));
    of_head_ = view.Scratch(DType::kF32, {count, view.shape().key_dim});
    logits_ = view.Scratch(DType::kF32, {count, prompt_});
    shares_ = view.Scratch(DType::kF32, {count, prompt_});
    along_ = view.Scratch(DType::kF32, {count, prompt_});
    some_ = view.Scratch(DType::kF32, {count, prompt_});
    masses_ = view.Scratch(DType::kF32, {2 * prompt_});
    chosen_ = view.Scratch(DType::kF32, {2 * prompt_, 1});
    ones_ = Filled(view, 2 * prompt_, 1.0f);
    held_ = view.Scratch(DType::kF32, {2 * prompt_});
    sum_ = view.Scratch(DType::kF32, {1});
  }

  // The least number of lines of the head that hold so much, best first, as ascending numbers: the
  // column j, or the diagonal that ends at entry j of the last row as j + prompt.
  std::vector<int32_t> FewestLines(int64_t query_head, double threshold) {
    Compute(query_head);
    const double wanted = threshold * static_cast<double>(std::ssize(rows_));
    int64_t too_few = 0, enough = 2 * prompt_;
    while (enough - too_few > 1) {
      const int64_t middle = (too_few + enough) / 2;
      (HeldBy(middle) >= wanted ? enough : too_few) = middle;
    }
    std::vector<int32_t> lines(static_cast<size_t>(enough));
    view_.ops().memory->Copy(Best(view_, masses_.Reshape({1, 2 * prompt_}), enough),
                             View(lines, {enough}));
    return lines;
  }

 private:
  Tensor Columns() const { return masses_.Slice(0, prompt_); }
  Tensor Diagonals() const { return masses_.Slice(prompt_, 2 * prompt_); }

  // Where number i of the rows has the entries up to its own: as columns, or as the diagonals that
  // they lie on.
  Tensor Seen(const Tensor& rows, int64_t i, bool as_diagonals) const {
    const int64_t row = rows_[static_cast<size_t>(i)];
    const int64_t first = as_diagonals ? prompt_ - 1 - row : 0;
    return rows[i].Slice(first, first + row + 1).Reshape({1, row + 1});
  }

  void Compute(int64_t query_head) {
    Ops& ops = view_.ops();
    const int64_t count = std::ssize(rows_), dim = view_.shape().key_dim;
    ops.select->Gather(HeadOf(queries_, query_head), index_, of_head_);
    const Tensor keys = view_.Keys(query_head / view_.shape().group(), 0);
    ops.linear->MatMulNT(of_head_.Reshape({1, count, dim}), keys.Reshape({1, prompt_, dim}), 1.0f,
                         logits_.Reshape({1, count, prompt_}));
    LogitsOfProducts(view_, logits_);
    // Behind a row its shares stay 0.
    for (int64_t i = 0; i < count; ++i) {
      ops.rows->Softmax(Seen(logits_, i, false), 1.0f, Seen(shares_, i, false));
      ops.memory->Copy(Seen(shares_, i, false), Seen(along_, i, true));
    }
    ops.rows->ReduceColumns(shares_, Reduction::kSum, Columns());
    ops.rows->ReduceColumns(along_, Reduction::kSum, Diagonals());
  }

  // The shares along the best `count` lines, those of crossings once.
  double HeldBy(int64_t count) {
    Ops& ops = view_.ops();
    const int64_t all = 2 * prompt_;
    const Tensor best = Best(view_, masses_.Reshape({1, all}), count);
    ops.rows->Fill(0.0f, chosen_);
    ops.select->Scatter(AsColumn(ones_.Slice(0, count)), best, chosen_);
    const Tensor marks = chosen_.Reshape({all});
    ops.rows->Fill(0.0f, crossed());
    // Along a diagonal, what is in chosen columns is theirs.
    ops.rows->Combine(shares_, marks.Slice(0, prompt_), Binary::kMultiply, some_);
    for (int64_t i = 0; i < std::ssize(rows_); ++i) {
      ops.memory->Copy(Seen(some_, i, false), Seen(crossed(), i, true));
    }
    ops.rows->ReduceColumns(crossed(), Reduction::kSum, held_.Slice(prompt_, all));
    const Tensor twice = held_.Slice(prompt_, all).Reshape({1, prompt_});
    ops.rows->Combine(Diagonals().Reshape({1, prompt_}), twice, Binary::kSubtract, twice);
    ops.memory->Copy(Columns(), held_.Slice(0, prompt_));
    const Tensor held = held_.Reshape({1, all});
    ops.rows->Combine(held, marks.Reshape({1, all}), Binary::kMultiply, held);
    ops.rows->ReduceRows(held, Reduction::kSum, sum_);
    return double{Fetch(ops, sum_)[0]};
  }

  // Memory of the logits, which are used up.
  const Tensor& crossed() const { return logits_; }

  LayerView& view_;
  const Tensor& queries_;
  const std::vector<int32_t> rows_;
  const int64_t prompt_;
  Tensor index_, of_head_, logits_, shares_, along_, some_, masses_, chosen_, ones_, held_, sum_;
};

class LoopServeLines final : public Attend {
 public:
  explicit LoopServeLines(const Params& params)
      : rows_(params.Int("rows")), threshold_(params.Real("threshold")) {}

  PromptSight Choose(LayerView& view, const Tensor& queries) const override {
    PromptSight sight;
    const int64_t prompt = queries.shape[0];
    sight.heads.resize(static_cast<size_t>(view.shape().query_heads));
    if (threshold_ >= 1) return sight;
    DrawnRows drawn(view, queries, Draw(view, prompt));
    for (int64_t h = 0; h < view.shape().query_heads; ++h) {
      HeadSight& head = sight.heads[static_cast<size_t>(h)];
      head.kind = HeadSight::Kind::kLines;
      for (const int32_t line : drawn.FewestLines(h, threshold_)) {
        const auto end = static_cast<int32_t>(line - prompt);
        if (end < 0) {
          head.columns.push_back(line);
        } else {
          head.distances.push_back(static_cast<int32_t>(prompt) - 1 - end);
        }
      }
      // A row sees itself.
      if (head.distances.empty() || head.distances.back() != 0) head.distances.push_back(0);
      std::reverse(head.distances.begin(), head.distances.end());
    }
    return sight;
  }

 private:
  // Ascending; the same for all heads of a layer.
  std::vector<int32_t> Draw(LayerView& view, int64_t prompt) const {
    const int64_t count = std::min(rows_, prompt);
    const Tensor numbers = view.Scratch(DType::kF32, {prompt});
    view.ops().rows->Uniform(view.seed(), kDrawStream | static_cast<uint64_t>(view.layer()),
                             Numbers(view, prompt), numbers);
    std::vector<int32_t> rows(static_cast<size_t>(count));
    view.ops().memory->Copy(Best(view, numbers.Reshape({1, prompt}), count), View(rows, {count}));
    return rows;
  }

  int64_t rows_;
  double threshold_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kAttend,
    .id = "loopserve",
    .paper = "arXiv:2507.13681",
    .summary = "the fewest columns and diagonals that hold a share of what drawn rows attend to",
    .departures =
        {"how many rows are drawn, and the share, are not known: there is no public code",
         "lines are ranked once, by what they hold alone; the paper's greedy choice may weigh a "
         "line by its length, too",
         "diagonals are runs of 64 entries for each page of rows, as in MInference's kernel, so "
         "heads see more than their lines"},
    .params = {IntParam("rows", 64, 1, 1 << 16, "rows that are drawn"),
               RealParam("threshold", 0.9, 0.001, 1,
                         "share of their attention that lines hold; 1: all is seen")},
    .make = Make<LoopServeLines>(),
});

}  // namespace
}  // namespace kvgauge
