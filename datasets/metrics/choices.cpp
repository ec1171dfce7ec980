// SPDX-License-Identifier: Apache-2.0
// Which option an answer names, as published code finds it. The options' texts are `all_classes`,
// the right one's letter is the answer. Where the published code draws a letter at random, nothing
// was found here and the answer is wrong.
#include <algorithm>
#include <array>
#include <optional>

#include "metrics/pictures.h"
#include "metrics/text.h"

namespace kvgauge::metrics::choices {
namespace {

constexpr const char* kVlmEvalKit = "VLMEvalKit, commit e8e78f0";
constexpr const char* kLmmsEval = "lmms-eval, commit 75571cf";

char32_t LetterAt(size_t option) { return U'A' + static_cast<char32_t>(option); }

// The texts of the options; those that are empty are none.
std::vector<Text> OptionsOf(const MetricInput& input) {
  std::vector<Text> texts;
  for (const std::string& option : input.all_classes) texts.push_back(Decode(option));
  return texts;
}

Result<double> Judge(const MetricInput& input, std::optional<char32_t> said) {
  for (const std::string& answer : input.answers) {
    if (said && Decode(answer) == Text(1, *said)) return 1;
  }
  return 0;
}

void StripAll(Text& text, TextView signs) {
  for (const char32_t sign : signs) {
    while (text.starts_with(sign)) text.erase(0, 1);
    while (text.ends_with(sign)) text.pop_back();
  }
}

bool Holds(TextView text, TextView part) { return text.find(part) != TextView::npos; }

// A question without options is one of its answer and others, as VLMEvalKit has MMMU's: the right
// one is A, but for an answer that is a letter itself.
Result<double> Inferred(const MetricInput& given) {
  MetricInput input = given;
  if (input.all_classes.empty() && input.answers.size() == 1) {
    input.all_classes = {input.answers[0], "Other Answers"};
    const std::string& answer = given.answers[0];
    const bool letter = answer.size() == 1 && answer[0] >= 'A' && answer[0] <= 'Z';
    if (!letter) input.answers = {"A"};
  }
  const Text said = Decode(input.prediction);
  const std::vector<Text> options = OptionsOf(input);
  std::vector<Text> letters;
  size_t characters = 0;
  for (size_t i = 0; i < options.size(); ++i) {
    if (!options[i].empty()) letters.emplace_back(1, LetterAt(i));
    characters += options[i].size();
  }
  if (!Holds(said, U"Failed to obtain answer via API")) {
    if (const auto letter = OptionLetterOf(said, letters)) return Judge(input, letter);
  }
  const Text lower = Lower(said);
  if (lower.size() > 2 * characters) return 0;
  std::optional<char32_t> found;
  for (size_t i = 0; i < options.size(); ++i) {
    if (options[i].empty() || !Holds(lower, Lower(options[i]))) continue;
    if (found) return 0;
    found = LetterAt(i);
  }
  return Judge(input, found);
}

// MMMU's rule, which NExT-QA's takes over: "(A)", else "A ", else "A.", else an option's text.
std::optional<char32_t> MmmuLetter(Text said, const std::vector<Text>& options) {
  StripAll(said, U",.!?;:'");
  said = U" " + said + U" ";
  const auto forms = [](char32_t letter) {
    return std::array<Text, 3>{Text{'(', letter, ')'}, Text{letter, ' '}, Text{letter, '.'}};
  };
  std::vector<size_t> found;
  bool bracket = false, by_text = false;
  for (size_t form = 0; form < 3 && found.empty(); ++form) {
    for (size_t i = 0; i < options.size(); ++i) {
      if (Holds(said, forms(LetterAt(i))[form])) found.push_back(i);
    }
    bracket = form == 0 && !found.empty();
  }
  const Text lower = Lower(said);
  if (found.empty() && SplitSpace(said).size() > 5) {
    for (size_t i = 0; i < options.size(); ++i) {
      if (Holds(lower, Lower(options[i]))) found.push_back(i);
    }
    by_text = !found.empty();
  }
  if (found.empty()) return std::nullopt;
  // The last of several; one that does not stand alone counts as before all.
  size_t best = found[0];
  int64_t place = -2;
  for (const size_t i : found) {
    const Text looked = by_text   ? Lower(options[i])
                        : bracket ? forms(LetterAt(i))[0]
                                  : Text{' ', LetterAt(i), ' '};
    const size_t at = by_text ? lower.rfind(looked) : said.rfind(looked);
    const int64_t here = at == Text::npos ? -1 : static_cast<int64_t>(at);
    if (here > place) {
      best = i;
      place = here;
    }
  }
  return LetterAt(best);
}

Result<double> Mmmu(const MetricInput& input) {
  return Judge(input, MmmuLetter(Decode(input.prediction), OptionsOf(input)));
}

// All forms at once, and the first of several; option texts hold their letters.
Result<double> EgoSchema(const MetricInput& input) {
  Text said = Decode(input.prediction);
  StripAll(said, U",.!?;:'");
  said = U" " + said + U" ";
  const std::vector<Text> options = OptionsOf(input);
  std::optional<char32_t> best;
  size_t place = Text::npos;
  const auto take = [&](size_t option, size_t at) {
    if (at == Text::npos || (best && at >= place)) return;
    best = LetterAt(option);
    place = at;
  };
  for (size_t form = 0; form < 3; ++form) {
    for (size_t i = 0; i < options.size(); ++i) {
      const char32_t letter = LetterAt(i);
      take(i, said.rfind(form == 0   ? Text{'(', letter, ')'}
                         : form == 1 ? Text{letter, ' '}
                                     : Text{letter, '.'}));
    }
  }
  if (!best && SplitSpace(said).size() > 5) {
    const Text lower = Lower(said);
    for (size_t i = 0; i < options.size(); ++i) {
      take(i, lower.rfind(Lower(Strip(options[i]))));
    }
  }
  return Judge(input, best);
}

// lmms-eval's ranking of ten ways to name a letter; the last of the best way counts.
std::optional<char32_t> RankedLetter(Text said, size_t options) {
  constexpr std::array<TextView, 27> kPhrases = {U"the answer is",
                                                 U"answer is",
                                                 U"the correct answer is",
                                                 U"correct answer is",
                                                 U"the best answer is",
                                                 U"best answer is",
                                                 U"the correct option is",
                                                 U"correct option is",
                                                 U"the best option is",
                                                 U"best option is",
                                                 U"the choice is",
                                                 U"choice is",
                                                 U"the correct choice is",
                                                 U"correct choice is",
                                                 U"i choose",
                                                 U"i select",
                                                 U"i pick",
                                                 U"my answer is",
                                                 U"my choice is",
                                                 U"\uC635\uC158",
                                                 U"\uC815\uB2F5\uC740",
                                                 U"\uB2F5\uC740",
                                                 U"\uB2F5:",
                                                 U"\u7B54\u6848\u662F",
                                                 U"\u7B54\u6848\u4E3A",
                                                 U"\u9009",
                                                 U"\u7B54\u3048\u306F"};
  said = Text(Strip(said));
  if (said.empty()) return std::nullopt;
  StripAll(said, U",.!?;:'\"");
  const Text text = U" " + said + U" ", lower = Lower(text);
  const Text bare(Strip(text));
  std::optional<char32_t> best;
  int best_rank = -1;
  size_t best_at = 0;
  const auto take = [&](size_t option, size_t at, int rank) {
    if (at == Text::npos) return;
    if (best && (rank < best_rank || (rank == best_rank && at <= best_at))) return;
    best = LetterAt(option);
    best_rank = rank;
    best_at = at;
  };
  for (size_t i = 0; i < options; ++i) {
    const char32_t letter = LetterAt(i);
    take(i, text.rfind(Text{'(', letter, ')'}), 6);
    take(i, text.rfind(Text{letter, '.'}), 5);
    take(i, text.rfind(Text{letter, ':'}), 4);
    take(i, text.rfind(Text{letter, ')'}), 3);
    take(i, text.rfind(Text{letter, ' '}), 2);
    if (bare.starts_with(letter) && (bare.size() == 1 || !IsLetter(bare[1]))) take(i, 0, 10);
    if (bare.ends_with(letter) && (bare.size() == 1 || !IsLetter(bare[bare.size() - 2]))) {
      take(i, text.size() - 1, 9);
    }
  }
  for (const TextView phrase : kPhrases) {
    const size_t at = lower.find(phrase);
    if (at == Text::npos) continue;
    for (size_t i = 0; i < options; ++i) take(i, text.find(LetterAt(i), at + phrase.size()), 7);
  }
  for (size_t i = 0; i < options && best_rank <= 0; ++i) take(i, text.rfind(LetterAt(i)), 0);
  return best;
}

constexpr size_t kFourOptions = 4;

Result<double> Ranked(const MetricInput& input) {
  return Judge(input, RankedLetter(Decode(input.prediction), kFourOptions));
}

// A letter, or where the answer is none the same text.
Result<double> RealWorldQa(const MetricInput& input) {
  const Text said = Decode(input.prediction);
  for (const std::string& one : input.answers) {
    const Text answer(Strip(Decode(one))), upper = Upper(answer);
    if (upper.size() == 1 && upper[0] >= 'A' && upper[0] <= 'D') {
      if (RankedLetter(said, kFourOptions) == upper[0]) return 1;
      continue;
    }
    Text text(Strip(Lower(said)));
    while (text.ends_with(U'.')) text.pop_back();
    if (text == Lower(answer)) return 1;
  }
  return 0;
}

// Without the phrases that lead to an answer, the first capital among the letters.
std::optional<char32_t> FirstCapital(TextView given, const std::vector<TextView>& phrases,
                                     char32_t last) {
  Text said(Strip(given));
  for (const TextView phrase : phrases) ReplaceEach(said, phrase, U"");
  for (const char32_t c : said) {
    if (c >= 'A' && c <= last) return c;
  }
  return std::nullopt;
}

// Two pairs of phrases are joined by a missing comma in the published list.
Result<double> WithoutPhrases(const MetricInput& input, char32_t last) {
  static const std::vector<TextView> kPhrases = {U"The best answer is",
                                                 U"The correct answer is",
                                                 U"The answer is",
                                                 U"The answer",
                                                 U"The best option isThe correct option is",
                                                 U"Best answer:Best option:",
                                                 U"Answer:",
                                                 U"Option:"};
  return Judge(input, FirstCapital(Decode(input.prediction), kPhrases, last));
}
Result<double> VideoMme(const MetricInput& input) { return WithoutPhrases(input, 'D'); }
Result<double> LongVideoBenchOfKit(const MetricInput& input) { return WithoutPhrases(input, 'E'); }

Result<double> LongVideoBench(const MetricInput& input) {
  static const std::vector<TextView> kPhrases = {
      U"The best answer is", U"The correct answer is", U"The answer is", U"The answer",
      U"The best option is", U"The correct option is", U"Best answer:",  U"Best option:"};
  return Judge(input, FirstCapital(Decode(input.prediction), kPhrases, 'E'));
}

Result<double> FirstCharacter(const MetricInput& input) {
  const Text said(Strip(Decode(input.prediction)));
  const Text first = Lower(Strip(said.substr(0, 1)));
  for (const std::string& answer : input.answers) {
    if (first == Lower(Strip(Decode(answer)))) return 1;
  }
  return 0;
}

// VNBench: the very first character.
Result<double> Initial(const MetricInput& input) {
  const Text said = Decode(input.prediction);
  return Judge(input, said.empty() ? std::nullopt : std::optional(said[0]));
}

Result<double> ScienceQa(const MetricInput& input) {
  const Text said(Strip(Decode(input.prediction)));
  // A capital: it has a lower case of its own.
  const Text first = said.substr(0, 1);
  const bool named = said.size() >= 2 && said[1] == '.' && Lower(first) != first;
  for (const std::string& answer : input.answers) {
    const Text letter = Lower(Strip(Decode(answer)));
    if (Lower(said) == letter || (named && Lower(first) == letter)) return 1;
  }
  return 0;
}

// VLMEvalKit's first word of the answer, against "(a)". Nothing, a full stop and a bracket are
// within it and right there; not here.
Result<double> MvBench(const MetricInput& input) {
  Text said = Lower(Decode(input.prediction));
  said = Text(Strip(said));
  const Text word(SplitAt(said, U' ')[0]);
  Text bare = word;
  ReplaceEach(bare, U".", U"");
  if (bare.empty() || bare == U"(" || bare == U")" || bare == U"()") return 0;
  for (const std::string& answer : input.answers) {
    const Text want = U"(" + Lower(Decode(answer)) + U")";
    if (Holds(want, bare) || Holds(word, want)) return 1;
  }
  return 0;
}

// The same, or where that finds nothing what option_inferred finds, as its evaluation goes on.
Result<double> MvBenchInferred(const MetricInput& input) {
  KVG_ASSIGN(const double score, MvBench(input));
  return score > 0 ? score : Inferred(input);
}

// lmms-eval's: "A. text", else the first letter that stands alone, the article "a" among them.
Result<double> MvBenchLetter(const MetricInput& input) {
  const Text given = Decode(input.prediction);
  const Text stripped(Strip(given));
  const auto letter_of = [](char32_t c) -> std::optional<char32_t> {
    if (c >= 'a' && c <= 'e') return c - 'a' + 'A';
    return c >= 'A' && c <= 'E' ? std::optional(c) : std::nullopt;
  };
  if (stripped.size() > 2 && stripped[1] == '.' && letter_of(stripped[0])) {
    size_t at = 2;
    while (at < stripped.size() && IsSpace(stripped[at])) ++at;
    // Something that is no line break must follow, up to the end of the line.
    const bool one_line = stripped.find(U'\n', at) == Text::npos;
    if (at < stripped.size() && one_line) return Judge(input, letter_of(stripped[0]));
  }
  Text text = given;
  ReplaceEach(text, U"\n", U" ");
  ReplaceEach(text, U"\t", U" ");
  text = WithoutSigns(Strip(text));
  StripAll(text, U"'\")(");
  text = Lower(Strip(text));
  for (size_t i = 0; i < text.size(); ++i) {
    const bool alone =
        (i == 0 || !IsWord(text[i - 1])) && (i + 1 == text.size() || !IsWord(text[i + 1]));
    if (alone && letter_of(text[i])) return Judge(input, letter_of(text[i]));
  }
  return 0;
}

// Right answers, and answers that are not empty: lmms-eval's score is the share of the first.
Result<std::vector<double>> RightAndAnswered(const MetricInput& input) {
  KVG_ASSIGN(const double score, MvBenchLetter(input));
  const bool answered = !input.prediction.empty();
  return std::vector<double>{answered ? score : 0, answered ? 1.0 : 0.0};
}
double OfTheAnswered(const std::vector<double>& sums) {
  return sums[1] > 0 ? sums[0] / sums[1] : 0;
}

// MLVU's own: the character before the first bracket, else the whole answer.
Result<double> Mlvu(const MetricInput& input) {
  Text said = Decode(input.prediction);
  if (const size_t close = said.find(U')'); close != Text::npos) {
    said = close == 0 ? Text() : said.substr(close - 1, 1);
  }
  return Judge(input, said.size() == 1 ? std::optional(said[0]) : std::nullopt);
}

// As VLMEvalKit scores MLVU: the same, else what option_inferred finds.
Result<double> MlvuInferred(const MetricInput& input) {
  KVG_ASSIGN(const double score, Mlvu(input));
  return score > 0 ? score : Inferred(input);
}

// lmms-eval's AI2D: a capital and a full stop at the front, else all of the answer.
Result<double> Ai2d(const MetricInput& input) {
  const Text said = Decode(input.prediction);
  size_t at = 0;
  while (at < said.size() && IsSpace(said[at])) ++at;
  const bool named =
      at + 1 < said.size() && said[at] >= 'A' && said[at] <= 'Z' && said[at + 1] == '.';
  MetricInput all = input;
  if (named) all.prediction = Encode(said.substr(at, 1));
  return FindMetric("equal_without_punctuation")->score(all);
}

// lmms-eval's MMBench: the letter A to E that is a word, or a word with signs; the first way to
// write one in which only one letter is there.
std::optional<char32_t> LetterAsWord(const Text& said) {
  constexpr std::array<std::pair<TextView, TextView>, 13> kSigns = {{{U"", U""},
                                                                     {U"", U"."},
                                                                     {U"", U","},
                                                                     {U"", U":"},
                                                                     {U"", U")"},
                                                                     {U"", U")."},
                                                                     {U"(", U")"},
                                                                     {U"(", U")."},
                                                                     {U":", U""},
                                                                     {U":", U","},
                                                                     {U":", U"."},
                                                                     {U":", U")"},
                                                                     {U":", U")."}}};
  if (Holds(said, U"Failed to obtain answer via API")) return std::nullopt;
  const std::vector<Text> words = SplitSpace(said);
  for (const auto& [before, behind] : kSigns) {
    Text found;
    for (char32_t letter = 'A'; letter <= 'E'; ++letter) {
      const Text form = Text(before) + letter + Text(behind);
      if (std::find(words.begin(), words.end(), form) != words.end()) found += letter;
    }
    if (found.size() != 1) continue;
    // A lone A among more than three words may be an article.
    const bool article = before.empty() && behind.empty() && found == U"A" && words.size() > 3;
    if (!article) return found[0];
  }
  return std::nullopt;
}

// Else the only option whose text is there, else the ranked letter: without a judge.
Result<double> MmBench(const MetricInput& input) {
  const Text said(Strip(Decode(input.prediction)));
  if (const auto letter = LetterAsWord(said)) return Judge(input, letter);
  std::vector<Text> options = OptionsOf(input);
  if (options.size() > kFourOptions) options.resize(kFourOptions);
  const Text lower = Lower(said);
  std::vector<char32_t> found;
  for (size_t i = 0; i < options.size(); ++i) {
    if (!options[i].empty() && Holds(lower, Lower(options[i]))) found.push_back(LetterAt(i));
  }
  if (found.size() == 1) return Judge(input, found[0]);
  return Judge(input, RankedLetter(said, options.size()));
}

// A question counts where every order of its options was answered rightly.
double AllRight(const std::vector<double>& scores) {
  return *std::min_element(scores.begin(), scores.end());
}

}  // namespace

KVG_REGISTER_METRIC(option_circular, {.name = "option_circular",
                                      .version = 1,
                                      .description = "option_inferred of every rotation of a group",
                                      .reference = kVlmEvalKit,
                                      .score = Inferred,
                                      .of_group = AllRight});
KVG_REGISTER_METRIC(option_initial_circular,
                    {.name = "option_initial_circular",
                     .version = 1,
                     .description = "the first character, in every order of a group's options",
                     .reference = "VideoNIAH llava_examples/evaluation_utils.py",
                     .score = Initial,
                     .of_group = AllRight});
KVG_REGISTER_METRIC(option_mmbench_circular,
                    {.name = "option_mmbench_circular",
                     .version = 1,
                     .description = "a letter that is a word, else the only option's text, else "
                                    "as option_ranked; in every rotation of a group",
                     .reference = kLmmsEval,
                     .score = MmBench,
                     .of_group = AllRight});
KVG_REGISTER_METRIC(option_ai2d, {"option_ai2d", 1,
                                  "a capital before a full stop at the front, else all of it: "
                                  "equal in any case, without ASCII's signs",
                                  kLmmsEval, Ai2d});
KVG_REGISTER_METRIC(option_inferred, {"option_inferred", 1,
                                      "the only option's letter among the last words, else the "
                                      "only option's text",
                                      kVlmEvalKit, Inferred});
KVG_REGISTER_METRIC(option_mmmu,
                    {"option_mmmu", 1,
                     "the last of (A), A, or A., else the last option's text; MMMU and NExT-QA",
                     kLmmsEval, Mmmu});
KVG_REGISTER_METRIC(option_egoschema,
                    {"option_egoschema", 1, "the first of (A), A and A., else of options' texts",
                     kLmmsEval, EgoSchema});
KVG_REGISTER_METRIC(option_ranked,
                    {"option_ranked", 1, "the letter A to D named in the clearest of ten ways",
                     kLmmsEval, Ranked});
KVG_REGISTER_METRIC(realworldqa,
                    {"realworldqa", 1, "as option_ranked; other answers are equal in any case",
                     kLmmsEval, RealWorldQa});
KVG_REGISTER_METRIC(option_videomme,
                    {"option_videomme", 1, "the first capital A to D, without phrases before it",
                     kVlmEvalKit, VideoMme});
KVG_REGISTER_METRIC(option_longvideobench_vlmevalkit,
                    {"option_longvideobench_vlmevalkit", 1,
                     "the first capital A to E, without VLMEvalKit's phrases before it",
                     kVlmEvalKit, LongVideoBenchOfKit});
KVG_REGISTER_METRIC(option_longvideobench, {"option_longvideobench", 1,
                                            "the first capital A to E, without phrases before it",
                                            kLmmsEval, LongVideoBench});
KVG_REGISTER_METRIC(option_first, {"option_first", 1, "the first character, in any case", kLmmsEval,
                                   FirstCharacter});
KVG_REGISTER_METRIC(option_scienceqa,
                    {"option_scienceqa", 1, "the letter alone, or first and before a full stop",
                     kLmmsEval, ScienceQa});
KVG_REGISTER_METRIC(option_mvbench,
                    {"option_mvbench", 1,
                     "the first word is within (a), or holds it; without a letter it is wrong",
                     kVlmEvalKit, MvBench});
KVG_REGISTER_METRIC(option_mvbench_inferred,
                    {"option_mvbench_inferred", 1, "option_mvbench, else option_inferred",
                     kVlmEvalKit, MvBenchInferred});
KVG_REGISTER_METRIC(option_alone_answered,
                    {"option_alone_answered", 1,
                     "option_alone over a set; answers that are empty do not count", kLmmsEval,
                     MvBenchLetter, RightAndAnswered, OfTheAnswered});
KVG_REGISTER_METRIC(option_mlvu_inferred,
                    {"option_mlvu_inferred", 1, "option_mlvu, else option_inferred", kVlmEvalKit,
                     MlvuInferred});
KVG_REGISTER_METRIC(option_alone,
                    {"option_alone", 1, "the first letter A to E that stands alone, in any case",
                     kLmmsEval, MvBenchLetter});
KVG_REGISTER_METRIC(option_mlvu,
                    {"option_mlvu", 1,
                     "the character before the first bracket, else the whole answer",
                     "MLVU evaluation/multiple_choice_evaluation/choice_bench.py", Mlvu});

}  // namespace kvgauge::metrics::choices
