// SPDX-License-Identifier: Apache-2.0
// The model reads a prompt, and then a shorter one: without the tokens that told it least.
//
// Paper: Selective Context, arXiv:2310.06201; after liyucheng09/Selective_Context at its level of
// tokens. What a token tells is minus the log of the chance that the model gave it. A token stays
// that tells at least as much as the `drop` quantile of all candidates, between the two numbers
// next to it where it falls between. Pieces of pictures always stay. The first pass is part of the
// prefill, and so of the time to the first token.
#include <algorithm>
#include <cmath>

#include "core/strings.h"
#include "methods/registry.h"
#include "methods/rereading_thin.h"
#include "methods/tensors.h"
#include "methods/thin.h"

namespace kvgauge {
namespace {

// As the reference interpolates it. Precondition: some numbers.
double Quantile(std::vector<float> numbers, double share) {
  std::sort(numbers.begin(), numbers.end());
  const double at = share * static_cast<double>(std::ssize(numbers) - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, numbers.size() - 1);
  const double low = double{numbers[below]}, high = double{numbers[above]};
  return low + (high - low) * (at - std::floor(at));
}

class SelectiveContext final : public Thin {
 public:
  explicit SelectiveContext(const Params& params)
      : drop_(params.Real("drop")),
        sinks_(params.Int("sinks")),
        recent_(params.Int("recent")),
        own_positions_(params.Text("positions") == "own") {}

  Needs needs() const override { return {.surprise = true, .modality = true}; }

  Status Check(const ModelShape& shape) const override {
    return own_positions_ ? CheckOwnPositions(shape) : Status();
  }

  // All layers give the chances of tokens.
  std::vector<int64_t> Layers(const ModelShape& shape) const override { return {shape.layers}; }
  bool reads_again() const override { return true; }
  bool closes_up() const override { return own_positions_; }

  Tensor Choose(LayerView& view) const override {
    const int64_t n = view.width();
    const std::vector<float> text = Fetch(view.ops(), view.OfModality(Modality::kText, 0));
    const std::vector<float> next = Fetch(view.ops(), view.Surprise());  // of the token behind it
    const auto may = [&](int64_t row) {
      return row >= sinks_ && row < n - recent_ && text[static_cast<size_t>(row)] > 0;
    };
    std::vector<float> told;
    for (int64_t row = 1; row < n; ++row) {
      if (may(row)) told.push_back(next[static_cast<size_t>(row - 1)]);
    }
    if (told.empty()) return Numbers(view, n);
    const double least = Quantile(told, drop_);
    std::vector<int32_t> kept;
    for (int64_t row = 0; row < n; ++row) {
      const bool stays = !may(row) || double{next[static_cast<size_t>(row - 1)]} >= least;
      if (stays) kept.push_back(static_cast<int32_t>(row));
    }
    return Upload(view, kept);
  }

 private:
  double drop_;
  int64_t sinks_, recent_;
  bool own_positions_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kThin,
    .id = "selective_context",
    .paper = "arXiv:2310.06201",
    .summary = "the tokens that told the model least leave, and it reads the others as a prompt",
    .departures =
        {"the model that answers scores the tokens, each behind all before it; the reference asks "
         "GPT-2 or curie, sentence by sentence",
         "tokens leave one by one, which is the reference's level `token`; its default is phrases "
         "of a parser",
         "the reference is given what may leave; here it is the prompt without its first `sinks` "
         "and last `recent` tokens, or of the context alone where the question follows it",
         "white space is left as it is, and tokens stay tokens: the shorter text is not tokenized "
         "anew"},
    .bytes = "what is left of the prompt, and 4 bytes an entry for its position",
    .params = {RealParam("drop", 0.35, 0, 1, "the quantile below which tokens leave"),
               IntParam("sinks", 4, 1, 1 << 20,
                        "first tokens that never leave; nothing foretells the first one"),
               IntParam("recent", 64, 1, 1 << 20,
                        "last tokens that never leave, such as a question's"),
               ChoiceParam("positions", "own", {"own", "kept"},
                           "where tokens stand for rotation: next to each other, or where they "
                           "stood")},
    .make = Make<SelectiveContext>(),
});

}  // namespace
}  // namespace kvgauge
