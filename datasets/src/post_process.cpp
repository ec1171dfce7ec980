// SPDX-License-Identifier: Apache-2.0
// From a raw prediction to what a metric sees.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "datasets/task.h"
#include "src/python_text.h"

namespace kvgauge {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

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
  std::string out(line.substr(0, end));
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

bool IsChoice(char c) { return c >= 'A' && c <= 'D'; }

// L-Eval: nothing is "None", and an output without a letter is taken for A.
std::string LEvalLetter(std::string_view text) {
  if (text.empty()) return "None";
  if (std::string_view("ABCD").find(text) != std::string_view::npos) return std::string(text);
  const auto found = std::find_if(text.begin(), text.end(), IsChoice);
  return found == text.end() ? "A" : std::string(1, *found);
}

std::string LEvalLetters(std::string_view text) {
  if (text.empty()) return "None";
  const auto end = std::find_if_not(text.begin(), text.end(), IsChoice);
  if (end != text.begin()) return std::string(text.begin(), end);
  text = text.substr(0, text.find("Question"));
  std::string letters;
  for (size_t i = 0; i + 1 < text.size(); ++i) {
    const char next = text[i + 1];
    if (IsChoice(text[i]) && (next == ' ' || next == '.' || next == ')')) letters += text[i];
  }
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

// Digits before a point, signs lost.
std::string LEvalNumber(std::string_view text) {
  constexpr std::string_view kLead = "The answer is ";
  std::string_view found;
  if (const size_t lead = text.find(kLead); lead != std::string_view::npos) {
    found = text.substr(lead + kLead.size());
  } else {
    text = text.substr(0, text.find("\n\n"));
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find_first_of(" \n\t", at), text.size());
      const std::string_view word = text.substr(at, end - at);
      if (std::any_of(word.begin(), word.end(), IsDigit)) found = word;
      at = end + 1;
    }
  }
  std::string digits;
  for (const char c : found) {
    if (c == '.') break;
    if (IsDigit(c)) digits += c;
  }
  return digits;
}

struct Rule {
  ExtractionRule about;
  std::string (*apply)(std::string_view);
};

const std::vector<Rule>& Rules() {
  static const std::vector<Rule> rules = {
      {{"first_digits", "the first run of digits"}, FirstDigits},
      {{"gsm8k_cot", "the number in 'The answer is N.'"}, GsmCot},
      {{"gsm8k_strict", "the number after '#### '"},
       [](std::string_view text) { return NumberAfter(text, "#### "); }},
      {{"infinitebench_call", "the first call 'func_N(M)'"}, Call},
      {{"infinitebench_function", "the name in the first call 'func_N(M)'"}, CalledFunction},
      {{"infinitebench_sought", "'the largest number' of 'The largest number of ...'"}, Sought},
      {{"last_number", "the last number (GSM8K's flexible rule)"}, LastNumber},
      {{"leval_letter", "the first letter A to D, else A"}, LEvalLetter},
      {{"leval_letters", "the letters A to D that begin the text, or that stand alone, else A"},
       LEvalLetters},
      {{"leval_number", "the digits after 'The answer is ', or of the last word with some"},
       LEvalNumber},
      {{"leval_reference", "the letters A to D of the first word, else A"}, LEvalReference},
      {{"lone_letter", "the first letter A to D that stands alone"}, LoneLetter},
      {{"longbench_v2", "the letter in 'The correct answer is (X)'"}, LongBenchV2},
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
  const double scaled = report.scale * score;
  if (report.digits < 0) return scaled;
  // Decimal rounding of the exact binary value, as Python's round(): printf does the same.
  std::array<char, 400> text = {};
  std::snprintf(text.data(), text.size(), "%.*f", report.digits, scaled);
  return std::strtod(text.data(), nullptr);
}

// The reference scorer's buckets: words for English and code, characters for Chinese.
std::string_view LengthBucket(int64_t length) {
  if (length < 4000) return "0-4k";
  return length < 8000 ? "4-8k" : "8k+";
}

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
  for (const Rule& rule : Rules()) {
    if (rule.about.name == post.extract) return rule.apply(text);
  }
  return std::string(text);
}

}  // namespace kvgauge
