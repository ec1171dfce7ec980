// SPDX-License-Identifier: Apache-2.0
// Arrays of a record as published prompts print them.
#pragma once

#include <cstdint>
#include <string>

#include "core/json_fwd.h"
#include "core/result.h"
#include "src/task_prompt.h"

namespace kvgauge {

enum class PassageStyle {
  kPassage,       // LongBench: "Passage 1:", title and text on lines of their own, blank lines
  kSearchResult,  // Lost in the middle: "Document [1](Title: ...) text", one a line
  kSpeech,        // QMSum as ZeroSCROLLS prints it: "speaker: content", one a line
};

// Titled passages as one text, numbered: an array of [title, [sentences]] (HotpotQA,
// 2WikiMultihopQA) or of objects with title and paragraph_text (MuSiQue) or text (Lost in the
// middle); of speech objects with speaker and content. Empty: the value is none of these.
std::string PassagesText(const Json& value, PassageStyle style);

// An array of [key, value] as a JSON object with a pair a line, nothing escaped. The pair of `key`,
// whose value must be `answer`, is moved to `position`, counted from 0; -1: it stays where it is.
// An error says what the array is or lacks, to be read behind its name.
Result<std::string> PairsText(const Json& value, const std::string& key, const std::string& answer,
                              int64_t position);

// How an array of texts stands in a prompt: each as `entry` says, `between` between them.
struct ListStyle {
  PromptTemplate entry;  // of {entry}, the text, and {number}, its place
  std::string between;
  int64_t first_number = 0;
};

// The array as one text; any number of entries. An error says what the array holds that is no text,
// to be read behind its name.
Result<std::string> ListText(const Json& value, const ListStyle& style);

}  // namespace kvgauge
