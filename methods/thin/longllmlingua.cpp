// SPDX-License-Identifier: Apache-2.0
// Documents that a question does not follow from leave a prompt, and then, segment by segment, the
// tokens that the question tells least about.
//
// Paper: LongLLMLingua, arXiv:2310.06839; after microsoft/LLMLingua. The prompt without its first
// `sinks` and last `recent` tokens is cut into documents; the last tokens are the question. A
// document ranks by how little the question behind it tells, on average, a statement that the
// answer is there included. Those that rank first stay until they exceed the budget by `extra`
// tokens. In what is left, a token counts by how much less it tells behind question and context
// than behind the context alone. A segment keeps the tokens above a quantile of all that are left,
// which is higher the lower its document ranks; segments go on as in thin/llmlingua.cpp. The passes
// are part of the prefill, and so of the time to the first token.
#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "core/strings.h"
#include "methods/registry.h"
#include "methods/rereading_thin.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

// An array: a view that is handed on by reference would be a variable of the stage.
constexpr char kAnswerIsThere[] = " We can get the answer to this question in the given documents.";
constexpr float kNoContrast = std::numeric_limits<float>::infinity();

// What is left of a context, and what each token of it tells, by place; kNoContrast: not known.
struct ContrastedTokens {
  std::vector<int32_t> rows;
  std::vector<float> alone, asked;  // behind the context; behind question and context

  float Contrast(size_t place) const {
    if (alone[place] == kNoContrast || asked[place] == kNoContrast) return kNoContrast;
    return alone[place] - asked[place];
  }
};

struct RankedDocument {
  int64_t begin = 0, end = 0;  // of the context
  float told = 0;              // by the question behind it
  double more = 0;             // that its share grows by
};

// Part of a segment, which lies in one document.
struct SegmentPart {
  int64_t tokens = 0;
  double share = 0;  // that stays
};

class LongLlmLingua final : public RereadingThin {
 public:
  explicit LongLlmLingua(const Params& params)
      : drop_(params.Real("drop")),
        segment_(params.Int("segment")),
        document_(params.Int("document")),
        extra_(params.Int("extra")),
        spread_(params.Real("spread")),
        sinks_(params.Int("sinks")),
        recent_(params.Int("recent")),
        following_(params.Text("told_by") == "following"),
        whole_rest_(params.Text("rest") == "whole"),
        own_positions_(params.Text("positions") == "own") {}

  Status Check(const ModelShape& shape) const override {
    return own_positions_ ? CheckOwnPositions(shape) : Status();
  }

  Needs needs() const override { return {.encoder = true, .modality = true}; }
  bool closes_up() const override { return own_positions_; }
  bool reads_beside() const override { return true; }

  Result<Tensor> ChooseBy(LayerView& view, RowReader& reader) const override {
    const int64_t n = view.width();
    const std::vector<float> text = Fetch(view.ops(), view.OfModality(Modality::kText, 0));
    std::vector<int32_t> context, question, kept;
    for (int64_t row = 0; row < n; ++row) {
      const bool is_text = text[static_cast<size_t>(row)] > 0;
      const bool may = row >= sinks_ && row < n - recent_ && is_text;
      (may ? context : kept).push_back(static_cast<int32_t>(row));
      if (is_text && row >= n - recent_) question.push_back(static_cast<int32_t>(row));
    }
    if (drop_ > 0 && context.size() > 1 && !question.empty()) {
      const auto tokens = static_cast<double>(context.size());
      const double wanted = std::clamp(tokens - drop_ * static_cast<double>(n), 0.0, tokens);
      KVG_ASSIGN(const std::vector<RankedDocument> documents,
                 ChooseDocuments(context, question, wanted, reader));
      KVG_ASSIGN(context, Compress(context, question, documents, wanted, reader));
    }
    kept.insert(kept.end(), context.begin(), context.end());
    std::ranges::sort(kept);
    return Upload(view, kept);
  }

 private:
  // Those that stay, in the order of the prompt.
  Result<std::vector<RankedDocument>> ChooseDocuments(std::span<const int32_t> context,
                                                      std::span<const int32_t> question,
                                                      double wanted, RowReader& reader) const {
    std::vector<RankedDocument> all;
    for (int64_t at = 0; at < std::ssize(context); at += document_) {
      all.push_back({.begin = at, .end = std::min(at + document_, std::ssize(context))});
    }
    if (all.size() == 1) return all;
    KVG_ASSIGN(const std::vector<int32_t> statement, reader.Encode(kAnswerIsThere));
    for (RankedDocument& document : all) {
      const auto own = context.subspan(static_cast<size_t>(document.begin),
                                       static_cast<size_t>(document.end - document.begin));
      std::vector<int32_t> rows(own.begin(), own.end());
      rows.insert(rows.end(), question.begin(), question.end());
      KVG_ASSIGN(const std::vector<float> told,
                 reader.Surprise(rows, std::ssize(own) - 1, statement));
      const double sum = std::accumulate(told.begin(), told.end(), 0.0);
      document.told = static_cast<float>(sum / static_cast<double>(told.size()));
    }
    std::ranges::stable_sort(all, {}, &RankedDocument::told);
    double left = wanted + static_cast<double>(extra_);
    size_t count = 0;
    while (count < all.size() && left >= 0) {
      left -= static_cast<double>(all[count].end - all[count].begin);
      ++count;
    }
    all.resize(count);
    for (size_t i = 0; i < count && count > 1; ++i) {
      all[i].more = spread_ * (1 - 2 * static_cast<double>(i) / static_cast<double>(count - 1));
    }
    std::ranges::sort(all, {}, &RankedDocument::begin);
    return all;
  }

  // Segments of the documents one behind the other, a token less in the first one, as in the
  // reference.
  std::vector<std::vector<SegmentPart>> Segments(std::span<const RankedDocument> documents,
                                                 double wanted) const {
    int64_t tokens = 0;
    for (const RankedDocument& document : documents) tokens += document.end - document.begin;
    std::vector<std::vector<SegmentPart>> segments(1);
    int64_t room = segment_ - 1;
    for (const RankedDocument& document : documents) {
      const double share =
          std::clamp(wanted / static_cast<double>(tokens) + document.more, 0.0, 1.0);
      for (int64_t left = document.end - document.begin; left > 0;) {
        const int64_t part = std::min(left, room);
        segments.back().push_back({part, share});
        left -= part;
        room -= part;
        if (room > 0) continue;
        segments.emplace_back();
        room = segment_;
      }
    }
    return segments;
  }

  // The rows of the context that stay.
  Result<std::vector<int32_t>> Compress(std::span<const int32_t> context,
                                        std::span<const int32_t> question,
                                        std::span<const RankedDocument> documents, double wanted,
                                        RowReader& reader) const {
    ContrastedTokens left;
    for (const RankedDocument& document : documents) {
      left.rows.insert(left.rows.end(), context.begin() + document.begin,
                       context.begin() + document.end);
    }
    left.alone.assign(left.rows.size(), kNoContrast);
    left.asked = left.alone;
    const std::vector<std::vector<SegmentPart>> segments = Segments(documents, wanted);
    const auto count = [&] { return std::ssize(left.rows); };
    KVG_TRY(Read(question, 0, count(), left, reader));
    const bool short_text = count() < segment_;
    int64_t begin = 0, before = 0;
    size_t next = 0;
    if (!short_text) begin = Decide(0, segments[next++], left);
    while (!short_text && next < segments.size() && begin + segment_ <= count()) {
      KVG_TRY(Read(question, before, begin + segment_, left, reader));
      before = std::exchange(begin, Decide(begin, segments[next++], left));
    }
    if (whole_rest_ || begin == count() || next == segments.size()) return std::move(left.rows);
    if (!short_text) KVG_TRY(Read(question, before, count(), left, reader));
    Decide(begin, segments[next], left);
    return std::move(left.rows);
  }

  // What tokens up to `end` tell, those anew that `first` and its followers foretell.
  Status Read(std::span<const int32_t> question, int64_t first, int64_t end, ContrastedTokens& left,
              RowReader& reader) const {
    const std::span<const int32_t> rows = std::span(left.rows).first(static_cast<size_t>(end));
    KVG_ASSIGN(const std::vector<float> alone, reader.Surprise(rows, first, {}));
    std::vector<int32_t> asked_rows(question.begin(), question.end());
    asked_rows.insert(asked_rows.end(), rows.begin(), rows.end());
    KVG_ASSIGN(const std::vector<float> asked,
               reader.Beside().Surprise(asked_rows, std::ssize(question) + first, {}));
    const int64_t to = first + (following_ ? 0 : 1);
    std::ranges::copy(alone, left.alone.begin() + to);
    std::ranges::copy(asked, left.asked.begin() + to);
    return {};
  }

  // Lets tokens of the parts from `begin` on go. Where what is left of them ends.
  static int64_t Decide(int64_t begin, std::span<const SegmentPart> parts, ContrastedTokens& left) {
    for (const SegmentPart& part : parts) {
      const int64_t end = std::min(begin + part.tokens, std::ssize(left.rows));
      begin = DecidePart(begin, end, part.share, left);
    }
    return begin;
  }

  static int64_t DecidePart(int64_t begin, int64_t end, double share, ContrastedTokens& left) {
    std::vector<float> ranked;
    for (size_t i = 0; i < left.rows.size(); ++i) {
      if (left.Contrast(i) < kNoContrast) ranked.push_back(left.Contrast(i));
    }
    if (ranked.empty() || share >= 1) return end;
    const float most = LastToLeave(std::move(ranked), share);
    ContrastedTokens stay;
    for (size_t i = 0; i < left.rows.size(); ++i) {
      const auto place = static_cast<int64_t>(i);
      if (place >= begin && place < end && left.Contrast(i) <= most) continue;
      stay.rows.push_back(left.rows[i]);
      stay.alone.push_back(left.alone[i]);
      stay.asked.push_back(left.asked[i]);
    }
    const int64_t gone = std::ssize(left.rows) - std::ssize(stay.rows);
    left = std::move(stay);
    return end - gone;
  }

  double drop_;
  int64_t segment_, document_, extra_;
  double spread_;
  int64_t sinks_, recent_;
  bool following_, whole_rest_, own_positions_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kThin,
    .id = "longllmlingua",
    .paper = "arXiv:2310.06839",
    .summary = "documents leave that foretell the question least, then tokens that the question "
               "tells least about, and the model reads the others as a prompt",
    .departures =
        {"the model that answers scores the tokens, and not a smaller one; tokens stay tokens: the "
         "shorter text is not tokenized anew",
         "shares count the tokens of documents alone; the reference counts two separators more for "
         "each and one for all",
         "a token stays by its own contrast; in the released code by that of the token behind it "
         "(`told_by`)",
         "what is left behind the last whole segment is one, too; the released code keeps it, and "
         "most of a context that is shorter than a segment (`rest`)"},
    .bytes = "what is left of the prompt, and 4 bytes an entry for its position",
    .params = {RealParam("drop", 0.5, 0, 1, "share of the prompt that leaves"),
               IntParam("segment", 200, 2, 1 << 20, "tokens of a segment"),
               IntParam("document", 200, 2, 1 << 20, "tokens of a document"),
               IntParam(
                   "extra", 100, 0, 1 << 20,
                   "tokens beyond what is to stay that documents may have before tokens leave"),
               RealParam("spread", 0.3, 0, 1,
                         "what the share of the first document is above the average, and that of "
                         "the last below"),
               IntParam("sinks", 4, 0, 1 << 20,
                        "first tokens that never leave, such as an instruction's"),
               IntParam("recent", 64, 1, 1 << 20, "last tokens, which never leave: the question"),
               ChoiceParam("told_by", "own", {"own", "following"},
                           "a token stays by its own contrast, or that of the token behind it"),
               ChoiceParam("rest", "reduced", {"reduced", "whole"},
                           "what does not fill a segment is one as well, or stays"),
               ChoiceParam("positions", "own", {"own", "kept"},
                           "where tokens stand for rotation: next to each other, or where they "
                           "stood")},
    .make = Make<LongLlmLingua>(),
});

}  // namespace
}  // namespace kvgauge
