// SPDX-License-Identifier: Apache-2.0
// From a raw prediction to what a metric sees.
#include <algorithm>
#include <string_view>

#include "core/decimal.h"
#include "datasets/task.h"
#include "metrics/numbers.h"
#include "metrics/text.h"
#include "src/python_text.h"

namespace kvgauge {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

std::string Lower(std::string_view text) {
  return metrics::Encode(metrics::Lower(metrics::Decode(text)));
}

std::string Without(std::string_view text, char dropped) {
  std::string out;
  for (const char c : text) {
    if (c != dropped) out += c;
  }
  return out;
}

// The first occurrence of `lead` that a letter A to D follows (and `tail` after it).
std::string LetterAfter(std::string_view text, std::string_view lead, std::string_view tail) {
  for (size_t at = text.find(lead); at != std::string_view::npos; at = text.find(lead, at + 1)) {
    const size_t letter = at + lead.size();
    if (letter < text.size() && text[letter] >= 'A' && text[letter] <= 'D' &&
        text.substr(letter + 1).substr(0, tail.size()) == tail) {
      return std::string(1, text[letter]);
    }
  }
  return "";
}

std::string LongBenchV2(std::string_view prediction) {
  const std::string text = Without(prediction, '*');
  const std::string bracketed = LetterAfter(text, "The correct answer is (", ")");
  return bracketed.empty() ? LetterAfter(text, "The correct answer is ", "") : bracketed;
}

// str.capitalize().
std::string Capitalized(std::string_view text) {
  const metrics::Text all = metrics::Decode(text);
  if (all.empty()) return "";
  metrics::Text front = metrics::Upper(metrics::TextView(all).substr(0, 1));
  front = front.substr(0, 1) + metrics::Lower(metrics::TextView(front).substr(1));
  return metrics::Encode(front + metrics::Lower(metrics::TextView(all).substr(1)));
}

std::string FirstDigits(std::string_view text) {
  const auto begin = std::find_if(text.begin(), text.end(), IsDigit);
  return std::string(begin, std::find_if_not(begin, text.end(), IsDigit));
}

// How GSM8K answers are compared: no thousands commas, no currency sign, no final full stop.
std::string CleanNumber(std::string_view text) {
  std::string out = Without(Without(text, ','), '$');
  if (!out.empty() && out.back() == '.') out.pop_back();
  return out;
}

bool IsNumberByte(char c) { return IsDigit(c) || c == '.' || c == ','; }

// -?[0-9.,]+ at the start of `text`; "" when absent.
std::string NumberAt(std::string_view text) {
  const size_t first = !text.empty() && text[0] == '-' ? 1 : 0;
  size_t end = first;
  while (end < text.size() && IsNumberByte(text[end])) ++end;
  return end == first ? "" : std::string(text.substr(0, end));
}

// The number after the first `lead` that a number follows.
std::string NumberAfter(std::string_view text, std::string_view lead) {
  for (size_t at = text.find(lead); at != std::string_view::npos; at = text.find(lead, at + 1)) {
    const std::string number = NumberAt(text.substr(at + lead.size()));
    if (!number.empty()) return CleanNumber(number);
  }
  return "";
}

// "The answer is N." of the chain-of-thought form: one byte that is no newline must follow the
// number. It may be the number's own last byte, which the pattern then gives back.
std::string GsmCot(std::string_view text) {
  constexpr std::string_view kLead = "The answer is ";
  for (size_t at = text.find(kLead); at != std::string_view::npos; at = text.find(kLead, at + 1)) {
    std::string number = NumberAt(text.substr(at + kLead.size()));
    if (number.empty()) continue;
    const size_t after = at + kLead.size() + number.size();
    if (after >= text.size() || text[after] == '\n') number.pop_back();
    if (number.empty() || number == "-") continue;
    return CleanNumber(number);
  }
  return "";
}

// The last match of (-?[$0-9.,]{2,})|(-?[0-9]+), scanned from the left as a pattern engine does.
std::string LastNumber(std::string_view text) {
  std::string last;
  for (size_t at = 0; at < text.size();) {
    const size_t sign = text[at] == '-' ? 1 : 0;
    size_t end = at + sign;
    while (end < text.size() && (IsNumberByte(text[end]) || text[end] == '$')) ++end;
    const size_t length = end - at - sign;
    if (length >= 2 || (length == 1 && IsDigit(text[at + sign]))) {
      last = text.substr(at, end - at);
      at = end;
    } else {
      ++at;
    }
  }
  return CleanNumber(last);
}

// No sign, no decimals: "-345" and "1.345" are 345, as the pattern \d+ reads them.
std::string FirstInteger(std::string_view text) {
  const metrics::Text decoded = metrics::Decode(text);
  const std::vector<metrics::TextView> runs = metrics::DigitRuns(decoded);
  return runs.empty() ? "" : *metrics::PythonInt(runs.front());
}

std::string LastInteger(std::string_view text) {
  const metrics::Text decoded = metrics::Decode(text);
  const std::vector<metrics::TextView> runs = metrics::DigitRuns(decoded);
  return runs.empty() ? "" : *metrics::PythonInt(runs.back());
}

// A to D with no word byte on either side.
std::string LoneLetter(std::string_view text) {
  const auto is_word = [](char c) {
    return IsDigit(c) || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' ||
           static_cast<uint8_t>(c) >= 0x80;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] < 'A' || text[i] > 'D') continue;
    if (i > 0 && is_word(text[i - 1])) continue;
    if (i + 1 < text.size() && is_word(text[i + 1])) continue;
    return std::string(1, text[i]);
  }
  return "";
}

// The first "func_12(-3)".
std::string Call(std::string_view text) {
  constexpr std::string_view kName = "func_";
  for (size_t at = text.find(kName); at != std::string_view::npos; at = text.find(kName, at + 1)) {
    size_t end = at + kName.size();
    const auto digits = [&] {
      const size_t begin = end;
      while (end < text.size() && IsDigit(text[end])) ++end;
      return end > begin;
    };
    const auto take = [&](char c) {
      if (end >= text.size() || text[end] != c) return false;
      ++end;
      return true;
    };
    if (!digits() || !take('(')) continue;
    take('-');
    if (digits() && take(')')) return std::string(text.substr(at, end - at));
  }
  return "";
}

std::string CalledFunction(std::string_view text) {
  const std::string call = Call(text);
  return call.substr(0, call.find('('));
}

// "the largest number" of "The largest number of ...": to the last " of" of the line.
std::string Sought(std::string_view text) {
  const size_t begin = text.find("The ");
  if (begin == std::string_view::npos) return "";
  const std::string_view line = text.substr(begin).substr(0, text.substr(begin).find('\n'));
  const size_t end = line.rfind(" of");
  if (end == std::string_view::npos || end <= 4) return "";
  return Lower(line.substr(0, end));
}

// SCBench's twin of it: to the last " is" of the line.
std::string ScbenchSought(std::string_view text) {
  for (size_t at = text.find("The "); at != std::string_view::npos;
       at = text.find("The ", at + 1)) {
    const std::string_view line = text.substr(at, text.find('\n', at) - at);
    const size_t end = line.rfind(" is");
    if (end != std::string_view::npos && end > 4) return Lower(line.substr(0, end));
  }
  return "";
}

bool IsChoice(char c) { return c >= 'A' && c <= 'D'; }

std::string SortedSet(std::string letters) {
  std::sort(letters.begin(), letters.end());
  letters.erase(std::unique(letters.begin(), letters.end()), letters.end());
  return letters;
}

// L-Eval: nothing is "None", and an output without a letter is taken for A.
std::string LEvalLetter(std::string_view text) {
  if (PythonStrip(text).empty()) return "None";
  if (std::string_view("ABCD").find(text) != std::string_view::npos) return std::string(text);
  const auto found = std::find_if(text.begin(), text.end(), IsChoice);
  return found == text.end() ? "A" : std::string(1, *found);
}

// Two letters or more that begin the text; else the one, and all that stand before white space, a
// full stop or a bracket; else the first run of letters.
std::string LEvalLetters(std::string_view text) {
  if (PythonStrip(text).empty()) return "None";
  if (std::string_view("ABCD").find(text) != std::string_view::npos) return std::string(text);
  const auto end = std::find_if_not(text.begin(), text.end(), IsChoice);
  std::string letters(text.begin(), end);
  if (letters.size() > 1) return SortedSet(letters);
  text.remove_prefix(letters.size());
  text = text.substr(0, text.find("Question"));
  for (size_t i = 0; i + 1 < text.size(); ++i) {
    const std::string_view next = text.substr(i + 1);
    const bool ends = next[0] == '.' || next[0] == ')' || BlankLength(next) > 0;
    if (IsChoice(text[i]) && ends) letters += text[i];
  }
  if (!letters.empty()) return SortedSet(letters);
  const auto first = std::find_if(text.begin(), text.end(), IsChoice);
  letters.assign(first, std::find_if_not(first, text.end(), IsChoice));
  return letters.empty() ? "A" : letters;
}

// The letters of the first word.
std::string LEvalReference(std::string_view text) {
  std::string letters;
  for (const char c : PythonStrip(text).substr(0, PythonStrip(text).find_first_of(" \n\t"))) {
    if (IsChoice(c)) letters += c;
  }
  return letters.empty() ? "A" : letters;
}

// Digits before a point, signs lost; of the word behind the lead, else of the last word between
// blanks that has some.
std::string LEvalNumber(std::string_view text) {
  constexpr std::string_view kLead = "The answer is ";
  std::string_view found;
  size_t lead = text.find(kLead);
  while (lead != std::string_view::npos && (lead + kLead.size() == text.size() ||
                                            BlankLength(text.substr(lead + kLead.size())) > 0)) {
    lead = text.find(kLead, lead + 1);
  }
  if (lead != std::string_view::npos) {
    found = text.substr(lead + kLead.size());
    size_t end = 0;
    while (end < found.size() && BlankLength(found.substr(end)) == 0) ++end;
    found = found.substr(0, end);
  } else {
    text = text.substr(0, text.find("\n\n"));
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find(' ', at), text.size());
      const std::string_view word = text.substr(at, end - at);
      const metrics::Text letters = metrics::Decode(word);
      if (std::any_of(letters.begin(), letters.end(), metrics::IsDigit)) found = word;
      at = end + 1;
    }
  }
  metrics::Text digits;
  for (const char32_t c : metrics::Decode(found)) {
    if (c == '.') break;
    if (metrics::IsDigit(c)) digits += c;
  }
  return metrics::Encode(digits);
}

// What L-Eval's science fiction holds beside its answers.
constexpr std::string_view kFact = "[fact:";

std::string LEvalLoyalty(std::string_view text) {
  const std::string lower = Lower(text);
  return std::string(PythonStrip(std::string_view(lower).substr(0, lower.find(kFact))));
}

// Without the bracket that closes it.
std::string LEvalFact(std::string_view text) {
  const std::string lower = Lower(text);
  const size_t at = lower.find(kFact);
  if (at == std::string::npos) return "";
  std::string_view fact = std::string_view(lower).substr(at + kFact.size());
  fact = fact.substr(0, fact.find(kFact));
  if (!fact.empty()) fact.remove_suffix(1);
  return std::string(PythonStrip(fact));
}

// "true" or "false", whichever stands in the first word that has one.
std::string LEvalTruth(std::string_view text) {
  const std::string lower = LEvalLoyalty(text);
  for (size_t at = 0; at < lower.size();) {
    size_t end = at;
    while (end < lower.size() && BlankLength(std::string_view(lower).substr(end)) == 0) ++end;
    const std::string_view word = std::string_view(lower).substr(at, end - at);
    for (const char* truth : {"true", "false"}) {
      if (word.find(truth) != std::string_view::npos) return truth;
    }
    at = end + 1;
  }
  return "<error>";
}

// The question as it is asked without the document.
std::string LEvalRealWorld(std::string_view text) {
  return ReplaceAll(text, "based on the world described in the document.",
                    "based on the real-world knowledge and facts up until your last training");
}

std::string BeforeStop(std::string_view text, std::string_view stop) {
  return std::string(text.substr(0, text.find(stop)));
}

// M4LE's headlines: what stands within the first quotes, else all; of that the first line.
std::string M4leHeadline(std::string_view text) {
  if (const size_t quote = text.find('"'); quote != std::string_view::npos) {
    text = text.substr(quote + 1);
    text = PythonStrip(text.substr(0, text.find('"')));
  }
  return std::string(PythonStrip(text.substr(0, text.find('\n'))));
}

// MATH's own graders take the last box whole; one that is not closed holds nothing. A command
// without braces of its own takes the next group, as there.
std::string BoxedMatched(std::string_view text) {
  size_t box = text.rfind("\\boxed");
  if (box == std::string_view::npos) box = text.rfind("\\fbox");
  if (box == std::string_view::npos) return "";
  int depth = 0;
  size_t open = std::string_view::npos;
  for (size_t at = box; at < text.size(); ++at) {
    if (text[at] == '{') {
      if (open == std::string_view::npos) open = at + 1;
      ++depth;
    }
    if (text[at] == '}' && --depth == 0) return std::string(text.substr(open, at - open));
  }
  return "";
}

// kvpress's graders split a text at "boxed{" and take a part up to its first closing brace, so an
// answer with braces of its own is cut. Where there is no box, the first rule finds nothing, and
// the last takes the text itself as the last part.
std::string Boxed(std::string_view text, bool last) {
  constexpr std::string_view kBox = "boxed{";
  const size_t box = last ? text.rfind(kBox) : text.find(kBox);
  if (box == std::string_view::npos && !last) return "";
  if (box != std::string_view::npos) text.remove_prefix(box + kBox.size());
  text = text.substr(0, text.find(kBox));
  return std::string(text.substr(0, text.find('}')));
}

struct Rule {
  ExtractionRule about;
  std::string (*apply)(std::string_view);
};

const std::vector<Rule>& Rules() {
  static const std::vector<Rule> rules = {
      {{"before_chinese_stop", "what stands before the first \u3002"},
       [](std::string_view text) { return BeforeStop(text, "\u3002"); }},
      {{"before_stop", "what stands before the first full stop"},
       [](std::string_view text) { return BeforeStop(text, "."); }},
      {{"boxed_first", "what stands in the first 'boxed{...}', up to its first closing brace"},
       [](std::string_view text) { return Boxed(text, false); }},
      {{"boxed_last",
        "what stands in the last 'boxed{...}', else in the text, up to a closing brace"},
       [](std::string_view text) { return Boxed(text, true); }},
      {{"boxed_matched",
        "what stands in the last '\\boxed{...}', braces matched; of \\fbox likewise"},
       BoxedMatched},
      {{"capitalized", "the text with a capital at its front and none behind"}, Capitalized},
      {{"first_digits", "the first run of digits"}, FirstDigits},
      {{"first_integer", "the first run of digits, as a whole number: 0345 is 345"}, FirstInteger},
      {{"gsm8k_cot", "the number in 'The answer is N.'"}, GsmCot},
      {{"gsm8k_strict", "the number after '#### '"},
       [](std::string_view text) { return NumberAfter(text, "#### "); }},
      {{"infinitebench_call", "the first call 'func_N(M)'"}, Call},
      {{"infinitebench_function", "the name in the first call 'func_N(M)'"}, CalledFunction},
      {{"infinitebench_sought", "'the largest number' of 'The largest number of ...'"}, Sought},
      {{"last_integer", "the last run of digits, as a whole number: -0345 is 345"}, LastInteger},
      {{"last_number", "the last number (GSM8K's flexible rule)"}, LastNumber},
      {{"leval_fact", "what stands within '[fact: ...]', in lower case"}, LEvalFact},
      {{"leval_letter", "the first letter A to D, else A"}, LEvalLetter},
      {{"leval_letters", "the letters A to D that begin the text and that stand alone, else A"},
       LEvalLetters},
      {{"leval_loyalty", "what stands before '[fact:', in lower case"}, LEvalLoyalty},
      {{"leval_number", "the digits after 'The answer is ', or of the last word with some"},
       LEvalNumber},
      {{"leval_real_world", "the text, its question asked of the world instead of the document"},
       LEvalRealWorld},
      {{"leval_reference", "the letters A to D of the first word, else A"}, LEvalReference},
      {{"leval_truth", "true or false, as the first word that holds one says"}, LEvalTruth},
      {{"lone_letter", "the first letter A to D that stands alone"}, LoneLetter},
      {{"longbench_v2", "the letter in 'The correct answer is (X)'"}, LongBenchV2},
      {{"m4le_headline", "the first line of what stands within the first quotes, else of all"},
       M4leHeadline},
      {{"right_stripped", "the text without white space at its end"},
       [](std::string_view text) {
         const std::string_view bare = PythonStrip(text);
         return bare.empty() ? "" : std::string(text.begin(), bare.end());
       }},
      {{"scbench_sought", "'the largest number' of 'The largest number is ...'"}, ScbenchSought},
      {{"stripped", "the text without white space at its ends"},
       [](std::string_view text) { return std::string(PythonStrip(text)); }},
  };
  return rules;
}

}  // namespace

std::vector<ExtractionRule> ExtractionRules() {
  std::vector<ExtractionRule> list;
  for (const Rule& rule : Rules()) list.push_back(rule.about);
  return list;
}

std::string CutAtStop(const StopRule& stop, const std::string& prediction) {
  size_t end = std::string::npos;
  for (const std::string& text : stop.texts) end = std::min(end, prediction.find(text));
  return prediction.substr(0, end);
}

double Reported(const Reporting& report, double score) {
  return RoundDecimal(report.scale * score, report.digits);
}

// The reference scorer's buckets: words for English and code, characters for Chinese.
std::string_view LengthBucket(int64_t length) {
  if (length < 4000) return "0-4k";
  return length < 8000 ? "4-8k" : "8k+";
}

namespace {

std::string Extracted(const std::string& name, std::string_view text) {
  for (const Rule& rule : Rules()) {
    if (rule.about.name == name) return rule.apply(text);
  }
  return std::string(text);
}

}  // namespace

std::string PostProcess(const PostProcessing& post, const std::string& prediction) {
  std::string_view text = prediction;
  if (post.skip_newlines) {
    text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
  }
  if (post.first_line) text = text.substr(0, text.find('\n'));
  if (post.strip) text = PythonStrip(text);
  size_t cut = std::string_view::npos;
  for (const std::string& mark : post.cut_at) cut = std::min(cut, text.find(mark));
  text = text.substr(0, cut);
  if (post.strip) text = PythonStrip(text);
  std::string found = post.pattern ? post.pattern->Find(text) : Extracted(post.extract, text);
  return found.empty() ? post.if_empty : found;
}

}  // namespace kvgauge
