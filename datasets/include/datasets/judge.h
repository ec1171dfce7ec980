// SPDX-License-Identifier: Apache-2.0
// Grades and wins by another model: behind an OpenAI-compatible endpoint, over HTTP or HTTPS, or
// one that the caller runs. Without an address and a key nothing is ever sent.
#pragma once

#include <cstdint>
#include <functional>
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

struct JudgeAnswer {
  std::string text;
  // Those of the request and the reply, as the judge counts them; a quarter of their bytes where it
  // does not.
  int64_t tokens = 0;
};
// The judge's answer to one message, at temperature 0. `requests` grows by one each time that
// something is sent, whatever comes of it.
Result<JudgeAnswer> AskJudge(const JudgeEndpoint& judge, const std::string& message,
                             int64_t* requests = nullptr);

// Something that judges. `name` tells it from others in the file of replies. `ask` counts as
// AskJudge does, and sends no more than `most_requests` for one answer, which is at least 1.
struct Judge {
  std::string name;
  std::function<Result<JudgeAnswer>(const std::string& message, int64_t most_requests,
                                    int64_t* requests)>
      ask;
};
// The endpoint; a wrong address is an error.
Result<Judge> HttpJudge(const JudgeEndpoint& endpoint);

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
  int64_t reused = 0;                // of the grades, those that were in the file already
  double relative_score = 0;         // 1 is as good as the references; of the grades that there are
  std::string ended;                 // why the judge was asked no further; "": every line is graded
  int64_t requests = 0, tokens = 0;  // what was sent now, not what was reused
};

struct JudgeOptions {
  bool skip_bad = false;
  // The transcript: what was asked and every reply are added to this file as soon as it comes, and
  // what stands in it is not asked for again. "": none.
  std::string grades_path = {};
  // What one command may cost: the judge is asked no further once it was asked so often, answered
  // or not, or so many tokens were counted. The last reply may pass the number of tokens. -1: no
  // bound.
  int64_t most_requests = -1;
  int64_t most_tokens = -1;
};

// Lines as in datasets/pairs.h; the first answer is the reference, "question" may be there. Where
// the judge's answer cannot be had, the grades so far come back with `ended`; without any it is an
// error. Where the file can be read twice, nothing is sent before every line was found good.
Result<JudgedPairs> JudgePairs(const std::string& path, const Judge& judge,
                               const JudgeOptions& options);
Result<JudgedPairs> JudgePairs(const std::string& path, const JudgeEndpoint& judge,
                               const JudgeOptions& options);

// Which of two answers is better, the judge is asked: A, B, or C for a tie, alone on the first
// line.
std::string WinPrompt(const std::string& question, const std::string& answer_a,
                      const std::string& answer_b);

enum class WinVerdict { kWin, kTie, kLoss, kUnparsed };
// 'A', 'B' or 'C' as the first line's only letter, in brackets or not; 0: anything else.
char ParseWin(const std::string& reply);

struct JudgedWin {
  int64_t line = 0;  // from 1
  char first = 0;    // the reply with the reference as A
  char swapped = 0;  // with the model's answer as A
  // A win or loss is one in both orders. What the order decides, and what one order calls a tie, is
  // a tie. Unparsed: one of the replies is none of the letters.
  WinVerdict verdict = WinVerdict::kUnparsed;
};

struct JudgedWins {
  std::vector<JudgedWin> wins;
  std::vector<std::string> bad_lines;
  int64_t won = 0, tied = 0, lost = 0, unparsed = 0;
  int64_t order_decided = 0;  // of the ties, those in which each order named another answer
  int64_t reused = 0;         // of the replies, those that were in the file already
  double win_rate = 0;        // (wins + ties / 2) of the lines that could be parsed
  std::string ended;          // why the judge was asked no further; "": every line is judged
  int64_t requests = 0, tokens = 0;
};
// The model's answers against the references, each pair judged in both orders. Lines and errors as
// of JudgePairs.
Result<JudgedWins> JudgeWins(const std::string& path, const Judge& judge,
                             const JudgeOptions& options);

}  // namespace kvgauge
