// SPDX-License-Identifier: Apache-2.0
#include "metrics/nltk_sentences.h"

#include <charconv>
#include <optional>

#include "core/strings.h"
#include "metrics/nltk_text.h"

namespace kvgauge::metrics::nltk {
namespace {

// Where a type was seen: at the beginning of a sentence, within one, or somewhere; in upper or
// lower case.
constexpr int kMidUpper = 1 << 2, kBeginLower = 1 << 4;
constexpr int kAnyUpper = (1 << 1) + kMidUpper + (1 << 3);
constexpr int kAnyLower = kBeginLower + (1 << 5) + (1 << 6);

constexpr TextView kNumber = U"##number##";

bool EndsSentences(char32_t c) { return Among(U".?!", c); }

// What stands within no word.
bool IsNoWord(char32_t c) {
  return Among(U")\";}]*:@'({[\u2018\u2019\u201c\u201d\u00ab\u00bb?!", c);
}

// The length of the dashes, the dots or the dots with blanks between that stand at `at`.
size_t ManySigns(TextView text, size_t at) {
  if (at >= text.size() || (text[at] != '-' && text[at] != '.')) return 0;
  size_t end = at;
  while (end < text.size() && text[end] == text[at]) ++end;
  if (end - at > 1) return end - at;
  if (text[at] == '-') return 0;
  size_t pairs = 0;
  while (at + 2 * pairs + 1 < text.size() && text[at + 2 * pairs] == '.' &&
         IsRegexSpace(text[at + 2 * pairs + 1])) {
    ++pairs;
  }
  const bool closed = at + 2 * pairs < text.size() && text[at + 2 * pairs] == '.';
  if (!closed && pairs > 0) --pairs;
  return pairs >= 2 ? 2 * pairs + 1 : 0;
}

bool EndsWord(TextView text, size_t at) {
  const auto parts = [text](size_t place) {
    return place == text.size() || IsRegexSpace(text[place]) || IsNoWord(text[place]) ||
           ManySigns(text, place) > 0;
  };
  return parts(at) || (text[at] == ',' && parts(at + 1));
}

std::vector<TextView> WordsOfLine(TextView line) {
  std::vector<TextView> words;
  for (size_t at = 0; at < line.size();) {
    size_t end = at;
    if (const size_t signs = ManySigns(line, at); signs > 0) {
      end = at + signs;
    } else if (IsRegexSpace(line[at])) {
      ++at;
      continue;
    } else if (Among(U"(\"`{[:;&#*@)}]-,", line[at])) {
      end = at + 1;
    } else {
      do {
        ++end;
      } while (!EndsWord(line, end));
    }
    words.push_back(line.substr(at, end - at));
    at = end;
  }
  return words;
}

// "5", "-3.2", ".5", "1,000."
bool IsNumber(TextView word) {
  if (word.starts_with('-')) word.remove_prefix(1);
  if (word.starts_with('.') || word.starts_with(',')) word.remove_prefix(1);
  if (word.empty() || !IsDigit(word[0])) return false;
  return std::ranges::all_of(word, [](char32_t c) { return IsDigit(c) || Among(U",.-", c); });
}

// A letter and a full stop.
bool IsInitial(TextView word) {
  return word.size() == 2 && word[1] == '.' && IsRegexWord(word[0]) && !IsDigit(word[0]);
}

TextView WithoutStop(TextView type) {
  return type.size() > 1 && type.ends_with('.') ? type.substr(0, type.size() - 1) : type;
}

bool IsAsciiSpace(char32_t c) { return c == ' ' || (c >= 0x09 && c <= 0x0D); }

// A place where a sentence may end.
struct Stop {
  size_t at = 0;
  size_t context_end = 0;  // behind the word that follows, or behind the sign
  size_t next = 0;         // where that word begins, or the sign
};

std::optional<Stop> StopAt(TextView text, size_t at) {
  if (!EndsSentences(text[at]) || at + 1 == text.size()) return std::nullopt;
  if (IsNoWord(text[at + 1])) return Stop{at, at + 2, at + 1};
  size_t next = at + 1;
  while (next < text.size() && IsRegexSpace(text[next])) ++next;
  if (next == at + 1 || next == text.size()) return std::nullopt;
  size_t end = next;
  while (end < text.size() && !IsRegexSpace(text[end])) ++end;
  return Stop{at, end, next};
}

// How many of the characters at the front of a sentence close the one before; `length` counts the
// white space behind them.
size_t Closing(TextView sentence, size_t& length) {
  size_t count = 0;
  while (count < sentence.size() &&
         Among(U"\"')]}\u2018\u2019\u201c\u201d\u00ab\u00bb", sentence[count])) {
    ++count;
    const TextView rest = sentence.substr(count);
    size_t blanks = 0;
    while (blanks < rest.size() && IsRegexSpace(rest[blanks])) ++blanks;
    length = count + blanks;
    if (rest.empty() || blanks > 0 || rest.starts_with(U"--")) return count;
  }
  return 0;
}

struct Span {
  size_t begin = 0, end = 0;
  TextView Of(TextView text) const {
    const size_t first = std::min(begin, text.size());
    return text.substr(first, std::max(end, first) - first);
  }
};

std::vector<Span> WithClosingSigns(TextView text, const std::vector<Span>& spans) {
  std::vector<Span> whole;
  size_t taken = 0;
  for (size_t i = 0; i < spans.size(); ++i) {
    Span span = {spans[i].begin + taken, spans[i].end};
    taken = 0;
    if (i + 1 < spans.size()) {
      size_t length = 0;
      if (const size_t closing = Closing(spans[i + 1].Of(text), length); closing > 0) {
        span.end = spans[i + 1].begin + closing;
        taken = length;
      }
    }
    if (span.begin < span.end) whole.push_back(span);
  }
  return whole;
}

// Lines without their ends, as Python reads a text file.
std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines = Split(text, '\n');
  if (!lines.empty() && lines.back().empty()) lines.pop_back();
  for (std::string& line : lines) {
    if (line.ends_with('\r')) line.pop_back();
  }
  return lines;
}

using Pair = std::pair<std::string, std::string>;

Result<std::vector<Pair>> ReadPairs(const std::string& path, const std::string& expected,
                                    Sha256& digest) {
  KVG_ASSIGN(const std::string text, ReadData(path, digest));
  std::vector<Pair> pairs;
  for (const std::string& line : LinesOf(text)) {
    const std::vector<std::string> columns = Split(line, '\t');
    if (columns.size() != 2) {
      return BadInput(
          StrCat(path, ":", pairs.size() + 1, ": is ", Quoted(line), ", expected ", expected));
    }
    pairs.emplace_back(columns[0], columns[1]);
  }
  return pairs;
}

Result<std::unordered_set<Text>> ReadSet(const std::string& path, Sha256& digest) {
  KVG_ASSIGN(const std::string text, ReadData(path, digest));
  std::unordered_set<Text> set;
  for (const std::string& line : LinesOf(text)) set.insert(Decode(line));
  if (set.empty()) return BadInput(path + ": is empty, expected a word on each line");
  return set;
}

}  // namespace

Result<std::shared_ptr<const Punkt>> Punkt::Load(const std::string& folder, Sha256& digest) {
  const std::shared_ptr<Punkt> punkt(new Punkt);
  KVG_ASSIGN(punkt->abbreviations_, ReadSet(folder + "/abbrev_types.txt", digest));
  KVG_ASSIGN(punkt->starters_, ReadSet(folder + "/sent_starters.txt", digest));
  KVG_ASSIGN(const std::vector<Pair> collocations,
             ReadPairs(folder + "/collocations.tab", "two words with a tab between", digest));
  for (const auto& [first, second] : collocations) {
    punkt->collocations_.emplace(Decode(first), Decode(second));
  }
  const std::string path = folder + "/ortho_context.tab";
  const std::string expected = "a word, a tab and an even number from 2 to 126";
  KVG_ASSIGN(const std::vector<Pair> cases, ReadPairs(path, expected, digest));
  int64_t line = 0;
  for (const auto& [type, bits] : cases) {
    ++line;
    int value = 0;
    const auto [end, error] = std::from_chars(bits.data(), bits.data() + bits.size(), value);
    if (error != std::errc() || end != bits.data() + bits.size() || value < 2 || value % 2 != 0 ||
        value > kAnyUpper + kAnyLower) {
      return BadInput(StrCat(path, ":", line, ": ", Quoted(type), " has ", Quoted(bits),
                             ", expected ", expected));
    }
    punkt->cases_[Decode(type)] = value;
  }
  return std::shared_ptr<const Punkt>(punkt);
}

int Punkt::Cases(const Text& type) const {
  const auto found = cases_.find(type);
  return found == cases_.end() ? 0 : found->second;
}

Punkt::Token Punkt::Annotated(TextView word) const {
  Token token{.text = Text(word), .type = Lower(word)};
  if (IsNumber(token.type)) token.type = kNumber;
  if (word.size() == 1 && EndsSentences(word[0])) {
    token.ends_sentence = true;
  } else if (word.size() > 1 && word.find_first_not_of(U'.') == TextView::npos) {
    token.ellipsis = true;
  } else if (word.ends_with('.') && !word.ends_with(U"..")) {
    const Text stem = Lower(word.substr(0, word.size() - 1));
    const size_t hyphen = stem.rfind('-');
    token.abbreviation = abbreviations_.contains(stem) ||
                         (hyphen != Text::npos && abbreviations_.contains(stem.substr(hyphen + 1)));
    token.ends_sentence = !token.abbreviation;
  }
  return token;
}

Punkt::Starts Punkt::StartsSentence(const Token& token) const {
  if (token.text.size() == 1 && Among(U";:,.!?", token.text[0])) return Starts::kNo;
  const int cases = Cases(token.ends_sentence ? Text(WithoutStop(token.type)) : token.type);
  const char32_t first = token.text[0];
  if (IsUpper(first) && (cases & kAnyLower) != 0 && (cases & kMidUpper) == 0) return Starts::kYes;
  if (IsLower(first) && ((cases & kAnyUpper) != 0 || (cases & kBeginLower) == 0)) {
    return Starts::kNo;
  }
  return Starts::kUnknown;
}

// What the next token says about the first one's full stop.
void Punkt::Decide(Token& token, const Token& next) const {
  if (!token.text.ends_with('.')) return;
  const Text type(WithoutStop(token.type));
  const Text next_type(next.ends_sentence ? WithoutStop(next.type) : TextView(next.type));
  const auto stays_within = [&token] {
    token.ends_sentence = false;
    token.abbreviation = true;
  };
  if (collocations_.contains({type, next_type})) return stays_within();
  const bool initial = IsInitial(token.text), next_upper = IsUpper(next.text[0]);
  const Starts starts = StartsSentence(next);
  if ((token.abbreviation || token.ellipsis) && !initial &&
      (starts == Starts::kYes || (next_upper && starters_.contains(next_type)))) {
    token.ends_sentence = true;
    return;
  }
  if (!initial && type != kNumber) return;
  if (starts == Starts::kNo || (starts == Starts::kUnknown && initial && next_upper &&
                                (Cases(next_type) & kAnyLower) == 0)) {
    stays_within();
  }
}

// Whether a sentence ends within a few words: at one of them but the last.
bool Punkt::EndsWithin(TextView context) const {
  std::vector<Token> tokens;
  for (const TextView line : SplitAt(context, '\n')) {
    if (Strip(line).empty()) continue;
    for (const TextView word : WordsOfLine(line)) tokens.push_back(Annotated(word));
  }
  for (size_t i = 0; i + 1 < tokens.size(); ++i) {
    Decide(tokens[i], tokens[i + 1]);
    if (tokens[i].ends_sentence) return true;
  }
  return false;
}

std::vector<TextView> Punkt::Split(TextView text) const {
  std::vector<Span> spans;
  size_t begin = 0;
  const auto cut = [&](const Stop& stop, Span word) {
    if (!EndsWithin(text.substr(word.begin, stop.context_end - word.begin))) return;
    spans.push_back({begin, stop.at + 1});
    begin = stop.next;
  };
  // Only the last of the stops within one word counts.
  std::optional<Stop> last;
  Span last_word;
  for (size_t at = 0; at < text.size(); ++at) {
    const std::optional<Stop> stop = StopAt(text, at);
    if (!stop) continue;
    Span word = {last_word.begin, at};
    for (size_t i = at; i-- > last_word.end + 1;) {  // a blank right behind the last stop is none
      if (!IsAsciiSpace(text[i])) continue;
      word.begin = i + 1;
      break;
    }
    if (last && last_word.end <= word.begin) cut(*last, last_word);
    last = stop;
    last_word = word;
  }
  if (last) cut(*last, last_word);
  size_t end = text.size();
  while (end > 0 && IsSpace(text[end - 1])) --end;
  spans.push_back({begin, end});
  std::vector<TextView> sentences;
  for (const Span& span : WithClosingSigns(text, spans)) sentences.push_back(span.Of(text));
  return sentences;
}

}  // namespace kvgauge::metrics::nltk
