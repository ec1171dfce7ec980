// SPDX-License-Identifier: Apache-2.0
#include "src/subtitles.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "core/json.h"
#include "core/strings.h"
#include "src/python_set.h"
#include "src/python_text.h"
#include "src/records.h"

namespace kvgauge {
namespace {

constexpr std::array<std::string_view, 3> kSubtitleRules = {"first_at_frame", "any_at_frame",
                                                            "interleaved"};

bool IsTimeDigit(char c) { return c >= '0' && c <= '9'; }

// As a text file is read in Python.
std::string WithPlainLineEnds(std::string_view text) {
  return ReplaceAll(ReplaceAll(text, "\r\n", "\n"), "\r", "\n");
}

std::vector<std::string> Lines(const std::string& text) { return Split(text, '\n'); }

// ------------------------------------------------------------------------- SubRip as pysubs2 does

struct Timed {
  int64_t begin_ms = 0, end_ms = 0;
  std::string text;
};

// A number of one to `most` digits that one of `signs` follows; "": anything may.
std::optional<int64_t> NumberBefore(std::string_view text, size_t most, std::string_view signs,
                                    size_t& at) {
  const size_t begin = at;
  while (at < text.size() && at - begin < most && IsTimeDigit(text[at])) ++at;
  if (at == begin) return std::nullopt;
  int64_t number = 0;
  std::from_chars(text.data() + begin, text.data() + at, number);
  if (signs.empty()) return number;
  if (at == text.size() || signs.find(text[at]) == std::string_view::npos) return std::nullopt;
  ++at;
  return number;
}

// H:MM:SS,mmm at a place, in ms; `at` moves behind it.
std::optional<int64_t> StampAt(std::string_view text, size_t& at) {
  size_t next = at;
  int64_t ms = 0;
  for (const auto& [unit, signs] :
       {std::pair{3'600'000, ":"}, std::pair{60'000, ":"}, std::pair{1000, ".,"}}) {
    const std::optional<int64_t> number = NumberBefore(text, 2, signs, next);
    if (!number) return std::nullopt;
    ms += unit * *number;
  }
  const size_t begin = next;
  std::optional<int64_t> fraction = NumberBefore(text, 3, "", next);
  if (!fraction) return std::nullopt;
  for (size_t digits = next - begin; digits < 3; ++digits) *fraction *= 10;
  at = next;
  return ms + *fraction;
}

std::vector<int64_t> StampsOf(std::string_view line) {
  std::vector<int64_t> stamps;
  for (size_t at = 0; at < line.size();) {
    if (const std::optional<int64_t> ms = StampAt(line, at)) {
      stamps.push_back(*ms);
    } else {
      ++at;
    }
  }
  return stamps;
}

bool IsNumberAlone(std::string_view line) {
  const std::string_view bare = PythonStrip(line);
  return !bare.empty() && std::all_of(bare.begin(), bare.end(), IsTimeDigit);
}

// Behind the text stands the number of the next subtitle, on a line of its own.
std::string_view WithoutLastNumber(std::string_view text) {
  size_t at = text.size();
  while (at > 0 && IsTimeDigit(text[at - 1])) --at;
  if (at == text.size()) return text;
  while (at > 0 && text[at - 1] == ' ') --at;
  if (at == 0 || text[at - 1] != '\n') return text;
  while (at > 0 && text[at - 1] == '\n') --at;
  return text.substr(0, at);
}

// A tag "< /? NAME ... >" that begins at a place.
struct Tag {
  bool closes = false;
  std::string_view name;  // all that stands behind the signs
  size_t end = 0;         // behind the tag
};
std::optional<Tag> TagAt(std::string_view text, size_t at) {
  if (text[at] != '<') return std::nullopt;
  const auto blanks = [&] {
    while (at < text.size() && text[at] == ' ') ++at;
  };
  Tag tag;
  ++at;
  blanks();
  if (at < text.size() && text[at] == '/') {
    tag.closes = true;
    ++at;
    blanks();
  }
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const size_t close = text.find('>', at);
  if (close == std::string_view::npos || !letter(text[at])) return std::nullopt;
  tag.name = text.substr(at, close - at);
  tag.end = close + 1;
  return tag;
}

// Puts what `become` says in the place of each tag that it says something of.
template <class Become>
std::string ReplaceTags(std::string_view text, const Become& become) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const std::optional<Tag> tag = TagAt(text, at);
    const std::optional<std::string> put = tag ? become(*tag) : std::nullopt;
    out += put ? *put : std::string(1, text[at]);
    at = put ? tag->end : at + 1;
  }
  return out;
}

// <i>, <s>, <u> and <b> become SubStation's codes, then other tags go.
std::string WithoutTags(std::string_view text) {
  const std::string styled = ReplaceTags(text, [](const Tag& tag) -> std::optional<std::string> {
    const bool known = std::string_view("isub").find(tag.name[0]) != std::string_view::npos;
    if (!known || tag.name.find_first_not_of(' ', 1) != std::string_view::npos) return std::nullopt;
    return StrCat("{\\", tag.name.substr(0, 1), tag.closes ? "0}" : "1}");
  });
  return ReplaceTags(styled, [](const Tag&) { return std::optional<std::string>(""); });
}

std::string TextOfLines(const std::vector<std::string>& lines) {
  const auto blank = [](const std::string& line) { return PythonStrip(line).empty(); };
  if (lines.size() >= 2 && std::all_of(lines.begin(), lines.end() - 1, blank) &&
      IsNumberAlone(lines.back())) {
    return "";
  }
  const std::string all = Join(lines, "\n");
  return ReplaceAll(WithoutTags(WithoutLastNumber(PythonStrip(all))), "\n", "\\N");
}

std::vector<Timed> ReadSubRip(std::string_view srt) {
  std::vector<Timed> all;
  std::vector<std::vector<std::string>> texts;
  std::vector<std::string> lines = Lines(WithPlainLineEnds(srt));
  if (lines.back().empty()) lines.pop_back();  // behind the last line's end
  for (std::string& line : lines) {
    const std::vector<int64_t> stamps = StampsOf(line);
    if (stamps.size() == 2) {
      all.push_back({.begin_ms = stamps[0], .end_ms = stamps[1], .text = {}});
      texts.emplace_back();
    } else if (!all.empty()) {
      texts.back().push_back(std::move(line));
    }
  }
  for (size_t i = 0; i < all.size(); ++i) all[i].text = TextOfLines(texts[i]);
  return all;
}

// ------------------------------------------------------------------------ SubRip as lmms-eval does

// HH:MM:SS,mmm; nothing where Python's int() or split() would fail.
std::optional<double> SecondsOfSubRip(std::string_view text) {
  const std::string held(text);
  const std::vector<std::string> parts = Split(held, ':');
  if (parts.size() != 3) return std::nullopt;
  const std::vector<std::string> last = Split(parts[2], ',');
  if (last.size() != 2) return std::nullopt;
  std::array<int64_t, 4> numbers{};
  const std::array<std::string_view, 4> texts = {parts[0], parts[1], last[0], last[1]};
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::string_view bare = PythonStrip(texts[i]);
    const auto read = std::from_chars(bare.data(), bare.data() + bare.size(), numbers[i]);
    if (read.ec != std::errc() || read.ptr != bare.data() + bare.size()) return std::nullopt;
  }
  return static_cast<double>(numbers[0] * 3600 + numbers[1] * 60 + numbers[2]) +
         static_cast<double>(numbers[3]) / 1000;
}

struct Said {
  double begin_s = 0, end_s = 0;
  std::string text;
};

Result<std::vector<Said>> ReadSections(std::string_view srt) {
  const std::string text = WithPlainLineEnds(srt);
  std::vector<Said> all;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find("\n\n", begin), text.size());
    const std::string section = text.substr(begin, end - begin);
    const auto line = std::count(text.begin(), text.begin() + static_cast<int64_t>(begin), '\n');
    begin = end + 2;
    if (PythonStrip(section).empty()) continue;
    const std::vector<std::string> lines = Lines(section);
    if (lines.size() < 3) continue;
    const size_t arrow = lines[1].find(" --> ");
    const std::string_view times = lines[1];
    const std::string_view last = arrow == std::string::npos ? "" : times.substr(arrow + 5);
    const std::optional<double> from =
        SecondsOfSubRip(arrow == std::string::npos ? times : times.substr(0, arrow));
    const std::optional<double> to = SecondsOfSubRip(last.substr(0, last.find(" --> ")));
    if (!from || !to) {
      return BadInput(StrCat("line ", line + 2, " is ", Quoted(lines[1]),
                             ", expected 00:00:01,000 --> 00:00:02,500"));
    }
    std::string said = Join({lines.begin() + 2, lines.end()}, " ");
    // The last one's text stands in the first one's place, of several with the same times.
    const auto same = std::find_if(all.begin(), all.end(), [&](const Said& one) {
      return one.begin_s == *from && one.end_s == *to;
    });
    if (same == all.end()) {
      all.push_back({.begin_s = *from, .end_s = *to, .text = std::move(said)});
    } else {
      same->text = std::move(said);
    }
  }
  return all;
}

// What stands within the first tag of white letters; nothing where there is none. The size there is
// any one character and "72c".
std::optional<std::string> WhiteText(std::string_view text) {
  constexpr std::string_view kBegin = "<font color=\"white\" size=\"", kSize = "72c\">";
  constexpr std::string_view kEnd = "</font>";
  for (size_t at = text.find(kBegin); at != std::string_view::npos;
       at = text.find(kBegin, at + 1)) {
    size_t next = at + kBegin.size();
    if (next == text.size()) break;
    ++next;
    while (next < text.size() && (static_cast<unsigned char>(text[next]) & 0xc0U) == 0x80U) ++next;
    if (!text.substr(next).starts_with(kSize)) continue;
    const size_t begin = next + kSize.size();
    const size_t end = text.find(kEnd, begin);
    if (end != std::string_view::npos) return std::string(text.substr(begin, end - begin));
  }
  return std::nullopt;
}

// ------------------------------------------------------------------------------------ interleaved

Error WrongEntry(size_t entry, std::string_view what) {
  return BadInput(StrCat("subtitle ", entry + 1, " ", what,
                         ", expected {\"timestamp\": [1.5, 2.0], \"text\": \"...\"} or {\"start\": "
                         "\"0:00:01.5\", \"end\": \"0:00:02\", \"line\": \"...\"}"));
}

// H:MM:SS.mmm, as int(), int() and float() read it.
std::optional<double> SecondsOfClock(const Json& value) {
  if (!value.is_string()) return std::nullopt;
  const std::vector<std::string> parts = Split(value.get<std::string>(), ':');
  if (parts.size() != 3) return std::nullopt;
  std::array<int64_t, 2> whole{};
  for (size_t i = 0; i < whole.size(); ++i) {
    const std::string_view bare = PythonStrip(parts[i]);
    const auto read = std::from_chars(bare.data(), bare.data() + bare.size(), whole[i]);
    if (read.ec != std::errc() || read.ptr != bare.data() + bare.size()) return std::nullopt;
  }
  const std::string_view bare = PythonStrip(parts[2]);
  double seconds = 0;
  const auto read = std::from_chars(bare.data(), bare.data() + bare.size(), seconds);
  if (read.ec != std::errc() || read.ptr != bare.data() + bare.size()) return std::nullopt;
  return static_cast<double>(whole[0] * 3600 + whole[1] * 60) + seconds;
}

Result<Said> ReadEntry(const Json& entry, size_t number, double duration_s) {
  Said said;
  if (!entry.is_object()) return WrongEntry(number, StrCat("is ", KindOf(entry)));
  const bool stamped = entry.contains("timestamp");
  const char* name = stamped ? "text" : "line";
  if (!entry.contains(name) || !entry[name].is_string()) {
    return WrongEntry(number, StrCat("has no ", Quoted(name)));
  }
  said.text = entry[name].get<std::string>();
  if (stamped) {
    const Json& times = entry["timestamp"];
    if (!times.is_array() || times.size() != 2 || !times[0].is_number()) {
      return WrongEntry(number, "has no two times");
    }
    said.begin_s = times[0].get<double>();
    // An end that is no float is none for the reference, a whole number included.
    said.end_s = times[1].is_number_float() ? times[1].get<double>() : duration_s;
    return said;
  }
  for (const auto& [key, value] :
       {std::pair{"start", &said.begin_s}, std::pair{"end", &said.end_s}}) {
    const std::optional<double> seconds =
        entry.contains(key) ? SecondsOfClock(entry[key]) : std::nullopt;
    if (!seconds) return WrongEntry(number, StrCat("has no ", Quoted(key), " of the form H:MM:SS"));
    *value = *seconds;
  }
  return said;
}

}  // namespace

std::vector<std::string> SubtitleRuleNames() {
  return {kSubtitleRules.begin(), kSubtitleRules.end()};
}

SubtitleRule SubtitleRuleFromName(std::string_view name) {
  return static_cast<SubtitleRule>(std::find(kSubtitleRules.begin(), kSubtitleRules.end(), name) -
                                   kSubtitleRules.begin());
}

Result<std::string> FirstSubtitleAtFrames(std::string_view srt, std::span<const int64_t> frames,
                                          double fps) {
  const std::vector<Timed> all = ReadSubRip(srt);
  if (all.empty()) {
    return BadInput("holds no line such as 00:00:01,000 --> 00:00:02,500");
  }
  std::vector<std::string> shown;
  for (const int64_t frame : frames) {
    const auto now =
        static_cast<int64_t>(std::nearbyint(static_cast<double>(frame) * (1000 / fps)));
    const auto found = std::find_if(all.begin(), all.end(), [&](const Timed& one) {
      return one.begin_ms < now && one.end_ms > now;
    });
    if (found == all.end()) continue;
    std::string text = ReplaceAll(found->text, "\\N", " ");
    if (!PythonStrip(text).empty()) shown.push_back(std::move(text));
  }
  return Join(shown, "\n");
}

Result<std::string> SubtitlesAtAnyFrame(std::string_view srt, std::span<const int64_t> frames,
                                        double fps) {
  KVG_ASSIGN(const std::vector<Said> all, ReadSections(srt));
  std::vector<int64_t> found;
  for (const int64_t frame : frames) {
    for (size_t i = 0; i < all.size(); ++i) {
      if (frame >= static_cast<int64_t>(all[i].begin_s * fps) &&
          frame < static_cast<int64_t>(all[i].end_s * fps)) {
        found.push_back(static_cast<int64_t>(i));
      }
    }
  }
  std::vector<std::string> shown;
  for (const int64_t subtitle : PythonSetOrder(found)) {
    std::optional<std::string> text = WhiteText(all[static_cast<size_t>(subtitle)].text);
    if (text) shown.push_back(*std::move(text));
  }
  return Join(shown, "\n");
}

Result<std::vector<FrameOrSubtitle>> InterleavedSubtitles(std::string_view json,
                                                          const Interleaving& how) {
  KVG_ASSIGN(const Json all, ParseJson(json, "subtitles"));
  if (!all.is_array()) return BadInput(StrCat("holds ", KindOf(all), ", expected an array"));
  std::vector<FrameOrSubtitle> shown;
  size_t next = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    KVG_ASSIGN(Said said, ReadEntry(all[i], i, how.duration_s));
    said.begin_s -= how.offset_s;
    said.end_s -= how.offset_s;
    const double middle = (said.begin_s + said.end_s) / 2;
    for (; next < how.frames_s.size() && how.frames_s[next] <= middle; ++next) {
      shown.push_back({.frame = static_cast<int64_t>(next)});
    }
    if (said.end_s - said.begin_s < 1) {
      said.end_s = middle + 0.5;
      said.begin_s = middle - 0.5;
    }
    const bool seen = std::any_of(how.frames_s.begin(), how.frames_s.end(), [&](double time) {
      return time < said.end_s && time > said.begin_s;
    });
    if (seen) shown.push_back({.text = std::move(said.text)});
  }
  for (; next < how.frames_s.size(); ++next) {
    shown.push_back({.frame = static_cast<int64_t>(next)});
  }
  return shown;
}

}  // namespace kvgauge
