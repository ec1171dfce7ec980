// SPDX-License-Identifier: Apache-2.0
// Numbered paragraphs of generated prose: how many differ, or which one a passage is from. The
// tasks are LongBench's, text and wording our own.
#include <algorithm>
#include <deque>
#include <numeric>

#include "core/json.h"
#include "core/strings.h"
#include "generators/generator.h"
#include "generators/length_axis.h"
#include "generators/prose.h"

namespace kvgauge::passages {
namespace {

constexpr std::string_view kOwner = "passages";
constexpr std::string_view kCountHead =
    "Below are numbered paragraphs. Some of them are repeated word for word. Find out how many "
    "different paragraphs there are.\n\n";
constexpr std::string_view kCountQuestion =
    "\n\nHow many different paragraphs are there, repetitions not counted? Answer with the number "
    "only.\n\nThe number is: ";
constexpr std::string_view kFindHead =
    "Below are numbered paragraphs, then two sentences that stand in one of them.\n\n";
constexpr std::string_view kFindQuestion =
    "\n\nThe two sentences:\n\n{sentences}\n\nWhich paragraph are they from? Answer as in "
    "\"Paragraph "
    "1\".\n\nThe answer is: ";

// What fills a length to the token, where that is asked for.
constexpr std::string_view kFillHead = "\n\nThe paragraphs end here.";

struct Setup : LengthAxis {
  bool count = false, fill = false;
  int64_t samples = 0, sentences = 0;
};

struct Text {
  std::string context, question, answer;
  std::vector<Mark> marks;
};

Result<Sample> Make(const Setup& setup, int64_t index) {
  const int64_t length = setup.lengths[static_cast<size_t>(index / setup.samples)];
  Rng rng = RngFor(setup.seed, index, Draw::kFacts);
  // No sentence stands in two paragraphs.
  std::vector<int64_t> ids(kProseSentences);
  std::iota(ids.begin(), ids.end(), 0);
  Shuffle(ids, rng);
  const double place = rng.NextDouble(), share = rng.NextDouble();
  const Rng places = RngFor(setup.seed, index, Draw::kPlaces);
  const auto sentence = [&](int64_t paragraph, int64_t i) {
    return ProseSentence(ids[static_cast<size_t>(paragraph * setup.sentences + i)]);
  };
  const auto paragraph = [&](int64_t number) {
    std::string text = sentence(number, 0);
    for (int64_t i = 1; i < setup.sentences; ++i) text += " " + sentence(number, i);
    return text;
  };
  // Sentences that no paragraph holds, but in the longest texts.
  std::deque<TextPiece> spare;
  Tail tail{std::string(kFillHead), " ", Filler(&setup.counter, [&](int64_t j) -> TextPiece& {
              while (std::ssize(spare) <= j) {
                const size_t at = ids.size() - 1 - spare.size() % ids.size();
                spare.push_back({" " + ProseSentence(ids[at]), -1});
              }
              return spare[static_cast<size_t>(j)];
            })};
  const auto build = [&](int64_t count, int64_t cut) {
    Text text;
    Rng order = places;
    // Between half of them and all are different.
    const int64_t different =
        setup.count ? std::max<int64_t>(
                          1, count - static_cast<int64_t>(share * static_cast<double>(count) / 2))
                    : count;
    std::vector<int64_t> numbers(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      numbers[static_cast<size_t>(i)] = i < different ? i : Between(order, 0, different - 1);
    }
    if (setup.count) Shuffle(numbers, order);
    const auto asked = static_cast<int64_t>(place * static_cast<double>(count));
    text.context = setup.count ? kCountHead : kFindHead;
    for (int64_t i = 0; i < count; ++i) {
      if (i > 0) text.context += "\n\n";
      text.context += StrCat("Paragraph ", i + 1, ": ");
      const std::string body = paragraph(numbers[static_cast<size_t>(i)]);
      if (!setup.count && i == asked) {
        text.marks.push_back(MarkAt(MarkKind::kNeedle, text.context.size(), body.size()));
      }
      text.context += body;
    }
    text.context += tail.Text(cut);
    if (setup.count) {
      text.question = kCountQuestion;
      text.answer = std::to_string(different);
    } else {
      const int64_t second = setup.sentences / 2;
      const std::string both = StrCat(sentence(asked, second), " ", sentence(asked, 0));
      text.question = FillIn(kFindQuestion, {{"sentences", both}});
      text.answer = StrCat("Paragraph ", asked + 1);
    }
    return text;
  };
  const auto whole = [&](int64_t count, int64_t cut) {
    const Text text = build(count, cut);
    return text.context + text.question;
  };
  const int64_t most = kProseSentences / setup.sentences;
  const std::string what = StrCat(kOwner, ".lengths: ", length);
  KVG_ASSIGN(const FilledFit fit, FitFilled(setup.counter, setup.fill ? &tail.filler : nullptr,
                                            length, 1, most, whole, what));
  Text text = build(fit.units, fit.cut);
  Sample sample;
  sample.id = sample.group = StrCat("n", length, "-", index % setup.samples);
  sample.context = std::move(text.context);
  sample.marks = std::move(text.marks);
  Question question;
  question.text = std::move(text.question);
  question.answers = {text.answer};
  question.max_new_tokens = setup.new_tokens;
  sample.questions.push_back(std::move(question));
  sample.length = fit.tokens;
  sample.facts = {{"length", std::to_string(length)}, {"paragraphs", std::to_string(fit.units)}};
  return sample;
}

Result<std::unique_ptr<SampleStream>> Open(const Params& params, const Json& task,
                                           const TaskOptions& options) {
  Setup setup;
  KVG_ASSIGN(static_cast<LengthAxis&>(setup),
             ReadLengthAxis(kOwner, params, task, options, Lengths::kRequired, 32));
  setup.count = params.Text("task") == "count";
  KVG_ASSIGN(setup.fill, ReadFill(params, kOwner));
  setup.samples = params.Int("samples");
  setup.sentences = params.Int("sentences");
  const int64_t total = setup.samples * static_cast<int64_t>(setup.lengths.size());
  return StreamOf(std::move(setup), total, options, Make);
}

KVG_REGISTER_SOURCE({
    .name = "passages",
    .version = 1,
    .description = "count different paragraphs, or find the one a passage is from",
    .generated = true,
    .params =
        {
            ChoiceParam("task", "retrieval", {"count", "retrieval"}, "what is asked"),
            TextParam("lengths", "4096", "tokens of context and question together"),
            IntParam("samples", 200, 1, 1'000'000, "per length"),
            IntParam("sentences", 8, 2, 100, "in a paragraph"),
            BoolParam("fill", false, "prose behind the paragraphs fills each length to the token"),
        },
    .open = Open,
    .files = nullptr,
    .check = nullptr,
});

}  // namespace
}  // namespace kvgauge::passages
