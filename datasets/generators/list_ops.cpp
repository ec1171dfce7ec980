// SPDX-License-Identifier: Apache-2.0
// Long ListOps: nested list operations on digits. The trees are the Long Range Arena's; the prompt
// is our own, since the benchmark classifies and has none.
#include <algorithm>
#include <numeric>

#include "core/json.h"
#include "core/strings.h"
#include "generators/generator.h"

namespace kvgauge::list_ops {
namespace {

constexpr std::string_view kOwner = "list_ops";
constexpr std::string_view kHead =
    "Work out the value of the expression below. [MAX ...] is the largest of its arguments, [MIN "
    "...] the smallest, [MED ...] the median (of an even number of arguments: the mean of the "
    "middle "
    "two, rounded down), [SM ...] the last digit of their sum. Arguments are digits or further "
    "expressions.\n\n";
constexpr std::string_view kQuestion = "\n\nAnswer with one digit. The value is";
constexpr std::string_view kOperators[] = {"[MIN", "[MAX", "[MED", "[SM"};
constexpr double kDigitShare = 0.25;  // a draw above it is a digit

struct Setup {
  int64_t samples = 0, least = 0, most = 0, depth = 0, arguments = 0, new_tokens = 0;
  uint64_t seed = 0;
};

struct Tree {
  std::string text;
  int64_t size = 0;
  int value = 0;
};

int Apply(size_t operation, std::vector<int> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  switch (operation) {
    case 0:
      return values.front();
    case 1:
      return values.back();
    case 2:
      return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
    default:
      return std::accumulate(values.begin(), values.end(), 0) % 10;
  }
}

// Appends a tree; gives up quietly once it is larger than anything wanted.
int Grow(const Setup& setup, Rng& rng, int64_t depth, Tree& tree) {
  const bool digit = depth >= setup.depth || rng.NextDouble() > kDigitShare;
  if (digit || tree.size >= setup.most) {
    ++tree.size;
    const auto value = static_cast<int>(rng.NextBelow(10));
    tree.text += static_cast<char>('0' + value);
    return value;
  }
  tree.size += 2;
  const size_t operation = rng.NextBelow(std::size(kOperators));
  const int64_t count = Between(rng, 2, setup.arguments);
  tree.text += kOperators[operation];
  std::vector<int> values;
  for (int64_t i = 0; i < count; ++i) {
    tree.text += ' ';
    values.push_back(Grow(setup, rng, depth + 1, tree));
  }
  tree.text += " ]";
  return Apply(operation, std::move(values));
}

Result<Sample> Make(const Setup& setup, int64_t index) {
  constexpr int kAttempts = 200'000;
  Rng rng = RngFor(setup.seed, index, Draw::kFacts);
  Tree tree;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    tree = {};
    tree.value = Grow(setup, rng, 1, tree);
    if (tree.size > setup.least && tree.size < setup.most) break;
  }
  if (tree.size <= setup.least || tree.size >= setup.most) {
    return BadInput(StrCat(kOwner, ": no expression of ", setup.least + 1, " to ", setup.most - 1,
                           " parts in ", kAttempts, " draws; widen least_size and most_size"));
  }
  Sample sample;
  sample.id = sample.group = StrCat("e", index);
  sample.context = StrCat(kHead, tree.text);
  sample.marks = {MarkAt(MarkKind::kNeedle, kHead.size(), tree.text.size())};
  Question question;
  question.text = kQuestion;
  question.answers = {std::to_string(tree.value)};
  for (int digit = 0; digit < 10; ++digit) question.all_classes.push_back(std::to_string(digit));
  question.max_new_tokens = setup.new_tokens;
  sample.questions.push_back(std::move(question));
  sample.length = tree.size;
  sample.facts = {{"size", std::to_string(tree.size)}};
  return sample;
}

Result<std::unique_ptr<SampleStream>> Open(const Params& params, const Json& task,
                                           const TaskOptions& options) {
  Setup setup;
  setup.samples = params.Int("samples");
  setup.least = params.Int("least_size");
  setup.most = params.Int("most_size");
  setup.depth = params.Int("depth");
  setup.arguments = params.Int("arguments");
  setup.new_tokens = NewTokens(task, 5);
  setup.seed = options.seed;
  if (setup.most < setup.least + 2) {
    return BadInput(StrCat(kOwner, ".most_size: ", setup.most, " leaves no size above least_size, ",
                           setup.least));
  }
  return MakeStream(setup.samples, options, [setup](int64_t index) { return Make(setup, index); });
}

KVG_REGISTER_SOURCE({
    .name = "list_ops",
    .version = 1,
    .description = "nested MIN, MAX, MED and SM of digits",
    .generated = true,
    .params =
        {
            IntParam("samples", 500, 1, 1'000'000, "expressions"),
            IntParam("least_size", 500, 0, 100'000, "parts, excluded"),
            IntParam("most_size", 2000, 2, 100'000, "parts, excluded"),
            IntParam("depth", 10, 2, 20, "of nesting"),
            IntParam("arguments", 10, 2, 100, "at most, of one operator"),
        },
    .open = Open,
    .files = nullptr,
    .check = nullptr,
});

}  // namespace
}  // namespace kvgauge::list_ops
