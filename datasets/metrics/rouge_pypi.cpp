// SPDX-License-Identifier: Apache-2.0
// ROUGE as the package `rouge` 1.0.1 has it, which LongBench uses: sets of n-grams, sentences that
// end at every period, case kept, no stemming.
#include <algorithm>
#include <utility>

#include "core/strings.h"
#include "metrics/jieba.h"
#include "metrics/sequence.h"
#include "metrics/text.h"

namespace kvgauge::metrics::rouge_pypi {
namespace {

using Sentences = std::vector<std::vector<int>>;

// Back-tracking one pair of sentences may take this much memory.
constexpr int64_t kMostTableBytes = int64_t{2} << 30;

// A piece that is white space alone is a sentence of one empty word, as splitting "" gives "".
Sentences Read(TextView text, Vocabulary& vocabulary) {
  Sentences sentences;
  for (const TextView piece : SplitAt(text, '.')) {
    if (piece.empty()) continue;
    std::vector<Text> words = SplitSpace(piece);
    if (words.empty()) words.emplace_back();
    sentences.push_back(vocabulary.Ids(words));
  }
  return sentences;
}

std::vector<int> AllWords(const Sentences& sentences) {
  std::vector<int> words;
  for (const auto& sentence : sentences) {
    words.insert(words.end(), sentence.begin(), sentence.end());
  }
  return words;
}

template <class T>
void MakeSet(std::vector<T>& values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

double Recall(size_t common, size_t wanted) {
  return wanted == 0 ? 0.0 : static_cast<double>(common) / static_cast<double>(wanted);
}

double FromCounts(size_t common, size_t predicted, size_t wanted) {
  const auto ratio = [&](size_t of) {
    return of == 0 ? 0.0 : static_cast<double>(common) / static_cast<double>(of);
  };
  const double precision = ratio(predicted), recall = ratio(wanted);
  return 2.0 * ((precision * recall) / (precision + recall + 1e-8));
}

template <class T>
size_t CommonOfSets(const std::vector<T>& one, const std::vector<T>& other) {
  std::vector<T> common;
  std::set_intersection(one.begin(), one.end(), other.begin(), other.end(),
                        std::back_inserter(common));
  return common.size();
}

template <class T>
double FromSets(std::vector<T> predicted, std::vector<T> wanted) {
  MakeSet(predicted);
  MakeSet(wanted);
  return FromCounts(CommonOfSets(predicted, wanted), predicted.size(), wanted.size());
}

std::vector<std::pair<int, int>> Pairs(const std::vector<int>& words) {
  std::vector<std::pair<int, int>> pairs;
  for (size_t i = 0; i + 1 < words.size(); ++i) pairs.emplace_back(words[i], words[i + 1]);
  return pairs;
}

Result<double> Unigrams(const Sentences& predicted, const Sentences& wanted, size_t) {
  return FromSets(AllWords(predicted), AllWords(wanted));
}

Result<double> Bigrams(const Sentences& predicted, const Sentences& wanted, size_t) {
  return FromSets(Pairs(AllWords(predicted)), Pairs(AllWords(wanted)));
}

struct Union {
  size_t words = 0, predicted = 0, wanted = 0;  // distinct
};

// The union, over all pairs of sentences, of the words of one common subsequence. Only pairs that
// share a word which is not in it yet can add something, and few do: they are found by their words.
Result<Union> Unite(const Sentences& predicted, const Sentences& wanted, size_t vocabulary) {
  std::vector<char> in_union(vocabulary, 0);
  size_t united = 0;
  std::vector<std::vector<size_t>> holders(vocabulary);  // of each word: wanted sentences
  for (size_t i = 0; i < wanted.size(); ++i) {
    for (const int word : wanted[i]) {
      std::vector<size_t>& holding = holders[static_cast<size_t>(word)];
      if (holding.empty() || holding.back() != i) holding.push_back(i);
    }
  }
  std::vector<size_t> paired_with(wanted.size(), predicted.size());
  for (size_t j = 0; j < predicted.size(); ++j) {
    const std::vector<int>& other = predicted[j];
    for (const int word : other) {
      for (const size_t i : holders[static_cast<size_t>(word)]) {
        if (in_union[static_cast<size_t>(word)] != 0) break;
        if (std::exchange(paired_with[i], j) == j) continue;
        const std::vector<int>& sentence = wanted[i];
        if (static_cast<int64_t>(sentence.size() * other.size() / 8) > kMostTableBytes) {
          return ResourceError(StrCat("ROUGE-L: sentences of ", sentence.size(), " and ",
                                      other.size(),
                                      " words without a period are too long to align"));
        }
        for (const LcsMatch& match : LcsMatches(sentence, other)) {
          char& mark = in_union[static_cast<size_t>(sentence[static_cast<size_t>(match.x)])];
          if (mark == 0) ++united;
          mark = 1;
        }
      }
    }
  }
  std::vector<int> got = AllWords(predicted), want = AllWords(wanted);
  MakeSet(got);
  MakeSet(want);
  return Union{united, got.size(), want.size()};
}

Result<double> Summary(const Sentences& predicted, const Sentences& wanted, size_t vocabulary) {
  KVG_ASSIGN(const Union united, Unite(predicted, wanted, vocabulary));
  return FromCounts(united.words, united.predicted, united.wanted);
}

Result<double> SummaryRecall(const Sentences& predicted, const Sentences& wanted,
                             size_t vocabulary) {
  KVG_ASSIGN(const Union united, Unite(predicted, wanted, vocabulary));
  return Recall(united.words, united.wanted);
}

template <class T>
double RecallOfSets(std::vector<T> got, std::vector<T> want) {
  MakeSet(got);
  MakeSet(want);
  return Recall(CommonOfSets(got, want), want.size());
}

Result<double> UnigramRecall(const Sentences& predicted, const Sentences& wanted, size_t) {
  return RecallOfSets(AllWords(predicted), AllWords(wanted));
}

Result<double> BigramRecall(const Sentences& predicted, const Sentences& wanted, size_t) {
  return RecallOfSets(Pairs(AllWords(predicted)), Pairs(AllWords(wanted)));
}

using Kind = Result<double> (*)(const Sentences& predicted, const Sentences& wanted,
                                size_t vocabulary);

// Where the package raises, for a text without a sentence, LongBench scores 0.
Result<double> Best(Kind kind, const Text& prediction, const std::vector<Text>& answers) {
  double best = 0;
  for (const Text& answer : answers) {
    Vocabulary vocabulary;
    const Sentences predicted = Read(prediction, vocabulary);
    const Sentences wanted = Read(answer, vocabulary);
    if (predicted.empty() || wanted.empty()) continue;
    KVG_ASSIGN(const double score, kind(predicted, wanted, vocabulary.size()));
    best = std::max(best, score);
  }
  return best;
}

std::function<Result<double>(const MetricInput&)> Rouge(Kind kind) {
  return [kind](const MetricInput& input) -> Result<double> {
    std::vector<Text> answers;
    for (const std::string& answer : input.answers) answers.push_back(Decode(answer));
    return Best(kind, Decode(input.prediction), answers);
  };
}

// Words between blanks; only ASCII periods end a sentence, the Chinese full stop is a word.
Result<double> ChineseRougeL(const MetricInput& input) {
  KVG_ASSIGN(const std::shared_ptr<const Jieba> jieba, Jieba::Shared());
  const auto spaced = [&](const std::string& utf8) { return JoinSpace(jieba->Cut(Decode(utf8))); };
  std::vector<Text> answers;
  for (const std::string& answer : input.answers) answers.push_back(spaced(answer));
  return Best(Summary, spaced(input.prediction), answers);
}

// A new line behind every run of `length` signs of `signs` (and one of `closing`, where there are
// some) that none of `barred` follows. What follows is not looked at again.
Text BreakAfter(TextView text, TextView signs, size_t length, TextView closing, TextView barred) {
  Text out;
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    while (end < text.size() && end < i + length && signs.find(text[end]) != TextView::npos) ++end;
    bool breaks = end == i + length;
    if (breaks && !closing.empty()) {
      breaks = end < text.size() && closing.find(text[end]) != TextView::npos;
      ++end;
    }
    breaks = breaks && end < text.size() && barred.find(text[end]) == TextView::npos;
    if (!breaks) {
      out.push_back(text[i++]);
      continue;
    }
    out.append(text.substr(i, end - i)).append({U'\n', text[end]});
    i = end + 1;
  }
  return out;
}

// Words of all sentences as rouge-chinese splits them: a sentence of white space is an empty word.
std::vector<Text> SentenceWords(const Text& text) {
  constexpr TextView kEnds = U"。！？?", kQuotes = U"”’";
  Text cut = BreakAfter(text, kEnds, 1, {}, kQuotes);
  cut = BreakAfter(cut, U".", 6, {}, kQuotes);
  cut = BreakAfter(cut, U"…", 2, {}, kQuotes);
  cut = BreakAfter(cut, kEnds, 1, kQuotes, U"，。！？?");
  TextView rest = cut;
  while (!rest.empty() && IsSpace(rest.back())) rest.remove_suffix(1);
  std::vector<Text> words;
  for (const TextView sentence : SplitAt(rest, '\n')) {
    if (sentence.empty()) continue;
    std::vector<Text> own = SplitSpace(sentence);
    if (own.empty()) own.emplace_back();
    words.insert(words.end(), own.begin(), own.end());
  }
  return words;
}

// Over all words in a row. One answer of white space alone makes the package fail: 0 there.
Result<double> ChineseRecall(const MetricInput& input) {
  KVG_ASSIGN(const std::shared_ptr<const Jieba> jieba, Jieba::Shared());
  Vocabulary vocabulary;
  const auto words = [&](const std::string& utf8) {
    return vocabulary.Ids(SentenceWords(JoinSpace(jieba->Cut(Decode(utf8)))));
  };
  const std::vector<int> predicted = words(input.prediction);
  double best = 0;
  for (const std::string& answer : input.answers) {
    if (answer.empty()) continue;
    const std::vector<int> wanted = words(answer);
    if (predicted.empty() || wanted.empty()) return 0.0;
    best = std::max(best, Recall(static_cast<size_t>(LcsLength(wanted, predicted)), wanted.size()));
  }
  return best;
}

// The package walks back through its table by recursion, a call for every word that it passes in
// either sentence (one for both where they are equal); Python 3.11 allows some 990 of them there.
constexpr const char* kLongSentences =
    "; long sentences, where the package fails and LongBench scores 0, have their true value";

constexpr const char* kReference = "rouge 1.0.1 as LongBench v1 calls it";

}  // namespace

KVG_REGISTER_METRIC(rouge_1, {"rouge_1", 1, "F of distinct words", kReference, Rouge(Unigrams)});
KVG_REGISTER_METRIC(rouge_2,
                    {"rouge_2", 1, "F of distinct pairs of words", kReference, Rouge(Bigrams)});
KVG_REGISTER_METRIC(rouge_l_zh,
                    {"rouge_l_zh", 1, StrCat("rouge_l of Chinese words", kLongSentences),
                     "rouge 1.0.1 and jieba 0.42.1 as LongBench v1 calls them", ChineseRougeL});
KVG_REGISTER_METRIC(rouge_l_recall_zh,
                    {"rouge_l_recall_zh", 1, "ROUGE-L recall of Chinese words",
                     "rouge-chinese 1.0.3 and jieba 0.42.1 as M4LE calls them", ChineseRecall});
KVG_REGISTER_METRIC(rouge_l, {"rouge_l", 1, StrCat("summary-level ROUGE-L F", kLongSentences),
                              kReference, Rouge(Summary)});
KVG_REGISTER_METRIC(rouge_1_recall, {"rouge_1_recall", 1, "recall of distinct words",
                                     "rouge 1.0.1 as LooGLE calls it", Rouge(UnigramRecall)});
KVG_REGISTER_METRIC(rouge_2_recall, {"rouge_2_recall", 1, "recall of distinct pairs of words",
                                     "rouge 1.0.1 as LooGLE calls it", Rouge(BigramRecall)});
KVG_REGISTER_METRIC(rouge_l_recall,
                    {"rouge_l_recall", 1, StrCat("summary-level ROUGE-L recall", kLongSentences),
                     "rouge 1.0.1 as LooGLE and M4LE call it", Rouge(SummaryRecall)});

}  // namespace kvgauge::metrics::rouge_pypi
