// SPDX-License-Identifier: Apache-2.0
// Prompt templates and the truncation of finished prompts.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "datasets/sample.h"
#include "datasets/task.h"

namespace kvgauge {

// A template with the fields of Python's str.format as the published prompts use them: {name},
// {name[0]}, and {{ and }} for braces. {name|rule} is what an extraction rule finds in the field.
// Filled in one pass: braces in values stay text.
class PromptTemplate {
 public:
  // `owner` begins messages, e.g. "trec.json: source.prompt".
  static Result<PromptTemplate> Parse(std::string_view text, std::string_view owner);

  struct Field {
    std::string name;
    int index = -1;         // of {name[index]}; -1: none
    std::string rule = {};  // of {name|rule}; "": none
  };
  const std::vector<Field>& fields() const { return fields_; }

  using Lookup = std::function<Result<std::string>(const Field& field)>;
  // Where the last field named `mark` begins and ends in the result; npos when there is none.
  struct Filled {
    std::string text;
    size_t field_begin = std::string::npos;
    size_t field_end = std::string::npos;
  };
  Result<Filled> Fill(const Lookup& lookup, std::string_view mark) const;

 private:
  std::vector<std::string> texts_;  // one more than fields_: text, field, text, ...
  std::vector<Field> fields_;
};

// A whole prompt, and the parts of it that methods treat apart.
struct PromptText {
  std::string text;
  size_t question = 0;        // [0, question) is the context, the rest the question
  size_t document_begin = 0;  // the long text within the context
  size_t document_end = 0;
  std::string separator = {};  // goes between a shortened context and the question (kHead)
};

enum class Cut {
  kNone,
  // Keep L/2 tokens of each end, L rounded down to even; each half is decoded alone.
  kMiddle,
  // Keep L/2 tokens of the front and L - L/2 of the end; both are decoded together, so a character
  // can close over the seam.
  kMiddleJoined,
  // Keep the context's front, then the separator and all of the question.
  kHead,
  // Keep what stands around the document, and the document's end.
  kTail,
};
std::vector<std::string> CutNames();  // "none", "middle", "middle_joined", "head", "tail"
Cut CutFromName(std::string_view name);

// Shortens the prompt to options.max_prompt_tokens, special tokens counted. Returns the number of
// tokens it had, 0 when no limit was asked for.
Result<int64_t> Truncate(Cut cut, const TaskOptions& options, PromptText& prompt);

// Moves the prompt's parts into the sample's context, first question and marks.
void PlacePrompt(const PromptText& prompt, Sample& sample, Question& question);

}  // namespace kvgauge
