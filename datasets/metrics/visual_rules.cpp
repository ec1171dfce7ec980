// SPDX-License-Identifier: Apache-2.0
// Rules of single sets with pictures: MileBench, MME, POPE, MMMU's open questions, GQA, and
// lmms-eval's forms of VQA, ChartQA and OCRBench.
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <variant>

#include "core/decimal.h"
#include "core/strings.h"
#include "datasets/answer_pattern.h"
#include "metrics/numbers.h"
#include "metrics/pictures.h"
#include "metrics/sequence.h"
#include "metrics/text.h"

namespace kvgauge::metrics::visual_rules {
namespace {

constexpr const char* kVlmEvalKit = "VLMEvalKit, commit e8e78f0";
constexpr const char* kLmmsEval = "lmms-eval, commit 75571cf";
constexpr const char* kMileBench = "MileBench evaluate.py, commit 9583e1f";

Text Without(Text text, TextView part, TextView with = U"") {
  ReplaceEach(text, part, with);
  return text;
}

bool Holds(TextView text, TextView part) { return text.find(part) != TextView::npos; }

// MileBench.
Text Processed(TextView given) {
  Text text = Without(Without(Text(given), U"\n", U" "), U"\t", U" ");
  text = WithoutSigns(Strip(text));
  for (const char32_t quote : {U'\'', U'"'}) {
    while (text.starts_with(quote)) text.erase(0, 1);
    while (text.ends_with(quote)) text.pop_back();
  }
  return Lower(Strip(text));
}

// The keys of options: A to Z, then AA, AB, ..., as many as the reference knows.
Text KeyOf(size_t option) {
  const auto letter = [](size_t i) { return U'A' + static_cast<char32_t>(i); };
  if (option < 26) return Text{letter(option)};
  if (option < 52) return Text{'A', letter(option - 26)};
  return Text{'B', letter(option - 52)};
}

// The first place in `text` where one of the texts stands; of several there the first of the list.
std::optional<size_t> FirstAlternative(TextView text, const std::vector<Text>& all) {
  for (size_t at = 0; at <= text.size(); ++at) {
    for (size_t i = 0; i < all.size(); ++i) {
      if (text.substr(at).starts_with(all[i])) return i;
    }
  }
  return std::nullopt;
}

Text MileBenchChoice(TextView said, const std::vector<Text>& options) {
  if (said.empty()) return U"C";
  // The reference processes options twice, the second time behind their key.
  std::vector<Text> named, bare;
  for (size_t i = 0; i < options.size(); ++i) {
    named.push_back(Processed(KeyOf(i) + U" " + options[i]));
    bare.push_back(Without(Processed(options[i]), U" "));
  }
  if (const auto found = FirstAlternative(said, named)) {
    return Upper(named[*found].substr(0, 1));
  }
  if (const auto found = FirstAlternative(Without(Text(said), U" "), bare)) {
    const Text matched(Strip(bare[*found]));
    for (size_t i = 0; i < bare.size(); ++i) {
      if (matched == bare[i]) return KeyOf(i);
    }
  }
  const auto is_key = [&](const Text& text) {
    for (size_t i = 0; i < options.size(); ++i) {
      if (KeyOf(i) == text) return true;
    }
    return false;
  };
  if (said.size() <= 2 && is_key(Upper(said))) return Upper(said);
  Text keys;
  for (const char32_t c : said) {
    const Text upper = Upper(TextView(&c, 1));
    if (is_key(upper)) keys += upper;
  }
  return keys;
}

Result<double> MileChoice(const MetricInput& input) {
  std::vector<Text> options;
  for (const std::string& option : input.all_classes) options.push_back(Processed(Decode(option)));
  const Text said = MileBenchChoice(Processed(Decode(input.prediction)), options);
  for (const std::string& answer : input.answers) {
    // The first option that reads as the right one does.
    const Text letter = Decode(answer);
    size_t right = options.size();
    for (size_t i = 0; i < options.size(); ++i) {
      if (KeyOf(i) == letter) right = i;
    }
    if (right == options.size()) return BadInput("the answer is the key of no option");
    const auto first = std::find(options.begin(), options.end(), options[right]);
    if (said == KeyOf(static_cast<size_t>(first - options.begin()))) return 1;
  }
  return 0;
}

Result<double> MileNeedle(const MetricInput& input) {
  const std::vector<Text> words = SplitSpace(Processed(Decode(input.prediction)));
  for (const std::string& answer : input.answers) {
    if (std::find(words.begin(), words.end(), Processed(Decode(answer))) != words.end()) return 1;
  }
  return 0;
}

Result<double> MileContains(const MetricInput& input) {
  const Text said = Processed(Decode(input.prediction));
  for (const std::string& answer : input.answers) {
    if (Holds(said, Processed(Decode(answer)))) return 1;
  }
  return 0;
}

Result<double> MileRouge(const MetricInput& input) {
  MetricInput plain;
  plain.prediction = Encode(Processed(Decode(input.prediction)));
  if (plain.prediction.empty()) return 0;
  for (const std::string& answer : input.answers) {
    plain.answers.push_back(Encode(Processed(Decode(answer))));
  }
  return FindMetric("rouge_l")->score(plain);
}

// MME as lmms-eval reads it: yes and no in the first four characters.
Result<double> YesOrNoFirst(const MetricInput& input) {
  const auto bare = [](const std::string& text) {
    return Without(Text(Strip(Lower(Decode(text)))), U".");
  };
  const Text said = bare(input.prediction), head = said.substr(0, 4);
  Text label = U"other";
  if (said.size() == 1) {
    if (said == U"y") label = U"yes";
    if (said == U"n") label = U"no";
  } else if (Holds(head, U"yes")) {
    label = U"yes";
  } else if (Holds(head, U"no")) {
    label = U"no";
  }
  for (const std::string& answer : input.answers) {
    if (bare(answer) == label) return 1;
  }
  return 0;
}

// MME: accuracy and accuracy of the pair, both of which count to 100.
double AccuracyAndPair(const std::vector<double>& scores) {
  double sum = 0;
  for (const double score : scores) sum += score;
  const double least = *std::min_element(scores.begin(), scores.end());
  return (sum / static_cast<double>(scores.size()) + least) / 2;
}
Result<double> YesOrNoAnywhere(const MetricInput& input) {
  return FindMetric("yes_or_no")->score(input);
}

double EveryOne(const std::vector<double>& scores) {
  return *std::min_element(scores.begin(), scores.end());
}

// HallusionBench's index, VD_illusion_INPUT_SET_FIGURE_QUESTION; a model's name and a slash may
// stand before it. `part` counts from 0.
Result<std::string> HallusionGroup(const std::string& id, size_t part) {
  constexpr size_t kParts = 6, kSet = 3;
  const size_t slash = id.rfind('/') + 1;  // 0 without one
  const std::vector<std::string> parts = Split(id.substr(slash), '_');
  if (parts.size() != kParts) {
    return BadInput(StrCat("is ", Quoted(id),
                           ", expected HallusionBench's index, such as VD_illusion_0_3_1_2"));
  }
  return StrCat(id.substr(0, slash), parts[0], "_", parts[1], "_", parts[kSet], "_", parts[part]);
}
MetricSpec HallusionBench(const char* name, const char* description, size_t part) {
  return {.name = name,
          .version = 1,
          .description = description,
          .reference = kVlmEvalKit,
          .score = YesOrNoAnywhere,
          .of_group = EveryOne,
          .group_of = [part](const std::string& id) { return HallusionGroup(id, part); }};
}

// POPE: true positives, false positives, false negatives, answers of yes, questions. A question of
// several categories, which its kind names with commas between them, counts once for each.
using Cells = std::vector<double>;
double Ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

Result<bool> WantsYes(const MetricInput& input) {
  const Text want =
      input.answers.size() == 1 ? Text(Strip(Lower(Decode(input.answers[0])))) : Text();
  if (want == U"yes" || want == U"no") return want == U"yes";
  return BadInput("a yes-or-no question has one answer, yes or no");
}
Result<Cells> PopeCells(const MetricInput& input) {
  KVG_ASSIGN(const bool want, WantsYes(input));
  const bool got = YesOrNoOf(Decode(input.prediction)) == U"yes";
  const auto times = static_cast<double>(1 + std::count(input.kind.begin(), input.kind.end(), ','));
  return Cells{got && want ? times : 0.0, got && !want ? times : 0.0, !got && want ? times : 0.0,
               got ? times : 0.0, times};
}
Result<double> PopeOne(const MetricInput& input) {
  KVG_ASSIGN(const bool want, WantsYes(input));
  return YesOrNoOf(Decode(input.prediction)) == (want ? Text(U"yes") : Text(U"no")) ? 1.0 : 0.0;
}
double Precision(const Cells& cells) { return Ratio(cells[0], cells[0] + cells[1]); }
double Recall(const Cells& cells) { return Ratio(cells[0], cells[0] + cells[2]); }
double F1(const Cells& cells) { return HarmonicMean(Precision(cells), Recall(cells)); }
double YesRatio(const Cells& cells) { return Ratio(cells[3], cells[4]); }

double EqualWithoutPunctuation(TextView prediction, TextView answer) {
  const auto bare = [](TextView given) {
    Text text = Lower(given);
    std::erase_if(text, IsPunctuation);
    return text;
  };
  return bare(prediction) == bare(answer) ? 1 : 0;
}

// lmms-eval's TextVQA: some signs go before the normal form is taken.
Result<double> VqaSoftWords(const MetricInput& input) {
  const auto normal = [](const std::string& given) {
    Text text = Without(Without(Lower(Decode(given)), U","), U"?");
    text = Text(Strip(Without(std::move(text), U"'s", U" 's")));
    return NormalAnswer(text);
  };
  const Text said = normal(input.prediction);
  double agree = 0, sum = 0;
  std::vector<bool> equal;
  for (const std::string& answer : input.answers) {
    equal.push_back(normal(answer) == said);
    agree += equal.back() ? 1 : 0;
  }
  for (const bool one : equal) sum += std::min(1.0, (agree - (one ? 1 : 0)) / 3);
  return equal.empty() ? 0 : sum / static_cast<double>(equal.size());
}

double RelaxedAsItStands(TextView prediction, TextView answer) {
  const auto number = [](TextView text) -> std::optional<double> {
    if (!text.ends_with(U'%')) return PythonFloat(text);
    while (text.ends_with(U'%')) text.remove_suffix(1);
    const std::optional<double> value = PythonFloat(text);
    return value ? std::optional(*value / 100.0) : std::nullopt;
  };
  const std::optional<double> got = number(prediction), want = number(answer);
  if (got && want && *want != 0) return std::abs(*got - *want) / std::abs(*want) <= 0.05 ? 1 : 0;
  return Lower(prediction) == Lower(answer) ? 1 : 0;
}

// Full-width signs of ASCII and the ideographic blank count as their plain ones, but in formulas.
Result<double> OcrBenchFolded(const MetricInput& input) {
  const bool formula = input.kind == "HME100k";
  const auto normal = [&](const std::string& given) {
    Text text = Decode(given);
    if (formula) return Without(Without(Text(Strip(text)), U"\n", U" "), U" ");
    for (char32_t& c : text) {
      if (c >= 0xFF01 && c <= 0xFF5E) c -= 0xFEE0;
      if (c == 0x3000) c = ' ';
    }
    text = Lower(text);
    return Without(Text(Strip(text)), U"\n", U" ");
  };
  const Text said = normal(Encode(Strip(Decode(input.prediction))));
  for (const std::string& answer : input.answers) {
    if (Holds(said, normal(answer))) return 1;
  }
  return 0;
}

// pycocoevalcap's ROUGE-L: the best precision and recall over the captions, beta 1.2.
Result<double> CaptionRouge(const MetricInput& input) {
  constexpr double kBeta = 1.2;
  Vocabulary words;
  const auto split = [&](const std::string& given) {
    std::vector<int> ids;
    const Text text = Decode(given);
    for (const TextView word : SplitAt(text, U' ')) ids.push_back(words.Id(word));
    return ids;
  };
  const std::vector<int> said = split(input.prediction);
  double precision = 0, recall = 0;
  for (const std::string& answer : input.answers) {
    const std::vector<int> want = split(answer);
    const auto common = static_cast<double>(LcsLength(said, want));
    precision = std::max(precision, common / static_cast<double>(said.size()));
    recall = std::max(recall, common / static_cast<double>(want.size()));
  }
  if (precision == 0 || recall == 0) return 0;
  return (1 + kBeta * kBeta) * precision * recall / (recall + kBeta * kBeta * precision);
}

// MMMU's open questions.
using Normal = std::variant<double, Text>;

void AddNormal(TextView given, std::vector<Normal>& all) {
  const TextView text = Strip(given);
  if (const auto number = PythonFloat(Without(Text(text), U","))) {
    all.emplace_back(RoundDecimal(*number, 2));
    return;
  }
  const Text lower = Lower(text);
  if (lower.size() != 1) {
    all.emplace_back(lower);
    return;
  }
  all.emplace_back(U" " + lower);
  all.emplace_back(lower + U" ");
}

// What stands behind the last of the words that lead to an answer, line by line.
std::vector<Text> KeyParts(TextView given) {
  Text all(Strip(given));
  while (all.starts_with(U'.')) all.erase(0, 1);
  while (all.ends_with(U'.')) all.pop_back();
  all = Lower(all);
  std::vector<TextView> leads = {U"could be ",  U"so ",    U"is ",     U"thus ",
                                 U"therefore ", U"final ", U"answer ", U"result "};
  const std::vector<TextView> lines = SplitAt(all, U'\n');
  std::vector<Text> parts;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i + 1 == lines.size()) leads.push_back(U"=");
    Text shortest;
    for (const TextView lead : leads) {
      const size_t at = lines[i].rfind(lead);
      if (at == TextView::npos) continue;
      const Text tail(Strip(lines[i].substr(at + lead.size())));
      if (shortest.empty() || tail.size() < shortest.size()) shortest = tail;
    }
    const bool sign = shortest.size() == 1 && Holds(U":,.!?;'", shortest);
    if (!shortest.empty() && !sign) parts.push_back(shortest);
  }
  if (parts.empty()) parts.push_back(all);
  return parts;
}

const std::vector<std::shared_ptr<const AnswerPattern>>& NumberPatterns() {
  static const auto patterns = [] {
    std::vector<std::shared_ptr<const AnswerPattern>> made;
    for (const char* regex : {R"(-?\b\d{1,3}(?:,\d{3})+\b)", R"(-?\d+(?:\.\d+)?[eE][+-]?\d+)",
                              R"(-?(?:\d+\.\d+|\.\d+|\d+\b)(?![eE][+-]?\d+)(?![,\d]))"}) {
      made.push_back(*AnswerPattern::Compile({.regex = regex, .group = 0}));
    }
    return made;
  }();
  return patterns;
}

Result<double> MmmuOpen(const MetricInput& input) {
  std::vector<Normal> wanted, said;
  for (const std::string& answer : input.answers) AddNormal(Decode(answer), wanted);
  for (const Text& part : KeyParts(Decode(input.prediction))) {
    AddNormal(part, said);
    for (const auto& pattern : NumberPatterns()) {
      for (const std::string& number : pattern->FindAll(Encode(part))) {
        AddNormal(Decode(number), said);
      }
    }
  }
  for (const Normal& one : said) {
    for (const Normal& want : wanted) {
      if (one.index() != want.index()) continue;
      const bool right = one.index() == 0 ? std::get<double>(one) == std::get<double>(want)
                                          : Holds(std::get<Text>(one), std::get<Text>(want));
      if (right) return 1;
    }
  }
  return 0;
}

// Both kinds of MMMU's questions stand in one file.
Result<double> Mmmu(const MetricInput& input) {
  return input.all_classes.empty() ? MmmuOpen(input) : FindMetric("option_mmmu")->score(input);
}

}  // namespace

KVG_REGISTER_METRIC(milebench_choice,
                    {"milebench_choice", 1,
                     "the option's letter and text, its text, or its letter; nothing said is C",
                     kMileBench, MileChoice});
KVG_REGISTER_METRIC(milebench_needle, {"milebench_needle", 1,
                                       "the answer is a word of the prediction, both normalised",
                                       kMileBench, MileNeedle});
KVG_REGISTER_METRIC(milebench_contains, {"milebench_contains", 1,
                                         "the answer stands in the prediction, both normalised",
                                         kMileBench, MileContains});
KVG_REGISTER_METRIC(milebench_rouge,
                    {"milebench_rouge", 1, "ROUGE-L F, both normalised", kMileBench, MileRouge});
KVG_REGISTER_METRIC(yes_or_no_first,
                    {"yes_or_no_first", 1, "yes or no within the first four characters", kLmmsEval,
                     YesOrNoFirst});
KVG_REGISTER_METRIC(yes_or_no_pair,
                    {.name = "yes_or_no_pair",
                     .version = 1,
                     .description = "half yes_or_no, half whether a group is all right: MME",
                     .reference = kVlmEvalKit,
                     .score = YesOrNoAnywhere,
                     .of_group = AccuracyAndPair});
KVG_REGISTER_METRIC(yes_or_no_first_pair,
                    {.name = "yes_or_no_first_pair",
                     .version = 1,
                     .description = "half yes_or_no_first, half whether a group is all right: MME",
                     .reference = kLmmsEval,
                     .score = YesOrNoFirst,
                     .of_group = AccuracyAndPair});
KVG_REGISTER_METRIC(hallusionbench_figures,
                    HallusionBench("hallusionbench_figures",
                                   "yes_or_no of every question about a figure: fAcc", 4));
KVG_REGISTER_METRIC(hallusionbench_questions,
                    HallusionBench("hallusionbench_questions",
                                   "yes_or_no of a question about all of its figures: qAcc", 5));
KVG_REGISTER_METRIC(pope_f1, {"pope_f1", 2, "F1 of the answer yes over the set", kVlmEvalKit,
                              PopeOne, PopeCells, F1});
KVG_REGISTER_METRIC(pope_precision, {"pope_precision", 2, "precision of the answer yes",
                                     kVlmEvalKit, PopeOne, PopeCells, Precision});
KVG_REGISTER_METRIC(pope_recall, {"pope_recall", 2, "recall of the answer yes", kVlmEvalKit,
                                  PopeOne, PopeCells, Recall});
KVG_REGISTER_METRIC(pope_yes_ratio, {"pope_yes_ratio", 2, "share of the answers that are yes",
                                     kVlmEvalKit, PopeOne, PopeCells, YesRatio});
KVG_REGISTER_METRIC(equal_without_punctuation,
                    {"equal_without_punctuation", 1, "equal in any case, without ASCII's signs",
                     kLmmsEval, BestOf(EqualWithoutPunctuation)});
KVG_REGISTER_METRIC(vqa_soft_words,
                    {"vqa_soft_words", 1, "vqa_soft without commas and question marks", kLmmsEval,
                     VqaSoftWords});
KVG_REGISTER_METRIC(relaxed_as_it_stands, {"relaxed_as_it_stands", 1,
                                           "relaxed_accuracy that keeps white space at the ends",
                                           kLmmsEval, BestOf(RelaxedAsItStands)});
KVG_REGISTER_METRIC(ocrbench_folded,
                    {"ocrbench_folded", 1, "ocrbench with full-width signs as plain ones",
                     kLmmsEval, OcrBenchFolded});
KVG_REGISTER_METRIC(caption_rouge_l,
                    {"caption_rouge_l", 1, "ROUGE-L of captions, words parted by blanks, beta 1.2",
                     "pycocoevalcap 1.2 rouge.py", CaptionRouge});
KVG_REGISTER_METRIC(mmmu_open,
                    {"mmmu_open", 1, "a number is equal to two decimals, or the text is contained",
                     kLmmsEval, MmmuOpen});
KVG_REGISTER_METRIC(mmmu, {"mmmu", 1, "option_mmmu, of questions without options mmmu_open",
                           kLmmsEval, Mmmu});

}  // namespace kvgauge::metrics::visual_rules
