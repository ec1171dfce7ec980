// SPDX-License-Identifier: Apache-2.0
#include "generators/closed_page.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

namespace kvgauge::closed {
namespace {

// A stream's number: the index below bit 48, the form above it, and bit 63 of texts to train on.
constexpr int kFormBit = 48;
constexpr uint64_t kTrainStream = uint64_t{1} << 63;

constexpr Form kForms[] = {
    {"needles", "facts hidden in a story", " ", 0, 1 << 24, MakeNeedles},
    {"pairs", "lines of a thing and its number", "\n", 1, 900, MakePairs},
    {"labels", "sentences labelled by the kind of their noun, under made-up names", "\n", 2,
     1 << 20, MakeLabels},
    {"tracing", "things that pass from hand to hand in a story", " ", 0, 1 << 24, MakeTracing},
    {"passages", "passages with a page number at their end", "\n", 1, 900, MakePassages},
    {"copying", "lines of unrelated words", "\n", 1, 1 << 20, MakeCopying},
    {"story", "a story of facts alone, each like the others", " ", 1, 900, MakeStory},
    {"documents", "documents, two of which must be read together", " ", 0, 1 << 24, MakeDocuments},
    {"points", "a story with four marked sentences, to be summed up", " ", 0, 1 << 24, MakePoints},
    {"examples", "clauses grouped by their verb, under made-up names", "\n", 2, 1 << 20,
     MakeExamples},
    {"code", "definitions, one of which is wanted once more", "\n# ", 1, 900, MakeCode},
    {"chain", "sums that follow from each other, to be worked out", "\n", 1, 120, MakeChain, false},
};

}  // namespace

std::span<const Form> Forms() { return kForms; }

Rng Plan::Stream(Draw purpose) const {
  const uint64_t stream = static_cast<uint64_t>(index) | static_cast<uint64_t>(form) << kFormBit |
                          (split == Split::kTrain ? kTrainStream : 0);
  return RngFor(seed, static_cast<int64_t>(stream), purpose);
}

std::vector<int64_t> Plan::Asked(int64_t count) const {
  if (questions == 1) return {std::lround(depth * static_cast<double>(count - 1))};
  const auto wanted = std::max<int64_t>(1, std::lround(share * static_cast<double>(count)));
  Rng rng = Stream(Draw::kPlaces);
  return DrawDistinct(rng, count, std::min({wanted, questions, count}));
}

Story::Story(const Plan& plan)
    : filler_([rng = plan.Stream(Draw::kFiller), split = plan.split](int64_t) mutable {
        std::string text = " ";
        text += FillerSentence(rng, split);
        return text;
      }) {}

std::vector<size_t> Story::Tell(int64_t units, const std::vector<Placed>& sentences, Draft& draft) {
  std::vector<size_t> order(sentences.size()), pieces(sentences.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return sentences[a].place < sentences[b].place; });
  int64_t told = 0;
  for (const size_t next : order) {
    const auto before = std::lround(sentences[next].place * static_cast<double>(units));
    for (; told < before; ++told) draft.pieces.push_back(filler_.At(told));
    pieces[next] = draft.pieces.size();
    draft.pieces.push_back(sentences[next].text);
  }
  for (; told < units; ++told) draft.pieces.push_back(filler_.At(told));
  return pieces;
}

std::string Phrase(Rng& rng, Words phrasings, std::string_view value) {
  return FillIn(Pick(rng, phrasings), {{"", value}});
}

}  // namespace kvgauge::closed
