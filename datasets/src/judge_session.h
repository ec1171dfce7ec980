// SPDX-License-Identifier: Apache-2.0
// A file of pairs read for a judge, and what it is asked: nothing twice, nothing beyond the cap,
// and nothing before every line was found good.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/result.h"
#include "datasets/judge.h"
#include "src/judge_replies.h"
#include "src/lines.h"

namespace kvgauge {

struct JudgedLine {
  int64_t number = 0;  // from 1
  std::string origin;  // for messages
  std::string question, reference, answer;
};

class JudgeSession {
 public:
  // `judge` and `options` outlive it.
  static Result<JudgeSession> Open(const std::string& path, const Judge& judge,
                                   const JudgeOptions& options);

  // Calls `pair` with each good line until it returns false. A bad line is an error, or is left out
  // where the options say so.
  Status ForEachPair(const std::function<Result<bool>(const JudgedLine& line)>& pair);
  // The judge's reply, given before or now.
  Result<std::string> Ask(const std::string& prompt, const JudgedLine& line);

  // Why a reply could not be kept; it is good all the same.
  const std::string& lost() const { return lost_; }
  const std::vector<std::string>& bad_lines() const { return bad_lines_; }
  int64_t reused() const { return reused_; }
  int64_t requests() const { return requests_; }
  int64_t tokens() const { return tokens_; }

 private:
  JudgeSession(const Judge& judge, const JudgeOptions& options, PairLines lines, JudgeReplies given)
      : judge_(&judge), options_(&options), lines_(std::move(lines)), given_(std::move(given)) {}
  Result<JudgedLine> Read(SampleIds& ids);

  const Judge* judge_;
  const JudgeOptions* options_;
  PairLines lines_;
  JudgeReplies given_;
  std::vector<std::string> bad_lines_;
  std::string lost_;
  int64_t reused_ = 0, requests_ = 0, tokens_ = 0;
};

}  // namespace kvgauge
