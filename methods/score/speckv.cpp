// SPDX-License-Identifier: Apache-2.0
// The most attention that an entry gets from the last prompt rows and from the tokens of an answer
// that a smaller model drafted.
//
// Paper: SpecKV, arXiv:2506.08373; after the released code. Needs the attention of the last
// `window` prompt rows. Probes: the drafted answer behind the prompt, whose rows share their
// attention among the prompt and the answer's tokens up to the row.
#include "core/strings.h"
#include "methods/draft_model.h"
#include "methods/registry.h"
#include "methods/score_reduction.h"
#include "methods/tensors.h"
#include "methods/window_scorer.h"

namespace kvgauge {
namespace {

class SpecKv final : public WindowScorer {
 public:
  explicit SpecKv(const Params& params)
      : WindowScorer(params),
        lookahead_(params.Int("lookahead")),
        drafts_(params.Text(kDraftModelParam)),
        reduction_(ScoreReduction::From(params)) {}

  Status Check(const ModelShape& shape) const override {
    if (drafts_.empty()) {
      return BadInput(StrCat(kDraftModelParam,
                             " names no model; expected the directory of a smaller checkpoint with "
                             "the same tokenizer, or ",
                             kOwnDraft));
    }
    if (drafts_ == kOwnDraft && shape.state_bytes > 0) {
      return Unsupported(StrCat(kDraftModelParam, " is ", kOwnDraft,
                                ", and layers of this model keep a state of constant size, which "
                                "cannot forget a draft; expected another checkpoint"));
    }
    return reduction_.Check();
  }

  int64_t AnswerTokens() const override { return lookahead_; }
  int64_t ProbeRows(int64_t) const override { return lookahead_; }

  Result<std::vector<Probe>> Probes(const ProbeInput& input) const override {
    return std::vector<Probe>{{.ids = {input.answer.begin(), input.answer.end()},
                               .begin = 0,
                               .end = std::ssize(input.prompt)}};
  }

 protected:
  void ScoreBefore(LayerView& view, int64_t rows, Tensor out) const override {
    RowOps& ops = *view.ops().rows;
    const Tensor attention = view.WindowAttention(rows);  // [query_heads, rows, width]
    const Tensor answer = view.ProbeMaxima();             // [query_heads, width]
    const int64_t heads = answer.shape[0], before = out.shape[1];
    const Tensor most = view.Scratch(DType::kF32, {heads, before});
    for (int64_t h = 0; h < heads; ++h) {
      ops.ReduceColumns(Columns(attention[h], 0, before), Reduction::kMax, most[h]);
    }
    ops.Combine(most, Columns(answer, 0, before), Binary::kMax, most);
    reduction_.Apply(view, most, out);
  }

 private:
  int64_t lookahead_;
  std::string drafts_;
  ScoreReduction reduction_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "speckv",
    .paper = "arXiv:2506.08373",
    .summary = "the most attention from the last prompt rows and from an answer that a smaller "
               "model drafted",
    .departures =
        {"the prompt is read with full attention; the reference reads one of more than 4096 tokens "
         "by 2048 columns that score highest and a window of 2048",
         "a draft has at most `lookahead` tokens; the reference drafts as many as the answer may "
         "have",
         "the budget counts the prompt's last token, which the reference reads again beside it",
         "rows count by their maximum; the reference can also take their mean"},
    .bytes = "the draft model's weights, once",
    .params = ScoreReduction::Declare(
        {.group = ScoreReduction::Group::kMax, .kernel = 7, .pooling = Pooling::kMax},
        {WindowScorer::WindowParam(33, "prompt rows that look back, the last one among them"),
         IntParam("lookahead", 64, 1, 1 << 16, "tokens of the draft, unless it ends before"),
         DraftModelParam()}),
    .make = Make<SpecKv>(),
});

}  // namespace
}  // namespace kvgauge
