// SPDX-License-Identifier: Apache-2.0
// A regular expression of a task file that finds the answer in a prediction.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace kvgauge {

// PCRE2's syntax over UTF-8; \d, \w and \s know every script, as in Python. Immutable, and safe to
// share between threads.
class AnswerPattern {
 public:
  // What a task file says of it.
  struct Settings {
    std::string regex;
    int group = -1;     // 0: the whole match; -1: the first group that is not empty, of a pattern
                        // without groups the match
    bool last = false;  // of several matches the last, else the first
    std::string fallback = {};  // what stands where nothing matches
  };

  // An error names the offset of the fault in the pattern, or the number of groups there are; it is
  // to be read behind the key.
  static Result<std::shared_ptr<const AnswerPattern>> Compile(Settings settings);
  virtual ~AnswerPattern() = default;

  // Matches do not overlap and are looked for from the front. A text on which the pattern takes
  // more than a million steps holds nothing that it finds. Bytes that are not UTF-8 count as
  // U+FFFD.
  virtual std::string Find(std::string_view text) const = 0;
  // Every match, as Find gives one; up to where looking took too many steps.
  virtual std::vector<std::string> FindAll(std::string_view text) const = 0;
};

}  // namespace kvgauge
