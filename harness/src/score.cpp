// SPDX-License-Identifier: Apache-2.0
#include "src/score.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/json.h"
#include "core/log.h"
#include "core/strings.h"
#include "datasets/execution.h"
#include "datasets/pairs.h"
#include "src/print.h"
#include "src/tasks.h"

namespace kvgauge {
namespace {

Result<const MetricSpec*> MetricFor(const std::string& name) {
  if (const MetricSpec* metric = FindMetric(name); metric != nullptr) return metric;
  std::vector<std::string> names;
  for (const MetricSpec* known : ListMetrics()) names.push_back(known->name);
  return BadInput(StrCat("--metric: there is no ", Quoted(name), DidYouMean(name, names),
                         "; known: ", Join(names, ", ")));
}

void PrintJsonScores(const MetricSpec& metric, const std::optional<Task>& task,
                     const PairScores& result, const PairOptions& options) {
  const Reporting report = task ? task->report : Reporting{};
  Json rows = Json::array();
  for (size_t i = 0; i < result.scores.size(); ++i) {
    rows.push_back({{"line", result.lines[i]}, {"score", result.scores[i]}});
  }
  Json groups = Json::array();
  for (const GroupScore& group : result.groups) {
    groups.push_back({{"key", group.key},
                      {"value", group.value},
                      {"count", group.count},
                      {"mean", group.score},
                      {"reported", Reported(report, group.score)}});
  }
  Json means = Json::object();
  for (const std::string& key : options.by) means[key] = MeanOfGroups(result, key);
  Json json = {{"metric", metric.name},
               {"version", metric.version},
               {"reference", metric.reference},
               {"mean", result.mean},
               {"reported", Reported(report, result.mean)},
               {"count", result.scores.size()},
               {"skipped", result.bad_lines.size()},
               {"groups", groups},
               {"mean_of_groups", means},
               {"scores", rows}};
  if (task) {
    json["task"] = task->name;
    json["task_version"] = task->version;
  }
  Print(json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

void PrintScores(const MetricSpec& metric, const std::optional<Task>& task,
                 const PairScores& result, const PairOptions& options) {
  const Reporting report = task ? task->report : Reporting{};
  const auto shown = [&](double score) {
    return Fixed(Reported(report, score), report.digits < 0 ? 6 : report.digits);
  };
  std::vector<std::vector<std::string>> rows;
  for (size_t i = 0; i < result.scores.size(); ++i) {
    rows.push_back({StrCat(result.lines[i]), Fixed(result.scores[i], 6)});
  }
  PrintTable({"line", "score"}, rows);
  Print("\n");
  if (!result.groups.empty()) {
    rows.clear();
    for (const GroupScore& group : result.groups) {
      rows.push_back({group.key, group.value, StrCat(group.count), shown(group.score)});
    }
    for (const std::string& key : options.by) {
      rows.push_back({key, "(mean of these)", "", shown(MeanOfGroups(result, key))});
    }
    PrintTable({"by", "value", "scored", "score"}, rows);
    Print("\n");
  }
  std::vector<std::pair<std::string, std::string>> facts = {
      {"metric", metric.name},
      {"mean", shown(result.mean)},
      {"scored", StrCat(result.scores.size())},
      {"skipped", StrCat(result.bad_lines.size())}};
  if (task) facts.insert(facts.begin(), {"task", StrCat(task->name, " v", task->version)});
  PrintFacts(facts);
}

// Answers that are programs. `metric_flag` is what asked for it, for the message.
Status RunPrograms(const ScoreOptions& options, const std::string& metric_flag) {
  ExecutionOptions execution;
  for (const std::string& word : Split(options.execute, ' ')) {
    if (!word.empty()) execution.command.push_back(word);
  }
  if (execution.command.empty()) {
    return BadInput(StrCat(metric_flag, " runs the model's text as a program, and nothing is run ",
                           "unasked: name the interpreter with --execute, e.g. --execute python3"));
  }
  execution.limits.wall_s = options.timeout_s;
  execution.ks = options.ks;
  execution.skip_bad = options.skip_bad;
  KVG_ASSIGN(const ExecutionScores result, ScoreByExecution(options.pairs, execution));
  for (const std::string& message : result.bad_lines) LogWarning(StrCat("skipped: ", message));
  if (!result.isolated) {
    LogWarning("this kernel gave no namespaces: the programs had the user's network and files");
  }
  if (options.json) {
    Json rows = Json::array(), pass = Json::array();
    for (size_t i = 0; i < result.lines.size(); ++i) {
      rows.push_back({{"line", result.lines[i]}, {"passed", static_cast<bool>(result.passed[i])}});
    }
    for (const ExecutionScores::PassAt& at : result.pass) {
      pass.push_back({{"k", at.k}, {"score", at.score}, {"problems", at.problems}});
    }
    PrintJson({{"metric", kExecutionMetric},
               {"pass_at", pass},
               {"isolated", result.isolated},
               {"skipped", result.bad_lines.size()},
               {"scores", rows}});
    return {};
  }
  std::vector<std::pair<std::string, std::string>> facts;
  for (const ExecutionScores::PassAt& at : result.pass) {
    facts.emplace_back(StrCat("pass@", at.k),
                       StrCat(Fixed(at.score, 6), " over ", at.problems, " problems"));
  }
  facts.emplace_back("programs", StrCat(result.lines.size()));
  facts.emplace_back("skipped", StrCat(result.bad_lines.size()));
  PrintFacts(facts);
  return {};
}

}  // namespace

Status RunScore(const ScoreOptions& options) {
  if (options.metric.empty() == options.task.empty()) {
    return BadInput("name a metric with --metric, or a task with --task");
  }
  std::optional<Task> task;
  PairOptions pairs;
  std::string name = options.metric;
  if (!options.task.empty()) {
    KVG_ASSIGN(task, FindTask(options.task, options.task_directory));
    name = task->metric;
    if (name == kJudgeMetric) {
      return BadInput(StrCat("task ", Quoted(task->name), " needs a judge; it has no metric"));
    }
    pairs.task = &*task;
    pairs.by = task->report.by;
  }
  for (const std::string& key : options.by) {
    if (std::find(pairs.by.begin(), pairs.by.end(), key) == pairs.by.end()) {
      pairs.by.push_back(key);
    }
  }
  pairs.skip_bad = options.skip_bad;
  if (name == kExecutionMetric) {
    return RunPrograms(options, task ? StrCat("task ", Quoted(task->name)) : "--metric pass_at_k");
  }
  KVG_ASSIGN(const MetricSpec* metric, MetricFor(name));
  KVG_ASSIGN(const PairScores result, ScorePairs(*metric, options.pairs, pairs));
  for (const std::string& message : result.bad_lines) LogWarning(StrCat("skipped: ", message));
  if (options.json) {
    PrintJsonScores(*metric, task, result, pairs);
  } else {
    PrintScores(*metric, task, result, pairs);
  }
  return {};
}

}  // namespace kvgauge
