// SPDX-License-Identifier: Apache-2.0
#include "src/data/score.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "core/json.h"
#include "core/log.h"
#include "core/near_names.h"
#include "core/strings.h"
#include "datasets/execution.h"
#include "datasets/mlvu_grades.h"
#include "datasets/pairs.h"
#include "src/cli/print.h"
#include "src/data/judged.h"
#include "src/data/task_commands.h"

namespace kvgauge {
namespace {

Result<const MetricSpec*> MetricFor(const std::string& name) {
  if (const MetricSpec* metric = FindMetric(name); metric != nullptr) return metric;
  if (name == "m_avg") {
    return BadInput(
        "--metric: MLVU's M-Avg is the mean over its tasks of their accuracies: --metric accuracy "
        "with --by KEY, the key of the lines that tells their task");
  }
  std::vector<std::string> names;
  for (const MetricSpec* known : ListMetrics()) names.push_back(known->name);
  for (const std::string_view special :
       {kGenerationAverage, kJudgeMetric, kWinMetric, kExecutionMetric}) {
    names.emplace_back(special);
  }
  return BadInput(StrCat("--metric: there is no ", Quoted(name), DidYouMeanOneOf(name, names),
                         "; 'kvgauge score --list' names all"));
}

// What the scores stand on beyond the metric's version; "" where that says all. The metric has
// scored, so its files were read.
std::string BasisOf(const MetricSpec& metric) {
  if (!metric.basis) return "";
  const Result<std::string> basis = metric.basis();
  return basis.ok() ? *basis : "";
}

void PrintJsonScores(const MetricSpec& metric, const std::optional<Task>& task,
                     const PairScores& result, const PairOptions& options) {
  Json rows = Json::array();
  for (size_t i = 0; i < result.scores.size() && !metric.of_set; ++i) {
    rows.push_back({{"line", result.lines[i]}, {"score", result.scores[i]}});
  }
  Json groups = Json::array();
  for (const GroupScore& group : result.groups) {
    groups.push_back({{"key", group.key},
                      {"value", group.value},
                      {"count", group.count},
                      {"mean", group.score},
                      {"reported", group.reported}});
  }
  Json means = Json::object();
  for (const std::string& key : options.by) means[key] = MeanOfGroups(result, key);
  Json json = {{"metric", metric.name},
               {"version", metric.version},
               {"reference", metric.reference},
               {"mean", result.mean},
               {"reported", result.reported},
               {"count", result.scores.size()},
               {"skipped", result.bad_lines.size()},
               {"groups", groups},
               {"mean_of_groups", means},
               {"scores", rows}};
  if (const std::string basis = BasisOf(metric); !basis.empty()) json["basis"] = basis;
  if (task) {
    json["task"] = task->name;
    json["task_version"] = task->version;
  }
  Print(json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

void PrintScores(const MetricSpec& metric, const std::optional<Task>& task,
                 const PairScores& result, const PairOptions& options) {
  const Reporting report = task ? task->report : Reporting{};
  const auto shown = [&](double reported) {
    return Fixed(reported, report.digits < 0 ? 6 : report.digits);
  };
  std::vector<std::vector<std::string>> rows;
  if (!metric.of_set) {
    for (size_t i = 0; i < result.scores.size(); ++i) {
      rows.push_back({StrCat(result.lines[i]), Fixed(result.scores[i], 6)});
    }
    PrintTable({"line", "score"}, rows);
    Print("\n");
  }
  if (!result.groups.empty()) {
    rows.clear();
    for (const GroupScore& group : result.groups) {
      rows.push_back({group.key, group.value, StrCat(group.count), shown(group.reported)});
    }
    for (const std::string& key : options.by) {
      rows.push_back(
          {key, "(mean of these)", "", shown(Reported(report, MeanOfGroups(result, key)))});
    }
    PrintTable({"by", "value", "scored", "score"}, rows);
    Print("\n");
  }
  std::vector<std::pair<std::string, std::string>> facts = {
      {"metric", metric.name},
      {"mean", shown(result.reported)},
      {"scored", StrCat(result.scores.size())},
      {"skipped", StrCat(result.bad_lines.size())}};
  if (const std::string basis = BasisOf(metric); !basis.empty()) {
    facts.insert(facts.begin() + 1, {"basis", basis});
  }
  if (task) facts.insert(facts.begin(), {"task", StrCat(task->name, " v", task->version)});
  PrintFacts(facts);
}

// Answers that are programs. `what` asked for it, for the message.
Status RunPrograms(const ScoreOptions& options, const std::string& what) {
  ExecutionOptions execution;
  for (const std::string& word : Split(options.execute, ' ')) {
    if (!word.empty()) execution.command.push_back(word);
  }
  if (execution.command.empty()) {
    return BadInput(StrCat(what, " runs the model's text as a program, and nothing is run ",
                           "unasked: name the interpreter with --execute, e.g. --execute python3"));
  }
  execution.limits.wall_s = options.timeout_s.value_or(execution.limits.wall_s);
  execution.limits.cpu_s =
      std::max(execution.limits.cpu_s, static_cast<int64_t>(std::ceil(execution.limits.wall_s)));
  execution.limits.unisolated = options.unisolated;
  if (!options.ks.empty()) execution.ks = options.ks;
  execution.skip_bad = options.skip_bad;
  KVG_ASSIGN(const ExecutionScores result, ScoreByExecution(options.pairs, execution));
  for (const std::string& message : result.bad_lines) LogWarning(StrCat("skipped: ", message));
  if (!result.isolated) {
    LogWarning("this kernel gave no namespaces: the programs had the user's network and files");
  }
  if (!result.end_checked) {
    LogWarning(
        StrCat("only Python's and shells' programs are seen to run to their end; of those of ",
               Quoted(options.execute), " one that exits early with 0 counts as passed"));
  }
  for (const ExecutionScores::PassAt& at : result.pass) {
    if (at.left_out == 0) continue;
    LogWarning(StrCat("pass@", at.k, " leaves out ", at.left_out, " of ", at.left_out + at.problems,
                      " problems, which have fewer than ", at.k, " samples"));
  }
  if (options.json) {
    Json rows = Json::array(), pass = Json::array();
    for (size_t i = 0; i < result.lines.size(); ++i) {
      rows.push_back({{"line", result.lines[i]}, {"passed", static_cast<bool>(result.passed[i])}});
    }
    for (const ExecutionScores::PassAt& at : result.pass) {
      pass.push_back(
          {{"k", at.k}, {"score", at.score}, {"problems", at.problems}, {"left_out", at.left_out}});
    }
    PrintJson({{"metric", kExecutionMetric},
               {"pass_at", pass},
               {"isolated", result.isolated},
               {"end_checked", result.end_checked},
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

Status RunGrades(const ScoreOptions& options) {
  if (options.by.size() != 1) {
    return BadInput(StrCat("--metric ", kGenerationAverage,
                           " takes the mean of the tasks' means: name with one --by the key of "
                           "the lines that tells their task"));
  }
  KVG_ASSIGN(const GradedSet result, AverageGrades(options.pairs, options.by[0], options.skip_bad));
  for (const std::string& message : result.bad_lines) LogWarning(StrCat("skipped: ", message));
  if (options.json) {
    Json tasks = Json::array(), rows = Json::array();
    for (const GradedTask& task : result.tasks) {
      tasks.push_back(
          {{"value", task.name}, {"count", task.count}, {"mean_of_sums", task.mean_sum}});
    }
    for (size_t i = 0; i < result.lines.size(); ++i) {
      rows.push_back({{"line", result.lines[i]},
                      {"grades", {result.grades[i].first, result.grades[i].second}}});
    }
    PrintJson({{"metric", kGenerationAverage},
               {"g_avg", result.generation_average},
               {"g_avg_of_1_to_5", result.generation_average / 2},
               {"groups", tasks},
               {"skipped", result.bad_lines.size()},
               {"scores", rows}});
    return {};
  }
  std::vector<std::vector<std::string>> rows;
  for (const GradedTask& task : result.tasks) {
    rows.push_back({options.by[0], task.name, StrCat(task.count), Fixed(task.mean_sum, 4)});
  }
  PrintTable({"by", "value", "graded", "mean of sums"}, rows);
  Print("\n");
  PrintFacts({{"G-Avg, of 2 to 10", Fixed(result.generation_average, 4)},
              {"as a grade of 1 to 5", Fixed(result.generation_average / 2, 4)},
              {"graded", StrCat(result.lines.size())},
              {"skipped", StrCat(result.bad_lines.size())}});
  return {};
}

// Every metric with what it is, and what it is equal to.
void ListAllMetrics(bool json) {
  struct Row {
    std::string name, description, reference;
  };
  std::vector<Row> all;
  for (const MetricSpec* metric : ListMetrics()) {
    all.push_back({metric->name, metric->description, metric->reference});
  }
  all.push_back({std::string(kExecutionMetric),
                 "share of programs that pass their tests; --execute",
                 "the unbiased estimator of Chen et al., 2021"});
  all.push_back({std::string(kJudgeMetric), "ratio of the mean grades by another model; --judge",
                 "LLaVA-Bench's relative score"});
  all.push_back({std::string(kWinMetric),
                 "share of answers that another model prefers in both orders; --judge", ""});
  all.push_back({std::string(kGenerationAverage),
                 "mean over tasks of the mean sum of two grades, of 2 to 10; one --by",
                 "MLVU's G-Avg"});
  if (json) {
    Json list = Json::array();
    for (const Row& row : all) {
      list.push_back(
          {{"name", row.name}, {"description", row.description}, {"reference", row.reference}});
    }
    PrintJson(list);
    return;
  }
  std::vector<std::vector<std::string>> rows;
  for (const Row& row : all) rows.push_back({row.name, row.description, row.reference});
  PrintTable({"metric", "", "as"}, rows);
}

// Flags that another metric would leave alone without a word.
Status CheckFlags(const ScoreOptions& options, const std::string& metric, const std::string& what) {
  if (!options.by.empty() &&
      (metric == kExecutionMetric || metric == kJudgeMetric || metric == kWinMetric)) {
    return BadInput(StrCat("--by: ", what, " has no scores by groups"));
  }
  const auto check = [&](const std::vector<std::pair<const char*, bool>>& flags,
                         std::string_view owner) -> Status {
    if (metric == owner) return {};
    for (const auto& [flag, given] : flags) {
      if (given) return BadInput(StrCat(flag, " is for ", owner, "; ", what, " has no use for it"));
    }
    return {};
  };
  KVG_TRY(check({{"--execute", !options.execute.empty()},
                 {"--k", !options.ks.empty()},
                 {"--timeout", options.timeout_s.has_value()},
                 {"--unisolated", options.unisolated}},
                kExecutionMetric));
  return check({{"--judge", !options.judge_url.empty()},
                {"--judge-model", !options.judge_model.empty()},
                {"--judge-requests", options.judge_requests >= 0},
                {"--judge-tokens", options.judge_tokens >= 0},
                {"--grades", !options.grades.empty()}},
               metric == kWinMetric ? kWinMetric : kJudgeMetric);
}

}  // namespace

Status RunScore(const ScoreOptions& options) {
  if (options.list) {
    ListAllMetrics(options.json);
    return {};
  }
  if (options.pairs.empty()) return BadInput("name a file of predictions with --pairs");
  if (options.metric.empty() == options.task.empty()) {
    return BadInput("name a metric with --metric, or a task with --task");
  }
  std::optional<Task> task;
  PairOptions pairs;
  std::string name = options.metric;
  if (!options.task.empty()) {
    KVG_ASSIGN(task, FindTask(options.task, options.task_directory));
    name = task->metric;
    pairs.task = &*task;
    pairs.by = task->report.by;
  }
  for (const std::string& key : options.by) {
    if (std::find(pairs.by.begin(), pairs.by.end(), key) == pairs.by.end()) {
      pairs.by.push_back(key);
    }
  }
  pairs.skip_bad = options.skip_bad;
  std::map<std::string, Task> named;
  if (!task) {
    pairs.find_task = [&](const std::string& task_name) -> Result<const Task*> {
      if (!named.contains(task_name)) {
        KVG_ASSIGN(Task found, FindTask(task_name, options.task_directory));
        named.emplace(task_name, std::move(found));
      }
      return &named.at(task_name);
    };
  }
  const std::string what =
      task ? StrCat("task ", Quoted(task->name)) : StrCat("--metric ", options.metric);
  KVG_TRY(CheckFlags(options, name, what));
  if (name == kExecutionMetric) return RunPrograms(options, what);
  if (name == kJudgeMetric || name == kWinMetric) return RunJudge(options, name, what);
  if (name == kGenerationAverage) return RunGrades(options);
  if (name == kPerplexityMetric) {
    return BadInput(StrCat(what, " takes a model's perplexity; no file of predictions holds that"));
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
