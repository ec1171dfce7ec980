// SPDX-License-Identifier: Apache-2.0
// Long ListOps: nested list operations on digits. The trees are the Long Range Arena's; the prompt
// is our own, since the benchmark classifies and has none.
#include <algorithm>
#include <numeric>

#include "core/json.h"
#include "core/strings.h"
#include "generators/generator.h"
#include "generators/length_axis.h"

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
constexpr int kDigits = 10;

struct Setup : LengthAxis {
  int64_t samples = 0, depth = 0, arguments = 0;
  int64_t least = 0, most = 0;  // sizes, unless there are lengths
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
    const auto value = static_cast<int>(rng.NextBelow(kDigits));
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

// A tree of a wanted number of tokens: from two digits on, an operator in a digit's place and
// further arguments in turn, such that an operator has as many as a drawn one on average.
class GrownTree {
 public:
  GrownTree(const Setup& setup, Rng rng) : setup_(setup), rng_(rng), nodes_(1) { MakeOperator(0); }

  // Either; false: the tree is full.
  bool Step() {
    const bool deeper = rng_.NextBelow(static_cast<uint64_t>(setup_.arguments)) < 2;
    return deeper ? Deepen() || Widen() : Widen() || Deepen();
  }
  // One more digit.
  bool Widen() {
    if (open_.empty()) return false;
    const size_t at = rng_.NextBelow(open_.size()), parent = open_[at];
    Add(parent);
    if (std::ssize(nodes_[parent].arguments) == setup_.arguments) Drop(open_, at);
    return true;
  }
  Tree Written() const {
    Tree tree;
    tree.value = Write(0, tree);
    return tree;
  }

 private:
  struct Node {
    int64_t depth = 1;
    size_t operation = 0;  // unless it is a digit
    int digit = 0;
    std::vector<size_t> arguments;  // of a digit none
  };

  static void Drop(std::vector<size_t>& values, size_t at) {
    values[at] = values.back();
    values.pop_back();
  }
  bool Deepen() {
    if (digits_.empty()) return false;
    const size_t at = rng_.NextBelow(digits_.size()), node = digits_[at];
    Drop(digits_, at);
    MakeOperator(node);
    return true;
  }
  void Add(size_t parent) {
    Node node;
    node.depth = nodes_[parent].depth + 1;
    node.digit = static_cast<int>(rng_.NextBelow(kDigits));
    nodes_[parent].arguments.push_back(nodes_.size());
    if (node.depth < setup_.depth) digits_.push_back(nodes_.size());
    nodes_.push_back(std::move(node));
  }
  void MakeOperator(size_t node) {
    nodes_[node].operation = rng_.NextBelow(std::size(kOperators));
    Add(node);
    Add(node);
    if (setup_.arguments > 2) open_.push_back(node);
  }
  int Write(size_t at, Tree& tree) const {
    const Node& node = nodes_[at];
    if (node.arguments.empty()) {
      ++tree.size;
      tree.text += static_cast<char>('0' + node.digit);
      return node.digit;
    }
    tree.size += 2;
    tree.text += kOperators[node.operation];
    std::vector<int> values;
    for (const size_t argument : node.arguments) {
      tree.text += ' ';
      values.push_back(Write(argument, tree));
    }
    tree.text += " ]";
    return Apply(node.operation, std::move(values));
  }

  const Setup& setup_;
  Rng rng_;
  std::vector<Node> nodes_;
  std::vector<size_t> digits_;  // that can become operators
  std::vector<size_t> open_;    // operators with room for arguments
};

Tree Grown(const Setup& setup, const Rng& rng, int64_t steps, int64_t digits) {
  GrownTree tree(setup, rng);
  for (int64_t i = 0; i < steps && tree.Step(); ++i) continue;
  for (int64_t i = 0; i < digits && tree.Widen(); ++i) continue;
  return tree.Written();
}

// Steps until a tree is full: every place of an operator has one with all its arguments.
int64_t MostSteps(const Setup& setup) {
  constexpr int64_t kEnough = int64_t{1} << 32;
  int64_t operators = 0, level = 1;
  for (int64_t depth = 1; depth < setup.depth && operators < kEnough; ++depth) {
    operators += level;
    level = std::min(kEnough, level * setup.arguments);
  }
  return std::min(kEnough, operators * (setup.arguments - 1) - 1);
}

Result<Tree> GrowTo(const Setup& setup, int64_t index, int64_t length) {
  // The last steps are digits, of one or two tokens each. Where they do not meet the length (room
  // for none, tokenizers that count a text otherwise for a digit in its middle) another tree may.
  constexpr int kTrees = 64;
  constexpr int64_t kLastDigits = 16;
  const std::string what = StrCat(kOwner, ".lengths: ", length);
  Rng draws = RngFor(setup.seed, index, Draw::kFacts);
  int64_t most_tokens = 0;
  for (int attempt = 0; attempt < kTrees; ++attempt) {
    const uint64_t seed = draws.NextU64();
    const Rng rng(seed, draws.NextU64());
    const auto count = [&](int64_t steps, int64_t digits) {
      return setup.counter.Exact(StrCat(kHead, Grown(setup, rng, steps, digits).text, kQuestion));
    };
    KVG_ASSIGN(const Fit fit, FitUnits(
                                  length, 0, MostSteps(setup),
                                  [&](int64_t steps) { return count(steps, 0); }, what));
    for (int64_t digits = 0; digits <= kLastDigits; ++digits) {
      KVG_ASSIGN(const int64_t tokens, count(fit.size, digits));
      if (tokens <= length) most_tokens = std::max(most_tokens, tokens);
      if (tokens <= length && tokens >= length - 1) return Grown(setup, rng, fit.size, digits);
    }
  }
  return BadInput(StrCat(what, ": expressions of depth ", setup.depth, " and ", setup.arguments,
                         " arguments do not come nearer than ", most_tokens,
                         " tokens; raise depth or arguments"));
}

Result<Tree> DrawTree(const Setup& setup, int64_t index) {
  constexpr int kAttempts = 200'000;
  Rng rng = RngFor(setup.seed, index, Draw::kFacts);
  Tree tree;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    tree = {};
    tree.value = Grow(setup, rng, 1, tree);
    if (tree.size > setup.least && tree.size < setup.most) return tree;
  }
  return BadInput(StrCat(kOwner, ": no expression of ", setup.least + 1, " to ", setup.most - 1,
                         " parts in ", kAttempts, " draws; widen least_size and most_size"));
}

Result<Sample> Make(const Setup& setup, int64_t index) {
  const int64_t length =
      setup.lengths.empty() ? 0 : setup.lengths[static_cast<size_t>(index / setup.samples)];
  KVG_ASSIGN(const Tree tree, length == 0 ? DrawTree(setup, index) : GrowTo(setup, index, length));
  Sample sample;
  sample.id = length == 0 ? StrCat("e", index) : StrCat("n", length, "-", index % setup.samples);
  sample.group = sample.id;
  sample.context = StrCat(kHead, tree.text);
  sample.marks = {MarkAt(MarkKind::kNeedle, kHead.size(), tree.text.size())};
  Question question;
  question.text = kQuestion;
  question.answers = {std::to_string(tree.value)};
  for (int digit = 0; digit < kDigits; ++digit)
    question.all_classes.push_back(std::to_string(digit));
  question.max_new_tokens = setup.new_tokens;
  sample.questions.push_back(std::move(question));
  sample.length = tree.size;
  sample.facts = {{"size", std::to_string(tree.size)}};
  if (length > 0) {
    KVG_ASSIGN(sample.length, setup.counter.Exact(sample.context + sample.questions[0].text));
    sample.facts.insert(sample.facts.begin(), {"length", std::to_string(length)});
  }
  return sample;
}

Result<std::unique_ptr<SampleStream>> Open(const Params& params, const Json& task,
                                           const TaskOptions& options) {
  Setup setup;
  KVG_ASSIGN(static_cast<LengthAxis&>(setup),
             ReadLengthAxis(kOwner, params, task, options, Lengths::kOptional, 5));
  setup.samples = params.Int("samples");
  setup.least = params.Int("least_size");
  setup.most = params.Int("most_size");
  setup.depth = params.Int("depth");
  setup.arguments = params.Int("arguments");
  if (setup.most < setup.least + 2) {
    return BadInput(StrCat(kOwner, ".most_size: ", setup.most, " leaves no size above least_size, ",
                           setup.least));
  }
  const int64_t total = setup.samples * std::max<int64_t>(1, std::ssize(setup.lengths));
  return StreamOf(std::move(setup), total, options, Make);
}

KVG_REGISTER_SOURCE({
    .name = "list_ops",
    .version = 1,
    .description = "nested MIN, MAX, MED and SM of digits",
    .generated = true,
    .params =
        {
            TextParam("lengths", "",
                      "tokens of the prompt instead of sizes: an expression is grown to each"),
            IntParam("samples", 500, 1, 1'000'000, "expressions, of each length"),
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
