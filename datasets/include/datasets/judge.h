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
  double relative_score = 0;  // 1 is as good as the references
};

// Lines as in datasets/pairs.h; the first answer is the reference, "question" may be there. An
// answer of the judge that cannot be had is an error: nothing is half-scored. Where the file can be
// read twice, nothing is sent before every line was found good.
Result<JudgedPairs> JudgePairs(const std::string& path, const JudgeEndpoint& judge, bool skip_bad);

}  // namespace kvgauge
