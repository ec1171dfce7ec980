// SPDX-License-Identifier: Apache-2.0
// Forms in which every unit can be asked for: pairs, lines to copy, passages, facts, code.
#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "generators/closed_page.h"

namespace kvgauge::closed {
namespace {

// A unit of the text, and the question about it.
struct Line {
  std::string text;
  Ask ask;
};

Build AskLines(const Plan& plan, const std::string& head, std::function<Line(int64_t)> make,
               std::string_view called) {
  auto lines = std::make_shared<Growing<Line>>(std::move(make));
  return [=](int64_t units) {
    Draft draft;
    draft.head = head;
    draft.pieces.reserve(static_cast<size_t>(units));
    for (int64_t i = 0; i < units; ++i) draft.pieces.push_back(lines->At(i).text);
    for (const int64_t asked : plan.Asked(units)) {
      draft.asks.push_back(lines->At(asked).ask);
      draft.asks.back().pieces = {static_cast<size_t>(asked)};
    }
    draft.facts = {{std::string(called), std::to_string(units)}};
    return draft;
  };
}

// text = joint + prefix + lead + answer + end.
Line MakeLine(std::string_view joint, std::string_view prefix, std::string_view lead,
              std::string_view answer, std::string_view end, std::string question,
              std::string_view question_joint) {
  Line line;
  for (const std::string_view part : {joint, prefix, lead, answer, end}) line.text += part;
  line.ask.question = std::move(question);
  line.ask.prefix = question_joint;
  line.ask.prefix += prefix;
  line.ask.lead = lead;
  line.ask.answer = answer;
  line.ask.end = end;
  return line;
}

}  // namespace

Build MakePairs(const Plan& plan) {
  static constexpr std::string_view kQuestions[] = {
      "\nQuestion: what is the number of the {}? Answer:", "\nWhich number has the {}?",
      "\nFind the {}.", "\nAnswer:"};
  auto things = std::make_shared<ThingDraw>(plan.split);
  const auto make = [things, rng = plan.Stream(Draw::kFacts)](int64_t) mutable {
    const std::string thing = things->Next(rng);
    // The line break ends the number: a full stop would cost 512 pairs another 512 tokens.
    Line line = MakeLine("\n", thing + ":", "", Number(rng, 3, 3), "",
                         Phrase(rng, kQuestions, thing), "\n");
    line.ask.end = "\n";
    return line;
  };
  return AskLines(plan, "Numbers:", make, "pairs");
}

Build MakeCopying(const Plan& plan) {
  static constexpr std::string_view kQuestions[] = {
      "\nWrite the line again:", "\nRepeat:", "\nQuestion: how does this line go on?"};
  constexpr int kGiven = 3;
  const auto make = [rng = plan.Stream(Draw::kFacts)](int64_t) mutable {
    const auto word = [&]() -> std::string {
      // Now and then digits or letters of no word, so that copying is not bound to the vocabulary.
      const uint64_t kind = rng.NextBelow(20);
      if (kind == 0) return Number(rng, 2, 6);
      if (kind == 1) {
        std::string letters;
        for (int64_t i = Between(rng, 2, 5); i > 0; --i) {
          letters += static_cast<char>('a' + rng.NextBelow(26));
        }
        return letters;
      }
      const Words lists[] = {Names(), Nouns(), Nouns(), Places(), Verbs(), Labels()};
      return std::string(Pick(rng, lists[rng.NextBelow(std::size(lists))]));
    };
    // Words stand apart from adjectives, so that no thing of the other split is written.
    std::string given, rest;
    const int64_t count = Between(rng, 6, 10);
    for (int64_t i = 0; i < count; ++i) {
      std::string& text = i < kGiven ? given : rest;
      if (i != 0 && i != kGiven) text += ' ';
      text += i == count - 1 ? std::string(Pick(rng, Adjectives())) : word();
    }
    return MakeLine("\n", given, " ", rest, ".", std::string(Pick(rng, kQuestions)), "\n");
  };
  return AskLines(plan, "List:", make, "lines");
}

Build MakePassages(const Plan& plan) {
  static constexpr std::string_view kQuestions[] = {
      "\nQuestion: on which page does this stand?", "\nFind the page.",
      "\nWhich page ends with these words?", "\nComplete:"};
  // Page numbers of three digits, each once.
  Rng order = plan.Stream(Draw::kQuestion);
  auto numbers = std::make_shared<std::vector<int64_t>>(DrawDistinct(order, 900, 900));
  auto things = std::make_shared<ThingDraw>(plan.split);
  const auto make = [=, split = plan.split, filler = plan.Stream(Draw::kFiller),
                     rng = plan.Stream(Draw::kFacts)](int64_t index) mutable {
    std::string before = "\n";
    for (int64_t i = Between(rng, 1, 4); i > 0; --i) {
      before += FillerSentence(filler, split);
      before += ' ';
    }
    // What tells one passage from another stands next to its number.
    std::string lead = "In the ";
    lead += Pick(rng, Places());
    lead += ' ';
    lead += Pick(rng, Names());
    lead += ' ';
    lead += Pick(rng, Verbs());
    lead += " the ";
    lead += things->Next(rng);
    lead += " (p";
    return MakeLine(before, lead, "", std::to_string(100 + (*numbers)[static_cast<size_t>(index)]),
                    ").", std::string(Pick(rng, kQuestions)), " ");
  };
  return AskLines(plan, "Pages:", make, "passages");
}

Build MakeStory(const Plan& plan) {
  auto things = std::make_shared<ThingDraw>(plan.split);
  auto deeds = std::make_shared<std::set<std::string>>();
  const auto make = [=, rng = plan.Stream(Draw::kFacts)](int64_t) mutable {
    const std::string thing = things->Next(rng);
    std::string name, deed, place, lead;
    // Who did what where happens once.
    do {
      place = Pick(rng, Places());
      name = Pick(rng, Names());
      deed = Pick(rng, Verbs());
      lead = "In the " + place;
      lead += ' ';
      lead += name;
      lead += ' ';
      lead += deed;
      lead += " the";
    } while (!deeds->insert(lead).second);
    switch (rng.NextBelow(4)) {
      case 0: {
        static constexpr std::string_view kQuestions[] = {
            "\nQuestion: what was it that {name} {deed} in the {place}? Answer:",
            "\nWhich thing in the {place} was it that {name} {deed}?"};
        return MakeLine(
            " ", lead, " ", thing, ".",
            FillIn(Pick(rng, kQuestions), {{"name", name}, {"deed", deed}, {"place", place}}), " ");
      }
      case 1: {
        static constexpr std::string_view kQuestions[] = {
            "\nQuestion: where was it that {name} {deed} the {thing}? Answer:",
            "\nIn which place was it that {name} {deed} the {thing}?"};
        lead = name + " ";
        lead += deed;
        lead += " the ";
        lead += thing;
        lead += " in the";
        return MakeLine(
            " ", lead, " ", PlaceWithAdjective(rng), ".",
            FillIn(Pick(rng, kQuestions), {{"name", name}, {"deed", deed}, {"thing", thing}}), " ");
      }
      case 2: {
        static constexpr std::string_view kQuestions[] = {
            "\nQuestion: how many coins did {name} pay for the {thing}? Answer:",
            "\nWhat did {name} pay for the {thing}?"};
        lead = "For the " + thing;
        lead += ' ';
        lead += name;
        lead += " paid";
        std::string coins = Number(rng, 2, 4);
        coins += " coins";
        return MakeLine(" ", lead, " ", coins, ".",
                        FillIn(Pick(rng, kQuestions), {{"name", name}, {"thing", thing}}), " ");
      }
      default: {
        static constexpr std::string_view kQuestions[] = {
            "\nQuestion: from whom did {name} get the {thing}? Answer:",
            "\nWho gave the {thing} to {name}?"};
        lead = name + " got the ";
        lead += thing;
        lead += " from";
        return MakeLine(" ", lead, " ", FullName(rng), ".",
                        FillIn(Pick(rng, kQuestions), {{"name", name}, {"thing", thing}}), " ");
      }
    }
  };
  return AskLines(plan, "Story:", make, "sentences");
}

Build MakeCode(const Plan& plan) {
  static constexpr std::string_view kQuestions[] = {"\n# once more", "\n# the same again",
                                                    "\n# as above"};
  auto things = std::make_shared<ThingDraw>(plan.split);
  const auto make = [=, rng = plan.Stream(Draw::kFacts)](int64_t) mutable {
    std::string name = things->Next(rng);
    std::replace(name.begin(), name.end(), ' ', '_');
    std::string value(rng.NextBelow(2) == 0 ? "open(" : "read(");
    value += Pick(rng, Places());
    value += ", ";
    value += Number(rng, 1, 3);
    value += ')';
    const std::string number = Number(rng, 2, 5);
    std::string prefix = rng.NextBelow(3) > 0 ? "let " : "set ";
    prefix += name;
    prefix += " =";
    return MakeLine("\n", prefix, " ", rng.NextBelow(3) > 0 ? value : number, ";",
                    std::string(Pick(rng, kQuestions)), "\n");
  };
  return AskLines(plan, "# code", make, "lines");
}

}  // namespace kvgauge::closed
