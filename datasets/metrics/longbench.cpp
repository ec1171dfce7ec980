// SPDX-License-Identifier: Apache-2.0
// LongBench v1's own metrics, ROUGE aside.
#include <cmath>
#include <map>

#include "metrics/jieba.h"
#include "metrics/sequence.h"
#include "metrics/text.h"

namespace kvgauge::metrics {
namespace {

constexpr const char* kReference = "LongBench v1 metrics.py, commit 2e00731";

// Both sides empty is 0 here, unlike in SQuAD 2.
double TokenF1(const std::vector<Text>& got, const std::vector<Text>& want) {
  std::map<Text, int64_t> left;
  for (const Text& word : want) ++left[word];
  int64_t common = 0;
  for (const Text& word : got) {
    const auto found = left.find(word);
    if (found != left.end() && found->second > 0) {
      --found->second;
      ++common;
    }
  }
  if (common == 0) return 0;
  const double precision = static_cast<double>(common) / static_cast<double>(got.size());
  const double recall = static_cast<double>(common) / static_cast<double>(want.size());
  return 2 * precision * recall / (precision + recall);
}

double QaF1(TextView prediction, TextView answer) {
  return TokenF1(NormalWords(prediction), NormalWords(answer));
}

// Not a fault here: the list has the closing but not the opening book title mark.
bool IsChinesePunctuation(char32_t c) {
  static constexpr TextView kSigns =
      U"！？｡。＂＃＄％＆＇（）＊＋，－／：；＜＝＞＠［＼］＾＿｀｛｜｝～｟｠｢｣､、\u3000〃》「」『"
      U"』【】〔〕〖〗〘"
      U"〙〚〛〜〝〞〟〰〾〿–—‘’‛“”„‟…‧﹏.";
  return kSigns.find(c) != TextView::npos;
}

Result<double> QaF1Chinese(const MetricInput& input) {
  KVG_ASSIGN(const std::shared_ptr<const Jieba> jieba, Jieba::Shared());
  const auto tokens = [&](const std::string& utf8) {
    std::vector<Text> kept;
    for (const Text& word : jieba->Cut(Decode(utf8))) {
      Text token = Lower(word);
      std::erase_if(token, [](char32_t c) {
        return IsPunctuation(c) || IsChinesePunctuation(c) || IsSpace(c);
      });
      if (!token.empty()) kept.push_back(std::move(token));
    }
    return kept;
  };
  const std::vector<Text> got = tokens(input.prediction);
  double best = 0;
  for (const std::string& answer : input.answers) {
    best = std::max(best, TokenF1(got, tokens(answer)));
  }
  return best;
}

// InfiniteBench's Chinese F1 counts characters, and needs no dictionary.
double QaF1Characters(TextView prediction, TextView answer) {
  const auto characters = [](TextView text) {
    std::vector<Text> kept;
    for (const char32_t c : Lower(text)) {
      if (!IsPunctuation(c) && !IsChinesePunctuation(c) && !IsSpace(c)) kept.emplace_back(1, c);
    }
    return kept;
  };
  return TokenF1(characters(prediction), characters(answer));
}

// The share of the numbers in the prediction that are `number`, compared as text.
double NumberShare(TextView prediction, TextView number) {
  const std::vector<TextView> runs = DigitRuns(prediction);
  if (runs.empty()) return 0;
  return static_cast<double>(std::count(runs.begin(), runs.end(), number)) /
         static_cast<double>(runs.size());
}

// Each answer names a paragraph, "Paragraph 3"; one that does not is a fault of the data.
std::function<Result<double>(const MetricInput&)> Retrieval(Text before_number, const char* shown) {
  return [before_number = std::move(before_number),
          shown](const MetricInput& input) -> Result<double> {
    const Text prediction = Decode(input.prediction);
    double best = 0;
    for (const std::string& utf8 : input.answers) {
      const Text answer = Decode(utf8);
      size_t at = answer.find(before_number);
      while (at != Text::npos && (at + before_number.size() == answer.size() ||
                                  !IsDigit(answer[at + before_number.size()]))) {
        at = answer.find(before_number, at + 1);
      }
      if (at == Text::npos) {
        return BadInput("answer \"" + utf8 + "\" names no paragraph; it must hold \"" + shown +
                        "\" and a number");
      }
      const TextView rest = TextView(answer).substr(at + before_number.size());
      best = std::max(best, NumberShare(prediction, DigitRuns(rest).front()));
    }
    return best;
  };
}

double ClassScore(TextView prediction, TextView answer, const std::vector<Text>& classes) {
  std::vector<Text> named;
  for (const Text& name : classes) {
    if (prediction.find(name) != TextView::npos) named.push_back(name);
  }
  // The reference deletes from the list it walks: each deletion hides the next entry from the walk,
  // and what goes is the first entry of that value.
  for (size_t i = 0; i < named.size(); ++i) {
    const Text name = named[i];
    if (name != answer && answer.find(name) != TextView::npos) {
      named.erase(std::find(named.begin(), named.end(), name));
    }
  }
  if (std::find(named.begin(), named.end(), answer) == named.end()) return 0;
  return 1.0 / static_cast<double>(named.size());
}

Result<double> Classification(const MetricInput& input) {
  const Text prediction = Decode(input.prediction);
  std::vector<Text> classes;
  for (const std::string& name : input.all_classes) classes.push_back(Decode(name));
  if (classes.empty()) return BadInput("classification needs all_classes, the list of labels");
  double best = 0;
  for (const std::string& answer : input.answers) {
    best = std::max(best, ClassScore(prediction, Decode(answer), classes));
  }
  return best;
}

// A blank line counts as code; leading blanks stay.
TextView FirstCodeLine(TextView prediction) {
  while (!prediction.empty() && prediction.front() == '\n') prediction.remove_prefix(1);
  for (const TextView line : SplitAt(prediction, '\n')) {
    if (line.find_first_of(U"`#") == TextView::npos && line.find(U"//") == TextView::npos) {
      return line;
    }
  }
  return {};
}

double CodeSim(TextView prediction, TextView answer) {
  return FuzzRatio(FirstCodeLine(prediction), answer) / 100.0;
}

}  // namespace

KVG_REGISTER_METRIC(qa_f1,
                    {"qa_f1", 1, "token F1 after SQuAD normalisation", kReference, BestOf(QaF1)});
KVG_REGISTER_METRIC(qa_f1_zh,
                    {"qa_f1_zh", 1, "token F1 of Chinese words",
                     "LongBench v1 metrics.py, commit 2e00731, with jieba 0.42.1", QaF1Chinese});
KVG_REGISTER_METRIC(qa_f1_zh_characters,
                    {"qa_f1_zh_characters", 1, "character F1 without punctuation",
                     "InfiniteBench compute_scores.py, commit 88b3daa", BestOf(QaF1Characters)});
KVG_REGISTER_METRIC(count, {"count", 1, "share of the numbers in the prediction that are right",
                            kReference, BestOf(NumberShare)});
KVG_REGISTER_METRIC(retrieval,
                    {"retrieval", 1, "share of the numbers that are the right paragraph's",
                     kReference, Retrieval(U"Paragraph ", "Paragraph ")});
KVG_REGISTER_METRIC(retrieval_zh,
                    {"retrieval_zh", 1, "share of the numbers that are the right paragraph's",
                     kReference, Retrieval(U"\u6bb5\u843d", "\u6bb5\u843d")});
KVG_REGISTER_METRIC(classification,
                    {"classification", 1, "1 / labels named, when the right one is among them",
                     kReference, Classification});
KVG_REGISTER_METRIC(code_sim, {"code_sim", 1,
                               "fuzz.ratio of the first line of code, through difflib: LongBench's "
                               "requirements do not install python-Levenshtein",
                               "LongBench v1 metrics.py, commit 2e00731, with fuzzywuzzy 0.18.0",
                               BestOf(CodeSim)});

}  // namespace kvgauge::metrics
