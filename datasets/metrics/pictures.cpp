// SPDX-License-Identifier: Apache-2.0
// Answers about pictures, as VLMEvalKit and MM-NIAH score them.
#include <array>
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

// The reference hands a flag to its pattern engine where a count belongs.
constexpr int kMostFullStops = 32;

Text ReplacedBy(Text text, TextView from, TextView to) {
  ReplaceEach(text, from, to);
  return text;
}

// Whether a digit, a comma and a digit follow each other anywhere.
bool HasThousands(TextView text) {
  for (size_t i = 1; i + 1 < text.size(); ++i) {
    if (text[i] == ',' && IsDigit(text[i - 1]) && IsDigit(text[i + 1])) return true;
  }
  return false;
}

// Each sign is taken out of the whole text where it touches a blank anywhere, or where thousands
// are written with commas; else it becomes a blank.
Text WithoutSigns(TextView given) {
  constexpr TextView kSigns = U";/[]\"{}()=+\\_-><@`,?!";
  const bool thousands = HasThousands(given);
  Text text(given);
  for (const char32_t sign : kSigns) {
    const Text before = {sign, ' '}, behind = {' ', sign};
    const bool touches =
        given.find(before) != TextView::npos || given.find(behind) != TextView::npos;
    ReplaceEach(text, Text(1, sign), touches || thousands ? U"" : U" ");
  }
  Text out;
  int taken = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool number = i + 1 < text.size() && IsDigit(text[i + 1]);
    if (text[i] == '.' && !number && taken < kMostFullStops) {
      ++taken;
      continue;
    }
    out += text[i];
  }
  return out;
}

constexpr std::array<std::pair<std::u32string_view, std::u32string_view>, 12> kNumbers = {
    {{U"none", U"0"},
     {U"zero", U"0"},
     {U"one", U"1"},
     {U"two", U"2"},
     {U"three", U"3"},
     {U"four", U"4"},
     {U"five", U"5"},
     {U"six", U"6"},
     {U"seven", U"7"},
     {U"eight", U"8"},
     {U"nine", U"9"},
     {U"ten", U"10"}}};

// Spelled as people ask; the reference's list, lower-case words only, as the text is by then.
constexpr std::array<std::pair<std::u32string_view, std::u32string_view>, 114> kContractions = {
    {{U"aint", U"ain't"},
     {U"arent", U"aren't"},
     {U"cant", U"can't"},
     {U"couldve", U"could've"},
     {U"couldnt", U"couldn't"},
     {U"couldn'tve", U"couldn't've"},
     {U"couldnt've", U"couldn't've"},
     {U"didnt", U"didn't"},
     {U"doesnt", U"doesn't"},
     {U"dont", U"don't"},
     {U"hadnt", U"hadn't"},
     {U"hadnt've", U"hadn't've"},
     {U"hadn'tve", U"hadn't've"},
     {U"hasnt", U"hasn't"},
     {U"havent", U"haven't"},
     {U"hed", U"he'd"},
     {U"hed've", U"he'd've"},
     {U"he'dve", U"he'd've"},
     {U"hes", U"he's"},
     {U"howd", U"how'd"},
     {U"howll", U"how'll"},
     {U"hows", U"how's"},
     {U"isnt", U"isn't"},
     {U"itd", U"it'd"},
     {U"itd've", U"it'd've"},
     {U"it'dve", U"it'd've"},
     {U"itll", U"it'll"},
     {U"maam", U"ma'am"},
     {U"mightnt", U"mightn't"},
     {U"mightnt've", U"mightn't've"},
     {U"mightn'tve", U"mightn't've"},
     {U"mightve", U"might've"},
     {U"mustnt", U"mustn't"},
     {U"mustve", U"must've"},
     {U"neednt", U"needn't"},
     {U"notve", U"not've"},
     {U"oclock", U"o'clock"},
     {U"oughtnt", U"oughtn't"},
     {U"ow's'at", U"'ow's'at"},
     {U"'ows'at", U"'ow's'at"},
     {U"'ow'sat", U"'ow's'at"},
     {U"shant", U"shan't"},
     {U"shed've", U"she'd've"},
     {U"she'dve", U"she'd've"},
     {U"shouldve", U"should've"},
     {U"shouldnt", U"shouldn't"},
     {U"shouldnt've", U"shouldn't've"},
     {U"shouldn'tve", U"shouldn't've"},
     {U"somebody'd", U"somebodyd"},
     {U"somebodyd've", U"somebody'd've"},
     {U"somebody'dve", U"somebody'd've"},
     {U"somebodyll", U"somebody'll"},
     {U"somebodys", U"somebody's"},
     {U"someoned", U"someone'd"},
     {U"someoned've", U"someone'd've"},
     {U"someone'dve", U"someone'd've"},
     {U"someonell", U"someone'll"},
     {U"someones", U"someone's"},
     {U"somethingd", U"something'd"},
     {U"somethingd've", U"something'd've"},
     {U"something'dve", U"something'd've"},
     {U"somethingll", U"something'll"},
     {U"thats", U"that's"},
     {U"thered", U"there'd"},
     {U"thered've", U"there'd've"},
     {U"there'dve", U"there'd've"},
     {U"therere", U"there're"},
     {U"theres", U"there's"},
     {U"theyd", U"they'd"},
     {U"theyd've", U"they'd've"},
     {U"they'dve", U"they'd've"},
     {U"theyll", U"they'll"},
     {U"theyre", U"they're"},
     {U"theyve", U"they've"},
     {U"twas", U"'twas"},
     {U"wasnt", U"wasn't"},
     {U"wed've", U"we'd've"},
     {U"we'dve", U"we'd've"},
     {U"weve", U"we've"},
     {U"werent", U"weren't"},
     {U"whatll", U"what'll"},
     {U"whatre", U"what're"},
     {U"whats", U"what's"},
     {U"whatve", U"what've"},
     {U"whens", U"when's"},
     {U"whered", U"where'd"},
     {U"wheres", U"where's"},
     {U"whereve", U"where've"},
     {U"whod", U"who'd"},
     {U"whod've", U"who'd've"},
     {U"who'dve", U"who'd've"},
     {U"wholl", U"who'll"},
     {U"whos", U"who's"},
     {U"whove", U"who've"},
     {U"whyll", U"why'll"},
     {U"whyre", U"why're"},
     {U"whys", U"why's"},
     {U"wont", U"won't"},
     {U"wouldve", U"would've"},
     {U"wouldnt", U"wouldn't"},
     {U"wouldnt've", U"wouldn't've"},
     {U"wouldn'tve", U"wouldn't've"},
     {U"yall", U"y'all"},
     {U"yall'll", U"y'all'll"},
     {U"y'allll", U"y'all'll"},
     {U"yall'd've", U"y'all'd've"},
     {U"y'alld've", U"y'all'd've"},
     {U"y'all'dve", U"y'all'd've"},
     {U"youd", U"you'd"},
     {U"youd've", U"you'd've"},
     {U"you'dve", U"you'd've"},
     {U"youll", U"you'll"},
     {U"youre", U"you're"},
     {U"youve", U"you've"}}};

Text NormalAnswer(TextView given) {
  Text text = ReplacedBy(ReplacedBy(Text(given), U"\n", U" "), U"\t", U" ");
  text = WithoutSigns(Strip(text));
  std::vector<Text> words;
  for (Text& word : SplitSpace(Lower(text))) {
    for (const auto& [name, digits] : kNumbers) {
      if (word == name) {
        word = digits;
        break;
      }
    }
    if (word == U"a" || word == U"an" || word == U"the") continue;
    for (const auto& [loose, contracted] : kContractions) {
      if (word == loose) {
        word = contracted;
        break;
      }
    }
    words.push_back(std::move(word));
  }
  return JoinSpace(words);
}

// Of ten people: an answer that four gave is right, and fewer give a part of it. Of one answer it
// is 0 whatever was said, as nobody else agrees.
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

// VLMEvalKit's letter without a judge. The prediction is of a question whose options' letters are
// `all_classes`: "A", "B", ...
std::optional<char32_t> LetterOf(TextView prediction, const std::vector<Text>& letters) {
  for (const TextView refusal :
       {U"Sorry, I can't help with images of people yet.", U"I can't process this file.",
        U"I'm sorry, but without the image provided", U"Cannot determine the answer"}) {
    if (prediction.find(refusal) != TextView::npos) return U'Z';
  }
  Text text(prediction);
  for (char32_t& c : text) {
    if (TextView(U".()[],:;!*#{}").find(c) != TextView::npos) c = ' ';
  }
  const std::vector<Text> words = SplitSpace(text);
  const auto place = [&](const Text& letter) {
    return std::find(words.begin(), words.end(), letter) - words.begin();
  };
  const auto size = std::ssize(words);
  const auto said = std::count_if(letters.begin(), letters.end(),
                                  [&](const Text& letter) { return place(letter) < size; });
  for (const Text& letter : letters) {
    if (said == 1 && place(letter) < size && place(letter) > size - 5) return letter[0];
  }
  if (said == 0 && place(U"Z") < size) return U'Z';
  // "answer is **B**": the letter is one of the first four, in either case.
  const Text lower = Lower(prediction);
  for (size_t at = lower.find(U"answer"); at != Text::npos; at = lower.find(U"answer", at + 1)) {
    size_t next = at + 6;
    const auto blanks = [&] {
      const size_t from = next;
      while (next < lower.size() && IsSpace(lower[next])) ++next;
      return next > from;
    };
    if (!blanks() || lower.compare(next, 2, U"is") != 0) continue;
    next += 2;
    if (!blanks()) continue;
    while (next < lower.size() && lower[next] == '*') ++next;
    if (next >= lower.size() || lower[next] < 'a' || lower[next] > 'd') continue;
    const Text letter(1, lower[next] - 'a' + 'A');
    if (std::find(letters.begin(), letters.end(), letter) == letters.end()) return std::nullopt;
    return letter[0];
  }
  return std::nullopt;
}

Result<double> OptionLetter(const MetricInput& input) {
  std::vector<Text> letters;
  for (const std::string& letter : input.all_classes) letters.push_back(Decode(letter));
  const std::optional<char32_t> letter = LetterOf(Decode(input.prediction), letters);
  if (!letter) return 0;
  for (const std::string& answer : input.answers) {
    if (Decode(answer) == Text(1, *letter)) return 1;
  }
  return 0;
}

// The word yes or the word no, where only one of them is there.
Result<double> YesOrNo(const MetricInput& input) {
  const std::vector<Text> words = SplitSpace(WithoutSigns(Lower(Decode(input.prediction))));
  const auto has = [&](const Text& word) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  const Text said = has(U"yes") == has(U"no") ? U"unknown" : has(U"yes") ? U"yes" : U"no";
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
KVG_REGISTER_METRIC(mm_niah_counts,
                    {"mm_niah_counts", 1, "share of the numbers of a list that are right", kMmNiah,
                     NiahCounts});

}  // namespace kvgauge::metrics::pictures
