// SPDX-License-Identifier: Apache-2.0
// Precision, recall and F1: of words, of sets, and of yes-or-no answers over a whole set.
#include <map>
#include <set>

#include "metrics/text.h"

namespace kvgauge::metrics {
namespace {

struct Common {
  double both = 0, got = 0, want = 0;
};

Common CommonWords(TextView prediction, TextView answer) {
  const std::vector<Text> got = NormalWords(prediction), want = NormalWords(answer);
  std::map<Text, int64_t> left;
  for (const Text& word : want) ++left[word];
  Common common{0, static_cast<double>(got.size()), static_cast<double>(want.size())};
  for (const Text& word : got) {
    if (left[word]-- > 0) ++common.both;
  }
  return common;
}

double Ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

double TokenPrecision(TextView prediction, TextView answer) {
  const Common common = CommonWords(prediction, answer);
  return Ratio(common.both, common.got);
}

double TokenRecall(TextView prediction, TextView answer) {
  const Common common = CommonWords(prediction, answer);
  return Ratio(common.both, common.want);
}

std::set<Text> Items(TextView text) {
  std::set<Text> items;
  for (const TextView part : SplitAt(text, ',')) items.emplace(Strip(part));
  return items;
}

double SetF1(TextView prediction, TextView answer) {
  const std::set<Text> got = Items(prediction), want = Items(answer);
  double both = 0;
  for (const Text& item : got) both += want.contains(item) ? 1 : 0;
  return HarmonicMean(Ratio(both, static_cast<double>(got.size())),
                      Ratio(both, static_cast<double>(want.size())));
}

// True positives, false positives, false negatives.
using Cells = std::vector<double>;

Result<bool> IsYes(const std::string& answer) {
  const Text whole = Lower(Decode(answer));
  const TextView text = Strip(whole);
  if (text == U"yes" || text == U"true" || text == U"1") return true;
  if (text == U"no" || text == U"false" || text == U"0") return false;
  return BadInput("answer \"" + answer + "\" must be yes or no, true or false, 1 or 0");
}

Result<Cells> YesNoCells(const MetricInput& input) {
  if (input.answers.size() != 1) return BadInput("a yes-or-no question has one answer");
  KVG_ASSIGN(const bool want, IsYes(input.answers[0]));
  const bool got = Lower(Decode(input.prediction)).starts_with(U"yes");
  return Cells{got && want ? 1.0 : 0.0, got && !want ? 1.0 : 0.0, !got && want ? 1.0 : 0.0};
}

// One sample is right or wrong.
Result<double> YesNo(const MetricInput& input) {
  KVG_ASSIGN(const Cells cells, YesNoCells(input));
  return cells[1] + cells[2] > 0 ? 0.0 : 1.0;
}

double Precision(const Cells& cells) { return Ratio(cells[0], cells[0] + cells[1]); }
double Recall(const Cells& cells) { return Ratio(cells[0], cells[0] + cells[2]); }
double F1(const Cells& cells) { return HarmonicMean(Precision(cells), Recall(cells)); }

constexpr const char* kSquad = "SQuAD v1.1 evaluation";
constexpr const char* kBamboo = "BAMBOO evaluate.py, commit f230f20";

}  // namespace

KVG_REGISTER_METRIC(token_precision,
                    {"token_precision", 1, "share of the prediction's words that are the answer's",
                     kSquad, BestOf(TokenPrecision)});
KVG_REGISTER_METRIC(token_recall,
                    {"token_recall", 1, "share of the answer's words that the prediction has",
                     kSquad, BestOf(TokenRecall)});
KVG_REGISTER_METRIC(set_f1, {"set_f1", 1, "F1 of two sets of items, split at commas",
                             "M4LE cls_f1, commit 47c2af9", BestOf(SetF1)});
KVG_REGISTER_METRIC(yes_no_precision,
                    {"yes_no_precision", 1, "precision of the answer yes over the set", kBamboo,
                     YesNo, YesNoCells, Precision});
KVG_REGISTER_METRIC(yes_no_recall, {"yes_no_recall", 1, "recall of the answer yes over the set",
                                    kBamboo, YesNo, YesNoCells, Recall});
KVG_REGISTER_METRIC(yes_no_f1, {"yes_no_f1", 1, "F1 of the answer yes over the set", kBamboo, YesNo,
                                YesNoCells, F1});

}  // namespace kvgauge::metrics
