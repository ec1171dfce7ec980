// SPDX-License-Identifier: Apache-2.0
#include "src/text/tokenizer/split.h"

#include <algorithm>
#include <utility>

#include "src/text/tokenizer/unicode.h"

namespace kvgauge {
namespace {

bool IsRustDigit(char32_t c) {
  return HasClass(c, kNumber) || (c >= 0x11de0 && c <= 0x11de9) || (c >= 0x16ff4 && c <= 0x16ff6);
}

struct SplitPart {
  Span span;
  bool is_match;
};

// Matches and the gaps between them, covering the text.
void CoverText(size_t text_size, const std::vector<Span>& matches, std::vector<SplitPart>& parts) {
  parts.clear();
  size_t at = 0;
  for (const Span& match : matches) {
    if (at < match.begin) parts.push_back({{at, match.begin}, false});
    parts.push_back({match, true});
    at = match.end;
  }
  if (at < text_size) parts.push_back({{at, text_size}, false});
}

}  // namespace

Result<Splitter> Splitter::FromRegex(std::string_view pattern, SplitBehavior behavior, bool invert,
                                     std::string_view where) {
  Splitter splitter;
  splitter.hot_ = FindHotPattern(pattern);
  if (!splitter.hot_) {
    KVG_ASSIGN(splitter.regex_, Regex::Compile(pattern, where));
  }
  splitter.behavior_ = behavior;
  splitter.invert_ = invert;
  return splitter;
}

Splitter Splitter::FromLiteral(std::string literal, SplitBehavior behavior, bool invert) {
  Splitter splitter;
  splitter.literal_ = std::move(literal);
  splitter.behavior_ = behavior;
  splitter.invert_ = invert;
  return splitter;
}

Splitter Splitter::FromClasses(uint8_t classes, SplitBehavior behavior) {
  Splitter splitter;
  splitter.classes_ = classes;
  splitter.behavior_ = behavior;
  return splitter;
}

Splitter Splitter::FromDigits(SplitBehavior behavior) {
  Splitter splitter = FromClasses(kNumber, behavior);
  splitter.rust_digits_ = true;
  return splitter;
}

Status Splitter::FindMatches(std::string_view text, std::vector<Span>& matches) const {
  if (hot_) {
    FindAllHot(*hot_, text, matches);
    return {};
  }
  if (regex_) return regex_->FindAll(text, matches);
  matches.clear();
  if (!literal_.empty()) {
    for (size_t at = text.find(literal_); at != std::string_view::npos;
         at = text.find(literal_, at + literal_.size())) {
      matches.push_back({at, at + literal_.size()});
    }
    return {};
  }
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = CodePointAt(text, at);
    if (rust_digits_ ? IsRustDigit(c.value) : HasClass(c.value, classes_)) {
      matches.push_back({at, at + c.width});
    }
    at += c.width;
  }
  return {};
}

Status Splitter::Split(std::string_view text, std::vector<Span>& pieces) const {
  thread_local std::vector<Span> matches;
  thread_local std::vector<SplitPart> parts;
  KVG_TRY(FindMatches(text, matches));
  CoverText(text.size(), matches, parts);
  if (invert_) {
    for (SplitPart& part : parts) part.is_match = !part.is_match;
  }
  pieces.clear();
  bool previous = false;
  switch (behavior_) {
    case SplitBehavior::kIsolated:
      for (const SplitPart& part : parts) pieces.push_back(part.span);
      break;
    case SplitBehavior::kRemoved:
      for (const SplitPart& part : parts) {
        if (!part.is_match) pieces.push_back(part.span);
      }
      break;
    case SplitBehavior::kContiguous:
      for (const SplitPart& part : parts) {
        if (part.is_match == previous && !pieces.empty()) {
          pieces.back().end = part.span.end;
        } else {
          pieces.push_back(part.span);
        }
        previous = part.is_match;
      }
      break;
    case SplitBehavior::kMergedWithPrevious:
      for (const SplitPart& part : parts) {
        if (part.is_match && !previous && !pieces.empty()) {
          pieces.back().end = part.span.end;
        } else {
          pieces.push_back(part.span);
        }
        previous = part.is_match;
      }
      break;
    case SplitBehavior::kMergedWithNext:
      for (size_t i = parts.size(); i-- > 0;) {
        const SplitPart& part = parts[i];
        if (part.is_match && !previous && !pieces.empty()) {
          pieces.back().begin = part.span.begin;
        } else {
          pieces.push_back(part.span);
        }
        previous = part.is_match;
      }
      std::reverse(pieces.begin(), pieces.end());
      break;
  }
  std::erase_if(pieces, [](const Span& piece) { return piece.begin == piece.end; });
  return {};
}

}  // namespace kvgauge
