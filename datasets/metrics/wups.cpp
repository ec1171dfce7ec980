// SPDX-License-Identifier: Apache-2.0
// WUPS: how near the words of two short answers stand in WordNet.
#include "metrics/wups.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <unordered_set>

#include "core/strings.h"
#include "metrics/text.h"
#include "metrics/wordnet.h"

namespace kvgauge::metrics::wups {
namespace {

// The first synset of each word decides; a pair below `threshold` counts a tenth.
double Similarity(const WordNet& net, const std::string& a, const std::string& b,
                  double threshold) {
  if (a == b) return 1;
  const std::vector<Synset> of_a = net.Synsets(a), of_b = net.Synsets(b);
  if (of_a.empty() || of_b.empty()) return 0;
  const double similarity = net.Similarity(of_a[0], of_b[0]).value_or(0);
  return similarity < threshold ? 0.1 * similarity : similarity;
}

// The product over the words of `a` of the best match in `b`; words that match nothing are left
// out, and when all do the answer is worth nothing.
double OneWay(const WordNet& net, const std::vector<std::string>& a,
              const std::vector<std::string>& b, double threshold) {
  double product = 1;
  bool any = false;
  for (const std::string& word : a) {
    double best = 0;
    for (const std::string& other : b) {
      best = std::max(best, Similarity(net, word, other, threshold));
    }
    if (best == 0) continue;
    product *= best;
    any = true;
  }
  return any ? product : 0;
}

std::vector<std::string> Words(const std::string& utf8) {
  std::vector<std::string> words;
  for (const Text& word : SplitSpace(Lower(Decode(utf8)))) words.push_back(Encode(word));
  return words;
}

using ToWords = std::vector<std::string> (*)(const std::string& utf8);

double Best(const WordNet& net, const std::vector<std::string>& got,
            const std::vector<std::vector<std::string>>& answers, double threshold) {
  double best = 0;
  for (const std::vector<std::string>& want : answers) {
    best = std::max(best,
                    std::min(OneWay(net, got, want, threshold), OneWay(net, want, got, threshold)));
  }
  return best;
}

Result<double> OverAnswers(const MetricInput& input, double threshold, ToWords to_words) {
  KVG_ASSIGN(const std::shared_ptr<const WordNet> net, WordNet::Shared());
  std::vector<std::vector<std::string>> answers;
  for (const std::string& answer : input.answers) answers.push_back(to_words(answer));
  return Best(*net, to_words(input.prediction), answers, threshold);
}

std::function<Result<double>(const MetricInput&)> Wups(double threshold) {
  return [threshold](const MetricInput& input) { return OverAnswers(input, threshold, Words); };
}

// Words that NExT-QA's scorer leaves out.
constexpr std::string_view kStopWords =
    "i me my myself we our ours ourselves you you're you've you'll you'd your yours yourself "
    "yourselves he him his himself she she's her hers herself it it's its itself they them their "
    "theirs themselves what which who whom this that that'll these those am is are was were be "
    "been being have has had having do does did doing a an the and but if or because as until "
    "while to from of at for with about into through during again further then here there when "
    "where why how all any each most other some such only own so than too very s t can will just "
    "don don't should should've now d ll m o re ve y ain aren aren't couldn couldn't didn didn't "
    "doesn doesn't hadn hadn't hasn hasn't haven haven't isn isn't ma mightn mightn't mustn "
    "mustn't needn needn't shan shan't shouldn shouldn't wasn wasn't weren weren't won won't "
    "wouldn wouldn't";

// Without them.
std::vector<std::string> ThatCount(std::vector<std::string> words) {
  static const std::unordered_set<std::string> stops = [] {
    const std::vector<std::string> all = Words(std::string(kStopWords));
    return std::unordered_set<std::string>(all.begin(), all.end());
  }();
  std::erase_if(words, [](const std::string& word) { return stops.contains(word); });
  return words;
}

std::vector<std::string> WordsThatCount(const std::string& utf8) { return ThatCount(Words(utf8)); }

std::vector<std::string> LemmasThatCount(const nltk::Language& language, const WordNet& net,
                                         const std::string& utf8) {
  std::vector<std::string> lemmas;
  for (const Text& lemma : language.Lemmas(Decode(utf8), net)) lemmas.push_back(Encode(lemma));
  return ThatCount(std::move(lemmas));
}

// The scorer joins its lemmas to a text, which it parts anew.
std::vector<std::string> PartedAnew(const nltk::Language& language,
                                    const std::vector<std::string>& lemmas) {
  std::vector<std::string> words;
  for (const Text& word : language.Words(Decode(Join(lemmas, " ")))) words.push_back(Encode(word));
  return words;
}

// Answers to binary and counting questions are right or not.
bool IsRightOrNot(const std::string& kind) { return kind == "DB" || kind == "DC"; }

Result<double> NextQaByLemmas(const MetricInput& input, const nltk::Language& language) {
  KVG_ASSIGN(const std::shared_ptr<const WordNet> net, WordNet::Shared());
  const std::vector<std::string> got = LemmasThatCount(language, *net, input.prediction);
  std::vector<std::vector<std::string>> answers;
  for (const std::string& answer : input.answers) {
    answers.push_back(LemmasThatCount(language, *net, answer));
  }
  if (IsRightOrNot(input.kind)) return std::ranges::find(answers, got) == answers.end() ? 0.0 : 1.0;
  for (std::vector<std::string>& answer : answers) answer = PartedAnew(language, answer);
  return Best(*net, PartedAnew(language, got), answers, 0);
}

Result<double> NextQaByWords(const MetricInput& input) {
  if (!IsRightOrNot(input.kind)) return OverAnswers(input, 0, WordsThatCount);
  const std::vector<std::string> got = WordsThatCount(input.prediction);
  const auto same = [&](const std::string& answer) { return WordsThatCount(answer) == got; };
  return std::ranges::any_of(input.answers, same) ? 1.0 : 0.0;
}

Result<double> NextQa(const MetricInput& input) {
  KVG_ASSIGN(const std::shared_ptr<const nltk::Language> language, nltk::Language::Shared());
  return NextQaScore(input, language.get());
}

Result<std::string> NextQaBasis() {
  KVG_ASSIGN(const std::shared_ptr<const nltk::Language> language, nltk::Language::Shared());
  if (language == nullptr) return std::string();
  return StrCat("lemmas by NLTK's files, sha256 ", language->digest());
}

constexpr const char* kReference =
    "NExT-OE get_wups, commit a83f8f5, over nltk 3.10.4 and WordNet 3.0, words split at white "
    "space: lemmas and stop words are left to the data";

}  // namespace

Result<double> NextQaScore(const MetricInput& input, const nltk::Language* language) {
  return language != nullptr ? NextQaByLemmas(input, *language) : NextQaByWords(input);
}

KVG_REGISTER_METRIC(wups,
                    {"wups", 1, "WUPS without a threshold. Needs WordNet", kReference, Wups(0)});
KVG_REGISTER_METRIC(
    wups_nextqa,
    {.name = "wups_nextqa",
     .version = 1,
     .description = "WUPS of NExT-QA: without stop words; binary and counting questions (kinds DB "
                    "and DC) are right or wrong. Needs WordNet, and KVGAUGE_NLTK for lemmas",
     .reference = "lmms-eval nextqa_process_results, commit 75571cf, its WUPS without a threshold, "
                  "with KVGAUGE_NLTK over pywsd 1.2.5 and nltk 3.10.4; else words split at white "
                  "space, and lemmas left to the data",
     .score = NextQa,
     .basis = NextQaBasis});
KVG_REGISTER_METRIC(wups_09,
                    {"wups_09", 1, "WUPS: words less than 0.9 alike count a tenth. Needs WordNet",
                     kReference, Wups(0.9)});

}  // namespace kvgauge::metrics::wups
