// SPDX-License-Identifier: Apache-2.0
// RULER's two aggregation tasks: the common words of a list, the frequent words of a coded text.
// The words are our own: samples are equal in distribution, not item by item.
#include <algorithm>
#include <numbers>
#include <set>

#include "core/json.h"
#include "core/strings.h"
#include "generators/ruler.h"
#include "generators/words.h"

namespace kvgauge::ruler_words {
namespace {

constexpr std::string_view kOwner = "ruler_words";
constexpr std::string_view kCommonHead =
    "Below is a numbered list of words. In these words, some appear more often than others. "
    "Memorize the ones that appear most often.\n";
constexpr std::string_view kCommonQuestion =
    "\nQuestion: What are the 10 most common words in the above list?";
constexpr std::string_view kCommonPrefix =
    " Answer: The top 10 words that appear most often in the list are:";
constexpr int64_t kCommon = 10;
constexpr uint64_t kDraws = 1000, kDrawStep = 0x9E3779B97F4A7C15;

constexpr std::string_view kFrequentHead =
    "Read the following coded text and track the frequency of each coded word. Find the three most "
    "frequently appeared coded words. ";
constexpr std::string_view kFrequentQuestion =
    "\nQuestion: Do not provide any explanation. Please ignore the dots '....'. What are the three "
    "most frequently appeared words in the above coded text?";
constexpr std::string_view kFrequentPrefix =
    " Answer: According to the coded text above, the three most frequently appeared words are:";
constexpr double kZeta2 = std::numbers::pi * std::numbers::pi / 6;
constexpr int64_t kLeastCoded = 100;  // below, the first ranks begin to tie

std::vector<std::string> PlainWords() {
  std::set<std::string> words;
  for (const auto list : {Adjectives(), Nouns(), Verbs()}) words.insert(list.begin(), list.end());
  return {words.begin(), words.end()};
}

// "lanternbridge": enough of them for the longest lists.
std::vector<std::string> CompoundWords() {
  std::set<std::string> words;
  for (const auto first : Nouns()) {
    for (const auto second : Nouns()) {
      if (first != second) words.insert(StrCat(first, second));
    }
  }
  return {words.begin(), words.end()};
}

std::string Numbered(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += ' ';
    text += std::to_string(i + 1);
    text += ". ";
    text += words[i];
  }
  return text;
}

// `count` words of the shuffled pool, common ones first. No common word stands within another word:
// answers are looked for as substrings.
std::vector<std::string> Choose(std::vector<std::string> pool, Rng& rng, int64_t count) {
  Shuffle(pool, rng);
  std::vector<std::string> chosen;
  for (std::string& word : pool) {
    if (static_cast<int64_t>(chosen.size()) == count) break;
    const auto clashes = [&](const std::string& common) {
      return word.find(common) != std::string::npos || common.find(word) != std::string::npos;
    };
    const auto end =
        chosen.begin() + std::min<int64_t>(kCommon, static_cast<int64_t>(chosen.size()));
    if (std::none_of(chosen.begin(), end, clashes)) chosen.push_back(std::move(word));
  }
  return chosen;
}

RulerText CommonText(const std::vector<std::string>& words, Rng rng, int64_t often,
                     int64_t seldom) {
  std::vector<std::string> list;
  for (size_t i = 0; i < words.size(); ++i) {
    const bool common = static_cast<int64_t>(i) < kCommon;
    list.insert(list.end(), static_cast<size_t>(common ? often : seldom), words[i]);
  }
  Shuffle(list, rng);
  RulerText text;
  text.context = StrCat(kCommonHead, Numbered(list));
  text.question.text = kCommonQuestion;
  text.question.answer_prefix = kCommonPrefix;
  text.question.answers.assign(words.begin(), words.begin() + kCommon);
  return text;
}

// Sample `index` in its `draw`-th drawing.
Result<Sample> DrawCommon(const RulerSetup& setup, int64_t index, uint64_t draw) {
  static const std::vector<std::string> plain = PlainWords();
  static const std::vector<std::string> compound = CompoundWords();
  const bool is_short = setup.length_of(index) < 4096;
  const uint64_t seed = setup.seed ^ draw * kDrawStep;
  Rng rng = RngFor(seed, index, Draw::kFacts);
  const auto example_words = Choose(plain, rng, is_short ? 20 : 40);
  const RulerText example =
      CommonText(example_words, Rng(rng.NextU64(), 0), is_short ? 3 : 10, is_short ? 1 : 3);
  const std::string solved =
      StrCat(WholeText(example), " ", Numbered(example.question.answers), "\n");

  Rng pool_rng = RngFor(seed, index, Draw::kFiller);
  // The short list serves while it lasts; some of its words clash with a common one.
  const auto plain_words = Choose(plain, pool_rng, static_cast<int64_t>(plain.size()));
  std::vector<std::string> many;
  const Rng places = RngFor(seed, index, Draw::kPlaces);
  const auto build = [&](int64_t count) {
    const bool fits = count <= static_cast<int64_t>(plain_words.size());
    if (!fits && many.empty()) {
      Rng own = RngFor(seed, index, Draw::kQuestion);
      many = Choose(compound, own, static_cast<int64_t>(compound.size()));
    }
    const auto& pool = fits ? plain_words : many;
    const auto end = pool.begin() + std::min<int64_t>(count, static_cast<int64_t>(pool.size()));
    RulerText text = CommonText({pool.begin(), end}, places, is_short ? 6 : 30, is_short ? 1 : 3);
    text.context.insert(0, solved);
    return text;
  };
  return FitRulerSample(setup, index, kCommon, static_cast<int64_t>(compound.size()) / 2,
                        ProseTail(setup, index, "\nThe list ends here."), build);
}

// The ten common words alone, each thirty times, can be longer than 4,096 tokens of a small
// vocabulary; the reference then draws other words until they fit.
Result<Sample> MakeCommon(const RulerSetup& setup, int64_t index) {
  for (uint64_t draw = 0;; ++draw) {
    Result<Sample> sample = DrawCommon(setup, index, draw);
    if (sample.ok() || draw + 1 == kDraws) return sample;
  }
}

Result<Sample> MakeFrequent(const RulerSetup& setup, int64_t index) {
  Rng rng = RngFor(setup.seed, index, Draw::kFacts);
  const int64_t size = std::max<int64_t>(setup.budget(index) / 50, 8);
  std::vector<std::string> words = {"..."};  // the most frequent "word" is noise
  std::set<std::string> taken;
  while (static_cast<int64_t>(words.size()) < size) {
    std::string word;
    for (int i = 0; i < 6; ++i) word += static_cast<char>('a' + rng.NextBelow(26));
    if (taken.insert(word).second) words.push_back(std::move(word));
  }
  const Rng places = RngFor(setup.seed, index, Draw::kPlaces);
  const auto build = [&](int64_t total) {
    std::vector<uint32_t> copies;
    for (size_t rank = 1; rank <= words.size(); ++rank) {
      const auto square = static_cast<double>(rank * rank);
      const auto count = static_cast<size_t>(static_cast<double>(total) / square / kZeta2);
      copies.insert(copies.end(), count, static_cast<uint32_t>(rank - 1));
    }
    Rng order = places;
    Shuffle(copies, order);
    RulerText text;
    text.context = kFrequentHead;
    for (size_t i = 0; i < copies.size(); ++i) {
      if (i > 0) text.context += ' ';
      text.context += words[copies[i]];
    }
    text.question.text = kFrequentQuestion;
    text.question.answer_prefix = kFrequentPrefix;
    text.question.answers.assign(words.begin() + 1, words.begin() + 4);
    return text;
  };
  // More of the dots that the question says to ignore.
  Tail tail{"", " ", RepeatingFiller(&setup.counter, {" ..."})};
  return FitRulerSample(setup, index, kLeastCoded, int64_t{1} << 32, std::move(tail), build);
}

Result<std::unique_ptr<SampleStream>> Open(const Params& params, const Json& task,
                                           const TaskOptions& options) {
  const bool common = params.Text("task") == "common";
  KVG_ASSIGN(RulerSetup setup, ReadRulerSetup(kOwner, params, task, options, common ? 120 : 50));
  const int64_t total = setup.total();
  return MakeStream(total, options, [setup = std::move(setup), common](int64_t index) {
    return common ? MakeCommon(setup, index) : MakeFrequent(setup, index);
  });
}

KVG_REGISTER_SOURCE({
    .name = "ruler_words",
    .version = 1,
    .description = "RULER's common words (cwe) and frequent coded words (fwe)",
    .generated = true,
    .params = RulerParams({
        ChoiceParam("task", "common", {"common", "frequent"}, "which of the two"),
    }),
    .open = Open,
    .files = nullptr,
    .check = nullptr,
});

}  // namespace
}  // namespace kvgauge::ruler_words
