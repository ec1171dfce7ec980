// SPDX-License-Identifier: Apache-2.0
#include "datasets/judge.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <utility>

#include "core/counted.h"
#include "core/json.h"
#include "core/strings.h"
#include "src/http.h"
#include "src/judge_session.h"

namespace kvgauge {

Result<JudgeAnswer> AskJudge(const JudgeEndpoint& judge, const std::string& message,
                             int64_t* requests) {
  if (judge.url.empty() || judge.key.empty()) {
    return BadInput("a judge needs an address and a key; nothing was sent");
  }
  KVG_ASSIGN(HttpUrl url, ParseHttpUrl(judge.url));
  while (url.path.ends_with('/')) url.path.pop_back();
  url.path += "/chat/completions";
  const Json request = {{"model", judge.model},
                        {"temperature", 0},
                        {"max_tokens", 1024},
                        {"messages", Json::array({{{"role", "user"}, {"content", message}}})}};
  const std::string body = request.dump(-1, ' ', false, Json::error_handler_t::replace);
  HttpResponse response;
  double wait_s = judge.first_wait_s;
  for (int attempt = 1;; ++attempt) {
    if (requests != nullptr) ++*requests;
    KVG_ASSIGN(response, HttpPost(url,
                                  {{"Content-Type", "application/json"},
                                   {"Accept", "application/json"},
                                   {"Authorization", "Bearer " + judge.key}},
                                  body, judge.timeout_s));
    if (response.status == 200) break;
    const bool lost = !response.lost.empty();
    const bool passing = lost || response.status == 429 || response.status / 100 == 5;
    if (!passing || attempt >= judge.attempts) {
      const std::string asked = StrCat(", asked ", Counted(attempt, "time"));
      if (lost) return IoError(StrCat(response.lost, asked));
      return IoError(StrCat("the judge answered with status ", response.status, ": ",
                            Quoted(response.body, 200), passing ? asked : ""));
    }
    const double named_s = response.retry_after_s.value_or(wait_s);
    std::this_thread::sleep_for(
        std::chrono::duration<double>(std::min(named_s, judge.most_wait_s)));
    wait_s *= 2;
  }
  KVG_ASSIGN(const Json json, ParseJson(response.body, "the judge's answer"));
  const Json::json_pointer content("/choices/0/message/content");
  if (!json.contains(content) || !json[content].is_string()) {
    return IoError("the judge's answer has no choices[0].message.content");
  }
  JudgeAnswer reply = {.text = json[content].get<std::string>()};
  constexpr int64_t kBytesOfToken = 4;
  reply.tokens = (std::ssize(message) + std::ssize(reply.text)) / kBytesOfToken;
  const Json::json_pointer counted("/usage/total_tokens");
  if (json.contains(counted) && json[counted].is_number_integer() &&
      json[counted].get<int64_t>() >= 0) {
    reply.tokens = json[counted].get<int64_t>();
  }
  return reply;
}

Result<Judge> HttpJudge(const JudgeEndpoint& endpoint) {
  if (const Result<HttpUrl> url = ParseHttpUrl(endpoint.url); !url.ok()) return url.error();
  return Judge{
      .name = endpoint.model,
      .ask = [endpoint](const std::string& message, int64_t most_requests, int64_t* requests) {
        JudgeEndpoint bounded = endpoint;
        bounded.attempts = static_cast<int>(std::min<int64_t>(endpoint.attempts, most_requests));
        return AskJudge(bounded, message, requests);
      }};
}

std::string RelativeGradePrompt(const std::string& question, const std::string& reference,
                                const std::string& answer) {
  return StrCat(
      "Two assistants answered the same question. Grade each answer from 1 to 10 for helpfulness, "
      "relevance, accuracy and detail; a higher grade is a better answer. Do not let the order of "
      "the answers count. Write the two grades on the first line, that of assistant 1 first, ",
      "separated by a blank and with nothing else. Explain on the lines after it.\n\n[Question]\n",
      question, "\n\n[Assistant 1]\n", reference, "\n[End of assistant 1]\n\n[Assistant 2]\n",
      answer, "\n[End of assistant 2]\n");
}

RelativeGrade ParseRelativeGrade(const std::string& reply) {
  constexpr RelativeGrade kUnparsed = {-1, -1};
  std::string line = reply.substr(0, reply.find('\n'));
  for (char& c : line) c = c == ',' || c == '\r' || c == '\t' ? ' ' : c;
  std::vector<double> numbers;
  for (const std::string& word : Split(line, ' ')) {
    if (word.empty()) continue;
    char* end = nullptr;
    numbers.push_back(std::strtod(word.c_str(), &end));
    if (*end != '\0' || !(numbers.back() >= 0 && numbers.back() <= 10)) return kUnparsed;
  }
  return numbers.size() == 2 ? RelativeGrade{numbers[0], numbers[1]} : kUnparsed;
}

Result<JudgedPairs> JudgePairs(const std::string& path, const Judge& judge,
                               const JudgeOptions& options) {
  KVG_ASSIGN(JudgeSession session, JudgeSession::Open(path, judge, options));
  JudgedPairs out;
  KVG_TRY(session.ForEachPair([&](const JudgedLine& line) -> Result<bool> {
    const std::string prompt = RelativeGradePrompt(line.question, line.reference, line.answer);
    const Result<std::string> reply = session.Ask(prompt, line);
    if (!reply.ok()) {
      if (out.grades.empty()) return reply.error();
      out.ended = reply.error().message;
      return false;
    }
    out.grades.push_back(ParseRelativeGrade(*reply));
    out.lines.push_back(line.number);
    if (out.grades.back().reference < 0) ++out.unparsed;
    out.ended = session.lost();
    return out.ended.empty();
  }));
  if (out.grades.empty()) return BadInput(StrCat(path, ": no pair to judge"));
  out.bad_lines = session.bad_lines();
  out.reused = session.reused();
  out.requests = session.requests();
  out.tokens = session.tokens();
  out.relative_score = RelativeScore(out.grades);
  return out;
}

Result<JudgedPairs> JudgePairs(const std::string& path, const JudgeEndpoint& endpoint,
                               const JudgeOptions& options) {
  KVG_ASSIGN(const Judge judge, HttpJudge(endpoint));
  return JudgePairs(path, judge, options);
}

}  // namespace kvgauge
