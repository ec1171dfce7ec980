// SPDX-License-Identifier: Apache-2.0
// MMLongBench's rules. Most count where the output is right as it is, or behind what it is asked to
// begin with.
#include <algorithm>
#include <cmath>
#include <optional>

#include "core/json.h"
#include "core/strings.h"
#include "metrics/numbers.h"
#include "metrics/text.h"

namespace kvgauge::metrics::mmlongbench {
namespace {

constexpr const char* kReference = "MMLongBench utils.py, commit 22b9f27";

// The output with what the prompt begins it with, and what is read out of it.
Text Raw(const MetricInput& input, TextView prefix) {
  return Text(prefix) + Decode(input.prediction);
}
Text Parsed(const MetricInput& input, TextView prefix) {
  const Text all = Decode(input.prediction);
  TextView text = Strip(all);
  if (Lower(text.substr(0, prefix.size())) == Lower(prefix)) text.remove_prefix(prefix.size());
  return Text(Strip(text));
}

// Lower case, articles and runs of white space as a blank; punctuation stays.
Text Plain(TextView given) {
  const Text text = Lower(given);
  Text out;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && IsWord(text[end])) ++end;
    const TextView word = TextView(text).substr(at, end - at);
    if (word == U"a" || word == U"an" || word == U"the") {
      out += U' ';
    } else {
      out += word;
    }
    if (end < text.size()) out += text[end++];
    at = end;
  }
  return JoinSpace(SplitSpace(out));
}

// The last of the words, -1 for none.
int YesOrNo(TextView given) {
  const Text text = Plain(given);
  int last = -1;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && IsWord(text[end])) ++end;
    const TextView word = TextView(text).substr(at, end - at);
    if (word == U"yes") last = 1;
    if (word == U"no") last = 0;
    at = end + 1;
  }
  return last;
}

Result<double> Binary(const MetricInput& input) {
  int said = YesOrNo(Raw(input, U"Answer:"));
  if (said < 0) said = input.kind == "1" ? 1 : 0;
  if (input.answers.size() != 1) return BadInput("a yes-or-no question has one answer");
  const int want = YesOrNo(Decode(input.answers[0]));
  if (want < 0) return BadInput("a yes-or-no question's answer is yes or no");
  return said == want ? 1.0 : 0.0;
}

double Contains(TextView prediction, TextView answer) {
  const Text got = JoinSpace(NormalWords(prediction));
  return got.find(JoinSpace(NormalWords(answer))) != Text::npos ? 1 : 0;
}
Result<double> SubstringMatch(const MetricInput& input) {
  const Text raw = Raw(input, U"Answer:"), parsed = Parsed(input, U"Answer:");
  double best = 0;
  for (const std::string& given : input.answers) {
    const Text answer = Decode(given);
    best = std::max({best, Contains(raw, answer), Contains(parsed, answer)});
  }
  return best;
}

// int() of an entry of a list; nothing where it refuses it.
std::optional<double> WholeOf(const Json& entry) {
  if (entry.is_boolean()) return entry.get<bool>() ? 1 : 0;
  if (entry.is_number_integer()) return entry.get<double>();
  if (entry.is_number()) {
    const double value = entry.get<double>();
    return std::isfinite(value) ? std::optional(std::trunc(value)) : std::nullopt;
  }
  if (!entry.is_string()) return std::nullopt;
  const auto digits = PythonInt(Decode(entry.get<std::string>()));
  return digits ? PythonFloat(Decode(*digits)) : std::nullopt;
}

double SumOf(const Json& list) {
  double sum = 0;
  for (const Json& entry : list) sum += WholeOf(entry).value_or(0);
  return sum;
}

// The last text from [ to the ] behind it whose characters all pass.
template <class Pass>
std::optional<Text> LastList(TextView text, Pass pass, bool some) {
  std::optional<Text> last;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '[') continue;
    size_t end = at + 1;
    while (end < text.size() && text[end] != ']' && pass(text[end])) ++end;
    if (end == text.size() || text[end] != ']' || (some && end == at + 1)) continue;
    last = Text(text.substr(at, end + 1 - at));
    at = end;
  }
  return last;
}

double SumSaid(TextView given) {
  const Text text = Plain(given);
  const auto plain = [](char32_t c) { return IsDigit(c) || IsSpace(c) || c == ','; };
  if (const auto list = LastList(text, plain, true)) {
    const Result<Json> read = ParseJson(Encode(*list), "list");
    if (read.ok()) return SumOf(*read);
  }
  if (const auto list = LastList(
          text, [](char32_t) { return true; }, false)) {
    const Result<Json> read = ParseJson(Encode(*list), "list");
    if (read.ok()) return SumOf(*read);
  }
  double sum = 0;
  for (const TextView run : DigitRuns(text)) sum += PythonFloat(run).value_or(0);
  return sum;
}

Result<double> Counts(const MetricInput& input) {
  if (input.answers.size() != 1) return BadInput("a counting question has one answer, a list");
  KVG_ASSIGN(const Json answer, ParseJson(input.answers[0], "answer"));
  if (!answer.is_array()) return BadInput("a counting question's answer is a list");
  const double want = SumOf(answer);
  return SumSaid(Raw(input, U"Answer:")) == want || SumSaid(Parsed(input, U"Answer:")) == want
             ? 1.0
             : 0.0;
}

bool IsOption(char32_t c) { return c >= 'A' && c <= 'J'; }

// The option that an output names, from 0; -1 for none.
int OptionOf(TextView given) {
  const Text text = JoinSpace(SplitSpace(given));
  const TextView all = text;
  const auto option = [](char32_t c) { return static_cast<int>(c - U'A'); };
  constexpr TextView kIs = U"answer is ";
  for (size_t at = all.find(kIs); at != TextView::npos; at = all.find(kIs, at + 1)) {
    size_t behind = at + kIs.size();
    if (behind < all.size() && all[behind] == '(') ++behind;
    if (behind < all.size() && IsOption(all[behind])) return option(all[behind]);
  }
  constexpr TextView kColon = U"nswer:";
  for (size_t at = all.find(kColon); at != TextView::npos; at = all.find(kColon, at + 1)) {
    if (at == 0 || (all[at - 1] != 'a' && all[at - 1] != 'A')) continue;
    size_t behind = at + kColon.size();
    while (behind < all.size() && IsSpace(all[behind])) ++behind;
    if (behind < all.size() && IsOption(all[behind])) return option(all[behind]);
  }
  for (size_t at = all.size(); at-- > 0;) {
    const bool alone =
        (at == 0 || !IsWord(all[at - 1])) && (at + 1 == all.size() || !IsWord(all[at + 1]));
    if (alone && IsOption(all[at])) return option(all[at]);
  }
  return -1;
}

// The number of a label; nothing for none.
std::optional<double> LabelOf(TextView given) {
  const Text text = JoinSpace(SplitSpace(given)), lower = Lower(text);
  if (lower.size() == text.size()) {
    constexpr TextView kLabel = U"label:";
    for (size_t at = lower.find(kLabel); at != Text::npos; at = lower.find(kLabel, at + 1)) {
      size_t begin = at + kLabel.size();
      while (begin < text.size() && IsSpace(text[begin])) ++begin;
      size_t end = begin;
      while (end < text.size() && IsDigit(text[end])) ++end;
      if (end > begin) return PythonFloat(TextView(text).substr(begin, end - begin));
    }
  }
  const std::vector<TextView> runs = DigitRuns(text);
  for (size_t i = runs.size(); i-- > 0;) {
    const auto begin = static_cast<size_t>(runs[i].data() - text.data());
    const size_t end = begin + runs[i].size();
    if ((begin == 0 || !IsWord(text[begin - 1])) && (end == text.size() || !IsWord(text[end]))) {
      return PythonFloat(runs[i]);
    }
  }
  return runs.empty() ? std::nullopt : PythonFloat(runs[0]);
}

Result<double> WantedNumber(const MetricInput& input) {
  const auto want =
      input.answers.size() == 1 ? PythonFloat(Decode(input.answers[0])) : std::nullopt;
  if (!want) return BadInput("the answer is no number");
  return *want;
}
Result<double> Choice(const MetricInput& input) {
  KVG_ASSIGN(const double want, WantedNumber(input));
  return OptionOf(Raw(input, U"Answer:")) == want || OptionOf(Parsed(input, U"Answer:")) == want
             ? 1.0
             : 0.0;
}
Result<double> Label(const MetricInput& input) {
  KVG_ASSIGN(const double want, WantedNumber(input));
  return LabelOf(Raw(input, U"label:")).value_or(-1) == want ||
                 LabelOf(Parsed(input, U"label:")).value_or(-1) == want
             ? 1.0
             : 0.0;
}

Result<double> Summary(const MetricInput& input) {
  MetricInput raw = input, parsed = input;
  raw.prediction = Encode(Raw(input, U"Summary:"));
  parsed.prediction = Encode(Parsed(input, U"Summary:"));
  const MetricSpec* rouge = FindMetric("google_rouge_lsum");
  KVG_ASSIGN(const double of_raw, rouge->score(raw));
  KVG_ASSIGN(const double of_parsed, rouge->score(parsed));
  return std::max(of_raw, of_parsed);
}

// Questions about documents.
bool Among(TextView all, char32_t c) { return all.find(c) != TextView::npos; }

Text Cleaned(TextView given) {
  Text text(Strip(Lower(given)));
  std::erase(text, U',');
  const auto strip = [&](char32_t sign) {
    text = Text(Strip(text));
    while (text.starts_with(sign)) text.erase(0, 1);
    while (text.ends_with(sign)) text.pop_back();
    text = Text(Strip(text));
  };
  for (const TextView unit : {U"kg", U"meters", U"acres", U"minutes", U"miles", U"mile", U"feet",
                              U"million", U"thousand", U"billion", U"mm", U"m"}) {
    if (text.ends_with(unit)) text.resize(text.size() - unit.size());
    text = Text(Strip(text));
  }
  const auto quote = [](char32_t c) { return c == '\'' || c == '"'; };
  if (!text.empty() && quote(text.front())) text.erase(0, 1);
  if (!text.empty() && quote(text.back())) text.pop_back();
  strip(U'$');
  strip(U'\u00a3');
  strip(U'%');
  return text;
}

// -?\d+(\.\d*)? or -?\.\d+, of a text without commas; those that are no finite numbers are left
// out.
std::vector<double> NumbersIn(TextView given) {
  Text text(given);
  std::erase(text, U',');
  std::vector<double> numbers;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at + (text[at] == '-' ? 1 : 0);
    const auto digits = [&](size_t from) {
      while (from < text.size() && IsDigit(text[from])) ++from;
      return from;
    };
    size_t end = digits(begin);
    if (end > begin) {
      if (end < text.size() && text[end] == '.') end = digits(end + 1);
    } else if (begin < text.size() && text[begin] == '.' && digits(begin + 1) > begin + 1) {
      end = digits(begin + 1);
    } else {
      ++at;
      continue;
    }
    const auto number = PythonFloat(TextView(text).substr(at, end - at));
    if (number && std::isfinite(*number)) numbers.push_back(*number);
    at = end;
  }
  return numbers;
}

// One or several digits from `at` on, `least` to `most`; 0 where there are fewer.
size_t Digits(TextView text, size_t at, size_t least, size_t most) {
  size_t count = 0;
  while (count < most && at + count < text.size() && IsDigit(text[at + count])) ++count;
  return count < least ? 0 : count;
}

// Digits of the given counts with a sign of `between` after each but the last, to the end of the
// text or to a line break that ends it.
bool IsDated(TextView text, std::initializer_list<std::pair<size_t, size_t>> counts) {
  size_t at = 0, part = 0;
  for (const auto& [least, most] : counts) {
    if (part++ > 0) {
      if (at >= text.size() || (text[at] != '-' && text[at] != '/' && !IsSpace(text[at]))) {
        return false;
      }
      ++at;
    }
    const size_t count = Digits(text, at, least, most);
    if (count == 0) return false;
    at += count;
  }
  return at == text.size() || text.substr(at) == U"\n";
}

bool IsMail(TextView text) {
  if (text.ends_with(U'\n')) text.remove_suffix(1);
  const auto letter = [](char32_t c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto host = [&](char32_t c) {
    return letter(c) || (c >= '0' && c <= '9') || c == '.' || c == '-';
  };
  const size_t sign = text.find('@'), dot = text.rfind('.');
  if (sign == TextView::npos || sign == 0 || dot == TextView::npos || dot <= sign + 1) return false;
  const auto all = [](TextView part, auto pass) {
    return std::all_of(part.begin(), part.end(), pass);
  };
  return all(text.substr(0, sign), [&](char32_t c) { return host(c) || Among(U"_%+", c); }) &&
         all(text.substr(sign + 1, dot - sign - 1), host) && text.size() - dot > 2 &&
         all(text.substr(dot + 1), letter);
}

// Answers that have to stand in the output letter by letter: addresses, files, pages, dates.
bool IsExact(TextView text) {
  constexpr size_t kAny = static_cast<size_t>(-1);
  const auto ends = [&](TextView with) {
    TextView rest = text;
    if (rest.ends_with(U'\n')) rest.remove_suffix(1);
    return rest.ends_with(with);
  };
  const auto holds = [&](TextView part) { return text.find(part) != TextView::npos; };
  if (holds(U"https://") || ends(U".py") || ends(U".ipynb") || text.starts_with(U"page")) {
    return true;
  }
  if (holds(U"a.m.") || holds(U"p.m.") || IsMail(text)) return true;
  // 12, 12-13 and 12 13; with a slash it is none of these.
  const bool range =
      IsDated(text, {{1, kAny}}) || (!holds(U"/") && IsDated(text, {{1, kAny}, {1, kAny}}));
  return range || IsDated(text, {{4, 4}, {1, 2}, {1, 2}}) ||
         IsDated(text, {{1, 2}, {1, 2}, {2, 4}}) || IsDated(text, {{4, 4}, {1, 2}});
}

std::string_view FormOf(TextView text) {
  const auto number = PythonFloat(Cleaned(text));
  if (!number || !std::isfinite(*number)) return "String";
  return *number == std::trunc(*number) && text.find('%') == TextView::npos ? "Integer" : "Float";
}

Result<double> OfNumber(TextView answer, TextView said, bool whole) {
  const auto want = PythonFloat(Cleaned(answer));
  if (!want || (whole && *want != std::trunc(*want))) {
    return BadInput("the answer is no number, but its answer_format says so");
  }
  const auto close = [](double a, double b) {
    return a == b || std::abs(a - b) <= 0.01 * std::max(std::abs(a), std::abs(b));
  };
  for (const double number : NumbersIn(Cleaned(said))) {
    if (whole ? number == *want
              : close(*want / 100, number) || close(*want, number) || close(*want * 100, number)) {
      return 1.0;
    }
  }
  return 0.0;
}

Result<double> OfText(TextView answer, TextView said) {
  if (IsExact(answer)) return said.find(answer) != TextView::npos ? 1.0 : 0.0;
  return FindMetric("qa_f1")->score({.prediction = Encode(said), .answers = {Encode(answer)}});
}

Result<double> OfForm(TextView answer, TextView said, std::string_view form) {
  if (form == "Integer" || form == "Float") return OfNumber(answer, said, form == "Integer");
  return OfText(answer, said);
}

// Texts that need not stand letter by letter are one answer; the score is the mean.
Result<double> OfList(const Json& list, TextView said) {
  Text merged;
  std::vector<std::pair<Text, std::string_view>> parts;
  for (const Json& entry : list) {
    if (entry.is_string()) {
      const Text text = Decode(entry.get<std::string>());
      if (FormOf(text) == "String" && !IsExact(text)) {
        merged += (merged.empty() ? U"" : U" ") + text;
      } else {
        parts.emplace_back(text, FormOf(text));
      }
    } else if (entry.is_number()) {
      const auto text = Decode(entry.dump());
      parts.emplace_back(text, entry.is_number_integer() ? "Integer" : "Float");
    } else {
      return BadInput("the answer is a list of other things than texts and numbers");
    }
  }
  const Text whole(Strip(merged));
  if (!whole.empty()) parts.emplace_back(whole, FormOf(whole));
  if (parts.empty()) return BadInput("the answer is an empty list");
  double sum = 0;
  for (const auto& [text, form] : parts) {
    KVG_ASSIGN(const double score, OfForm(text, said, form));
    sum += score;
  }
  return sum / static_cast<double>(parts.size());
}

Result<double> Document(const MetricInput& input) {
  if (input.answers.size() != 1) return BadInput("a question about a document has one answer");
  const Text said = Parsed(input, U"Answer:"), answer = Decode(input.answers[0]);
  if (input.kind != "List") return OfForm(answer, said, input.kind);
  KVG_ASSIGN(const Json list, ParseJson(input.answers[0], "answer"));
  return OfList(list, said);
}

}  // namespace

KVG_REGISTER_METRIC(mmlongbench_contains,
                    {"mmlongbench_contains", 1, "an answer stands in the output, both normalised",
                     kReference, SubstringMatch});
KVG_REGISTER_METRIC(mmlongbench_yes_or_no,
                    {"mmlongbench_yes_or_no", 1,
                     "the last yes or no; an output without one counts as its kind says",
                     kReference, Binary});
KVG_REGISTER_METRIC(mmlongbench_counts,
                    {"mmlongbench_counts", 1, "the sum of the last list of numbers is right",
                     kReference, Counts});
KVG_REGISTER_METRIC(mmlongbench_option,
                    {"mmlongbench_option", 1, "the option's letter, A to J", kReference, Choice});
KVG_REGISTER_METRIC(mmlongbench_label,
                    {"mmlongbench_label", 1, "the label's number", kReference, Label});
KVG_REGISTER_METRIC(mmlongbench_summary, {"mmlongbench_summary", 1,
                                          "ROUGE-Lsum F1, stemmed, of the output as it is or read",
                                          kReference, Summary});
KVG_REGISTER_METRIC(mmlongbench_document,
                    {"mmlongbench_document", 1,
                     "by the answer's format: numbers, F1 of words, or the mean over a list",
                     kReference, Document});

}  // namespace kvgauge::metrics::mmlongbench
