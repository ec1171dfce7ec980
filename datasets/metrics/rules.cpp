// SPDX-License-Identifier: Apache-2.0
// Right or wrong by rules of thumb over the output: InfiniteBench, SCBench, L-Eval.
#include <cmath>
#include <initializer_list>
#include <optional>

#include "datasets/task.h"
#include "metrics/numbers.h"
#include "metrics/text.h"

namespace kvgauge::metrics::rules {
namespace {

constexpr const char* kInfiniteBench = "InfiniteBench compute_scores.py, commit 88b3daa";
constexpr const char* kSCBench = "SCBench compute_scores.py, MInference commit fb56c91";

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

double CodeRun(TextView prediction, TextView answer) {
  const std::vector<Text> words = SplitSpace(WithBlanks(Strip(prediction), U"\n.`'\":"));
  if (words.empty()) return 0;
  const std::optional<std::string> got = PythonInt(words.back());
  return got && got == PythonInt(answer) ? 1 : 0;
}

bool EqualFloats(TextView one, TextView other) {
  const std::optional<double> a = PythonFloat(one), b = PythonFloat(other);
  return a && b && *a == *b;
}

// A whole-number answer is compared with a whole number; where the text has decimals the reference
// fails, and here the output is wrong.
double MathFind(TextView prediction, TextView answer) {
  const TextView got = FirstNumber(prediction);
  if (got.empty()) return 0;
  if (const std::optional<std::string> whole = PythonInt(answer)) {
    return PythonInt(got) == whole ? 1 : 0;
  }
  return EqualFloats(got, answer) ? 1 : 0;
}

// A whole-number answer is compared with the number cut to a whole one, as int(float(...)) does.
double ScbenchMathFind(TextView prediction, TextView answer) {
  const TextView got = FirstNumber(prediction);
  if (got.empty()) return 0;
  if (!PythonInt(answer)) return EqualFloats(got, answer) ? 1 : 0;
  return std::trunc(*PythonFloat(got)) == PythonFloat(answer) ? 1 : 0;
}

// Answers: the intermediate values in order. Signs are lost, as in the reference.
Result<double> MathCalc(const MetricInput& input) {
  if (input.answers.empty()) return BadInput("infinitebench_math_calc needs the values as answers");
  std::vector<std::string> numbers;
  for (size_t at = 0; at < input.prediction.size();) {
    const size_t begin = input.prediction.find_first_of("0123456789", at);
    if (begin == std::string::npos) break;
    at = std::min(input.prediction.find_first_not_of("0123456789", begin), input.prediction.size());
    numbers.push_back(*PythonInt(Decode(input.prediction.substr(begin, at - begin))));
  }
  size_t right = 0;
  while (right < input.answers.size() && right < numbers.size() &&
         PythonInt(Decode(input.answers[right])) == numbers[right]) {
    ++right;
  }
  return static_cast<double>(right) / static_cast<double>(input.answers.size());
}

double Contains(TextView prediction, TextView answer) {
  return prediction.find(answer) != TextView::npos ? 1 : 0;
}

// M4LE compares in lower case, SCBench in capitals: sharp s is one letter in the first and two in
// the other.
double ContainsAnyCase(TextView prediction, TextView answer) {
  return Lower(prediction).find(Lower(answer)) != Text::npos ? 1 : 0;
}

double ContainsInCapitals(TextView prediction, TextView answer) {
  return Upper(Strip(prediction)).find(Upper(answer)) != Text::npos ? 1 : 0;
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

// The first character decides: A to D in either case, and any other counts as F.
double FirstLetter(TextView prediction, TextView answer) {
  prediction = Strip(prediction);
  if (prediction.empty()) return 0;
  const char32_t first = Upper(prediction.substr(0, 1))[0];
  return answer == Text(1, first >= 'A' && first <= 'D' ? first : U'F') ? 1 : 0;
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
  if (PythonFloat(prediction) && PythonFloat(answer)) {
    return EqualFloats(prediction, answer) ? 1 : 0;
  }
  Text in = Lower(prediction), find = Lower(answer);
  std::erase(in, ' ');
  std::erase(find, ' ');
  return in.find(find) != Text::npos ? 1 : 0;
}

}  // namespace

KVG_REGISTER_METRIC(infinitebench_kv, {"infinitebench_kv", 1, "an answer is one of the words",
                                       kInfiniteBench, BestOf(KvWord)});
KVG_REGISTER_METRIC(infinitebench_dialogue, {"infinitebench_dialogue", 2,
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
                    {"infinitebench_code_run", 2, "the last word is the right whole number",
                     kInfiniteBench, BestOf(CodeRun)});
KVG_REGISTER_METRIC(infinitebench_math_find,
                    {"infinitebench_math_find", 2, "the first number is the right one",
                     kInfiniteBench, BestOf(MathFind)});
KVG_REGISTER_METRIC(infinitebench_math_calc,
                    {"infinitebench_math_calc", 1,
                     "length of the right beginning / number of values; no number is dropped",
                     kInfiniteBench, MathCalc});
KVG_REGISTER_METRIC(scbench_math_find, {"scbench_math_find", 2,
                                        "the first number is the right one; cut to a whole number "
                                        "where the answer is one",
                                        kSCBench, BestOf(ScbenchMathFind)});
KVG_REGISTER_METRIC(contains, {"contains", 1, "an answer stands in the prediction", kSCBench,
                               BestOf(Contains)});
KVG_REGISTER_METRIC(contains_any_case,
                    {"contains_any_case", 1, "an answer stands in the prediction, in any case",
                     kSCBench, BestOf(ContainsAnyCase)});
KVG_REGISTER_METRIC(contains_in_capitals, {"contains_in_capitals", 1,
                                           "an answer stands in the prediction, both in capitals",
                                           kSCBench, BestOf(ContainsInCapitals)});
KVG_REGISTER_METRIC(equal_any_case,
                    {"equal_any_case", 1, "equal but for case and white space at the ends",
                     "M4LE exact_match, commit 47c2af9", BestOf(EqualAnyCase)});
KVG_REGISTER_METRIC(equal_bamboo,
                    {"equal_bamboo", 1, "equal but for case, and blanks and full stops at the ends",
                     "BAMBOO evaluate.py, commit f230f20", BestOf(EqualBamboo)});
KVG_REGISTER_METRIC(first_letter, {"first_letter", 2,
                                   "the first character is the answer, A to D in any case; another "
                                   "counts as F",
                                   "BAMBOO evaluate.py, commit f230f20", BestOf(FirstLetter)});
KVG_REGISTER_METRIC(scbench_variables,
                    {"scbench_variables", 1,
                     "share of the answers found, rounded to two places before it is averaged",
                     kSCBench, VariableShare});
KVG_REGISTER_METRIC(
    leval_exam, {"leval_exam", 3,
                 "equal letters, a quarter for some of them; else equal numbers, else contained",
                 "L-Eval auto_eval.py, commit cd34b05, by its description", BestOf(Exam)});

}  // namespace kvgauge::metrics::rules
