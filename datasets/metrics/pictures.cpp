// SPDX-License-Identifier: Apache-2.0
// Answers about pictures, as VLMEvalKit and MM-NIAH score them.
#include "metrics/pictures.h"

#include <cmath>
#include <optional>
#include <utility>

#include "core/json.h"
#include "metrics/numbers.h"
#include "metrics/sequence.h"
#include "metrics/text.h"

namespace kvgauge::metrics::pictures {
namespace {

constexpr const char* kVlmEvalKit = "VLMEvalKit, commit e8e78f0";
constexpr const char* kMmNiah = "MM-NIAH calculate_scores.py, commit 2fd03dd";

Text ReplacedBy(Text text, TextView from, TextView to) {
  ReplaceEach(text, from, to);
  return text;
}

// Ten people answered: an answer that four gave is right, and fewer give a part of it. With a
// single reference the score is 0 whatever was said, as there are no others to agree.
Result<double> VqaSoft(const MetricInput& input) {
  const Text prediction = NormalAnswer(Decode(input.prediction));
  int64_t agree = 0;
  for (const std::string& answer : input.answers)
    agree += NormalAnswer(Decode(answer)) == prediction;
  double sum = 0;
  for (const std::string& answer : input.answers) {
    const int64_t others = agree - (NormalAnswer(Decode(answer)) == prediction ? 1 : 0);
    sum += std::min(1.0, static_cast<double>(others) / 3);
  }
  return input.answers.empty() ? 0 : sum / static_cast<double>(input.answers.size());
}

Result<double> VqaPlain(const MetricInput& input) {
  const Text prediction = NormalAnswer(Decode(input.prediction));
  double sum = 0;
  for (const std::string& answer : input.answers) sum += NormalAnswer(Decode(answer)) == prediction;
  return input.answers.empty() ? 0 : sum / static_cast<double>(input.answers.size());
}

Text Collapsed(TextView text) { return JoinSpace(SplitSpace(Lower(Strip(text)))); }

Result<double> Anls(const MetricInput& input) {
  constexpr double kLeast = 0.5;
  const Text said = Decode(input.prediction);
  double nearest = 1;
  bool any = false;
  for (const std::string& one : input.answers) {
    const Text answer = Decode(one);
    const size_t longest = std::max(Upper(answer).size(), Upper(said).size());
    const double distance =
        longest == 0 ? 0
                     : static_cast<double>(EditDistance(Collapsed(answer), Collapsed(said))) /
                           static_cast<double>(longest);
    nearest = any ? std::min(nearest, distance) : distance;
    any = true;
  }
  return !any || 1 - nearest < kLeast ? 0 : 1 - nearest;
}

std::optional<double> NumberOrShare(TextView text) {
  if (!text.ends_with(U'%')) return PythonFloat(text);
  while (text.ends_with(U'%')) text.remove_suffix(1);
  const std::optional<double> value = PythonFloat(text);
  return value ? std::optional(*value / 100.0) : std::nullopt;
}

// Numbers may differ by a twentieth; everything else, and a 0, must be the same text.
double Relaxed(TextView prediction, TextView answer) {
  const TextView said = Strip(prediction);
  const std::optional<double> got = NumberOrShare(said), want = NumberOrShare(answer);
  if (got && want && *want != 0) return std::abs(*got - *want) / std::abs(*want) <= 0.05 ? 1 : 0;
  return Lower(said) == Lower(answer) ? 1 : 0;
}

// Formulas, whose kind says so, without any blank and in their own case.
Result<double> OcrBench(const MetricInput& input) {
  const bool formula =
      input.kind == "Handwritten Mathematical Expression Recognition" || input.kind == "HME100k";
  const auto normal = [&](const std::string& given) {
    const Text text = Decode(given);
    if (!formula) return ReplacedBy(Text(Strip(Lower(text))), U"\n", U" ");
    return ReplacedBy(ReplacedBy(Text(Strip(text)), U"\n", U" "), U" ", U"");
  };
  const Text said = normal(input.prediction);
  for (const std::string& answer : input.answers) {
    if (said.find(normal(answer)) != Text::npos) return 1;
  }
  return 0;
}

// The position of the option, from 0; a digit or a letter names it.
Result<double> NiahChoice(const MetricInput& input) {
  if (input.answers.size() != 1) return BadInput("a choice has one answer, the option's number");
  const std::optional<std::string> want = PythonInt(Decode(input.answers[0]));
  if (!want) return BadInput("a choice's answer is the option's number, from 0");
  Text said = Decode(input.prediction);
  while (said.starts_with(U'.')) said.erase(0, 1);
  while (said.ends_with(U'.')) said.pop_back();
  if (!said.empty() && std::all_of(said.begin(), said.end(), IsDigit)) {
    return PythonInt(said) == want ? 1 : 0;
  }
  said = ReplacedBy(ReplacedBy(Lower(said), U"the answer is", U""), U"*", U"");
  if (const size_t stop = said.find('.'); stop != Text::npos) {
    said = ReplacedBy(said.substr(0, stop), U",", U"");
  }
  said = Text(Strip(said));
  if (said == U"none") return 0;
  if (said.find(U"the camera is moving left") != Text::npos) said = U"a";
  if (said.find(U"the camera is moving right") != Text::npos) said = U"b";
  if (said.size() != 1) return 0;
  return std::to_string(static_cast<int64_t>(said[0]) - 'a') == *want ? 1 : 0;
}

// A list of numbers: the share that is right at its place.
Result<double> NiahCounts(const MetricInput& input) {
  const Result<Json> want =
      input.answers.size() == 1 ? ParseJson(input.answers[0], "answer") : Result<Json>(Json());
  if (!want.ok() || !want->is_array() || want->empty()) {
    return BadInput("counts have one answer, a JSON list such as [1, 0, 2]");
  }
  Text text = Decode(input.prediction);
  while (text.starts_with(U'.')) text.erase(0, 1);
  while (text.ends_with(U'.')) text.pop_back();
  text = ReplacedBy(ReplacedBy(text, U"json", U""), U"```", U"");
  Result<Json> said = ParseJson(Encode(Strip(text)), "answer");
  if (!said.ok()) return 0;
  if (said->is_object()) {
    Json joined = Json::array();
    for (const Json& part : *said) {
      if (!part.is_array()) return 0;
      joined.insert(joined.end(), part.begin(), part.end());
    }
    said = joined;
  }
  if (!said->is_array()) return 0;
  double right = 0;
  for (size_t i = 0; i < std::min(said->size(), want->size()); ++i)
    right += (*said)[i] == (*want)[i];
  return right / static_cast<double>(want->size());
}

// The answer as a whole word of the prediction, both normalised.
Result<double> NiahText(const MetricInput& input) {
  Text said = Decode(input.prediction);
  while (said.starts_with(U'.')) said.erase(0, 1);
  while (said.ends_with(U'.')) said.pop_back();
  said = NormalAnswer(said, NumberWords::kToNinety);
  const auto edge = [&](size_t at) {
    const bool before = at > 0 && IsWord(said[at - 1]);
    return before != (at < said.size() && IsWord(said[at]));
  };
  for (const std::string& answer : input.answers) {
    const Text wanted = NormalAnswer(Decode(answer), NumberWords::kToNinety);
    for (size_t at = said.find(wanted); at != Text::npos; at = said.find(wanted, at + 1)) {
      if (edge(at) && edge(at + wanted.size())) return 1;
    }
  }
  return 0;
}

// VLMEvalKit's edition: two kinds have the option's number, the others a text; lists are texts.
Result<double> NiahOfKit(const MetricInput& input) {
  const bool choice = input.kind == "visual-reasoning" || input.kind == "find-image";
  return choice ? NiahChoice(input) : NiahText(input);
}

// The question's options have the letters `all_classes`: "A", "B", ...
Result<double> OptionLetter(const MetricInput& input) {
  std::vector<Text> letters;
  for (const std::string& letter : input.all_classes) letters.push_back(Decode(letter));
  const std::optional<char32_t> letter = OptionLetterOf(Decode(input.prediction), letters);
  if (!letter) return 0;
  for (const std::string& answer : input.answers) {
    if (Decode(answer) == Text(1, *letter)) return 1;
  }
  return 0;
}

Result<double> YesOrNo(const MetricInput& input) {
  const Text said = YesOrNoOf(Decode(input.prediction));
  for (const std::string& answer : input.answers) {
    if (Lower(Strip(Decode(answer))) == said) return 1;
  }
  return 0;
}

}  // namespace

KVG_REGISTER_METRIC(vqa_soft, {"vqa_soft", 1,
                               "agreement with several people's answers, normalised, leaving out "
                               "one at a time",
                               kVlmEvalKit, VqaSoft});
KVG_REGISTER_METRIC(vqa_equal, {"vqa_equal", 1, "share of the answers that are equal, normalised",
                                kVlmEvalKit, VqaPlain});
KVG_REGISTER_METRIC(anls,
                    {"anls", 1,
                     "1 - edit distance / longer length to the nearest answer; 0 below a half",
                     kVlmEvalKit, Anls});
KVG_REGISTER_METRIC(relaxed_accuracy, {"relaxed_accuracy", 1,
                                       "numbers within a twentieth, other texts equal in any case",
                                       kVlmEvalKit, BestOf(Relaxed)});
KVG_REGISTER_METRIC(ocrbench,
                    {"ocrbench", 1, "an answer stands in the prediction; formulas without blanks",
                     kVlmEvalKit, OcrBench});
KVG_REGISTER_METRIC(option_letter, {"option_letter", 1,
                                    "the only option's letter, among the last words or behind "
                                    "'answer is'",
                                    kVlmEvalKit, OptionLetter});
KVG_REGISTER_METRIC(yes_or_no, {"yes_or_no", 1, "only the right one of the words yes and no",
                                kVlmEvalKit, YesOrNo});
KVG_REGISTER_METRIC(mm_niah_choice,
                    {"mm_niah_choice", 1, "the option's number or letter", kMmNiah, NiahChoice});
KVG_REGISTER_METRIC(mm_niah_text,
                    {"mm_niah_text", 1, "the answer is a whole word of the prediction, normalised",
                     kMmNiah, NiahText});
KVG_REGISTER_METRIC(mm_niah_vlmevalkit,
                    {"mm_niah_vlmevalkit", 1,
                     "mm_niah_choice of visual-reasoning and find-image, else mm_niah_text",
                     kVlmEvalKit, NiahOfKit});
KVG_REGISTER_METRIC(mm_niah_counts,
                    {"mm_niah_counts", 1, "share of the numbers of a list that are right", kMmNiah,
                     NiahCounts});

}  // namespace kvgauge::metrics::pictures
