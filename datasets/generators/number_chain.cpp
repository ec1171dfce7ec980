// SPDX-License-Identifier: Apache-2.0
// A chain of numbers, each of which follows from earlier ones: the answer writes them down one
// after the other. The prompt holds the rules and, of the numbers, the first one alone, so every
// step reads what the answer itself has written, near its end or far back: an answer that loses its
// own state goes wrong from there on.
#include <algorithm>
#include <utility>

#include "core/strings.h"
#include "generators/generator.h"

namespace kvgauge::number_chain {
namespace {

constexpr std::string_view kOwner = "number_chain";
constexpr std::string_view kHead =
    "Every number below follows from numbers before it. All of them are whole numbers.\n\n";
constexpr std::string_view kQuestion =
    "\nWork out the numbers one after the other, from x1 to {last}. Write one line for each, such "
    "as "
    "\"x1 = {first}\", and nothing else. The last line must be \"Answer: \" with the value of "
    "{last}.\n";

struct Setup {
  std::vector<int64_t> steps;  // numbers of a chain
  int64_t samples = 0, most = 0, far = 0;
  int64_t new_tokens = 0;
  uint64_t seed = 0;
};

struct Chain {
  std::vector<int64_t> values;
  std::vector<std::string> rules;
  int64_t far_steps = 0;  // that read an earlier number than the one before
};

std::string Name(size_t number) { return StrCat("x", number + 1); }

// The next number: from the one before and either a small number or any earlier one. Every number
// so depends on all before it. Rules that leave 0 to `most` are not drawn; some stay always.
void Step(const Setup& setup, Rng& rng, Chain& chain) {
  const std::vector<int64_t>& values = chain.values;
  const size_t last = values.size() - 1;
  const bool far = last > 0 && static_cast<int64_t>(rng.NextBelow(100)) < setup.far;
  const size_t other = last > 0 ? rng.NextBelow(last) : 0;
  const int64_t small = Between(rng, 1, std::min<int64_t>(99, setup.most / 4));
  const int64_t before = values[last];
  const int64_t operand = far ? values[other] : small;
  const std::string text = far ? Name(other) : std::to_string(small);
  std::vector<std::pair<int64_t, std::string>> kinds = {
      {before + operand, StrCat(Name(last), " + ", text)},
      {before - operand, StrCat(Name(last), " - ", text)}};
  if (far) kinds.emplace_back(operand - before, StrCat(text, " - ", Name(last)));
  std::erase_if(kinds, [&](const auto& kind) { return kind.first < 0 || kind.first > setup.most; });
  const auto& [value, rule] = kinds[rng.NextBelow(kinds.size())];
  chain.values.push_back(value);
  chain.rules.push_back(StrCat(Name(last + 1), " = ", rule));
  chain.far_steps += far ? 1 : 0;
}

Chain DrawChain(const Setup& setup, int64_t index, int64_t steps) {
  Rng rng = RngFor(setup.seed, index, Draw::kFacts);
  Chain chain;
  chain.values.push_back(Between(rng, 1, setup.most));
  chain.rules.push_back(StrCat(Name(0), " = ", chain.values[0]));
  while (std::ssize(chain.values) < steps) Step(setup, rng, chain);
  return chain;
}

Sample Make(const Setup& setup, int64_t index) {
  const int64_t steps = setup.steps[static_cast<size_t>(index / setup.samples)];
  const Chain chain = DrawChain(setup, index, steps);
  Sample sample;
  sample.id = sample.group = StrCat("s", steps, "-", index % setup.samples);
  sample.context = kHead;
  const std::string rules = Join(chain.rules, "\n") + "\n";
  sample.marks = {MarkAt(MarkKind::kNeedle, sample.context.size(), rules.size())};
  sample.context += rules;
  Question question;
  question.text = FillIn(kQuestion, {{"last", Name(chain.values.size() - 1)},
                                     {"first", std::to_string(chain.values[0])}});
  question.answers = {std::to_string(chain.values.back())};
  question.max_new_tokens = setup.new_tokens;
  sample.questions.push_back(std::move(question));
  sample.length = steps;
  sample.facts = {{"steps", std::to_string(steps)}, {"far_steps", std::to_string(chain.far_steps)}};
  return sample;
}

Result<std::unique_ptr<SampleStream>> Open(const Params& params, const Json& task,
                                           const TaskOptions& options) {
  Setup setup;
  KVG_ASSIGN(setup.steps, ParseInts(params, "steps", kOwner, 2, 4096));
  setup.samples = params.Int("samples");
  setup.most = params.Int("most");
  setup.far = params.Int("far");
  setup.new_tokens = NewTokens(task, 2048);
  setup.seed = options.seed;
  const int64_t total = setup.samples * std::ssize(setup.steps);
  return MakeStream(total, options, [setup = std::move(setup)](int64_t index) -> Result<Sample> {
    return Make(setup, index);
  });
}

KVG_REGISTER_SOURCE({
    .name = "number_chain",
    .version = 1,
    .description = "numbers that follow from each other, for answers to carry on",
    .generated = true,
    .params =
        {
            TextParam("steps", "16,32,64", "numbers of a chain"),
            IntParam("samples", 50, 1, 1'000'000, "of each number of steps"),
            IntParam("most", 999, 9, 1'000'000, "no number is larger, and none below 0"),
            IntParam("far", 50, 0, 100, "percent of the steps that read any earlier number"),
        },
    .open = Open,
    .files = nullptr,
    .check = nullptr,
});

}  // namespace
}  // namespace kvgauge::number_chain
