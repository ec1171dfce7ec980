// SPDX-License-Identifier: Apache-2.0
#include "datasets/judge.h"

#include <cstdlib>
#include <utility>

#include "core/json.h"
#include "core/strings.h"
#include "src/http.h"
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
  KVG_ASSIGN(
      const HttpResponse response,
      HttpPost(url,
               {{"Content-Type", "application/json"},
                {"Accept", "application/json"},
                {"Authorization", "Bearer " + judge.key}},
               request.dump(-1, ' ', false, Json::error_handler_t::replace), judge.timeout_s));
  if (response.status != 200) {
    return IoError(StrCat("the judge answered with status ", response.status, ": ",
                          Quoted(response.body, 200)));
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

Result<JudgedPairs> JudgePairs(const std::string& path, const JudgeEndpoint& judge, bool skip_bad) {
  if (const Result<HttpUrl> url = ParseHttpUrl(judge.url); !url.ok()) return url.error();
  KVG_ASSIGN(PairLines lines, PairLines::Open(path));
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
    while (lines.Next()) {
      const Result<std::string> prompt = prompt_of();
      if (!prompt.ok()) {
        if (!skip_bad) return prompt.error();
        if (sending) out.bad_lines.push_back(prompt.error().message);
        continue;
      }
      if (!sending) continue;
      const Result<std::string> reply = AskJudge(judge, *prompt);
      if (!reply.ok()) return reply.error().Wrap(lines.origin());
      out.grades.push_back(ParseRelativeGrade(*reply));
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
