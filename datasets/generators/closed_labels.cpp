// SPDX-License-Identifier: Apache-2.0
// Few-shot forms: sentences with labels whose names are made up for each page, so that they can
// only be learned from it.
#include <algorithm>
#include <memory>
#include <numeric>

#include "generators/closed_page.h"

namespace kvgauge::closed {
namespace {

// Members (nouns, verbs) dealt to classes, and the class names of one page.
struct Classes {
  std::vector<std::vector<size_t>> members;
  std::vector<std::string> names;
};

struct Shot {
  size_t member = 0, group = 0;
  std::string text;  // up to and with the label
};

// Class by class in rounds of drawn order, so that each is there soon and none is rare.
class Shots {
 public:
  using Sentence = std::function<std::string(Rng& rng, size_t member)>;
  Shots(Rng rng, Classes classes, Sentence sentence)
      : classes_(std::move(classes)),
        sentence_(std::move(sentence)),
        shots_([this, rng](int64_t) mutable { return Make(rng); }) {}
  Shots(const Shots&) = delete;
  Shots& operator=(const Shots&) = delete;

  const Shot& At(int64_t index) { return shots_.At(index); }
  const Classes& classes() const { return classes_; }
  const std::string& NameOf(size_t group) const { return classes_.names[group]; }
  std::string Ask(Rng& rng, size_t member) const { return sentence_(rng, member); }

 private:
  Shot Make(Rng& rng) {
    if (round_.empty()) {
      round_.resize(classes_.members.size());
      std::iota(round_.begin(), round_.end(), size_t{0});
      Shuffle(round_, rng);
    }
    Shot shot;
    shot.group = round_.back();
    round_.pop_back();
    const std::vector<size_t>& members = classes_.members[shot.group];
    shot.member = members[rng.NextBelow(members.size())];
    shot.text = sentence_(rng, shot.member);
    shot.text += ' ';
    shot.text += classes_.names[shot.group];
    shot.text += '.';
    return shot;
  }

  Classes classes_;
  Sentence sentence_;
  std::vector<size_t> round_;
  Growing<Shot> shots_;
};

// At least two, and each a few times in the page.
int64_t ClassCount(const Plan& plan, Rng& rng, int64_t most) {
  return Between(rng, 2, std::clamp<int64_t>(plan.length / 48, 2, most));
}

// Two words; no word in two names.
std::vector<std::string> DrawLabels(Rng& rng, size_t count) {
  const std::vector<int64_t> words =
      DrawDistinct(rng, static_cast<int64_t>(Labels().size()), 2 * static_cast<int64_t>(count));
  std::vector<std::string> names;
  for (size_t i = 0; i < count; ++i) {
    std::string name(Labels()[static_cast<size_t>(words[2 * i])]);
    name += ' ';
    name += Labels()[static_cast<size_t>(words[2 * i + 1])];
    names.push_back(std::move(name));
  }
  return names;
}

Build AskShots(const Plan& plan, const std::string& head, const std::shared_ptr<Shots>& shots) {
  return [=](int64_t units) {
    Draft draft;
    draft.head = head;
    draft.pieces.reserve(static_cast<size_t>(units));
    for (int64_t i = 0; i < units; ++i) draft.pieces.push_back(shots->At(i).text);
    Rng rng = plan.Stream(Draw::kQuestion);
    for (const int64_t asked : plan.Asked(units)) {
      const Shot& shot = shots->At(asked);
      size_t member = shot.member;
      if (rng.NextDouble() < plan.unseen) {
        // Another member of the class, which the page may or may not show.
        const std::vector<size_t>& members = shots->classes().members[shot.group];
        member = members[rng.NextBelow(members.size())];
      }
      Ask ask;
      const std::string text = shots->Ask(rng, member);
      const size_t begin = text.rfind(' ');  // the label's announcement is the prefix
      ask.question = text.substr(0, begin);
      ask.prefix = text.substr(begin);
      ask.lead = " ";
      ask.answer = shots->NameOf(shot.group);
      ask.end = ".";
      for (int64_t i = 0; i < units; ++i) {
        if (shots->At(i).member == member) ask.pieces.push_back(static_cast<size_t>(i));
      }
      draft.asks.push_back(std::move(ask));
    }
    draft.facts = {{"shots", std::to_string(units)},
                   {"classes", std::to_string(shots->classes().names.size())}};
    return draft;
  };
}

}  // namespace

Build MakeLabels(const Plan& plan) {
  Rng rng = plan.Stream(Draw::kFacts);
  const int64_t count = ClassCount(plan, rng, 6);
  Classes classes;
  for (const int64_t kind : DrawDistinct(rng, kKinds, count)) {
    std::vector<size_t> nouns(kKindNouns);
    std::iota(nouns.begin(), nouns.end(), static_cast<size_t>(kind) * kKindNouns);
    classes.members.push_back(std::move(nouns));
  }
  classes.names = DrawLabels(rng, classes.members.size());
  const auto sentence = [split = plan.split](Rng& draw, size_t noun) {
    std::string text = "\nText: ";
    text += Pick(draw, Names());
    text += ' ';
    text += Pick(draw, Verbs());
    text += " the ";
    text += ThingDraw(split).WithNoun(draw, noun);
    text += ". Label:";
    return text;
  };
  return AskShots(plan, "Labels:", std::make_shared<Shots>(rng, std::move(classes), sentence));
}

Build MakeExamples(const Plan& plan) {
  Rng rng = plan.Stream(Draw::kFacts);
  const int64_t count = ClassCount(plan, rng, 5), verbs = static_cast<int64_t>(Verbs().size());
  Classes classes;
  classes.members.resize(static_cast<size_t>(count));
  const std::vector<int64_t> order = DrawDistinct(rng, verbs, verbs);
  for (size_t i = 0; i < order.size(); ++i) {
    classes.members[i % static_cast<size_t>(count)].push_back(static_cast<size_t>(order[i]));
  }
  classes.names = DrawLabels(rng, classes.members.size());
  const auto sentence = [split = plan.split](Rng& draw, size_t verb) {
    std::string text = "\nText: the ";
    text += AnyThing(draw, split);
    text += " that ";
    text += Pick(draw, Names());
    text += ' ';
    text += Verbs()[verb];
    text += ". Group:";
    return text;
  };
  return AskShots(plan, "Groups:", std::make_shared<Shots>(rng, std::move(classes), sentence));
}

}  // namespace kvgauge::closed
