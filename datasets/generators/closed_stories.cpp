// SPDX-License-Identifier: Apache-2.0
// Forms that hide a few sentences in a story: facts, journeys, points, documents.
#include <algorithm>
#include <memory>

#include "generators/closed_page.h"

namespace kvgauge::closed {
namespace {

enum class Value { kNumber, kShortNumber, kFullName, kPlace };

struct FactKind {
  std::string_view lead;  // a number's ends in a sign that stands before no other kind's
  Value value;
  std::string_view questions[4];
};

constexpr FactKind kFactKinds[] = {
    {"The owner of the {} is",
     Value::kFullName,
     {"\nQuestion: who is the owner of the {}? Answer:", "\nQuestion: who owns the {}? Answer:",
      "\nTo whom does the {} belong?", "\nComplete:"}},
    {"The maker of the {} is",
     Value::kFullName,
     {"\nQuestion: who is the maker of the {}? Answer:", "\nQuestion: who made the {}? Answer:",
      "\nWho was it that made the {}?", "\nComplete:"}},
    {"The {} is kept in the",
     Value::kPlace,
     {"\nQuestion: where is the {} kept? Answer:", "\nQuestion: where is the {}? Answer:",
      "\nWhere can I find the {}?", "\nComplete:"}},
    {"The secret number of the {} is #",
     Value::kNumber,
     {"\nQuestion: what is the secret number of the {}? Answer:",
      "\nQuestion: which secret number belongs to the {}? Answer:",
      "\nDo you remember the secret number of the {}?", "\nComplete:"}},
    {"The code of the {} is *",
     Value::kNumber,
     {"\nQuestion: what is the code of the {}? Answer:",
      "\nQuestion: which code opens the {}? Answer:", "\nWho knows the code of the {}?",
      "\nComplete:"}},
    {"The price of the {} is $",
     Value::kNumber,
     {"\nQuestion: what is the price of the {}? Answer:", "\nQuestion: how much is the {}? Answer:",
      "\nWhat does the {} cost?", "\nComplete:"}},
    {"The weight of the {} is",
     Value::kShortNumber,
     {"\nQuestion: what is the weight of the {}? Answer:",
      "\nQuestion: how heavy is the {}? Answer:", "\nWho knows the weight of the {}?",
      "\nComplete:"}},
};

// Prompts ask for the first of these: two words. A cache is compressed when the first token of an
// answer is known already, so one of a single token would say nothing.
constexpr size_t kPromptKinds = 3;
static_assert(kFactKinds[kPromptKinds - 1].value == Value::kPlace);

// With the space before it where it has one.
std::string Draws(Rng& rng, Value value) {
  switch (value) {
    case Value::kNumber:
      return Number(rng, 3, 3);
    case Value::kShortNumber:
      return " " + Number(rng, 1, 2);
    case Value::kFullName:
      return " " + FullName(rng);
    case Value::kPlace:
      break;
  }
  return " " + PlaceWithAdjective(rng);
}

std::string Sentence(std::string_view lead, std::string_view answer) {
  std::string text = " ";
  text += lead;
  text += answer;
  text += '.';
  return text;
}

// How many facts a page of this length holds.
int64_t FactCount(const Plan& plan, Rng& rng, int64_t tokens_each) {
  static constexpr int64_t kCounts[] = {1, 4, 8, 16, 32};
  const int64_t wanted = plan.facts > 0 ? plan.facts : kCounts[rng.NextBelow(std::size(kCounts))];
  return std::clamp<int64_t>(plan.length / tokens_each, 1, wanted);
}

// The facts that are asked for, and where each stands: the only one asked at the plan's depth.
std::vector<double> FactPlaces(const Plan& plan, Rng& rng, size_t count) {
  std::vector<double> places(count);
  for (double& place : places) place = rng.NextDouble();
  if (plan.questions == 1) places[0] = plan.depth;
  return places;
}

}  // namespace

Build MakeNeedles(const Plan& plan) {
  Rng rng = plan.Stream(Draw::kFacts);
  const int64_t count = FactCount(plan, rng, plan.questions > 1 ? 48 : 24);
  ThingDraw things(plan.split);
  std::vector<Ask> asks;
  std::string thing;
  for (int64_t i = 0; i < count; ++i) {
    // Now and then two facts of one thing.
    if (i == 0 || rng.NextBelow(5) > 0) thing = things.Next(rng);
    const FactKind* kind = &kFactKinds[rng.NextBelow(std::size(kFactKinds))];
    if (i == 0 && plan.questions == 1) kind = &kFactKinds[rng.NextBelow(kPromptKinds)];
    std::string prefix = FillIn(kind->lead, {{"", thing}});
    const auto taken = [&](const Ask& ask) { return ask.prefix == " " + prefix; };
    while (std::any_of(asks.begin(), asks.end(), taken)) {
      kind = &kFactKinds[rng.NextBelow(std::size(kFactKinds))];
      prefix = FillIn(kind->lead, {{"", thing}});
      if (rng.NextBelow(4) == 0) thing = things.Next(rng);
    }
    Ask ask{Phrase(rng, kind->questions, thing), " " + prefix, "", "", ".", {}};
    ask.answer = Draws(rng, kind->value);
    if (ask.answer.front() == ' ') {
      ask.lead = " ";
      ask.answer.erase(0, 1);
    }
    asks.push_back(std::move(ask));
  }
  const std::vector<double> places = FactPlaces(plan, rng, asks.size());
  std::vector<Placed> sentences;
  for (size_t i = 0; i < asks.size(); ++i) {
    sentences.push_back({places[i], Sentence(std::string_view(asks[i].prefix).substr(1),
                                             asks[i].lead + asks[i].answer)});
  }
  auto story = std::make_shared<Story>(plan);
  return [=](int64_t units) {
    Draft draft;
    draft.head = "Story:";
    const std::vector<size_t> pieces = story->Tell(units, sentences, draft);
    for (size_t i = 0; i < asks.size() && static_cast<int64_t>(i) < plan.questions; ++i) {
      draft.asks.push_back(asks[i]);
      draft.asks.back().pieces = {pieces[i]};
    }
    draft.facts = {{"facts", std::to_string(count)}};
    return draft;
  };
}

Build MakeTracing(const Plan& plan) {
  static constexpr std::string_view kQuestions[] = {
      "\nQuestion: who had the {} after that? Answer:",
      "\nQuestion: which way did the {} go? Answer:", "\nTell the way of the {}.", "\nComplete:"};
  Rng rng = plan.Stream(Draw::kFacts);
  const int64_t hops = plan.hops >= 0 ? plan.hops : Between(rng, 0, 3);
  // Names meet only once, so that a hand tells one thing from another.
  const int64_t most =
      std::min<int64_t>(static_cast<int64_t>(Names().size()) / (hops + 2),
                        std::max<int64_t>(1, plan.length / (25 + 20 * (hops + 1))));
  const int64_t count =
      plan.facts > 0 ? std::min(plan.facts, most) : Between(rng, 1, std::min<int64_t>(10, most));
  const std::vector<int64_t> names =
      DrawDistinct(rng, static_cast<int64_t>(Names().size()), count * (hops + 2));
  ThingDraw things(plan.split);
  std::vector<Ask> asks;
  std::vector<Placed> sentences;
  for (int64_t i = 0; i < count; ++i) {
    std::string from = "The ";
    const std::string thing = things.Next(rng);
    from += thing;
    from += " went from ";
    std::vector<std::string_view> way;
    for (int64_t j = 0; j < hops + 2; ++j) {
      way.push_back(Names()[static_cast<size_t>(names[static_cast<size_t>(i * (hops + 2) + j)])]);
    }
    std::vector<double> places;
    for (int64_t j = 0; j <= hops; ++j) places.push_back(rng.NextDouble());
    std::sort(places.begin(), places.end());
    Ask ask;
    ask.question = Phrase(rng, kQuestions, thing);
    for (size_t j = 0; j + 1 < way.size(); ++j) {
      std::string lead = from;
      lead += way[j];
      lead += " to";
      if (j == 0) ask.prefix = " " + lead;
      if (j > 0) ask.answer += " to ";
      ask.answer += way[j + 1];
      lead += ' ';
      sentences.push_back({places[j], Sentence(lead, way[j + 1])});
    }
    ask.lead = " ";
    ask.end = ".";
    asks.push_back(std::move(ask));
  }
  auto story = std::make_shared<Story>(plan);
  return [=](int64_t units) {
    Draft draft;
    draft.head = "Story:";
    const std::vector<size_t> pieces = story->Tell(units, sentences, draft);
    for (size_t i = 0; i < asks.size() && static_cast<int64_t>(i) < plan.questions; ++i) {
      draft.asks.push_back(asks[i]);
      const auto first = pieces.begin() + static_cast<std::ptrdiff_t>(i) * (hops + 1);
      draft.asks.back().pieces.assign(first, first + hops + 1);
    }
    draft.facts = {{"hops", std::to_string(hops)}, {"journeys", std::to_string(count)}};
    return draft;
  };
}

Build MakePoints(const Plan& plan) {
  static constexpr std::string_view kMarks[] = {
      " First point:", " Second point:", " Third point:", " Last point:"};
  static constexpr std::string_view kQuestions[] = {
      "\nSummary of the points:", "\nIn short:", "\nQuestion: which points were made? Answer:"};
  Rng rng = plan.Stream(Draw::kFacts);
  ThingDraw things(plan.split);
  std::vector<double> places;
  for (size_t i = 0; i < std::size(kMarks); ++i) places.push_back(rng.NextDouble());
  std::sort(places.begin(), places.end());
  Ask ask;
  ask.question = Pick(rng, kQuestions);
  ask.prefix = kMarks[0];
  ask.lead = " ";
  ask.end = ".";
  std::vector<Placed> sentences;
  for (size_t i = 0; i < std::size(kMarks); ++i) {
    std::string said(Pick(rng, Names()));
    said += ' ';
    said += Pick(rng, Verbs());
    said += " the ";
    said += things.Next(rng);
    if (i > 0) {
      ask.answer += '.';
      ask.answer += kMarks[i];
      ask.answer += ' ';
    }
    ask.answer += said;
    sentences.push_back({places[i], Sentence(kMarks[i].substr(1), " " + said)});
  }
  auto story = std::make_shared<Story>(plan);
  return [=](int64_t units) {
    Draft draft;
    draft.head = "Story:";
    draft.asks = {ask};
    draft.asks[0].pieces = story->Tell(units, sentences, draft);
    return draft;
  };
}

Build MakeDocuments(const Plan& plan) {
  static constexpr std::string_view kQuestions[] = {
      "\nQuestion: where does the owner of the {} live? Answer:",
      "\nQuestion: in which place lives the owner of the {}? Answer:",
      "\nTo whom does the {} belong?"};
  Rng rng = plan.Stream(Draw::kFacts);
  // About a hundred tokens a document, and one fact in each.
  const int64_t chains = std::clamp<int64_t>(plan.length / 200, 1, 30), documents = 2 * chains;
  const std::vector<int64_t> names =
      DrawDistinct(rng, static_cast<int64_t>(Names().size()), chains);
  const std::vector<int64_t> order = DrawDistinct(rng, documents, documents);
  const auto place = [&](int64_t document, double within) {
    return (static_cast<double>(document) + within) / static_cast<double>(documents);
  };
  ThingDraw things(plan.split);
  std::vector<Placed> sentences;
  std::vector<Ask> asks;
  for (int64_t i = 0; i < chains; ++i) {
    const std::string_view owner = Names()[static_cast<size_t>(names[static_cast<size_t>(i)])];
    const std::string thing = things.Next(rng);
    std::string owns = FillIn("The {} belongs to", {{"", thing}});
    std::string lives(owner);
    lives += " lives in the ";
    lives += Pick(rng, Places());
    Ask ask{Phrase(rng, kQuestions, thing), " " + owns, " ", std::string(owner), ".", {}};
    ask.answer += "; ";
    ask.answer += lives;
    asks.push_back(std::move(ask));
    const auto at = static_cast<size_t>(2 * i);
    sentences.push_back(
        {place(order[at], rng.NextDouble()), Sentence(owns, " " + std::string(owner))});
    lives.insert(0, " ");
    lives += '.';
    sentences.push_back({place(order[at + 1], rng.NextDouble()), std::move(lives)});
  }
  for (int64_t i = 0; i < documents; ++i) {
    std::string title = "\nDocument ";
    title += std::to_string(i + 1);
    title += ':';
    // Before a sentence at the same place.
    sentences.push_back({place(i, 0), std::move(title)});
  }
  auto story = std::make_shared<Story>(plan);
  return [=](int64_t units) {
    Draft draft;
    draft.head = "Documents:";
    const std::vector<size_t> pieces = story->Tell(units, sentences, draft);
    for (size_t i = 0; i < asks.size() && static_cast<int64_t>(i) < plan.questions; ++i) {
      draft.asks.push_back(asks[i]);
      draft.asks.back().pieces = {pieces[2 * i], pieces[2 * i + 1]};
    }
    draft.facts = {{"documents", std::to_string(documents)}};
    return draft;
  };
}

}  // namespace kvgauge::closed
