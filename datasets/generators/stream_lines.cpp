// SPDX-License-Identifier: Apache-2.0
// StreamEval (Xiao et al., Efficient Streaming Language Models with Attention Sinks, ICLR 2024): a
// record of lines that goes on while it is asked about. After every few new lines the number of a
// line some way back is asked for, in one conversation that is never reset. The published
// repository has no code for it: this is the paper's description, with LongEval's lines.
#include "core/strings.h"
#include "generators/generator.h"

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

struct Setup {
  std::vector<int64_t> distances;
  int64_t samples = 0, queries = 0, every = 0, new_tokens = 0;
  uint64_t seed = 0;
};

Result<Sample> Make(const Setup& setup, int64_t index) {
  const int64_t distance = setup.distances[static_cast<size_t>(index / setup.samples)];
  Rng rng = RngFor(setup.seed, index, Draw::kFacts);
  std::vector<std::string> numbers;
  const auto line = [&] {
    numbers.push_back(std::to_string(Between(rng, 1, 50000)));
    return StrCat("line ", numbers.size(), ": REGISTER_CONTENT is <", numbers.back(), ">\n");
  };
  Sample sample;
  sample.id = sample.group = StrCat("d", distance, "-", index % setup.samples);
  sample.mode = QuestionMode::kMultiTurn;
  sample.context = kHead;
  for (int64_t i = 0; i < distance; ++i) sample.context += line();
  for (int64_t query = 0; query < setup.queries; ++query) {
    Question question;
    for (int64_t i = 0; i < setup.every; ++i) question.text += line();
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

Result<std::unique_ptr<SampleStream>> Open(const Params& params, const Json& task,
                                           const TaskOptions& options) {
  Setup setup;
  KVG_ASSIGN(setup.distances, ParseInts(params, "distances", kOwner, 1, 100'000));
  setup.samples = params.Int("samples");
  setup.queries = params.Int("queries");
  setup.every = params.Int("every");
  setup.new_tokens = NewTokens(task, 20);
  setup.seed = options.seed;
  const int64_t total = static_cast<int64_t>(setup.distances.size()) * setup.samples;
  return MakeStream(total, options,
                    [setup = std::move(setup)](int64_t index) { return Make(setup, index); });
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
            IntParam("every", 10, 1, 10'000, "new lines before each question"),
            IntParam("queries", 100, 1, 10'000, "questions of a sample"),
            IntParam("samples", 100, 1, 1'000'000, "per distance"),
        },
    .open = Open,
    .files = nullptr,
    .check = nullptr,
});

}  // namespace
}  // namespace kvgauge::stream_lines
