// SPDX-License-Identifier: Apache-2.0
#include "generators/prose.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "core/check.h"
#include "core/files.h"
#include "core/strings.h"
#include "generators/generator.h"
#include "generators/words.h"

namespace kvgauge {
namespace {

constexpr std::string_view kWhiteSpace = " \t\r\n\f\v";
// Changing it changes every sample that holds prose.
constexpr uint64_t kProseSeed = 0x6b766761756765;

constexpr std::string_view kShapes[] = {
    "The {adjective} {noun} stood between the {noun2} and the {noun3}.",
    "{name} {verb} the {adjective} {noun} before the {noun2} was ready.",
    "Nobody {verb} the {noun}, although {name} had asked about the {adjective} {noun2} twice.",
    "After the rain, {name} and {name2} {verb} the {noun} behind the {adjective} {noun2}.",
    "It was said that the {noun} of {name} was more {adjective} than the {noun2}.",
    "While {name} {verb} the {noun}, the {noun2} grew {adjective}.",
    "When evening came, the {adjective} {noun} was all that {name} {verb}.",
    "For many years the {noun} had been {adjective}, and {name} {verb} it with care.",
    "There was neither {noun} nor {noun2} in the {adjective} house of {name}.",
    "On the way to the {noun}, {name} {verb} one {adjective} {noun2} and one {noun3}.",
    "The {noun} and the {noun2} looked {adjective} from where {name} was sitting.",
    "{name} wrote to {name2} that the {adjective} {noun} should stay with the {noun2}.",
    "Some people thought the {noun} too {adjective}; {name} {verb} it all the same.",
    "Every morning {name} {verb} the {noun} and spoke of the {adjective} {noun2}.",
    "The story of the {adjective} {noun} made {name} laugh, and {name2} {verb} the {noun2}.",
    "Without the {noun}, the {adjective} {noun2} would have been of little use to {name}.",
};

// English sentences are shorter. What is longer has ends of other kinds, or none.
constexpr size_t kLongSentence = 1000;
constexpr size_t kCutSentence = 200;  // where it has none
// Ends of sentences that need no white space behind them.
constexpr std::string_view kWideStops[] = {"。", "｡", "！", "？", "।", "॥", "۔", "؟"};
constexpr std::string_view kClosers[] = {"\"", "'",  ")",  "]",  "}",  "”",  "’", "»",
                                         "」", "』", "）", "】", "》", "〉", "｣"};

bool IsStop(char c) { return c == '.' || c == '!' || c == '?'; }

// Bytes of the first of `marks` that `text` begins with, or 0.
template <size_t N>
size_t Leading(const std::string_view (&marks)[N], std::string_view text) {
  const auto found = std::find_if(std::begin(marks), std::end(marks), [&](std::string_view mark) {
    return text.substr(0, mark.size()) == mark;
  });
  return found == std::end(marks) ? 0 : found->size();
}

// Where the sentence that `text` begins with ends: behind a stop with its closing quotes and
// brackets, which white space follows unless the stop is a wide one, or before a line break.
size_t LooseEnd(std::string_view text) {
  // A break in front belongs to what follows it.
  size_t at = std::min(text.find_first_not_of(kWhiteSpace), text.size());
  while (at < text.size()) {
    if (text[at] == '\n') return at;
    const size_t wide = Leading(kWideStops, text.substr(at));
    if (wide == 0 && !IsStop(text[at])) {
      ++at;
      continue;
    }
    at += std::max<size_t>(wide, 1);
    while (const size_t closer = Leading(kClosers, text.substr(at))) at += closer;
    // "？！" and "..." end once.
    const bool more = Leading(kWideStops, text.substr(at)) > 0;
    const bool spaced = at < text.size() && kWhiteSpace.find(text[at]) != std::string_view::npos;
    if (!more && (wide > 0 || spaced)) return at;
  }
  return text.size();
}

// The first part of a text without ends, up to white space where there is some.
size_t ForcedEnd(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of(kWhiteSpace), text.size());
  if (text.size() - begin <= kCutSentence) return text.size();
  const size_t blank = text.substr(0, begin + kCutSentence).find_last_of(kWhiteSpace);
  if (blank != std::string_view::npos && blank > begin) return blank;
  size_t end = begin + kCutSentence;
  while (end > begin + 1 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return end;
}

void SplitLong(std::string_view text, std::vector<std::string>& sentences) {
  while (!text.empty()) {
    std::string_view sentence = text.substr(0, LooseEnd(text));
    text.remove_prefix(sentence.size());
    const bool force = sentence.size() > kLongSentence;
    while (!sentence.empty()) {
      const size_t end = force ? ForcedEnd(sentence) : sentence.size();
      sentences.emplace_back(sentence.substr(0, end));
      sentence.remove_prefix(end);
    }
  }
}

}  // namespace

std::string ProseSentence(int64_t id) {
  KVG_CHECK(id >= 0 && id < kProseSentences, "no such sentence");
  Rng rng(kProseSeed, static_cast<uint64_t>(id));
  const std::string_view shape = Pick(rng, kShapes);
  // Drawn in a fixed order: the order of arguments is not.
  const std::string_view adjective = Pick(rng, Adjectives()), verb = Pick(rng, Verbs());
  const auto nouns = DrawDistinct(rng, static_cast<int64_t>(Nouns().size()), 3);
  const auto names = DrawDistinct(rng, static_cast<int64_t>(People().size()), 2);
  const auto noun = [&](size_t i) { return Nouns()[static_cast<size_t>(nouns[i])]; };
  const auto name = [&](size_t i) { return People()[static_cast<size_t>(names[i])]; };
  return FillIn(shape, {{"adjective", adjective},
                        {"verb", verb},
                        {"noun", noun(0)},
                        {"noun2", noun(1)},
                        {"noun3", noun(2)},
                        {"name", name(0)},
                        {"name2", name(1)}});
}

std::vector<std::string> TextDirectory(const std::string& directory) {
  if (directory.empty() || directory.front() == '/') return {};
  return {directory};
}

std::string TextDirectoryPath(const std::string& directory, const TaskOptions& options) {
  if (directory.empty() || directory.front() == '/' || options.data_directory.empty()) {
    return directory;
  }
  return StrCat(options.data_directory, "/", directory);
}

std::vector<std::string> SplitSentences(std::string_view text) {
  std::vector<std::string> sentences;
  size_t begin = 0;
  const auto add = [&](size_t end) {
    const std::string_view piece = text.substr(begin, end - begin);
    if (piece.size() <= kLongSentence) {
      sentences.emplace_back(piece);
    } else {
      SplitLong(piece, sentences);
    }
    begin = end;
  };
  for (size_t i = 0; i + 1 < text.size(); ++i) {
    if (IsStop(text[i]) && kWhiteSpace.find(text[i + 1]) != std::string_view::npos) add(i + 1);
  }
  if (begin < text.size()) add(text.size());
  return sentences;
}

Result<std::shared_ptr<Haystack>> Haystack::Open(const std::string& directory,
                                                 std::string_view owner) {
  auto haystack = std::make_shared<Haystack>();
  if (directory.empty()) {
    haystack->pieces_.resize(kProseSentences);
    return haystack;
  }
  haystack->generated_ = false;
  std::vector<std::string> paths;
  std::error_code failed;
  for (std::filesystem::directory_iterator entry(directory, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    if (entry->path().extension() == ".txt") paths.push_back(entry->path().string());
  }
  if (failed) return BadInput(StrCat(owner, ": ", directory, ": ", failed.message()));
  if (paths.empty()) return BadInput(StrCat(owner, ": no *.txt files in ", directory));
  std::sort(paths.begin(), paths.end());
  std::string text;
  for (const std::string& path : paths) {
    KVG_ASSIGN(const std::string file, ReadFile(path));
    if (const size_t bad = FindInvalidUtf8(file); bad != std::string::npos) {
      return BadInput(StrCat(owner, ": ", path, ": not UTF-8 at byte ", bad + 1));
    }
    text += file;
  }
  const std::string_view trimmed = Trim(text);
  if (trimmed.empty()) return BadInput(StrCat(owner, ": the files in ", directory, " are empty"));
  // The line break stands where the text begins again.
  for (std::string& sentence : SplitSentences(StrCat("\n", trimmed))) {
    haystack->pieces_.push_back({std::move(sentence), -1});
  }
  return haystack;
}

Filler Haystack::NewFiller(const TokenCounter* counter, Rng rng, int64_t start) {
  if (generated_) {
    return Filler(counter, [this, rng](int64_t) mutable -> TextPiece& {
      const auto id = rng.NextBelow(kProseSentences);
      TextPiece& piece = pieces_[id];
      if (piece.text.empty()) piece.text = " " + ProseSentence(static_cast<int64_t>(id));
      return piece;
    });
  }
  return Filler(counter, [this, start](int64_t j) -> TextPiece& {
    return pieces_[static_cast<size_t>(start + j) % pieces_.size()];
  });
}

Words SplitWords(std::string_view text) {
  Words words;
  size_t at = 0;
  while (true) {
    const size_t begin = text.find_first_not_of(kWhiteSpace, at);
    if (begin == std::string_view::npos) return words;
    at = std::min(text.find_first_of(kWhiteSpace, begin), text.size());
    if (!words.text.empty()) words.text += ' ';
    words.text += text.substr(begin, at - begin);
    words.ends.push_back(words.text.size());
  }
}

}  // namespace kvgauge
