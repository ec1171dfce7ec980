// SPDX-License-Identifier: Apache-2.0
// Precision, recall and F1 of words: English ones after SQuAD's normalisation, Chinese ones as
// jieba cuts them, and Chinese characters.
#include <map>

#include "metrics/jieba.h"
#include "metrics/text.h"

namespace kvgauge::metrics::tokens {
namespace {

// Words that both texts have, each as often as the rarer side has it. Nothing of nothing is 0, also
// where both sides are empty, unlike in SQuAD 2.
struct Overlap {
  double common = 0, got = 0, want = 0;

  Overlap(const std::vector<Text>& prediction, const std::vector<Text>& answer)
      : got(static_cast<double>(prediction.size())), want(static_cast<double>(answer.size())) {
    std::map<Text, int64_t> left;
    for (const Text& word : answer) ++left[word];
    for (const Text& word : prediction) {
      if (left[word]-- > 0) ++common;
    }
  }
};

double Precision(const Overlap& overlap) {
  return overlap.common > 0 ? overlap.common / overlap.got : 0;
}

double Recall(const Overlap& overlap) {
  return overlap.common > 0 ? overlap.common / overlap.want : 0;
}

double F1(const Overlap& overlap) { return HarmonicMean(Precision(overlap), Recall(overlap)); }

using Measure = double (*)(const Overlap& overlap);

// Not a fault here: the list has the closing but not the opening book title mark.
bool IsChinesePunctuation(char32_t c) {
  static constexpr TextView kSigns =
      U"！？｡。＂＃＄％＆＇（）＊＋，－／：；＜＝＞＠［＼］＾＿｀｛｜｝～｟｠｢｣､、\u3000〃》「」『"
      U"』【】〔〕〖〗〘"
      U"〙〚〛〜〝〞〟〰〾〿–—‘’‛“”„‟…‧﹏.";
  return kSigns.find(c) != TextView::npos;
}

bool IsDropped(char32_t c) { return IsPunctuation(c) || IsChinesePunctuation(c) || IsSpace(c); }

std::vector<Text> ChineseWords(const Jieba& jieba, TextView text) {
  std::vector<Text> kept;
  for (const Text& word : jieba.Cut(text)) {
    Text token = Lower(word);
    std::erase_if(token, IsDropped);
    if (!token.empty()) kept.push_back(std::move(token));
  }
  return kept;
}

// InfiniteBench's Chinese F1 counts characters, and needs no dictionary.
std::vector<Text> ChineseCharacters(TextView text) {
  std::vector<Text> kept;
  for (const char32_t c : Lower(text)) {
    if (!IsDropped(c)) kept.emplace_back(1, c);
  }
  return kept;
}

// The best over the answers.
template <class Words>
double Best(const MetricInput& input, Measure measure, Words words) {
  const std::vector<Text> prediction = words(Decode(input.prediction));
  double best = 0;
  for (const std::string& answer : input.answers) {
    best = std::max(best, measure(Overlap(prediction, words(Decode(answer)))));
  }
  return best;
}

std::function<Result<double>(const MetricInput&)> English(Measure measure) {
  return [measure](const MetricInput& input) -> Result<double> {
    return Best(input, measure, NormalWords);
  };
}

std::function<Result<double>(const MetricInput&)> Chinese(Measure measure) {
  return [measure](const MetricInput& input) -> Result<double> {
    KVG_ASSIGN(const std::shared_ptr<const Jieba> jieba, Jieba::Shared());
    return Best(input, measure, [&](TextView text) { return ChineseWords(*jieba, text); });
  };
}

Result<double> F1OfCharacters(const MetricInput& input) {
  return Best(input, F1, ChineseCharacters);
}

constexpr const char* kSquad = "SQuAD v1.1 evaluation";
constexpr const char* kLongBenchChinese =
    "LongBench v1 metrics.py, commit 2e00731, with jieba 0.42.1";

}  // namespace

KVG_REGISTER_METRIC(qa_f1, {"qa_f1", 1, "token F1 after SQuAD normalisation",
                            "LongBench v1 metrics.py, commit 2e00731", English(F1)});
KVG_REGISTER_METRIC(qa_f1_zh,
                    {"qa_f1_zh", 1, "token F1 of Chinese words", kLongBenchChinese, Chinese(F1)});
KVG_REGISTER_METRIC(qa_f1_zh_characters,
                    {"qa_f1_zh_characters", 1, "character F1 without punctuation",
                     "InfiniteBench compute_scores.py, commit 88b3daa", F1OfCharacters});
KVG_REGISTER_METRIC(token_precision,
                    {"token_precision", 1, "share of the prediction's words that are the answer's",
                     kSquad, English(Precision)});
KVG_REGISTER_METRIC(token_precision_zh,
                    {"token_precision_zh", 1, "token_precision of Chinese words, as in qa_f1_zh",
                     kLongBenchChinese, Chinese(Precision)});
KVG_REGISTER_METRIC(token_recall,
                    {"token_recall", 1, "share of the answer's words that the prediction has",
                     kSquad, English(Recall)});
KVG_REGISTER_METRIC(token_recall_zh,
                    {"token_recall_zh", 1, "token_recall of Chinese words, as in qa_f1_zh",
                     kLongBenchChinese, Chinese(Recall)});

}  // namespace kvgauge::metrics::tokens
