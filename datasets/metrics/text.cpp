// SPDX-License-Identifier: Apache-2.0
#include "metrics/text.h"

#include <utf8proc.h>

#include "core/strings.h"

namespace kvgauge::metrics {
namespace {

utf8proc_category_t Category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool Within(char32_t c, char32_t first, char32_t last) { return c >= first && c <= last; }

// Unicode's Cased, without the modifier letters: they are skipped as case-ignorable before anyone
// asks.
bool IsCased(char32_t c) {
  const utf8proc_category_t category = Category(c);
  if (category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL ||
      category == UTF8PROC_CATEGORY_LT) {
    return true;
  }
  return c == 0xAA || c == 0xBA || Within(c, 0x2160, 0x217F) || Within(c, 0x24B6, 0x24E9) ||
         Within(c, 0x1F130, 0x1F149) || Within(c, 0x1F150, 0x1F169) || Within(c, 0x1F170, 0x1F189);
}

bool IsCaseIgnorable(char32_t c) {
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      break;
  }
  // What word breaking lets stand inside a word.
  static constexpr char32_t kInsideWords[] = {0x27,   0x2E,   0x3A,   0xB7,   0x387,  0x55F,
                                              0x5F4,  0x2018, 0x2019, 0x2024, 0x2027, 0xFE13,
                                              0xFE52, 0xFE55, 0xFF07, 0xFF0E, 0xFF1A};
  return std::find(std::begin(kInsideWords), std::end(kInsideWords), c) != std::end(kInsideWords);
}

// A sigma that ends a word is written differently.
bool IsFinalSigma(TextView text, size_t at) {
  size_t before = at;
  while (before > 0 && IsCaseIgnorable(text[before - 1])) --before;
  if (before == 0 || !IsCased(text[before - 1])) return false;
  size_t after = at + 1;
  while (after < text.size() && IsCaseIgnorable(text[after])) ++after;
  return after == text.size() || !IsCased(text[after]);
}

bool IsArticle(TextView word) { return word == U"a" || word == U"an" || word == U"the"; }

}  // namespace

std::string Encode(TextView text) {
  std::string utf8;
  for (const char32_t c : text) AppendUtf8(utf8, c);
  return utf8;
}

Text Decode(std::string_view utf8) {
  std::string repaired;
  if (FindInvalidUtf8(utf8) != std::string_view::npos) {
    repaired = RepairUtf8(utf8);
    utf8 = repaired;
  }
  Text text;
  text.reserve(utf8.size());
  for (size_t i = 0; i < utf8.size();) {
    const auto lead = static_cast<unsigned char>(utf8[i]);
    const size_t size = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    char32_t c = size == 1 ? lead : lead & (0x7Fu >> size);
    for (size_t k = 1; k < size; ++k) {
      c = (c << 6) | (static_cast<unsigned char>(utf8[i + k]) & 0x3Fu);
    }
    text.push_back(c);
    i += size;
  }
  return text;
}

bool IsSpace(char32_t c) {
  if (c < 0x80) return Within(c, 0x09, 0x0D) || Within(c, 0x1C, 0x20);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || Within(c, 0x2000, 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool IsDigit(char32_t c) {
  if (c < 0x80) return Within(c, '0', '9');
  return Category(c) == UTF8PROC_CATEGORY_ND;
}

bool IsLetter(char32_t c) {
  if (c < 0x80) return Within(c, 'a', 'z') || Within(c, 'A', 'Z');
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return true;
    default:
      return false;
  }
}

bool IsWord(char32_t c) {
  if (c < 0x80) return IsLetter(c) || Within(c, '0', '9') || c == '_';
  if (IsLetter(c)) return true;
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return true;
    default:
      return false;
  }
}

bool IsPunctuation(char32_t c) {
  return Within(c, 0x21, 0x2F) || Within(c, 0x3A, 0x40) || Within(c, 0x5B, 0x60) ||
         Within(c, 0x7B, 0x7E);
}

Text Lower(TextView text) {
  Text lower;
  lower.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const char32_t c = text[i];
    if (c < 0x80) {
      lower.push_back(Within(c, 'A', 'Z') ? c + 32 : c);
    } else if (c == 0x130) {  // the only letter whose lower case is two code points
      lower += U"i\u0307";
    } else if (c == 0x3A3) {
      lower.push_back(IsFinalSigma(text, i) ? 0x3C2 : 0x3C3);
    } else {
      lower.push_back(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
    }
  }
  return lower;
}

TextView Strip(TextView text) {
  while (!text.empty() && IsSpace(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsSpace(text.back())) text.remove_suffix(1);
  return text;
}

std::vector<Text> SplitSpace(TextView text) {
  std::vector<Text> words;
  for (size_t i = 0; i < text.size();) {
    while (i < text.size() && IsSpace(text[i])) ++i;
    const size_t begin = i;
    while (i < text.size() && !IsSpace(text[i])) ++i;
    if (i > begin) words.emplace_back(text.substr(begin, i - begin));
  }
  return words;
}

std::vector<TextView> SplitAt(TextView text, char32_t separator) {
  std::vector<TextView> pieces;
  size_t begin = 0;
  while (true) {
    const size_t end = text.find(separator, begin);
    pieces.push_back(text.substr(begin, end - begin));
    if (end == TextView::npos) return pieces;
    begin = end + 1;
  }
}

Text JoinSpace(const std::vector<Text>& words) {
  Text joined;
  for (const Text& word : words) {
    if (!joined.empty()) joined.push_back(' ');
    joined += word;
  }
  return joined;
}

std::vector<TextView> DigitRuns(TextView text) {
  std::vector<TextView> runs;
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    while (i < text.size() && IsDigit(text[i])) ++i;
    if (i > begin) {
      runs.push_back(text.substr(begin, i - begin));
    } else {
      ++i;
    }
  }
  return runs;
}

void ReplaceEach(Text& text, TextView from, TextView to) {
  for (size_t at = text.find(from); at != Text::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

std::vector<Text> NormalWords(TextView text) {
  Text kept = Lower(text);
  std::erase_if(kept, IsPunctuation);
  // An article is a whole run of word characters; the run ends at marks too, so that the "a" of a
  // decomposed letter is one.
  Text plain;
  plain.reserve(kept.size());
  for (size_t i = 0; i < kept.size();) {
    const size_t begin = i;
    while (i < kept.size() && IsWord(kept[i])) ++i;
    const TextView run = TextView(kept).substr(begin, i - begin);
    if (IsArticle(run)) {
      plain.push_back(' ');
    } else {
      plain += run;
    }
    if (i < kept.size()) plain.push_back(kept[i++]);
  }
  return SplitSpace(plain);
}

std::function<Result<double>(const MetricInput&)> BestOf(PairScore score) {
  return [score](const MetricInput& input) -> Result<double> {
    const Text prediction = Decode(input.prediction);
    double best = 0;
    for (const std::string& answer : input.answers) {
      best = std::max(best, score(prediction, Decode(answer)));
    }
    return best;
  };
}

}  // namespace kvgauge::metrics
