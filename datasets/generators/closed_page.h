// SPDX-License-Identifier: Apache-2.0
// Pages of the closed English: a text that grows by whole units (sentences, lines, passages) until
// it fills a number of tokens, and questions about it. A question ends in the words that stand
// before its answer in the text, as RULER's answer prefixes do.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/rng.h"
#include "generators/closed_english.h"
#include "generators/generator.h"

namespace kvgauge::closed {

// What fixes a page besides its number of units.
struct Plan {
  Split split = Split::kEval;
  uint64_t seed = 0;
  int64_t index = 0;
  int64_t form = 0;       // so that forms do not share their sentences
  int64_t length = 0;     // tokens that the page will fill
  int64_t questions = 1;  // at most; more than one only in whole texts
  double share = 0;       // of the units that are asked for, when questions > 1
  double depth = 0;       // in [0, 1]: of what the one question is about
  int64_t facts = 0;      // of the form's kind; 0: drawn
  int64_t hops = -1;      // of a journey; -1: drawn
  double unseen = 0;      // chance that a labelled noun is new

  // One stream per purpose; those of the two splits never meet.
  Rng Stream(Draw purpose) const;
  // Which of `count` are asked for, in the order of the questions.
  std::vector<int64_t> Asked(int64_t count) const;
};

struct Ask {
  std::string question;  // begins with a line break
  std::string prefix;    // the words that stand before the answer in the text
  std::string lead;      // between prefix and answer
  std::string answer;
  std::string end;             // follows the answer, as in the text
  std::vector<size_t> pieces;  // that hold the answer
  // What a task looks for in a prediction, where that is not the answer as a whole.
  std::vector<std::string> parts = {};
};

struct Draft {
  std::string head;
  std::vector<std::string> pieces;
  std::vector<Ask> asks;  // never empty
  std::vector<std::pair<std::string, std::string>> facts = {};
};

// The same page with so many units. Units that a smaller draft has are in the larger one, too.
using Build = std::function<Draft(int64_t units)>;

struct Form {
  std::string_view name;
  std::string_view description;
  std::string_view joint;  // before sentences behind the last unit
  int64_t least_units, most_units;
  Build (*make)(const Plan& plan);
  bool fills = true;  // sentences may stand behind the last unit
};
std::span<const Form> Forms();

// Units made in order and kept, so that every draft begins alike.
template <class Unit>
class Growing {
 public:
  explicit Growing(std::function<Unit(int64_t index)> make) : make_(std::move(make)) {}
  const Unit& At(int64_t index) {
    while (static_cast<int64_t>(units_.size()) <= index) {
      units_.push_back(make_(static_cast<int64_t>(units_.size())));
    }
    return units_[static_cast<size_t>(index)];
  }

 private:
  std::function<Unit(int64_t)> make_;
  std::vector<Unit> units_;
};

// A sentence with its place in a story, in [0, 1].
struct Placed {
  double place = 0;
  std::string text;
};
// A story of `units` filler sentences with the given ones between them, in the order of their
// places (equal ones as given). Returns the piece of each.
class Story {
 public:
  explicit Story(const Plan& plan);
  std::vector<size_t> Tell(int64_t units, const std::vector<Placed>& sentences, Draft& draft);

 private:
  Growing<std::string> filler_;
};

// One of the phrasings with every {} filled.
std::string Phrase(Rng& rng, Words phrasings, std::string_view value);

// The forms.
Build MakeNeedles(const Plan& plan);
Build MakeTracing(const Plan& plan);
Build MakePairs(const Plan& plan);
Build MakeCopying(const Plan& plan);
Build MakePassages(const Plan& plan);
Build MakeLabels(const Plan& plan);
Build MakeExamples(const Plan& plan);
Build MakeStory(const Plan& plan);
Build MakeDocuments(const Plan& plan);
Build MakePoints(const Plan& plan);
Build MakeCode(const Plan& plan);
Build MakeChain(const Plan& plan);

}  // namespace kvgauge::closed
