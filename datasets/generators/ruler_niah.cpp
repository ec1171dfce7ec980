// SPDX-License-Identifier: Apache-2.0
// RULER's eight retrieval tasks. Prompts are the published ones; word lists and essays are our own,
// so samples are equal in distribution, not item by item.
#include <algorithm>
#include <set>

#include "core/json.h"
#include "core/strings.h"
#include "generators/prose.h"
#include "generators/ruler.h"
#include "generators/words.h"
#include "src/python_text.h"

namespace kvgauge::ruler_niah {
namespace {

constexpr std::string_view kOwner = "ruler_niah";
constexpr std::string_view kHead =
    "Some special magic {type} are hidden within the following text. Make sure to memorize it. I "
    "will quiz you about the {type} afterwards.\n";
constexpr std::string_view kQuestion =
    "\nWhat are all the special magic {type} for {query} mentioned in the provided text?";
constexpr std::string_view kPrefix =
    " The special magic {type} for {query} mentioned in the provided text are";
// Forty depths, spread as evenly as whole percents allow.
constexpr int kDepths[] = {0,  3,  5,  8,  10, 13, 15, 18, 21, 23, 26, 28, 31, 33,
                           36, 38, 41, 44, 46, 49, 51, 54, 56, 59, 62, 64, 67, 69,
                           72, 74, 77, 79, 82, 85, 87, 90, 92, 95, 97, 100};

struct Setup {
  RulerSetup ruler;
  std::string haystack, key_type, value_type;
  int64_t keys = 1, values = 1, queries = 1;
  std::shared_ptr<Haystack> essays;
};

std::string DrawWord(Rng& rng, const std::string& type) {
  if (type == "numbers") return std::to_string(Between(rng, 1000000, 9999999));
  return type == "words" ? WordPair(rng) : Uuid(rng);
}

std::string Needle(const std::string& type, const std::string& key, const std::string& value) {
  return StrCat("One of the special magic ", type, " for ", key, " is: ", value, ".");
}

// One value asked for: the reference turns the plural words into singular ones, in this order.
std::string Singular(std::string_view text) {
  std::string out = ReplaceAll(text, "Some", "A");
  out = ReplaceAll(out, "are all", "is");
  out = ReplaceAll(out, "are", "is");
  return ReplaceAll(out, "answers", "answer");
}

std::string List(const std::vector<std::string>& parts) {
  if (parts.size() == 1) return parts[0];
  std::string text;
  for (size_t i = 0; i + 1 < parts.size(); ++i) text += parts[i] + ", ";
  return text + "and " + parts.back();
}

struct Facts {
  std::vector<std::string> needles;  // in their order in the text, later ones first in lines
  Question question;
  std::string head;
};

Facts DrawFacts(const Setup& setup, int64_t index) {
  Facts facts;
  Rng rng = RngFor(setup.ruler.seed, index, Draw::kFacts);
  std::vector<std::string> keys;
  std::vector<std::vector<std::string>> values;
  std::set<std::string> taken;
  const auto fresh = [&](const std::string& type) {
    std::string word = DrawWord(rng, type);
    while (!taken.insert(word).second) word = DrawWord(rng, type);
    return word;
  };
  for (int64_t key = 0; key < setup.keys; ++key) {
    keys.push_back(fresh(setup.key_type));
    values.emplace_back();
    for (int64_t value = 0; value < setup.values; ++value) {
      values.back().push_back(fresh(setup.value_type));
      facts.needles.push_back(Needle(setup.value_type, keys.back(), values.back().back()));
    }
  }
  Shuffle(facts.needles, rng);

  std::vector<std::string> queries;
  for (const int64_t key : DrawDistinct(rng, setup.keys, setup.queries)) {
    const auto at = static_cast<size_t>(key);
    queries.push_back(keys[at]);
    auto& answers = facts.question.answers;
    answers.insert(answers.end(), values[at].begin(), values[at].end());
  }
  const std::string query = List(queries);
  std::string type = setup.value_type, head(kHead), question(kQuestion), prefix(kPrefix);
  if (setup.queries * setup.values == 1) {
    type.pop_back();
    head = Singular(head);
    question = Singular(question);
    prefix = Singular(prefix);
  }
  facts.head = FillIn(head, {{"type", type}});
  facts.question.text = FillIn(question, {{"type", type}, {"query", query}});
  facts.question.answer_prefix = FillIn(prefix, {{"type", type}, {"query", query}});
  return facts;
}

// Joins parts and marks those that are needles.
RulerText Joined(const Facts& facts, const std::vector<std::pair<std::string, bool>>& parts,
                 char joint) {
  RulerText text;
  text.context = facts.head;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) text.context += joint;
    const auto& [part, is_needle] = parts[i];
    if (is_needle) {
      text.marks.push_back(MarkAt(MarkKind::kNeedle, text.context.size(), part.size()));
    }
    text.context += part;
  }
  text.question = facts.question;
  return text;
}

Result<Sample> MakeEssay(const Setup& setup, int64_t index) {
  const Facts facts = DrawFacts(setup, index);
  Filler filler =
      setup.essays->NewFiller(&setup.ruler.counter, RngFor(setup.ruler.seed, index, Draw::kFiller));
  // Words have a token each at least, but counts of pieces are guesses.
  const int64_t budget = std::max<int64_t>(setup.ruler.budget(index), 0);
  KVG_ASSIGN(const int64_t enough, filler.CutFor(budget + budget / 4 + 64));
  const Words words = SplitWords(std::string_view(filler.text()).substr(0, enough));
  const Rng places = RngFor(setup.ruler.seed, index, Draw::kPlaces);
  const auto build = [&](int64_t count) {
    const size_t bytes = count == 0 ? 0 : words.ends[static_cast<size_t>(count - 1)];
    const auto sentences = SplitSentences(std::string_view(words.text).substr(0, bytes));
    Rng rng = places;
    std::vector<int64_t> depths;
    for (const int64_t depth :
         DrawDistinct(rng, std::size(kDepths), static_cast<int64_t>(facts.needles.size()))) {
      depths.push_back(static_cast<int64_t>(sentences.size()) * kDepths[depth] / 100);
    }
    std::sort(depths.begin(), depths.end());
    std::vector<std::pair<std::string, bool>> parts;
    size_t from = 0;
    const auto add_until = [&](size_t end) {
      std::string part;
      for (; from < end; ++from) part += sentences[from];
      if (!part.empty()) parts.emplace_back(Trim(part), false);
    };
    for (size_t i = 0; i < facts.needles.size(); ++i) {
      add_until(static_cast<size_t>(depths[i]));
      parts.emplace_back(facts.needles[i], true);
    }
    add_until(sentences.size());
    return Joined(facts, parts, ' ');
  };
  // What is left of the last word's room.
  Tail tail{
      "", " ",
      setup.essays->NewFiller(&setup.ruler.counter, RngFor(setup.ruler.seed, index, Draw::kTail))};
  return FitRulerSample(setup.ruler, index, 0, static_cast<int64_t>(words.ends.size()),
                        std::move(tail), build);
}

Result<Sample> MakeLines(const Setup& setup, int64_t index) {
  const Facts facts = DrawFacts(setup, index);
  std::set<std::string> answers(facts.question.answers.begin(), facts.question.answers.end());
  Rng filler = RngFor(setup.ruler.seed, index, Draw::kFiller);
  std::vector<std::string> lines;
  const auto line = [&](int64_t i) -> const std::string& {
    while (static_cast<int64_t>(lines.size()) <= i) {
      if (setup.haystack == "noise") {
        lines.emplace_back(kGrass);
        continue;
      }
      const std::string key = DrawWord(filler, setup.key_type);
      std::string value = DrawWord(filler, setup.value_type);
      while (answers.count(value) > 0) value = DrawWord(filler, setup.value_type);
      // A second value for the key that is asked for would be a second right answer.
      const bool asked = facts.question.text.find(key) != std::string::npos;
      if (!asked) lines.push_back(Needle(setup.value_type, key, value));
    }
    return lines[static_cast<size_t>(i)];
  };
  const Rng places = RngFor(setup.ruler.seed, index, Draw::kPlaces);
  const auto needles = static_cast<int64_t>(facts.needles.size());
  const auto build = [&](int64_t count) {
    Rng rng = places;
    std::vector<int64_t> at = DrawDistinct(rng, count, needles);
    std::sort(at.begin(), at.end());
    std::vector<std::pair<std::string, bool>> parts;
    size_t next = 0;
    for (int64_t i = 0; i < count; ++i) {
      // Inserted from the end, so the first needle stands last.
      if (next < at.size() && at[next] == i) {
        parts.emplace_back(facts.needles[facts.needles.size() - 1 - next++], true);
      }
      parts.emplace_back(line(i), false);
    }
    return Joined(facts, parts, '\n');
  };
  return FitRulerSample(
      setup.ruler, index, needles, int64_t{1} << 40,
      setup.haystack == "noise" ? GrassTail(setup.ruler) : ProseTail(setup.ruler, index, "\n"),
      build);
}

Result<std::unique_ptr<SampleStream>> Open(const Params& params, const Json& task,
                                           const TaskOptions& options) {
  Setup setup;
  KVG_ASSIGN(setup.ruler, ReadRulerSetup(kOwner, params, task, options, 128));
  setup.haystack = params.Text("haystack");
  setup.key_type = params.Text("key_type");
  setup.value_type = params.Text("value_type");
  setup.queries = params.Int("queries");
  setup.keys = std::max(params.Int("keys"), setup.queries);
  setup.values = params.Int("values");
  if (setup.haystack == "essay") {
    KVG_ASSIGN(setup.essays, Haystack::Open(TextDirectoryPath(params.Text("essays"), options),
                                            StrCat(kOwner, ".essays")));
    if (setup.keys * setup.values > static_cast<int64_t>(std::size(kDepths))) {
      return BadInput(StrCat(kOwner, ": ", setup.keys * setup.values,
                             " needles in an essay; at most ", std::size(kDepths)));
    }
  }
  const int64_t total = setup.ruler.total();
  return MakeStream(total, options, [setup = std::move(setup)](int64_t index) {
    return setup.haystack == "essay" ? MakeEssay(setup, index) : MakeLines(setup, index);
  });
}

KVG_REGISTER_SOURCE({
    .name = "ruler_niah",
    .version = 1,
    .description = "RULER's retrieval of magic numbers, words or uuids",
    .generated = true,
    .params = RulerParams({
        ChoiceParam("haystack", "essay", {"essay", "noise", "needle"},
                    "what surrounds the needles"),
        TextParam("essays", "", "directory of *.txt files, below the data directory; empty: prose"),
        ChoiceParam("key_type", "words", {"words", "numbers", "uuids"}, "what is asked for"),
        ChoiceParam("value_type", "numbers", {"words", "numbers", "uuids"}, "what is answered"),
        IntParam("keys", 1, 1, 1000, "keys in the text; raised to the queries"),
        IntParam("values", 1, 1, 1000, "values of each key"),
        IntParam("queries", 1, 1, 1000, "keys asked for"),
    }),
    .open = Open,
    .files =
        [](const Params& params, const Json&) {
          return TextDirectory(params.Text("haystack") == "essay" ? params.Text("essays") : "");
        },
    .check = nullptr,
});

}  // namespace
}  // namespace kvgauge::ruler_niah
