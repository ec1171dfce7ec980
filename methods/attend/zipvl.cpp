// SPDX-License-Identifier: Apache-2.0
// The important tokens of a layer attend to each other, and attention gives the others nothing.
//
// Paper: ZipVL, arXiv:2410.08584, its prefill. No public code. Probes, the last rows and some drawn
// at random, say what is paid to each token: as many tokens are important as hold a share of all
// that they pay, by the sums over probes and heads; which ones is told by means over the probes
// that could see a token. A layer of which all tokens are important attends as without the stage.
#include <algorithm>
#include <numeric>

#include "methods/coverage.h"
#include "methods/prompt_attention.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

constexpr uint64_t kProbeStream = uint64_t{0x7A697076} << 16;

class ZipVl final : public Attend {
 public:
  explicit ZipVl(const Params& params)
      : threshold_(params.Real("threshold")),
        recent_(params.Int("recent")),
        drawn_(params.Int("drawn")),
        last_(params.Int("last")) {}

  PromptSight Choose(LayerView& view, const Tensor& queries) const override {
    PromptSight sight;
    const int64_t prompt = queries.shape[0];
    sight.heads.resize(static_cast<size_t>(view.shape().query_heads));
    if (threshold_ >= 1) return sight;
    Ops& ops = view.ops();
    RowShares probes(view, queries, Probes(view, prompt));
    const Tensor paid = view.Scratch(DType::kF32, {1, prompt});
    const Tensor of_head = view.Scratch(DType::kF32, {1, prompt});
    for (int64_t h = 0; h < view.shape().query_heads; ++h) {
      probes.Compute(h);
      ops.rows->ReduceColumns(probes.shares(), Reduction::kSum, of_head[0]);
      ops.rows->Combine(paid, of_head, Binary::kAdd, paid);
    }
    const int64_t count = std::max(CoveringCount(view, paid, threshold_), std::min(last_, prompt));
    if (count == prompt) return sight;
    // How many probes could see each token.
    const Tensor& marks = probes.scratch();
    ops.rows->Fill(0.0f, marks);
    for (int64_t i = 0; i < probes.count(); ++i) ops.rows->Fill(1.0f, probes.Seen(marks, i));
    ops.rows->ReduceColumns(marks, Reduction::kSum, of_head[0]);
    ops.rows->Combine(paid, of_head, Binary::kDivide, paid);
    ops.rows->Fill(kForcedScore, Columns(paid, prompt - std::min(last_, prompt), prompt));
    sight.among.resize(static_cast<size_t>(count));
    ops.memory->Copy(Best(view, paid, count), View(sight.among, {count}));
    return sight;
  }

 private:
  std::vector<int32_t> Probes(LayerView& view, int64_t prompt) const {
    const int64_t before = prompt - std::min(recent_, prompt);
    std::vector<int32_t> rows = DrawRows(view, kProbeStream, drawn_, before);
    const auto drawn = std::ssize(rows);
    rows.resize(static_cast<size_t>(drawn + prompt - before));
    std::iota(rows.begin() + drawn, rows.end(), static_cast<int32_t>(before));
    return rows;
  }

  double threshold_;
  int64_t recent_, drawn_, last_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kAttend,
    .id = "zipvl",
    .paper = "arXiv:2410.08584",
    .summary = "tokens that hold a share of what probes pay attend to each other, others to none",
    .departures =
        {"how many probes there are is not known: there is no public code",
         "accounts of the paper do not say what attention gives the other tokens; here it "
         "is nothing",
         "the last row of the prompt is always important, as the answer follows from it"},
    .params = {RealParam("threshold", 0.975, 0.001, 1,
                         "share of what probes pay that the important tokens hold; 1: all are"),
               IntParam("recent", 64, 1, 1 << 16, "last rows that are probes"),
               IntParam("drawn", 64, 0, 1 << 16, "rows before them that are drawn as probes"),
               IntParam("last", 1, 0, 1 << 16, "last rows that are important in any case")},
    .make = Make<ZipVl>(),
});

}  // namespace
}  // namespace kvgauge
