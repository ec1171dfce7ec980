// SPDX-License-Identifier: Apache-2.0
// Right or wrong by rules of thumb over the output: InfiniteBench, SCBench, L-Eval.
#include <cmath>
#include <cstdlib>
#include <initializer_list>
#include <optional>

#include "datasets/task.h"
#include "metrics/text.h"

namespace kvgauge::metrics::rules {
namespace {

constexpr const char* kInfiniteBench = "InfiniteBench compute_scores.py, commit 88b3daa";
constexpr const char* kSCBench = "SCBench compute_scores.py, MInference commit fb56c91";

Text Upper(TextView text) {
  Text upper(text);
  for (char32_t& c : upper) {
    if (c >= 'a' && c <= 'z') c -= 'a' - 'A';
  }
  return upper;
}

Text WithBlanks(TextView text, TextView signs) {
  Text out(text);
  for (char32_t& c : out) {
    if (signs.find(c) != TextView::npos) c = ' ';
  }
  return out;
}

Text OneBlank(Text text) {
  while (text.find(U"  ") != Text::npos) ReplaceEach(text, U"  ", U" ");
  return text;
}

constexpr TextView kSeparators = U"\n:\"'.,?!{}";

double KvWord(TextView prediction, TextView answer) {
  const std::vector<Text> words = SplitSpace(WithBlanks(prediction, kSeparators));
  return std::find(words.begin(), words.end(), answer) != words.end() ? 1 : 0;
}

Result<double> Dialogue(const MetricInput& input) {
  if (input.answers.empty()) return BadInput("infinitebench_dialogue needs an answer");
  for (const Text& word : SplitSpace(WithBlanks(Decode(input.prediction), kSeparators))) {
    if (Upper(word) == Decode(input.answers[0])) return 1.0;
  }
  return 0.0;
}

std::vector<Text> Labels(const MetricInput& input) {
  std::vector<Text> labels;
  for (const std::string& answer : input.answers) labels.push_back(Decode(answer));
  return labels;
}

bool Holds(const std::vector<Text>& labels, TextView text) {
  return std::find(labels.begin(), labels.end(), text) != labels.end();
}

// What stands after the first of `leads` that occurs, one character skipped, must begin with a
// label. Nothing when no lead occurs.
std::optional<double> AfterLead(TextView text, std::initializer_list<TextView> leads,
                                const std::vector<Text>& labels) {
  for (const TextView lead : leads) {
    const size_t at = text.find(lead);
    if (at == TextView::npos) continue;
    if (text.size() < at + lead.size() + 1) return 0.0;
    const TextView rest = text.substr(at + lead.size() + 1);
    for (const Text& label : labels) {
      if (rest.starts_with(label)) return 1.0;
    }
    return 0.0;
  }
  return std::nullopt;
}

// Answers: the right option's text and its letter.
Result<double> Choice(const MetricInput& input) {
  const std::vector<Text> labels = Labels(input);
  if (labels.size() != 2) {
    return BadInput("infinitebench_choice needs two answers: the option's text and its letter");
  }
  constexpr TextView kLetters = U"ABCD";
  const Text whole = Decode(input.prediction);
  const TextView prediction = Strip(whole);
  if (prediction.empty()) return 0.0;
  if (kLetters.find(prediction[0]) != TextView::npos) {
    return Holds(labels, prediction.substr(0, 1)) ? 1.0 : 0.0;
  }
  if (Holds(labels, prediction)) return 1.0;
  const Text text = OneBlank(WithBlanks(prediction, U"\n\"'.,?!{}"));
  if (const std::optional<double> score =
          AfterLead(text, {U"answer is:", U"answer:", U"answer is", U"option is"}, labels)) {
    return *score;
  }
  // The reference asks whether the word is a part of "ABCD": "BC" is, and decides.
  for (const Text& word : SplitSpace(text)) {
    if (kLetters.find(word) != TextView::npos) return Holds(labels, word) ? 1.0 : 0.0;
  }
  return 0.0;
}

// Answers: the function's name and the option's letter.
Result<double> CodeDebug(const MetricInput& input) {
  const std::vector<Text> labels = Labels(input);
  if (labels.size() != 2) {
    return BadInput("infinitebench_code_debug needs two answers: the function and its letter");
  }
  const Text whole = Decode(input.prediction);
  const TextView prediction = Strip(whole);
  if (prediction.starts_with(labels[1] + U".") || prediction.starts_with(labels[1] + U":")) {
    return 1.0;
  }
  Text text = WithBlanks(prediction, U"\n`'\"-*");
  ReplaceEach(text, U"Option", U" ");
  ReplaceEach(text, U"option", U" ");
  return AfterLead(OneBlank(std::move(text)),
                   {U"answer is:", U"is:", U"answer:", U"correct option is:"}, labels)
      .value_or(0.0);
}

// A whole number as Python's int() takes it (ASCII, without underscores), canonical; "" for none.
std::string WholeNumber(const std::string& text) {
  size_t at = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  const bool negative = at == 1 && text[0] == '-';
  if (at == text.size()) return "";
  if (text.find_first_not_of("0123456789", at) != std::string::npos) return "";
  at = std::min(text.find_first_not_of('0', at), text.size());
  const std::string digits = at == text.size() ? "0" : text.substr(at);
  return negative && digits != "0" ? "-" + digits : digits;
}

double CodeRun(TextView prediction, TextView answer) {
  const std::vector<Text> words = SplitSpace(WithBlanks(Strip(prediction), U"\n.`'\":"));
  if (words.empty()) return 0;
  const std::string got = WholeNumber(Encode(words.back()));
  return !got.empty() && got == WholeNumber(Encode(answer)) ? 1 : 0;
}

bool ToFloat(const Text& text, double& value) {
  const std::string utf8 = Encode(text);
  char* end = nullptr;
  value = std::strtod(utf8.c_str(), &end);
  return !utf8.empty() && *end == '\0';
}

// The first number, with decimals if it has some; "" for none.
std::string FirstNumber(const std::string& text) {
  constexpr const char* kDigits = "0123456789";
  const size_t begin = text.find_first_of(kDigits);
  if (begin == std::string::npos) return "";
  size_t end = std::min(text.find_first_not_of(kDigits, begin), text.size());
  if (end + 1 < text.size() && text[end] == '.' && text[end + 1] >= '0' && text[end + 1] <= '9') {
    end = std::min(text.find_first_not_of(kDigits, end + 1), text.size());
  }
  return text.substr(begin, end - begin);
}

// A whole-number answer is compared with a whole number; where the text has decimals the reference
// fails, and here the output is wrong.
double MathFind(TextView prediction, TextView answer) {
  const std::string got = FirstNumber(Encode(prediction)), want = Encode(answer);
  if (got.empty()) return 0;
  if (const std::string whole = WholeNumber(want); !whole.empty()) {
    return WholeNumber(got) == whole ? 1 : 0;
  }
  return std::strtod(got.c_str(), nullptr) == std::strtod(want.c_str(), nullptr) ? 1 : 0;
}

// The first number, cut to a whole one, as int(float(...)) does.
double WholePart(TextView prediction, TextView answer) {
  const std::string got = FirstNumber(Encode(prediction));
  double want = 0;
  if (got.empty() || !ToFloat(Text(Strip(answer)), want)) return 0;
  return std::trunc(std::strtod(got.c_str(), nullptr)) == want ? 1 : 0;
}

// Answers: the intermediate values in order. Signs are lost, as in the reference.
Result<double> MathCalc(const MetricInput& input) {
  if (input.answers.empty()) return BadInput("infinitebench_math_calc needs the values as answers");
  std::vector<std::string> numbers;
  for (size_t at = 0; at < input.prediction.size();) {
    const size_t begin = input.prediction.find_first_of("0123456789", at);
    if (begin == std::string::npos) break;
    at = std::min(input.prediction.find_first_not_of("0123456789", begin), input.prediction.size());
    numbers.push_back(WholeNumber(input.prediction.substr(begin, at - begin)));
  }
  size_t right = 0;
  while (right < input.answers.size() && right < numbers.size() &&
         WholeNumber(input.answers[right]) == numbers[right]) {
    ++right;
  }
  return static_cast<double>(right) / static_cast<double>(input.answers.size());
}

double Contains(TextView prediction, TextView answer) {
  return prediction.find(answer) != TextView::npos ? 1 : 0;
}

double ContainsAnyCase(TextView prediction, TextView answer) {
  return Lower(prediction).find(Lower(answer)) != Text::npos ? 1 : 0;
}

double EqualAnyCase(TextView prediction, TextView answer) {
  const Text got = Lower(prediction), want = Lower(answer);
  return Strip(got) == Strip(want) ? 1 : 0;
}

// BAMBOO: full stops at the ends do not count either.
double EqualBamboo(TextView prediction, TextView answer) {
  const auto bare = [](TextView text) {
    text = Strip(text);
    while (!text.empty() && text.front() == '.') text.remove_prefix(1);
    while (!text.empty() && text.back() == '.') text.remove_suffix(1);
    return Lower(text);
  };
  return bare(prediction) == bare(answer) ? 1 : 0;
}

// The first character decides, in either case.
double FirstLetter(TextView prediction, TextView answer) {
  const Text got = Upper(Strip(prediction)), want = Upper(Strip(answer));
  return !got.empty() && !want.empty() && got[0] == want[0] ? 1 : 0;
}

Result<double> VariableShare(const MetricInput& input) {
  if (input.answers.empty()) return BadInput("scbench_variables needs at least one answer");
  const Text prediction = Lower(Decode(input.prediction));
  double found = 0;
  for (const std::string& answer : input.answers) {
    if (prediction.find(Lower(Decode(answer))) != Text::npos) ++found;
  }
  return Reported({.scale = 1, .digits = 2, .by = {}},
                  found / static_cast<double>(input.answers.size()));
}

// Without punctuation and articles, case kept.
Text ExamText(TextView text) {
  Text kept;
  for (const char32_t c : text) {
    if (!IsPunctuation(c)) kept.push_back(c);
  }
  std::vector<Text> words;
  for (Text& word : SplitSpace(kept)) {
    if (word != U"a" && word != U"an" && word != U"the") words.push_back(std::move(word));
  }
  return JoinSpace(words);
}

double Exam(TextView prediction, TextView answer) {
  const Text got = ExamText(prediction), want = ExamText(answer);
  // An answer of punctuation alone has no sign that is no letter: it too is one of letters.
  if (want.find_first_not_of(U"ABCD") == Text::npos) {
    if (got == want) return 1;
    return got.find_first_not_of(want) == Text::npos ? 0.25 : 0;
  }
  double a = 0, b = 0;
  if (ToFloat(Text(Strip(prediction)), a) && ToFloat(Text(Strip(answer)), b)) return a == b ? 1 : 0;
  Text in = Lower(prediction), find = Lower(answer);
  std::erase(in, ' ');
  std::erase(find, ' ');
  return in.find(find) != Text::npos ? 1 : 0;
}

}  // namespace

KVG_REGISTER_METRIC(infinitebench_kv, {"infinitebench_kv", 1, "an answer is one of the words",
                                       kInfiniteBench, BestOf(KvWord)});
KVG_REGISTER_METRIC(infinitebench_dialogue, {"infinitebench_dialogue", 1,
                                             "the first answer is one of the words, in capitals",
                                             kInfiniteBench, Dialogue});
KVG_REGISTER_METRIC(infinitebench_choice, {"infinitebench_choice", 1,
                                           "the option's text or letter, where it is looked for",
                                           kInfiniteBench, Choice});
KVG_REGISTER_METRIC(infinitebench_code_debug,
                    {"infinitebench_code_debug", 1,
                     "the function's name or letter, where it is looked for", kInfiniteBench,
                     CodeDebug});
KVG_REGISTER_METRIC(infinitebench_code_run,
                    {"infinitebench_code_run", 1, "the last word is the right whole number",
                     kInfiniteBench, BestOf(CodeRun)});
KVG_REGISTER_METRIC(infinitebench_math_find,
                    {"infinitebench_math_find", 1, "the first number is the right one",
                     kInfiniteBench, BestOf(MathFind)});
KVG_REGISTER_METRIC(infinitebench_math_calc,
                    {"infinitebench_math_calc", 1,
                     "length of the right beginning / number of values; no number is dropped",
                     kInfiniteBench, MathCalc});
KVG_REGISTER_METRIC(scbench_math_find, {"scbench_math_find", 1,
                                        "the first number, cut to a whole one, is the right one",
                                        kSCBench, BestOf(WholePart)});
KVG_REGISTER_METRIC(contains, {"contains", 1, "an answer stands in the prediction", kSCBench,
                               BestOf(Contains)});
KVG_REGISTER_METRIC(contains_any_case,
                    {"contains_any_case", 1, "an answer stands in the prediction, in any case",
                     kSCBench, BestOf(ContainsAnyCase)});
KVG_REGISTER_METRIC(equal_any_case,
                    {"equal_any_case", 1, "equal but for case and white space at the ends",
                     "M4LE exact_match, commit 47c2af9", BestOf(EqualAnyCase)});
KVG_REGISTER_METRIC(equal_bamboo,
                    {"equal_bamboo", 1, "equal but for case, and blanks and full stops at the ends",
                     "BAMBOO evaluate.py, commit f230f20", BestOf(EqualBamboo)});
KVG_REGISTER_METRIC(first_letter, {"first_letter", 1, "the first letters are equal, in any case",
                                   "BAMBOO evaluate.py, commit f230f20", BestOf(FirstLetter)});
KVG_REGISTER_METRIC(scbench_variables,
                    {"scbench_variables", 1,
                     "share of the answers found, rounded to two places before it is averaged",
                     kSCBench, VariableShare});
KVG_REGISTER_METRIC(
    leval_exam, {"leval_exam", 2,
                 "equal letters, a quarter for some of them; else equal numbers, else contained",
                 "L-Eval auto_eval.py, commit cd34b05, by its description", BestOf(Exam)});

}  // namespace kvgauge::metrics::rules
