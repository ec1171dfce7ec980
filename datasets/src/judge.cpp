// SPDX-License-Identifier: Apache-2.0
#include "datasets/judge.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <utility>

#include "core/json.h"
#include "core/strings.h"
#include "src/http.h"
#include "src/judge_replies.h"
#include "src/lines.h"

namespace kvgauge {

Result<std::string> AskJudge(const JudgeEndpoint& judge, const std::string& message) {
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
    KVG_ASSIGN(response, HttpPost(url,
                                  {{"Content-Type", "application/json"},
                                   {"Accept", "application/json"},
                                   {"Authorization", "Bearer " + judge.key}},
                                  body, judge.timeout_s));
    if (response.status == 200) break;
    const bool lost = !response.lost.empty();
    const bool passing = lost || response.status == 429 || response.status / 100 == 5;
    if (!passing || attempt >= judge.attempts) {
      if (lost) return IoError(StrCat(response.lost, ", asked ", attempt, " times"));
      return IoError(StrCat("the judge answered with status ", response.status, ": ",
                            Quoted(response.body, 200),
                            passing ? StrCat(", asked ", attempt, " times") : ""));
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
  return json[content].get<std::string>();
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

Result<JudgedPairs> JudgePairs(const std::string& path, const JudgeEndpoint& judge,
                               const JudgeOptions& options) {
  if (const Result<HttpUrl> url = ParseHttpUrl(judge.url); !url.ok()) return url.error();
  KVG_ASSIGN(PairLines lines, PairLines::Open(path));
  KVG_ASSIGN(JudgeReplies given, JudgeReplies::Open(options.grades_path));
  SampleIds ids({});
  const auto prompt_of = [&]() -> Result<std::string> {
    const std::string origin = lines.origin();
    KVG_ASSIGN(const Json object, lines.Object());
    KVG_ASSIGN(const MetricInput input, PairOf(object, origin, PairUse::kMetric));
    std::string question;
    if (object.contains("question")) {
      if (!object["question"].is_string()) {
        return BadInput(StrCat(origin, ": \"question\" must be a text"));
      }
      question = object["question"].get<std::string>();
    }
    KVG_TRY(ids.Add(object, lines));
    return RelativeGradePrompt(question, input.answers[0], input.prediction);
  };
  JudgedPairs out;
  // All lines are read once before anything is sent: a fault in the last one should not cost the
  // judge's answers to the others. What cannot be read twice (a pipe) is sent as it comes.
  const bool twice = lines.Rewind();
  for (const bool sending : twice ? std::vector<bool>{false, true} : std::vector<bool>{true}) {
    if (sending && twice) lines.Rewind();
    ids = SampleIds({});
    while (out.ended.empty() && lines.Next()) {
      const Result<std::string> prompt = prompt_of();
      if (!prompt.ok()) {
        if (!options.skip_bad) return prompt.error();
        if (sending) out.bad_lines.push_back(prompt.error().message);
        continue;
      }
      if (!sending) continue;
      const std::string request = StrCat(judge.model, "\n", *prompt);
      if (const std::string* reply = given.Find(request); reply != nullptr) {
        out.grades.push_back(ParseRelativeGrade(*reply));
        ++out.reused;
      } else {
        const Result<std::string> asked = AskJudge(judge, *prompt);
        if (!asked.ok()) {
          const Error error = asked.error().Wrap(lines.origin());
          if (out.grades.empty()) return error;
          out.ended = error.message;
          break;
        }
        out.grades.push_back(ParseRelativeGrade(*asked));
        const Status kept = given.Add(request, lines.number(), *asked);
        if (!kept.ok()) out.ended = kept.error().message;
      }
      out.lines.push_back(lines.number());
      if (out.grades.back().reference < 0) ++out.unparsed;
    }
  }
  KVG_TRY(lines.status());
  if (out.grades.empty()) return BadInput(StrCat(path, ": no pair to judge"));
  out.relative_score = RelativeScore(out.grades);
  return out;
}

}  // namespace kvgauge
