// SPDX-License-Identifier: Apache-2.0
#include "src/judge_session.h"

#include <limits>
#include <utility>

#include "core/counted.h"
#include "core/json.h"
#include "core/strings.h"

namespace kvgauge {

Result<JudgeSession> JudgeSession::Open(const std::string& path, const Judge& judge,
                                        const JudgeOptions& options) {
  KVG_ASSIGN(PairLines lines, PairLines::Open(path));
  KVG_ASSIGN(JudgeReplies given, JudgeReplies::Open(options.grades_path));
  return JudgeSession(judge, options, std::move(lines), std::move(given));
}

Result<JudgedLine> JudgeSession::Read(SampleIds& ids) {
  JudgedLine line;
  line.number = lines_.number();
  line.origin = lines_.origin();
  KVG_ASSIGN(const Json object, lines_.Object());
  KVG_ASSIGN(const MetricInput input, PairOf(object, line.origin, PairUse::kMetric));
  if (object.contains("question")) {
    if (!object["question"].is_string()) {
      return BadInput(StrCat(line.origin, ": \"question\" must be a text"));
    }
    line.question = object["question"].get<std::string>();
  }
  KVG_TRY(ids.Add(object, lines_));
  line.reference = input.answers[0];
  line.answer = input.prediction;
  return line;
}

Status JudgeSession::ForEachPair(const std::function<Result<bool>(const JudgedLine& line)>& pair) {
  // All lines are read once before anything is sent: a fault in the last one should not cost the
  // judge's answers to the others. What cannot be read twice (a pipe) is sent as it comes.
  const bool twice = lines_.Rewind();
  for (const bool sending : twice ? std::vector<bool>{false, true} : std::vector<bool>{true}) {
    if (sending && twice) lines_.Rewind();
    SampleIds ids({});
    bool going_on = true;
    while (going_on && lines_.Next()) {
      const Result<JudgedLine> line = Read(ids);
      if (!line.ok()) {
        if (!options_->skip_bad) return line.error();
        if (sending) bad_lines_.push_back(line.error().message);
        continue;
      }
      if (!sending) continue;
      KVG_ASSIGN(going_on, pair(*line));
    }
  }
  return lines_.status();
}

Result<std::string> JudgeSession::Ask(const std::string& prompt, const JudgedLine& line) {
  const std::string request = StrCat(judge_->name, "\n", prompt);
  if (const std::string* reply = given_.Find(request); reply != nullptr) {
    ++reused_;
    return *reply;
  }
  const bool asked_enough = options_->most_requests >= 0 && requests_ >= options_->most_requests;
  const bool told_enough = options_->most_tokens >= 0 && tokens_ >= options_->most_tokens;
  if (asked_enough || told_enough) {
    return IoError(StrCat(line.origin, ": the judge was asked ", Counted(requests_, "time"), ", ",
                          Counted(tokens_, "token"), ", which is the cap of this command"));
  }
  const int64_t left = options_->most_requests >= 0 ? options_->most_requests - requests_
                                                    : std::numeric_limits<int64_t>::max();
  const Result<JudgeAnswer> reply = judge_->ask(prompt, left, &requests_);
  if (!reply.ok()) return reply.error().Wrap(line.origin);
  tokens_ += reply->tokens;
  const Status kept = given_.Add(request, {.judge = judge_->name,
                                           .line = line.number,
                                           .prompt = prompt,
                                           .reply = reply->text,
                                           .tokens = reply->tokens});
  if (!kept.ok()) lost_ = kept.error().message;
  return reply->text;
}

}  // namespace kvgauge
