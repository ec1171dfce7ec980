// SPDX-License-Identifier: Apache-2.0
// StreamEval (Xiao et al., Efficient Streaming Language Models with Attention Sinks, ICLR 2024): a
// record of lines that goes on while it is asked about. After every few new lines the number of a
// line some way back is asked for, in one conversation that is never reset. The published
// repository has no code for it: this is the paper's description, with LongEval's lines.
#include <algorithm>

#include "core/strings.h"
#include "generators/generator.h"
#include "generators/length_axis.h"
#include "generators/prose.h"

namespace kvgauge::stream_lines {
namespace {

constexpr std::string_view kOwner = "stream_lines";
constexpr std::string_view kHead =
    "Below is a record of lines I want you to remember. Each line begins with 'line <line index>' "
    "and contains a '<REGISTER_CONTENT>' at the end of the line as a numerical value. Every now "
    "and then I will ask you to retrieve the <REGISTER_CONTENT> of a line. Now the record "
    "start:\n\n";
constexpr std::string_view kQuestion =
    "\nWhat is the <REGISTER_CONTENT> in line {index}? I need the number.";

struct Setup : LengthAxis {
  std::vector<int64_t> distances;
  int64_t samples = 0, every = 0;
  int64_t queries = 0;  // unless there are lengths
  bool fill = false;
  std::shared_ptr<Haystack> prose;  // to fill with
};

// A conversation of `queries` questions that begins with `first` lines; the last question's lines
// end in `tail`.
Sample Build(const Setup& setup, int64_t index, int64_t distance, int64_t first, int64_t queries,
             const std::string& tail) {
  Rng rng = RngFor(setup.seed, index, Draw::kFacts);
  std::vector<std::string> numbers;
  const auto line = [&] {
    numbers.push_back(std::to_string(Between(rng, 1, 50000)));
    return StrCat("line ", numbers.size(), ": REGISTER_CONTENT is <", numbers.back(), ">\n");
  };
  Sample sample;
  sample.mode = QuestionMode::kMultiTurn;
  sample.context = kHead;
  for (int64_t i = 0; i < first; ++i) sample.context += line();
  for (int64_t query = 0; query < queries; ++query) {
    Question question;
    for (int64_t i = 0; i < setup.every; ++i) question.text += line();
    if (query == queries - 1) question.text += tail;
    const size_t asked = numbers.size() - static_cast<size_t>(distance);  // counted from 1
    question.text += FillIn(kQuestion, {{"index", std::to_string(asked)}});
    question.answers = {numbers[asked - 1]};
    question.max_new_tokens = setup.new_tokens;
    sample.questions.push_back(std::move(question));
  }
  sample.length = static_cast<int64_t>(numbers.size());
  sample.facts = {{"distance", std::to_string(distance)}};
  return sample;
}

// Tokens of the conversation with room for every answer but the last. Turns are encoded one by
// one, which can take other tokens than the whole.
Result<int64_t> ConversationTokens(const Setup& setup, const Sample& sample) {
  std::string whole = sample.context;
  KVG_ASSIGN(int64_t turns, setup.counter.Exact(whole));
  for (const Question& question : sample.questions) {
    KVG_ASSIGN(const int64_t turn, setup.counter.Added(question.text));
    turns += turn;
    whole += question.text;
  }
  KVG_ASSIGN(const int64_t tokens, setup.counter.Exact(whole));
  return std::max(tokens, turns) + setup.new_tokens * (std::ssize(sample.questions) - 1);
}

Result<Sample> Make(const Setup& setup, int64_t index) {
  const int64_t cell = index / setup.samples, distances = std::ssize(setup.distances);
  const int64_t distance = setup.distances[static_cast<size_t>(cell % distances)];
  Sample sample;
  std::string id;
  if (setup.lengths.empty()) {
    sample = Build(setup, index, distance, distance, setup.queries, "");
  } else {
    const int64_t length = setup.lengths[static_cast<size_t>(cell / distances)];
    Tail tail{"The record pauses here.", " ",
              setup.prose->NewFiller(&setup.counter, RngFor(setup.seed, index, Draw::kTail))};
    // Lines that make no whole block before a question stand in front.
    const auto build = [&](int64_t lines, int64_t cut) {
      const int64_t queries = (lines - distance) / setup.every;
      return Build(setup, index, distance, lines - queries * setup.every, queries, tail.Text(cut));
    };
    KVG_ASSIGN(const FilledFit fit, FitFilled(
                                        setup.fill ? &tail.filler : nullptr, length,
                                        distance + setup.every, int64_t{1} << 40,
                                        [&](int64_t lines, int64_t cut) {
                                          return ConversationTokens(setup, build(lines, cut));
                                        },
                                        StrCat(kOwner, ".lengths: ", length)));
    sample = build(fit.units, fit.cut);
    sample.length = fit.tokens;
    sample.facts.insert(sample.facts.begin(), {"length", std::to_string(length)});
    sample.facts.emplace_back("lines", std::to_string(fit.units));
    id = StrCat("n", length, "-");
  }
  sample.id = sample.group = StrCat(id, "d", distance, "-", index % setup.samples);
  return sample;
}

Result<std::unique_ptr<SampleStream>> Open(const Params& params, const Json& task,
                                           const TaskOptions& options) {
  Setup setup;
  KVG_ASSIGN(static_cast<LengthAxis&>(setup),
             ReadLengthAxis(kOwner, params, task, options, Lengths::kOptional, 20));
  KVG_ASSIGN(setup.distances, ParseInts(params, "distances", kOwner, 1, 100'000));
  setup.samples = params.Int("samples");
  setup.queries = params.Int("queries");
  setup.every = params.Int("every");
  KVG_ASSIGN(setup.fill, ReadFill(params, kOwner));
  KVG_ASSIGN(setup.prose, Haystack::Open("", kOwner));
  const int64_t total =
      std::ssize(setup.distances) * std::max<int64_t>(1, std::ssize(setup.lengths)) * setup.samples;
  return StreamOf(std::move(setup), total, options, Make);
}

KVG_REGISTER_SOURCE({
    .name = "stream_lines",
    .version = 1,
    .description = "StreamEval: lines that go on, and questions about those some way back",
    .generated = true,
    .params =
        {
            TextParam("distances", "20",
                      "lines back that are asked for; 20,40,60,80,100 published"),
            TextParam("lengths", "",
                      "tokens of the conversation instead of queries: as many lines as fit"),
            IntParam("every", 10, 1, 10'000, "new lines before each question"),
            IntParam("queries", 100, 1, 10'000, "questions of a sample"),
            IntParam("samples", 100, 1, 1'000'000, "per distance and length"),
            BoolParam("fill", false,
                      "prose before the last question fills each of lengths to the token"),
        },
    .open = Open,
    .files = nullptr,
    .check = nullptr,
});

}  // namespace
}  // namespace kvgauge::stream_lines
