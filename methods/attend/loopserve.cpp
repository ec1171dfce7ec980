// SPDX-License-Identifier: Apache-2.0
// The fewest columns and diagonals that hold a share of the attention of some rows of the prompt,
// drawn at random, for each head anew.
//
// Paper: LoopServe, arXiv:2507.13681, its prefill. No public code. Lines of both kinds are ranked
// together by what the drawn rows give along them; where two lines cross, a row's share counts once
// in what they hold.
#include <algorithm>

#include "methods/prompt_attention.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

constexpr uint64_t kDrawStream = uint64_t{0x6C6F6F70} << 16;

// What drawn rows of a prompt give along lines, one query head after the other.
class DrawnLines {
 public:
  DrawnLines(LayerView& view, const Tensor& queries, std::vector<int32_t> rows)
      : view_(view), rows_(view, queries, std::move(rows)), prompt_(queries.shape[0]) {
    const int64_t count = rows_.count();
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
    const double wanted = threshold * static_cast<double>(rows_.count());
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

  // Where number i of the rows has the entries up to its own, as the diagonals that they lie on.
  Tensor Along(const Tensor& of, int64_t i) const {
    const int64_t row = rows_.row(i), first = prompt_ - 1 - row;
    return of[i].Slice(first, first + row + 1).Reshape({1, row + 1});
  }

  void Compute(int64_t query_head) {
    Ops& ops = view_.ops();
    rows_.Compute(query_head);
    for (int64_t i = 0; i < rows_.count(); ++i) {
      ops.memory->Copy(rows_.Seen(rows_.shares(), i), Along(along_, i));
    }
    ops.rows->ReduceColumns(rows_.shares(), Reduction::kSum, Columns());
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
    ops.rows->Combine(rows_.shares(), marks.Slice(0, prompt_), Binary::kMultiply, some_);
    for (int64_t i = 0; i < rows_.count(); ++i) {
      ops.memory->Copy(rows_.Seen(some_, i), Along(crossed(), i));
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

  const Tensor& crossed() const { return rows_.scratch(); }

  LayerView& view_;
  RowShares rows_;
  const int64_t prompt_;
  Tensor along_, some_, masses_, chosen_, ones_, held_, sum_;
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
    DrawnLines drawn(view, queries, DrawRows(view, kDrawStream, rows_, prompt));
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
