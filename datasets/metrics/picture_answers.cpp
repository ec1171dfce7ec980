// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <utility>

#include "metrics/pictures.h"

namespace kvgauge::metrics {
namespace {

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

constexpr std::array<std::pair<std::u32string_view, std::u32string_view>, 29> kNumbers = {
    {{U"none", U"0"},      {U"zero", U"0"},     {U"one", U"1"},        {U"two", U"2"},
     {U"three", U"3"},     {U"four", U"4"},     {U"five", U"5"},       {U"six", U"6"},
     {U"seven", U"7"},     {U"eight", U"8"},    {U"nine", U"9"},       {U"ten", U"10"},
     {U"eleven", U"11"},   {U"twelve", U"12"},  {U"thirteen", U"13"},  {U"fourteen", U"14"},
     {U"fifteen", U"15"},  {U"sixteen", U"16"}, {U"seventeen", U"17"}, {U"eighteen", U"18"},
     {U"nineteen", U"19"}, {U"twenty", U"20"},  {U"thirty", U"30"},    {U"forty", U"40"},
     {U"fifty", U"50"},    {U"sixty", U"60"},   {U"seventy", U"70"},   {U"eighty", U"80"},
     {U"ninety", U"90"}}};
constexpr size_t kUpToTen = 12;

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

}  // namespace

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

Text NormalAnswer(TextView given, NumberWords numbers) {
  const size_t first = numbers == NumberWords::kToTen ? 0 : 1;
  const size_t last = numbers == NumberWords::kToNinety ? kNumbers.size() : kUpToTen;
  Text text = ReplacedBy(ReplacedBy(Text(given), U"\n", U" "), U"\t", U" ");
  text = WithoutSigns(Strip(text));
  std::vector<Text> words;
  for (Text& word : SplitSpace(Lower(text))) {
    for (size_t i = first; i < last; ++i) {
      if (word == kNumbers[i].first) {
        word = kNumbers[i].second;
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

std::optional<char32_t> OptionLetterOf(TextView prediction, const std::vector<Text>& letters) {
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

Text YesOrNoOf(TextView prediction) {
  const std::vector<Text> words = SplitSpace(WithoutSigns(Lower(prediction)));
  const auto has = [&](const Text& word) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  return has(U"yes") == has(U"no") ? U"unknown" : has(U"yes") ? U"yes" : U"no";
}

}  // namespace kvgauge::metrics
