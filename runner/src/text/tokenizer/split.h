// SPDX-License-Identifier: Apache-2.0
// Cutting a text into pieces around the matches of a pattern.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "src/text/tokenizer/regex.h"

namespace kvgauge {

enum class SplitBehavior { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };

// Patterns met so often that they have a matcher by hand.
enum class HotPattern { kGpt2, kLlama3, kQwen2, kDeepSeekV3 };
std::optional<HotPattern> FindHotPattern(std::string_view pattern);
std::string_view TextOf(HotPattern pattern);
// Replaces `out` by the matches, as Regex::FindAll does.
void FindAllHot(HotPattern pattern, std::string_view text, std::vector<Span>& out);

// Immutable and safe to share.
class Splitter {
 public:
  static Result<Splitter> FromRegex(std::string_view pattern, SplitBehavior behavior, bool invert,
                                    std::string_view where);
  // Precondition: `literal` is not empty.
  static Splitter FromLiteral(std::string literal, SplitBehavior behavior, bool invert);
  // Every code point with one of these CharClass bits is a match.
  static Splitter FromClasses(uint8_t classes, SplitBehavior behavior);
  // Digits of Rust's standard library, which is one Unicode version ahead of the regex engine.
  static Splitter FromDigits(SplitBehavior behavior);

  // Replaces `pieces` by the stretches of `text` to keep, in order; none is empty.
  Status Split(std::string_view text, std::vector<Span>& pieces) const;

 private:
  Status FindMatches(std::string_view text, std::vector<Span>& matches) const;

  std::optional<HotPattern> hot_;
  std::optional<Regex> regex_;
  std::string literal_;
  uint8_t classes_ = 0;
  bool rust_digits_ = false;
  SplitBehavior behavior_ = SplitBehavior::kIsolated;
  bool invert_ = false;
};

}  // namespace kvgauge
