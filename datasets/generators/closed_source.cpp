// SPDX-License-Identifier: Apache-2.0
// The source of the reference models' tasks, to train on and to be held out.
#include <algorithm>
#include <deque>
#include <limits>
#include <optional>

#include "core/check.h"
#include "core/json.h"
#include "core/strings.h"
#include "generators/closed_page.h"
#include "generators/length_axis.h"

namespace kvgauge::closed {
namespace {

constexpr std::string_view kOwner = "closed_english";
// Tasks of one form that differ in their facts have streams of their own.
constexpr int64_t kFormRoom = 16;
// Most whole texts ask for a good share of what they hold; some ask little, as tasks do.
constexpr double kFewQuestions = 0.25;
constexpr double kLeastShare = 0.1, kMostShare = 0.5;

struct Setup : LengthAxis {
  const Form* form = nullptr;
  Split split = Split::kEval;
  bool whole = false;           // texts with their answers, not prompts
  bool fill = false;            // prompts, to the token
  int64_t questions = 0;        // of a whole text; 0: drawn
  std::vector<Percent> depths;  // none: drawn
  int64_t facts = 0, hops = -1;
  double unseen = 0;
};

std::string Continuation(const Ask& ask) { return StrCat(ask.lead, ask.answer, ask.end); }

// What must fit: the prompt, or the whole text. BOS and the end signs come on top.
std::string TextOf(const Draft& draft, bool whole) {
  std::string text = draft.head;
  for (const std::string& piece : draft.pieces) text += piece;
  for (const Ask& ask : draft.asks) {
    text += ask.question;
    text += ask.prefix;
    if (whole) text += Continuation(ask);
  }
  return text;
}

Plan MakePlan(const Setup& setup, int64_t index, int64_t length, const Percent* depth) {
  Plan plan;
  plan.split = setup.split;
  plan.seed = setup.seed;
  plan.index = index;
  plan.form = setup.form - Forms().data() + kFormRoom * setup.facts;
  plan.length = length;
  plan.facts = setup.facts;
  plan.hops = setup.hops;
  plan.unseen = setup.unseen;
  Rng rng = plan.Stream(Draw::kPlaces);
  plan.depth = depth != nullptr ? depth->value / 100 : rng.NextDouble();
  if (setup.whole) {
    plan.questions = rng.NextDouble() < kFewQuestions ? Between(rng, 1, 3) : 1 << 20;
    if (setup.questions > 0) plan.questions = setup.questions;
    plan.share = kLeastShare + (kMostShare - kLeastShare) * rng.NextDouble();
  }
  return plan;
}

Sample Assemble(const Setup& setup, const Draft& draft) {
  Sample sample;
  sample.chat_template = false;
  sample.context = draft.head;
  std::vector<Mark> marks;
  for (const std::string& piece : draft.pieces) {
    marks.push_back(MarkAt(MarkKind::kNeedle, sample.context.size(), piece.size()));
    sample.context += piece;
  }
  for (const Ask& ask : draft.asks) {
    Question question;
    question.text = ask.question;
    question.answer_prefix = ask.prefix;
    question.answers = {setup.whole ? Continuation(ask) : ask.answer};
    if (!setup.whole && !ask.parts.empty()) question.answers = ask.parts;
    question.max_new_tokens = setup.new_tokens;
    sample.questions.push_back(std::move(question));
  }
  if (sample.questions.size() > 1) sample.mode = QuestionMode::kMultiTurn;
  for (const size_t piece : draft.asks[0].pieces) sample.marks.push_back(marks[piece]);
  return sample;
}

Result<Sample> Make(const Setup& setup, int64_t index) {
  // Lengths and depths take turns, so that any number of first samples covers them evenly.
  const auto depths = static_cast<int64_t>(std::max<size_t>(1, setup.depths.size()));
  const auto lengths = static_cast<int64_t>(setup.lengths.size());
  const Percent* depth =
      setup.depths.empty() ? nullptr : &setup.depths[static_cast<size_t>(index % depths)];
  const int64_t length = setup.lengths[static_cast<size_t>(index / depths % lengths)];
  const Plan plan = MakePlan(setup, index, length, depth);
  const Build build = setup.form->make(plan);
  // What no question is about, behind the units.
  std::deque<TextPiece> spare;
  Tail tail{
      "", std::string(setup.form->joint),
      Filler(&setup.counter,
             [&spare, &setup, rng = plan.Stream(Draw::kTail)](int64_t j) mutable -> TextPiece& {
               while (std::ssize(spare) <= j) {
                 spare.push_back({" " + FillerSentence(rng, setup.split), -1});
               }
               return spare[static_cast<size_t>(j)];
             })};
  const auto page = [&](int64_t units, int64_t cut) {
    Draft draft = build(units);
    if (std::string text = tail.Text(cut); !text.empty()) draft.pieces.push_back(std::move(text));
    return draft;
  };
  // An end sign after each answer of a whole text.
  int64_t asks = 0;
  const auto text_of = [&](int64_t units, int64_t cut) {
    const Draft draft = page(units, cut);
    asks = setup.whole ? static_cast<int64_t>(draft.asks.size()) : 0;
    return TextOf(draft, setup.whole);
  };
  const std::string what = StrCat(kOwner, ".lengths: ", length);
  int64_t budget = length - 1;
  FilledFit fit;
  while (true) {
    KVG_ASSIGN(fit, FitFilled(setup.counter, setup.fill ? &tail.filler : nullptr, budget,
                              setup.form->least_units, setup.form->most_units, text_of, what));
    text_of(fit.units, fit.cut);
    if (fit.tokens + asks < length) break;
    budget -= fit.tokens + asks + 1 - length;
  }
  const Draft draft = page(fit.units, fit.cut);
  Sample sample = Assemble(setup, draft);
  sample.length = fit.tokens + 1;
  const auto size = static_cast<int64_t>(sample.context.size());
  KVG_CHECK(!sample.marks.empty() || plan.unseen > 0, "nothing holds the answer");
  std::string stands = "none";
  if (depth != nullptr) {
    stands = depth->text;
  } else if (!sample.marks.empty()) {
    stands = std::to_string(sample.marks[0].begin * 10 / size * 10);
  }
  sample.facts = {{"length", std::to_string(length)}, {"depth", stands}};
  sample.facts.insert(sample.facts.end(), draft.facts.begin(), draft.facts.end());
  sample.id = StrCat(setup.split == Split::kTrain ? "train-" : "", "n", length, "-", index);
  sample.group = sample.id;
  return sample;
}

std::vector<std::string> FormNames() {
  std::vector<std::string> names;
  for (const Form& form : Forms()) names.emplace_back(form.name);
  return names;
}

Result<std::unique_ptr<SampleStream>> Open(const Params& params, const Json& task,
                                           const TaskOptions& options) {
  Setup setup;
  KVG_ASSIGN(static_cast<LengthAxis&>(setup),
             ReadLengthAxis(kOwner, params, task, options, Lengths::kRequired, 32));
  for (const Form& form : Forms()) {
    if (form.name == params.Text("form")) setup.form = &form;
  }
  setup.split = params.Text("split") == "train" ? Split::kTrain : Split::kEval;
  setup.whole = params.Bool("whole");
  setup.questions = params.Int("questions");
  setup.fill = params.Bool("fill");
  if (setup.fill && setup.whole) {
    return BadInput(StrCat(kOwner,
                           ".fill: true, but whole is true, too; prompts are filled, whole "
                           "texts are not"));
  }
  if (setup.fill && !setup.form->fills) {
    return BadInput(StrCat(kOwner, ".fill: true, but the form ", Quoted(setup.form->name),
                           " ends where its units end; it is not filled"));
  }
  if (!params.Text("depths").empty()) {
    KVG_ASSIGN(setup.depths, ParsePercents(params, "depths", kOwner));
  }
  setup.facts = params.Int("facts");
  setup.hops = params.Int("hops");
  setup.unseen = params.Real("unseen");
  const auto cells =
      static_cast<int64_t>(setup.lengths.size() * std::max<size_t>(1, setup.depths.size()));
  const int64_t samples = params.Int("samples");
  const int64_t total = samples == 0 ? std::numeric_limits<int64_t>::max() : cells * samples;
  const int64_t first = params.Int("first");
  return MakeStream(total, options, [setup = std::move(setup), first](int64_t index) {
    return Make(setup, first + index);
  });
}

KVG_REGISTER_SOURCE({
    .name = "closed_english",
    .version = 3,
    .description = "pages of a closed English with questions, for the reference models",
    .generated = true,
    .params =
        {
            ChoiceParam("form", "needles", FormNames(), "what the pages are"),
            ChoiceParam("split", "eval", {"eval", "train"},
                        "the two name different things in their texts"),
            BoolParam("whole", false, "answers stand as they continue the text, many questions"),
            IntParam("questions", 0, 0, 1 << 20, "most of a whole text; 0: drawn"),
            TextParam("lengths", "4096", "tokens of a prompt, BOS included, or of a whole text"),
            TextParam("depths", "", "percent of the units before the one asked for; empty: drawn"),
            IntParam("samples", 100, 0, 1'000'000, "per length and depth; 0: without end"),
            IntParam("first", 0, 0, int64_t{1} << 40, "index of the first sample"),
            IntParam("facts", 0, 0, 64, "facts or journeys of a page, room allowing; 0: drawn"),
            IntParam("hops", -1, -1, 3, "hands between the first and the last two; -1: drawn"),
            RealParam("unseen", 0, 0, 1, "labels: chance that the noun is drawn anew"),
            BoolParam("fill", false, "sentences behind the units fill each prompt to the token"),
        },
    .open = Open,
    .files = nullptr,
    .check = nullptr,
});

}  // namespace
}  // namespace kvgauge::closed
