// SPDX-License-Identifier: Apache-2.0
// What a task file says of a file of JSON objects: the parameters of the source "jsonl", read.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/params.h"
#include "core/result.h"
#include "loaders/jsonl_texts.h"
#include "src/task_prompt.h"

namespace kvgauge {

struct JsonlLayout {
  using Field = PromptTemplate::Field;

  PromptTemplate context, question, follow_up, prefix, follow_up_prefix;
  std::optional<Field> answers, choices, id, length, kind, named, peers;
  std::optional<Field> classes_not_in, pair_key;
  std::vector<Field> facts;
  std::map<std::string, int64_t> kinds;  // and their new tokens
  struct Only {
    Field field;
    std::vector<std::string> values;
  };
  std::optional<Only> only;  // the records that are samples
  std::string document, turns, turn_answers, split_at, separator, language, extract, pairs;
  std::string answer_field;
  std::vector<std::string> literals, passages, lists, flattened;
  ListStyle list_style;
  PassageStyle passage_style = PassageStyle::kPassage;
  int64_t pair_position = -1;  // -1: as it is
  bool has_follow_up = false;
  std::vector<std::string> classes;
  int64_t first_index = -1;  // answers are indices of choices that begin so; -1: they are texts
  bool text_and_letter = false;
  bool object_answers = false;
  QuestionMode turn_mode = QuestionMode::kSingle;
  bool chat_template = true;
  Cut cut = Cut::kNone;
};

Result<JsonlLayout> ReadJsonlLayout(const Params& params);
// What the parameters' types cannot say; messages begin with the parameter.
Status CheckJsonlLayout(const Params& params);

}  // namespace kvgauge
