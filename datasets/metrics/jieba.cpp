// SPDX-License-Identifier: Apache-2.0
#include "metrics/jieba.h"

#include <charconv>
#include <cmath>
#include <cstdlib>

#include "core/files.h"
#include "core/strings.h"

namespace kvgauge::metrics {
namespace {

constexpr double kNever = -3.14e100;
enum State : size_t { kBegin, kMiddle, kEnd, kSingle };
constexpr std::array<double, 4> kStart = {-0.26268660809250016, kNever, kNever,
                                          -1.4652633398537678};

// The two states that may stand before each, the one whose letter sorts last first: it wins ties.
struct Before {
  State state;
  double transition;
};
constexpr Before kBefore[4][2] = {
    {{kSingle, -0.7211965654669841}, {kEnd, -0.5897149736854513}},    // B
    {{kMiddle, -1.2603623820268226}, {kBegin, -0.916290731874155}},   // M
    {{kMiddle, -0.33344856811948514}, {kBegin, -0.510825623765990}},  // E
    {{kSingle, -0.6658631448798212}, {kEnd, -0.8085250474669937}}};   // S

bool IsHan(char32_t c) { return c >= 0x4E00 && c <= 0x9FD5; }
bool IsAsciiDigit(char32_t c) { return c >= '0' && c <= '9'; }
bool IsAsciiWord(char32_t c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || IsAsciiDigit(c);
}
bool IsBlock(char32_t c) {
  return IsHan(c) || IsAsciiWord(c) || TextView(U"+#&._%-").find(c) != TextView::npos;
}

// A Python dictionary of dictionaries: 'B': {'\u4e00': -3.65, ...}.
Status ReadEmission(const std::string& path,
                    std::array<std::unordered_map<char32_t, double>, 4>& emission) {
  KVG_ASSIGN(const std::string text, ReadFile(path));
  size_t state = 4;
  for (size_t at = text.find("P="); at != std::string::npos;) {
    const size_t open = text.find('\'', at);
    if (open == std::string::npos) break;
    const size_t close = text.find('\'', open + 1);
    if (close == std::string::npos) return BadInput(path + ": a quote is not closed");
    const std::string key = text.substr(open + 1, close - open - 1);
    size_t value = close + 1;
    while (value < text.size() && (text[value] == ':' || text[value] == ' ')) ++value;
    if (value < text.size() && text[value] == '{') {
      state = std::string_view("BMES").find(key);
      if (state > 3) return BadInput(path + ": unknown state " + Quoted(key));
      at = value;
      continue;
    }
    double number = 0;
    const auto [end, error] =
        std::from_chars(text.data() + value, text.data() + text.size(), number);
    Text character = Decode(key);
    if (key.size() == 6 && key.starts_with("\\u")) {
      character = Text(1, static_cast<char32_t>(std::strtoul(key.c_str() + 2, nullptr, 16)));
    }
    if (error != std::errc() || state > 3 || character.size() != 1) {
      return BadInput(path + ": not jieba's emission table, at " + Quoted(key));
    }
    emission[state][character[0]] = number;
    at = static_cast<size_t>(end - text.data());
  }
  if (state > 3) return BadInput(path + ": not jieba's emission table");
  return {};
}

}  // namespace

Result<std::shared_ptr<const Jieba>> Jieba::Load(const std::string& directory) {
  const std::shared_ptr<Jieba> jieba(new Jieba);
  const std::string path = directory + "/dict.txt";
  KVG_ASSIGN(const std::string dictionary, ReadFile(path));
  int64_t total = 0;
  int64_t number = 0;
  for (const std::string& line : Split(dictionary, '\n')) {
    ++number;
    if (Trim(line).empty()) continue;
    const std::vector<std::string> fields = Split(Trim(line), ' ');
    int64_t times = -1;
    if (fields.size() >= 2) {
      std::from_chars(fields[1].data(), fields[1].data() + fields[1].size(), times);
    }
    if (times < 0) return BadInput(StrCat(path, ":", number, ": must be a word and a count"));
    const Text word = Decode(fields[0]);
    jieba->frequency_[word] = times;
    total += times;
    for (size_t n = 1; n < word.size(); ++n) jieba->frequency_.try_emplace(word.substr(0, n), 0);
  }
  if (total == 0) return BadInput(path + ": holds no words");
  jieba->log_total_ = std::log(static_cast<double>(total));
  KVG_TRY(ReadEmission(directory + "/finalseg/prob_emit.py", jieba->emission_));
  return std::shared_ptr<const Jieba>(jieba);
}

Result<std::shared_ptr<const Jieba>> Jieba::Shared() {
  static const Result<std::shared_ptr<const Jieba>> shared =
      []() -> Result<std::shared_ptr<const Jieba>> {
    const char* directory = std::getenv("KVGAUGE_JIEBA");
    if (directory == nullptr || *directory == '\0') {
      return BadInput(
          "Chinese words need jieba's tables: install the Python package jieba 0.42.1 and set "
          "KVGAUGE_JIEBA to its directory, which holds dict.txt and finalseg/prob_emit.py");
    }
    Result<std::shared_ptr<const Jieba>> loaded = Load(directory);
    if (!loaded.ok()) return loaded.error().Wrap("KVGAUGE_JIEBA");
    return loaded;
  }();
  return shared;
}

void Jieba::CutHidden(TextView han, std::vector<Text>& words) const {
  const auto emission = [&](size_t state, char32_t c) {
    const auto found = emission_[state].find(c);
    return found == emission_[state].end() ? kNever : found->second;
  };
  std::array<double, 4> row, next;
  for (size_t s = 0; s < 4; ++s) row[s] = kStart[s] + emission(s, han[0]);
  std::vector<std::array<State, 4>> from(han.size());
  for (size_t t = 1; t < han.size(); ++t) {
    for (size_t s = 0; s < 4; ++s) {
      const double e = emission(s, han[t]);
      const Before& first = kBefore[s][0];
      const Before& second = kBefore[s][1];
      const double with_first = row[first.state] + first.transition + e;
      const double with_second = row[second.state] + second.transition + e;
      const bool takes_second = with_second > with_first;
      next[s] = takes_second ? with_second : with_first;
      from[t][s] = takes_second ? second.state : first.state;
    }
    row = next;
  }
  std::vector<State> states(han.size());
  State state = row[kEnd] > row[kSingle] ? kEnd : kSingle;
  for (size_t t = han.size(); t-- > 0;) {
    states[t] = state;
    if (t > 0) state = from[t][state];
  }
  size_t begin = 0;
  for (size_t t = 0; t < han.size(); ++t) {
    if (states[t] == kBegin) begin = t;
    if (states[t] == kEnd) words.emplace_back(han.substr(begin, t + 1 - begin));
    if (states[t] == kSingle) words.emplace_back(1, han[t]);
  }
}

// Characters that no word of the dictionary joined.
void Jieba::CutSingles(TextView singles, std::vector<Text>& words) const {
  if (singles.empty()) return;
  const auto known = frequency_.find(Text(singles));
  if (singles.size() == 1 || (known != frequency_.end() && known->second > 0)) {
    for (const char32_t c : singles) words.emplace_back(1, c);
    return;
  }
  for (size_t i = 0; i < singles.size();) {
    const size_t begin = i;
    if (IsHan(singles[i])) {
      while (i < singles.size() && IsHan(singles[i])) ++i;
      CutHidden(singles.substr(begin, i - begin), words);
      continue;
    }
    if (!IsAsciiWord(singles[i])) {
      while (i < singles.size() && !IsHan(singles[i]) && !IsAsciiWord(singles[i])) ++i;
    } else {  // letters and digits, then a fraction, then a percent sign
      const auto at = [&](size_t place) { return place < singles.size() ? singles[place] : U' '; };
      while (IsAsciiWord(at(i))) ++i;
      if (at(i) == '.' && IsAsciiDigit(at(i + 1))) {
        ++i;
        while (IsAsciiDigit(at(i))) ++i;
      }
      if (at(i) == '%') ++i;
    }
    words.emplace_back(singles.substr(begin, i - begin));
  }
}

void Jieba::CutBlock(TextView block, std::vector<Text>& words) const {
  const size_t n = block.size();
  std::vector<double> best(n + 1, 0);
  std::vector<size_t> end(n, 0);
  for (size_t at = n; at-- > 0;) {
    bool any = false;
    const auto offer = [&](size_t stop, int64_t times) {
      const double score =
          std::log(static_cast<double>(std::max<int64_t>(times, 1))) - log_total_ + best[stop];
      // Among equals the longest word wins: it is offered last.
      if (!any || score >= best[at]) {
        best[at] = score;
        end[at] = stop;
      }
      any = true;
    };
    Text piece;
    for (size_t stop = at + 1; stop <= n; ++stop) {
      piece.push_back(block[stop - 1]);
      const auto found = frequency_.find(piece);
      if (found == frequency_.end()) break;
      if (found->second > 0) offer(stop, found->second);
    }
    if (!any) offer(at + 1, 0);
  }
  size_t singles = 0;  // where the run of single characters before `at` begins
  for (size_t at = 0; at < n; at = end[at]) {
    if (end[at] == at + 1) continue;
    CutSingles(block.substr(singles, at - singles), words);
    words.emplace_back(block.substr(at, end[at] - at));
    singles = end[at];
  }
  CutSingles(block.substr(singles), words);
}

std::vector<Text> Jieba::Cut(TextView text) const {
  std::vector<Text> words;
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    while (i < text.size() && IsBlock(text[i])) ++i;
    if (i > begin) {
      CutBlock(text.substr(begin, i - begin), words);
      continue;
    }
    const size_t size = text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n' ? 2 : 1;
    words.emplace_back(text.substr(i, size));
    i += size;
  }
  return words;
}

}  // namespace kvgauge::metrics
