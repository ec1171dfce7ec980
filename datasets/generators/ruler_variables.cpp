// SPDX-License-Identifier: Apache-2.0
// RULER's variable tracking: chains of assignments in noise, with one solved example before.
#include <algorithm>
#include <set>

#include "core/json.h"
#include "core/strings.h"
#include "generators/ruler.h"

namespace kvgauge::ruler_variables {
namespace {

constexpr std::string_view kOwner = "ruler_variables";
constexpr std::string_view kHead =
    "Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n";
constexpr std::string_view kQuestion =
    "\nQuestion: Find all variables that are assigned the value {value} in the text above.";
constexpr std::string_view kPrefix =
    " Answer: According to the chain(s) of variable assignment in the text above, {count} "
    "variables "
    "are assigned the value {value}, they are: ";
constexpr int64_t kExampleTokens = 500;

struct Setup {
  RulerSetup ruler;
  int64_t chains = 1, hops = 4;
  int64_t example_lines = 0;
};

struct Chain {
  std::string value;
  std::vector<std::string> names, lines;
};

Chain DrawChain(Rng& rng, int64_t hops, int letters, std::set<std::string>& taken) {
  Chain chain;
  chain.value = std::to_string(Between(rng, 10000, 99998));
  while (!taken.insert(chain.value).second)
    chain.value = std::to_string(Between(rng, 10000, 99998));
  while (static_cast<int64_t>(chain.names.size()) <= hops) {
    std::string name;
    for (int i = 0; i < letters; ++i) name += static_cast<char>('A' + rng.NextBelow(26));
    // "VAR" itself stands in every line.
    if (name != "VAR" && taken.insert(name).second) chain.names.push_back(std::move(name));
  }
  chain.lines.push_back(StrCat("VAR ", chain.names[0], " = ", chain.value));
  for (size_t i = 1; i < chain.names.size(); ++i) {
    // The blank at the end is the reference's.
    chain.lines.push_back(StrCat("VAR ", chain.names[i], " = VAR ", chain.names[i - 1], " "));
  }
  return chain;
}

RulerText Build(const std::vector<Chain>& chains, Rng rng, int64_t noise) {
  std::vector<std::string> lines(static_cast<size_t>(noise), std::string(kGrass));
  for (const Chain& chain : chains) {
    auto at = DrawDistinct(rng, static_cast<int64_t>(lines.size()),
                           static_cast<int64_t>(chain.lines.size()));
    std::sort(at.begin(), at.end());
    for (size_t i = 0; i < at.size(); ++i) {
      lines.insert(lines.begin() + at[i] + static_cast<int64_t>(i), chain.lines[i]);
    }
  }
  RulerText text;
  text.context = kHead;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) text.context += '\n';
    if (lines[i].starts_with("VAR ")) {
      text.marks.push_back(MarkAt(MarkKind::kNeedle, text.context.size(), lines[i].size()));
    }
    text.context += lines[i];
  }
  const std::string count = std::to_string(chains[0].names.size());
  text.question.text = FillIn(kQuestion, {{"value", chains[0].value}});
  text.question.answer_prefix = FillIn(kPrefix, {{"value", chains[0].value}, {"count", count}});
  text.question.answers = chains[0].names;
  return text;
}

struct Solved {
  std::string text, names;
};

// One chain in short names.
Solved Example(const Setup& setup, Rng& rng, int64_t noise) {
  std::set<std::string> taken;
  const Chain chain = DrawChain(rng, setup.hops, 3, taken);
  const RulerText text = Build({chain}, Rng(rng.NextU64(), 0), noise);
  return {WholeText(text), Join(chain.names, " ")};
}

Result<Sample> Make(const Setup& setup, int64_t index) {
  Rng facts = RngFor(setup.ruler.seed, index, Draw::kFacts);
  const Solved solved = Example(setup, facts, setup.example_lines);
  const std::string example = StrCat(solved.text, " ", solved.names, "\n\n");
  std::set<std::string> taken;
  std::vector<Chain> chains;
  for (int64_t i = 0; i < setup.chains; ++i)
    chains.push_back(DrawChain(facts, setup.hops, 5, taken));
  const Rng places = RngFor(setup.ruler.seed, index, Draw::kPlaces);
  const auto build = [&](int64_t noise) {
    RulerText text = Build(chains, places, noise);
    text.context.insert(0, example);
    for (Mark& mark : text.marks) {
      mark.begin += static_cast<int64_t>(example.size());
      mark.end += static_cast<int64_t>(example.size());
    }
    return text;
  };
  return FitRulerSample(setup.ruler, index, setup.hops + 1, int64_t{1} << 40,
                        GrassTail(setup.ruler), build);
}

Result<std::unique_ptr<SampleStream>> Open(const Params& params, const Json& task,
                                           const TaskOptions& options) {
  Setup setup;
  KVG_ASSIGN(setup.ruler, ReadRulerSetup(kOwner, params, task, options, 30));
  setup.chains = params.Int("chains");
  setup.hops = params.Int("hops");
  const auto example = [&](int64_t lines) {
    Rng rng(0, 0);
    return Example(setup, rng, lines).text;
  };
  const int64_t least = setup.hops + 1;
  // As much noise as 500 tokens hold, the names that solve it not counted.
  setup.example_lines = least;
  KVG_ASSIGN(const int64_t shortest, setup.ruler.counter.Exact(example(least)));
  if (shortest <= kExampleTokens) {
    KVG_ASSIGN(const Fit fit, FitUnits(setup.ruler.counter, kExampleTokens, least, kExampleTokens,
                                       example, kOwner));
    setup.example_lines = fit.size;
  }
  const int64_t total = setup.ruler.total();
  return MakeStream(total, options,
                    [setup = std::move(setup)](int64_t index) { return Make(setup, index); });
}

KVG_REGISTER_SOURCE({
    .name = "ruler_variables",
    .version = 2,
    .description = "RULER's variable tracking (vt)",
    .generated = true,
    .params = RulerParams({
        IntParam("chains", 1, 1, 100, "chains of assignments; the first is asked for"),
        IntParam("hops", 4, 1, 50, "assignments from variable to variable in a chain"),
    }),
    .open = Open,
    .files = nullptr,
    .check = nullptr,
});

}  // namespace
}  // namespace kvgauge::ruler_variables
