// SPDX-License-Identifier: Apache-2.0
// Grades by another model behind an OpenAI-compatible endpoint, over plain HTTP. Without an address
// and a key nothing is ever sent.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "datasets/aggregate.h"

namespace kvgauge {

struct JudgeEndpoint {
  std::string url;    // "http://127.0.0.1:8000/v1"; "/chat/completions" is added
  std::string key;    // sent as a bearer token; a server that wants none takes any text
  std::string model;  // its name there
  double timeout_s = 120;
  // A judge that is busy (429) or fails (5xx) is asked so often in all. Between two times passes
  // what it names in Retry-After, else this, doubled each time; never more than `most_wait_s`.
  int attempts = 6;
  double first_wait_s = 1;
  double most_wait_s = 60;
};

// The judge's answer to one message, at temperature 0.
Result<std::string> AskJudge(const JudgeEndpoint& judge, const std::string& message);

// What the judge is asked: to grade two answers to a question from 1 to 10, the reference's first,
// both numbers alone on the first line.
std::string RelativeGradePrompt(const std::string& question, const std::string& reference,
                                const std::string& answer);
// The two numbers on the first line. Anything else is (-1, -1), which the published score keeps in
// both of its means.
RelativeGrade ParseRelativeGrade(const std::string& reply);

struct JudgedPairs {
  std::vector<RelativeGrade> grades;
  std::vector<int64_t> lines;  // of each grade, from 1
  std::vector<std::string> bad_lines;
  int64_t unparsed = 0;
  int64_t reused = 0;         // of the grades, those that were in the file already
  double relative_score = 0;  // 1 is as good as the references; of the grades that there are
  std::string ended;          // why the judge was asked no further; "": every line is graded
};

struct JudgeOptions {
  bool skip_bad = false;
  // Every reply is added to this file as soon as it comes, and what stands in it is not asked for
  // again. "": none.
  std::string grades_path = {};
};

// Lines as in datasets/pairs.h; the first answer is the reference, "question" may be there. Where
// the judge's answer cannot be had, the grades so far come back with `ended`; without any it is an
// error. Where the file can be read twice, nothing is sent before every line was found good.
Result<JudgedPairs> JudgePairs(const std::string& path, const JudgeEndpoint& judge,
                               const JudgeOptions& options);

}  // namespace kvgauge
