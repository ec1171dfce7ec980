// SPDX-License-Identifier: Apache-2.0
// F1 of sets, and precision, recall and F1 of yes-or-no answers over a whole set.
#include <set>

#include "metrics/text.h"

namespace kvgauge::metrics::counts {
namespace {

double Ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

std::set<Text> Items(TextView text, char32_t comma) {
  std::set<Text> items;
  for (const TextView part : SplitAt(text, comma)) items.emplace(Strip(part));
  return items;
}

template <char32_t kComma>
double SetF1(TextView prediction, TextView answer) {
  const std::set<Text> got = Items(prediction, kComma), want = Items(answer, kComma);
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
  const Text prediction = Decode(input.prediction);
  const bool got = Lower(Strip(prediction).substr(0, 3)).find(U"yes") != Text::npos;
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

constexpr const char* kBamboo = "BAMBOO evaluate.py, commit f230f20";

}  // namespace

KVG_REGISTER_METRIC(set_f1, {"set_f1", 1, "F1 of two sets of items, split at commas",
                             "M4LE cls_f1, commit 47c2af9", BestOf(SetF1<U','>)});
KVG_REGISTER_METRIC(set_f1_zh, {"set_f1_zh", 1, "F1 of two sets of items, split at Chinese commas",
                                "M4LE cls_f1, commit 47c2af9", BestOf(SetF1<U'\uFF0C'>)});
KVG_REGISTER_METRIC(yes_no_precision,
                    {"yes_no_precision", 2, "precision of the answer yes over the set", kBamboo,
                     YesNo, YesNoCells, Precision});
KVG_REGISTER_METRIC(yes_no_recall, {"yes_no_recall", 2, "recall of the answer yes over the set",
                                    kBamboo, YesNo, YesNoCells, Recall});
KVG_REGISTER_METRIC(yes_no_f1, {"yes_no_f1", 2, "F1 of the answer yes over the set", kBamboo, YesNo,
                                YesNoCells, F1});

}  // namespace kvgauge::metrics::counts
