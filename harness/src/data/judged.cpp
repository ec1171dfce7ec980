// SPDX-License-Identifier: Apache-2.0
#include "src/data/judged.h"

#include <cstdlib>
#include <utility>

#include "core/files.h"
#include "core/json.h"
#include "core/log.h"
#include "core/strings.h"
#include "datasets/judge.h"
#include "datasets/task.h"
#include "src/cli/print.h"
#include "src/data/local_judge.h"
#include "src/model/shipped_files.h"

namespace kvgauge {
namespace {

std::string JudgeVariable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

// An address, or a directory of a model.
Result<Judge> ChooseJudge(const ScoreOptions& options, const std::string& what) {
  const std::string given =
      options.judge_url.empty() ? JudgeVariable("KVGAUGE_JUDGE_URL") : options.judge_url;
  const std::string path = FindShipped(given);
  if (!given.empty() && given.find("://") == std::string::npos && DirectoryExists(path)) {
    if (!options.judge_model.empty()) {
      return BadInput(StrCat("--judge-model: expected none with a judge of our own, ", path));
    }
    return LocalJudge(path);
  }
  const JudgeEndpoint endpoint = {
      .url = given, .key = JudgeVariable("KVGAUGE_JUDGE_KEY"), .model = options.judge_model};
  if (endpoint.url.empty() || endpoint.key.empty() || endpoint.model.empty()) {
    return BadInput(StrCat(what, " needs a judge: --judge URL (or KVGAUGE_JUDGE_URL) of an ",
                           "OpenAI-compatible endpoint, --judge-model NAME, and its key in ",
                           "KVGAUGE_JUDGE_KEY; without all three nothing is sent. Or --judge DIR, ",
                           "a model that runs here"));
  }
  return HttpJudge(endpoint);
}

// What both kinds of judging tell of their cost.
struct JudgeCost {
  int64_t requests, tokens, reused, unparsed;
  size_t skipped;
};

std::vector<std::pair<std::string, std::string>> CostFacts(const std::string& judge,
                                                           const JudgeCost& cost) {
  return {{"judge", judge},
          {"asked", StrCat(cost.requests, " times, ", cost.tokens, " tokens")},
          {"replies from before", StrCat(cost.reused)},
          {"unparsed", StrCat(cost.unparsed)},
          {"skipped", StrCat(cost.skipped)}};
}

void AddCost(const std::string& judge, const JudgeCost& cost, const std::string& ended,
             Json& json) {
  json["judge_model"] = judge;
  json["requests"] = cost.requests;
  json["tokens"] = cost.tokens;
  json["reused"] = cost.reused;
  json["unparsed"] = cost.unparsed;
  json["skipped"] = cost.skipped;
  json["ended"] = ended.empty() ? Json() : Json(ended);
}

void PrintGrades(const ScoreOptions& options, const std::string& judge, const JudgedPairs& result) {
  const JudgeCost cost = {result.requests, result.tokens, result.reused, result.unparsed,
                          result.bad_lines.size()};
  if (options.json) {
    Json rows = Json::array();
    for (size_t i = 0; i < result.lines.size(); ++i) {
      rows.push_back({{"line", result.lines[i]},
                      {"reference", result.grades[i].reference},
                      {"model", result.grades[i].model}});
    }
    Json json = {
        {"metric", kJudgeMetric}, {"relative_score", result.relative_score}, {"scores", rows}};
    AddCost(judge, cost, result.ended, json);
    PrintJson(json);
    return;
  }
  std::vector<std::vector<std::string>> rows;
  for (size_t i = 0; i < result.lines.size(); ++i) {
    rows.push_back({StrCat(result.lines[i]), Fixed(result.grades[i].reference, 1),
                    Fixed(result.grades[i].model, 1)});
  }
  PrintTable({"line", "reference", "model"}, rows);
  Print("\n");
  std::vector<std::pair<std::string, std::string>> facts = {
      {"relative score", Fixed(100 * result.relative_score, 1)},
      {"judged", StrCat(result.lines.size())}};
  for (auto& fact : CostFacts(judge, cost)) facts.push_back(std::move(fact));
  PrintFacts(facts);
}

std::string LetterText(char letter) { return letter == 0 ? "-" : std::string(1, letter); }

const char* WordOf(WinVerdict verdict) {
  switch (verdict) {
    case WinVerdict::kWin:
      return "win";
    case WinVerdict::kTie:
      return "tie";
    case WinVerdict::kLoss:
      return "loss";
    case WinVerdict::kUnparsed:
      break;
  }
  return "unparsed";
}

void PrintWins(const ScoreOptions& options, const std::string& judge, const JudgedWins& result) {
  const JudgeCost cost = {result.requests, result.tokens, result.reused, result.unparsed,
                          result.bad_lines.size()};
  // Where no reply could be read, there is no rate.
  const bool any = result.won + result.tied + result.lost > 0;
  const Json rate = any ? Json(result.win_rate) : Json();
  if (options.json) {
    Json rows = Json::array();
    for (const JudgedWin& win : result.wins) {
      rows.push_back({{"line", win.line},
                      {"verdict", WordOf(win.verdict)},
                      {"first", LetterText(win.first)},
                      {"swapped", LetterText(win.swapped)}});
    }
    Json json = {{"metric", kWinMetric}, {"win_rate", rate},
                 {"won", result.won},    {"tied", result.tied},
                 {"lost", result.lost},  {"order_decided", result.order_decided},
                 {"scores", rows}};
    AddCost(judge, cost, result.ended, json);
    PrintJson(json);
    return;
  }
  std::vector<std::vector<std::string>> rows;
  for (const JudgedWin& win : result.wins) {
    rows.push_back(
        {StrCat(win.line), WordOf(win.verdict), LetterText(win.first), LetterText(win.swapped)});
  }
  PrintTable({"line", "verdict", "reference first", "model first"}, rows);
  Print("\n");
  std::vector<std::pair<std::string, std::string>> facts = {
      {"win rate", any ? Percent(result.win_rate) : "-"},
      {"won, tied, lost", StrCat(result.won, ", ", result.tied, ", ", result.lost)},
      {"ties by the order", StrCat(result.order_decided)}};
  for (auto& fact : CostFacts(judge, cost)) facts.push_back(std::move(fact));
  PrintFacts(facts);
}

Status EndedError(const ScoreOptions& options, const std::string& ended, size_t lines) {
  if (ended.empty()) return {};
  return IoError(StrCat(ended, "; ", lines, " lines are graded, those after ", "them are not",
                        options.grades.empty()
                            ? ". With --grades FILE grades are kept, and the same command goes on"
                            : StrCat("; the same command goes on from ", options.grades)));
}

}  // namespace

Status RunJudge(const ScoreOptions& options, const std::string& metric, const std::string& what) {
  KVG_ASSIGN(const Judge judge, ChooseJudge(options, what));
  const JudgeOptions wanted = {.skip_bad = options.skip_bad,
                               .grades_path = options.grades,
                               .most_requests = options.judge_requests,
                               .most_tokens = options.judge_tokens};
  const auto warn = [](const std::vector<std::string>& bad_lines) {
    for (const std::string& message : bad_lines) LogWarning(StrCat("skipped: ", message));
  };
  if (metric == kWinMetric) {
    KVG_ASSIGN(const JudgedWins result, JudgeWins(options.pairs, judge, wanted));
    warn(result.bad_lines);
    PrintWins(options, judge.name, result);
    return EndedError(options, result.ended, result.wins.size());
  }
  KVG_ASSIGN(const JudgedPairs result, JudgePairs(options.pairs, judge, wanted));
  warn(result.bad_lines);
  PrintGrades(options, judge.name, result);
  return EndedError(options, result.ended, result.lines.size());
}

}  // namespace kvgauge
