// SPDX-License-Identifier: Apache-2.0
// The model reads a prompt segment by segment, each behind what is left of those before it, and
// then what is left.
//
// Paper: LLMLingua, arXiv:2310.05736; after microsoft/LLMLingua with one context. What a token
// tells is minus the log of the chance that the model gave it. A segment keeps the tokens that tell
// more than a quantile of all that are left, later segments included; those have been read in one,
// behind everything. The first `sinks` and the last `recent` tokens always stay and are not read
// then, as an instruction and a question; neither are pieces of pictures. The passes are part of
// the prefill, and so of the time to the first token.
#include <algorithm>
#include <limits>
#include <utility>

#include "core/strings.h"
#include "methods/registry.h"
#include "methods/rereading_thin.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

// What is left of a context, and what each token of it tells.
struct ToldTokens {
  std::vector<int32_t> rows;
  std::vector<float> told;  // by place in `rows`; untold: infinite
};

constexpr float kUntold = std::numeric_limits<float>::infinity();

class LlmLingua final : public RereadingThin {
 public:
  explicit LlmLingua(const Params& params)
      : drop_(params.Real("drop")),
        segment_(params.Int("segment")),
        sinks_(params.Int("sinks")),
        recent_(params.Int("recent")),
        following_(params.Text("told_by") == "following"),
        whole_rest_(params.Text("rest") == "whole"),
        own_positions_(params.Text("positions") == "own") {}

  Status Check(const ModelShape& shape) const override {
    return own_positions_ ? CheckOwnPositions(shape) : Status();
  }

  Needs needs() const override { return {.modality = true}; }
  bool closes_up() const override { return own_positions_; }

  Result<Tensor> ChooseBy(LayerView& view, RowReader& reader) const override {
    const int64_t n = view.width();
    const std::vector<float> text = Fetch(view.ops(), view.OfModality(Modality::kText, 0));
    const auto may = [&](int64_t row) {
      return row >= sinks_ && row < n - recent_ && text[static_cast<size_t>(row)] > 0;
    };
    ToldTokens left;
    std::vector<int32_t> kept;
    for (int64_t row = 0; row < n; ++row) {
      (may(row) ? left.rows : kept).push_back(static_cast<int32_t>(row));
    }
    left.told.assign(left.rows.size(), kUntold);
    if (drop_ > 0 && left.rows.size() > 1) KVG_TRY(Compress(n, left, reader));
    kept.insert(kept.end(), left.rows.begin(), left.rows.end());
    std::ranges::sort(kept);
    return Upload(view, kept);
  }

 private:
  Status Compress(int64_t prompt, ToldTokens& left, RowReader& reader) const {
    const auto context = static_cast<double>(left.rows.size());
    const double share =
        std::clamp(1 - drop_ * static_cast<double>(prompt) / context, 0.0, 1.0);  // of the context
    const auto count = [&] { return std::ssize(left.rows); };
    KVG_TRY(Read(reader, 0, count(), left));
    // A token less in the first one, as in the reference.
    const bool short_text = count() < segment_;
    int64_t begin = short_text ? 0 : Decide(0, segment_ - 1, share, left);
    int64_t before = 0;
    while (begin + segment_ <= count()) {
      KVG_TRY(Read(reader, before, begin + segment_, left));
      before = std::exchange(begin, Decide(begin, begin + segment_, share, left));
    }
    if (whole_rest_ || begin == count()) return {};
    if (!short_text) KVG_TRY(Read(reader, before, count(), left));
    Decide(begin, count(), share, left);
    return {};
  }

  // What tokens up to `end` tell, those anew that `first` and its followers foretell.
  Status Read(RowReader& reader, int64_t first, int64_t end, ToldTokens& left) const {
    KVG_ASSIGN(const std::vector<float> surprise,
               reader.Surprise(std::span(left.rows).first(static_cast<size_t>(end)), first, {}));
    const int64_t to = first + (following_ ? 0 : 1);
    std::ranges::copy(surprise, left.told.begin() + to);
    return {};
  }

  // Lets tokens of [begin, end) go. Where what is left of them ends.
  static int64_t Decide(int64_t begin, int64_t end, double share, ToldTokens& left) {
    std::vector<float> ranked;
    for (const float told : left.told) {
      if (told < kUntold) ranked.push_back(told);
    }
    if (ranked.empty() || share >= 1) return end;
    const float most = LastToLeave(std::move(ranked), share);
    ToldTokens stay;
    for (int64_t i = 0; i < std::ssize(left.rows); ++i) {
      const auto place = static_cast<size_t>(i);
      if (i >= begin && i < end && left.told[place] <= most) continue;
      stay.rows.push_back(left.rows[place]);
      stay.told.push_back(left.told[place]);
    }
    const int64_t gone = std::ssize(left.rows) - std::ssize(stay.rows);
    left = std::move(stay);
    return end - gone;
  }

  double drop_;
  int64_t segment_, sinks_, recent_;
  bool following_, whole_rest_, own_positions_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kThin,
    .id = "llmlingua",
    .paper = "arXiv:2310.05736",
    .summary = "segment by segment the tokens leave that tell least behind what is left of the "
               "segments before, and the model reads the others as a prompt",
    .departures =
        {"the model that answers scores the tokens, and not a smaller one; tokens stay tokens: the "
         "shorter text is not tokenized anew",
         "the prompt without its first `sinks` and last `recent` tokens is one context, so that no "
         "demonstrations are left out before tokens are; shares count its own tokens, where the "
         "reference counts three more",
         "a token stays by what it tells itself; in the released code by what the token behind it "
         "tells (`told_by`)",
         "what is left behind the last whole segment is one, too; the released code keeps it, and "
         "most of a context that is shorter than a segment (`rest`)"},
    .bytes = "what is left of the prompt, and 4 bytes an entry for its position",
    .params = {RealParam("drop", 0.5, 0, 1, "share of the prompt that leaves"),
               IntParam("segment", 200, 2, 1 << 20, "tokens of a segment"),
               IntParam("sinks", 4, 0, 1 << 20,
                        "first tokens that never leave, such as an instruction's"),
               IntParam("recent", 64, 1, 1 << 20,
                        "last tokens that never leave, such as a question's"),
               ChoiceParam("told_by", "own", {"own", "following"},
                           "a token stays by what it tells, or the token behind it"),
               ChoiceParam("rest", "reduced", {"reduced", "whole"},
                           "what does not fill a segment is one as well, or stays"),
               ChoiceParam("positions", "own", {"own", "kept"},
                           "where tokens stand for rotation: next to each other, or where they "
                           "stood")},
    .make = Make<LlmLingua>(),
});

}  // namespace
}  // namespace kvgauge
