// SPDX-License-Identifier: Apache-2.0
// A chain of small numbers that the answer must carry: the prompt has signs and names, and three
// numbers to begin with; every other number stands in the answer alone, where later steps look for
// it. Rules look like the lines that they become, with question marks for numbers.
#include <memory>
#include <set>
#include <utility>

#include "generators/closed_page.h"

namespace kvgauge::closed {
namespace {

constexpr int64_t kGivenNumbers = 3;
constexpr int64_t kMostNumber = 9;  // one digit, one token

struct Step {
  std::string rule, line;  // "? + box ? = lamp ?", "6 + box 3 = lamp 9"
  std::string result;      // "= lamp 9"
};

// Names and numbers so far, in the order of the chain; the steps between them.
class Chain {
 public:
  explicit Chain(const Plan& plan) : rng_(plan.Stream(Draw::kFacts)) {
    names_ = DrawDistinct(rng_, std::ssize(Nouns()), std::ssize(Nouns()));
    for (int64_t i = 0; i < kGivenNumbers; ++i) values_.push_back(Between(rng_, 1, kMostNumber));
  }

  // "= lamp 9".
  std::string ResultOf(int64_t number) const {
    std::string text = "= " + Name(number);
    text += ' ';
    text += std::to_string(values_[static_cast<size_t>(number)]);
    return text;
  }

  Step Next() {
    const int64_t before = values_.back(), last = std::ssize(values_) - 1;
    // A sign and a name stand together once, so that a step begins like no other.
    std::vector<std::pair<int64_t, bool>> legal;
    for (int64_t other = 0; other < last; ++other) {
      for (const bool plus : {true, false}) {
        if (used_.count({other, plus}) == 0 && InRange(Apply(before, other, plus))) {
          legal.emplace_back(other, plus);
        }
      }
    }
    // A number less itself is always one.
    if (legal.empty()) legal.emplace_back(last, false);
    const auto chosen = legal[rng_.NextBelow(legal.size())];
    const int64_t other = chosen.first;
    const bool plus = chosen.second;
    used_.insert(chosen);
    const auto line = [&](const std::string& from, const std::string& operand,
                          const std::string& to) {
      std::string text = from + (plus ? " + " : " - ");
      for (const std::string& part : {Name(other), std::string(" "), operand, std::string(" = "),
                                      Name(last + 1), std::string(" "), to}) {
        text += part;
      }
      return text;
    };
    const auto number = [](int64_t value) { return std::to_string(value); };
    const int64_t value = Apply(before, other, plus);
    Step step;
    step.rule = line("?", "?", "?");
    step.line = line(number(before), number(values_[static_cast<size_t>(other)]), number(value));
    values_.push_back(value);
    step.result = ResultOf(last + 1);
    return step;
  }

 private:
  static bool InRange(int64_t value) { return value >= 0 && value <= kMostNumber; }
  int64_t Apply(int64_t before, int64_t other, bool plus) const {
    const int64_t operand = values_[static_cast<size_t>(other)];
    return plus ? before + operand : before - operand;
  }
  std::string Name(int64_t number) const {
    return std::string(Nouns()[static_cast<size_t>(names_[static_cast<size_t>(number)])]);
  }

  Rng rng_;
  std::vector<int64_t> names_, values_;
  std::set<std::pair<int64_t, bool>> used_;
};

}  // namespace

Build MakeChain(const Plan& plan) {
  auto chain = std::make_shared<Chain>(plan);
  std::string head = "Sums:", last;
  for (int64_t i = 0; i < kGivenNumbers; ++i) {
    last = "\n" + chain->ResultOf(i);
    head += last;
  }
  auto steps = std::make_shared<Growing<Step>>([chain](int64_t) { return chain->Next(); });
  return [=](int64_t units) {
    Draft draft;
    draft.head = head;
    Ask ask;
    ask.question = "\nAnswer:";
    ask.prefix = last;
    ask.lead = "\n";
    ask.end = "\n";
    for (int64_t i = 0; i < units; ++i) {
      const Step& step = steps->At(i);
      draft.pieces.push_back("\n" + step.rule);
      ask.pieces.push_back(static_cast<size_t>(i));
      if (i > 0) ask.answer += '\n';
      ask.answer += step.line;
      ask.parts.push_back(step.result);
    }
    draft.asks.push_back(std::move(ask));
    draft.facts = {{"steps", std::to_string(units)}};
    return draft;
  };
}

}  // namespace kvgauge::closed
