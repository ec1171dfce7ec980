// SPDX-License-Identifier: Apache-2.0
#include "src/metric_language.h"

#include "core/strings.h"

namespace kvgauge {

const std::vector<EnglishMetric>& EnglishMetrics() {
  static const std::vector<EnglishMetric> metrics = {
      {"bleu", ""},
      {"bleu_corpus", ""},
      {"google_rouge_1", ""},
      {"google_rouge_1_plain", ""},
      {"google_rouge_2", ""},
      {"google_rouge_2_plain", ""},
      {"google_rouge_l", ""},
      {"google_rouge_l_plain", ""},
      {"google_rouge_lsum", ""},
      {"google_rouge_lsum_plain", ""},
      {"loogle_bleu_1", ""},
      {"loogle_bleu_4", ""},
      {"m4le_bleu_en", "m4le_bleu_zh"},
      {"meteor", ""},
      {"meteor_no_synonyms", ""},
      {"needle_word_overlap", ""},
      {"qa_f1", "qa_f1_zh"},
      {"retrieval", "retrieval_zh"},
      {"rouge_1", ""},
      {"rouge_1_recall", ""},
      {"rouge_2", ""},
      {"rouge_2_recall", ""},
      {"rouge_geometric_mean", ""},
      {"rouge_l", "rouge_l_zh"},
      {"rouge_l_recall", "rouge_l_recall_zh"},
      {"rouge_su4", ""},
      {"sacrebleu", ""},
      {"sacrebleu_corpus", ""},
      {"set_f1", "set_f1_zh"},
      {"token_precision", "token_precision_zh"},
      {"token_recall", "token_recall_zh"},
      {"wups", ""},
      {"wups_09", ""},
  };
  return metrics;
}

Status CheckLanguage(const std::string& metric, const std::string& language) {
  const bool chinese =
      language == "zh" || language.starts_with("zh-") || language.starts_with("zh_");
  const bool english =
      language == "en" || language.starts_with("en-") || language.starts_with("en_");
  for (const EnglishMetric& known : EnglishMetrics()) {
    if (chinese && metric == known.name) {
      return BadInput(StrCat("\"language\" is ", Quoted(language), ", but ", metric,
                             " takes for a word what stands between blanks; ",
                             known.chinese.empty() ? "no twin of it cuts Chinese words"
                                                   : StrCat("take --metric ", known.chinese),
                             ". Where blanks are between the words, leave \"language\" out"));
    }
    if (english && metric == known.chinese) {
      return BadInput(StrCat("\"language\" is ", Quoted(language), ", but ", metric,
                             " is for Chinese; take --metric ", known.name));
    }
  }
  return {};
}

}  // namespace kvgauge
