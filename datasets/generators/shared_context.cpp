// SPDX-License-Identifier: Apache-2.0
// One long context, many questions: facts spread evenly over prose, asked in one conversation or
// each on its own.
#include <algorithm>
#include <set>

#include "core/json.h"
#include "core/strings.h"
#include "generators/generator.h"
#include "generators/length_axis.h"
#include "generators/prose.h"
#include "generators/words.h"

namespace kvgauge::shared_context {
namespace {

constexpr std::string_view kOwner = "shared_context";
constexpr std::string_view kHead =
    "Read the following text. Questions about the numbers in it come afterwards.\n\n";
constexpr std::string_view kFact = " The locker of the {thing} opens with the number {number}.";
constexpr std::string_view kQuestion =
    "\n\nWith which number does the locker of the {thing} open? Answer with the number only.";

struct Setup : LengthAxis {
  int64_t samples = 0, questions = 0;
  QuestionMode mode = QuestionMode::kMultiRequest;
  std::shared_ptr<Haystack> haystack;
};

std::string Build(const std::vector<std::string>& facts, const Filler& filler, int64_t cut,
                  int64_t spread, std::vector<Mark>* marks) {
  std::string text(kHead);
  int64_t from = 0;
  for (size_t i = 0; i < facts.size(); ++i) {
    const double depth = (static_cast<double>(i) + 0.5) / static_cast<double>(facts.size());
    const int64_t place = filler.SentenceEnd(filler.TokensAt(spread) * depth, cut);
    text.append(filler.text(), static_cast<size_t>(from), static_cast<size_t>(place - from));
    from = std::max(from, place);
    if (marks != nullptr) {
      marks->push_back(MarkAt(MarkKind::kNeedle, text.size(), facts[i].size()));
    }
    text += facts[i];
  }
  return text.append(filler.text(), static_cast<size_t>(from), static_cast<size_t>(cut - from));
}

// Those that can have the most tokens behind a context: all, or the longest where there are many.
Result<std::vector<std::string>> LongestQuestions(const TokenCounter& counter,
                                                  const std::vector<Question>& questions) {
  constexpr size_t kMeasured = 5;
  std::vector<std::pair<int64_t, std::string>> sized;
  for (const Question& question : questions) {
    KVG_ASSIGN(const int64_t tokens, counter.Added(question.text));
    sized.emplace_back(-tokens, question.text);
  }
  std::sort(sized.begin(), sized.end());
  sized.resize(std::min(sized.size(), kMeasured));
  std::vector<std::string> texts;
  texts.reserve(sized.size());
  for (auto& [tokens, text] : sized) texts.push_back(std::move(text));
  return texts;
}

Result<Sample> Make(const Setup& setup, int64_t index) {
  const int64_t length = setup.lengths[static_cast<size_t>(index / setup.samples)];
  Rng rng = RngFor(setup.seed, index, Draw::kFacts);
  Sample sample;
  std::vector<std::string> facts;
  std::set<std::string> taken;
  while (static_cast<int64_t>(facts.size()) < setup.questions) {
    // One draw a line: compilers differ in which argument they evaluate first.
    const std::string_view noun = Pick(rng, Nouns());
    std::string thing = StrCat(Pick(rng, Adjectives()), " ", noun);
    const std::string number = std::to_string(Between(rng, 100000, 999999));
    if (!taken.insert(thing).second || !taken.insert(number).second) continue;
    facts.push_back(FillIn(kFact, {{"thing", thing}, {"number", number}}));
    Question question;
    question.text = FillIn(kQuestion, {{"thing", thing}});
    question.answers = {number};
    question.max_new_tokens = setup.new_tokens;
    sample.questions.push_back(std::move(question));
  }
  // Questions come in another order than their facts.
  Rng order = RngFor(setup.seed, index, Draw::kQuestion);
  Shuffle(sample.questions, order);

  // A conversation holds every question and every answer but the last; requests hold one question
  // each, and the longest of them has the length.
  std::vector<std::string> tails;
  int64_t answers = 0;
  if (setup.mode == QuestionMode::kMultiTurn) {
    std::string all;
    for (const Question& question : sample.questions) all += question.text;
    tails = {std::move(all)};
    answers = setup.new_tokens * (setup.questions - 1);
  } else {
    KVG_ASSIGN(tails, LongestQuestions(setup.counter, sample.questions));
  }
  Filler filler =
      setup.haystack->NewFiller(&setup.counter, RngFor(setup.seed, index, Draw::kFiller), 0);
  const auto count = [&](int64_t cut, int64_t spread) -> Result<int64_t> {
    const std::string text = Build(facts, filler, cut, spread, nullptr);
    int64_t most = 0;
    for (const std::string& tail : tails) {
      KVG_ASSIGN(const int64_t tokens, setup.counter.Exact(text + tail));
      most = std::max(most, tokens);
    }
    return most;
  };
  const std::string what =
      StrCat(kOwner, ".lengths: ", length,
             answers == 0 ? "" : StrCat(" less ", answers, " new tokens of earlier answers"));
  KVG_ASSIGN(const Fit fit, FitCut(filler, length - answers, count, what));
  sample.context = Build(facts, filler, fit.size, fit.spread, &sample.marks);
  sample.mode = setup.mode;
  sample.id = sample.group = StrCat("n", length, "-", index % setup.samples);
  sample.length = fit.tokens;
  sample.facts = {{"length", std::to_string(length)},
                  {"questions", std::to_string(setup.questions)}};
  return sample;
}

Result<std::unique_ptr<SampleStream>> Open(const Params& params, const Json& task,
                                           const TaskOptions& options) {
  Setup setup;
  KVG_ASSIGN(static_cast<LengthAxis&>(setup),
             ReadLengthAxis(kOwner, params, task, options, Lengths::kRequired, 16));
  KVG_ASSIGN(setup.haystack, Haystack::Open("", kOwner));
  setup.samples = params.Int("samples");
  setup.questions = params.Int("questions");
  if (params.Text("mode") == "multi_turn") setup.mode = QuestionMode::kMultiTurn;
  const int64_t total = setup.samples * static_cast<int64_t>(setup.lengths.size());
  return StreamOf(std::move(setup), total, options, Make);
}

KVG_REGISTER_SOURCE({
    .name = "shared_context",
    .version = 2,  // 2: no request is longer than asked for
    .description = "one context of prose and facts, many questions",
    .generated = true,
    .params =
        {
            TextParam("lengths", "4096",
                      "tokens of context and longest question, or of the whole conversation"),
            IntParam("samples", 50, 1, 1'000'000, "contexts per length"),
            IntParam("questions", 5, 2, 1000, "about each context"),
            ChoiceParam("mode", "multi_request", {"multi_request", "multi_turn"},
                        "each on its own, or in one conversation"),
        },
    .open = Open,
    .files = nullptr,
    .check = nullptr,
});

}  // namespace
}  // namespace kvgauge::shared_context
