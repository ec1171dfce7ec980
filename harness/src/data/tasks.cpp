// SPDX-License-Identifier: Apache-2.0
#include "src/data/tasks.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "core/files.h"
#include "core/json.h"
#include "core/log.h"
#include "core/strings.h"
#include "datasets/metric.h"
#include "src/cli/print.h"
#include "src/model/model_flags.h"
#include "src/model/tokenizer_codec.h"

namespace kvgauge {
namespace {

namespace fs = std::filesystem;

// A text longer than this is shown by its ends; JSON output has all of it.
constexpr size_t kShownBytes = 1200;
// By which configs/ is found: it is always there.
constexpr char kKnownTask[] = "tasks/longbench/qasper.json";

Result<std::string> TaskDirectory(const std::string& given) {
  if (!given.empty()) return given;
  KVG_ASSIGN(const std::string path, FindConfigFile(kKnownTask));
  return fs::path(path).parent_path().parent_path().string();
}

struct State {
  std::string name, detail;
};

// `given` is the directory that the user named, "" for the default.
State StateOf(const Task& task, const std::string& data_directory, const std::string& given) {
  const bool plain = task.metric != kJudgeMetric && task.metric != kExecutionMetric &&
                     task.metric != kPerplexityMetric;
  if (plain && FindMetric(task.metric) == nullptr) {
    return {"no metric", StrCat(task.metric, " is not in this build")};
  }
  const std::vector<std::string> missing = MissingFiles(task, data_directory);
  if (!missing.empty()) {
    const std::string command = FetchCommand(missing[0], given);
    return {"data missing",
            StrCat(missing[0], "; ", command.empty() ? "to be put there by you" : command)};
  }
  if (task.metric == kJudgeMetric)
    return {"needs a judge", "answers are kept; 'kvgauge score --judge URL' has them graded"};
  if (task.metric == kExecutionMetric) {
    return {"needs execution", "answers are programs; 'kvgauge score --execute' runs them"};
  }
  if (!plain) return {"ready", ""};
  const Result<double> probe = FindMetric(task.metric)->score({.answers = {"yes"}});
  if (!probe.ok() && probe.error().message.find("KVGAUGE_") != std::string::npos) {
    return {"needs a dictionary", probe.error().message};
  }
  return {"ready", ""};
}

std::string Ends(const std::string& text) {
  if (text.size() <= kShownBytes) return text;
  const size_t half = kShownBytes / 2;
  return RepairUtf8(StrCat(text.substr(0, half), "\n[... ",
                           WithCommas(static_cast<int64_t>(text.size() - 2 * half)),
                           " bytes ...]\n", text.substr(text.size() - half)));
}

std::string_view NameOf(QuestionMode mode) {
  switch (mode) {
    case QuestionMode::kSingle:
      return "single";
    case QuestionMode::kMultiTurn:
      return "multi_turn";
    default:
      return "multi_request";
  }
}

Json ToJson(const Sample& sample) {
  Json questions = Json::array();
  for (const Question& question : sample.questions) {
    questions.push_back({{"text", question.text},
                         {"answer_prefix", question.answer_prefix},
                         {"answers", question.answers},
                         {"all_classes", question.all_classes},
                         {"kind", question.kind},
                         {"max_new_tokens", question.max_new_tokens}});
    if (question.conclusion.empty()) continue;
    questions.back()["conclusion"] = question.conclusion;
    questions.back()["conclusion_max_new_tokens"] = question.conclusion_max_new_tokens;
  }
  Json facts = Json::object();
  for (const auto& [name, value] : sample.facts) facts[name] = value;
  return {{"id", sample.id},
          {"hash", sample.hash},
          {"group", sample.group},
          {"context", sample.context},
          {"questions", questions},
          {"mode", NameOf(sample.mode)},
          {"chat_template", sample.chat_template},
          {"language", sample.language},
          {"length", sample.length},
          {"facts", facts}};
}

void PrintSample(const Sample& sample) {
  std::vector<std::pair<std::string, std::string>> facts = {
      {"id", sample.id},
      {"hash", sample.hash.substr(0, 16)},
      {"group", sample.group},
      {"mode", std::string(NameOf(sample.mode))},
      {"chat template", sample.chat_template ? "yes" : "no"},
      {"language", sample.language},
      {"length", StrCat(sample.length)},
      {"context", WithCommas(static_cast<int64_t>(sample.context.size())) + " bytes"}};
  for (const auto& fact : sample.facts) {
    if (std::find(facts.begin(), facts.end(), fact) == facts.end()) facts.push_back(fact);
  }
  PrintFacts(facts);
  Print(StrCat("--- context\n", Ends(sample.context), "\n"));
  for (const Question& question : sample.questions) {
    Print(StrCat("--- question (", question.kind.empty() ? "" : StrCat(question.kind, ", "),
                 "at most ", question.max_new_tokens, " new tokens)\n", Ends(question.text), "\n"));
    if (!question.answer_prefix.empty()) {
      Print(StrCat("--- the answer begins with\n", question.answer_prefix, "\n"));
    }
    if (!question.conclusion.empty()) {
      Print(StrCat("--- then, without the context (at most ", question.conclusion_max_new_tokens,
                   " new tokens); ", kReasoning, " is the answer above\n", question.conclusion,
                   "\n"));
    }
    std::vector<std::string> answers;
    for (const std::string& answer : question.answers) answers.push_back(Quoted(answer, 200));
    Print(StrCat("--- right\n", Join(answers, "\n"), "\n"));
  }
  Print("\n");
}

}  // namespace

std::string DataDirectory(const std::string& given) {
  if (!given.empty()) return given;
  if (const char* named = std::getenv("KVGAUGE_DATA"); named != nullptr && *named != 0)
    return named;
  const Result<std::string> known = FindConfigFile(kKnownTask);
  if (!known.ok()) return "";
  const fs::path configs = fs::path(*known).parent_path().parent_path().parent_path();
  return (configs.parent_path() / "data").string();
}

Result<Task> FindTask(const std::string& name_or_path, const std::string& directory) {
  if (FileExists(name_or_path)) return ReadTask(name_or_path);
  KVG_ASSIGN(const std::string read, TaskDirectory(directory));
  // Most files are named after their task: no need to read all of them.
  for (const std::string& path : {StrCat(read, "/", name_or_path, ".json"),
                                  StrCat(read, "/", name_or_path, "/", name_or_path, ".json")}) {
    if (!FileExists(path)) continue;
    KVG_ASSIGN(Task task, ReadTask(path));
    if (task.name == name_or_path) return task;
  }
  KVG_ASSIGN(std::vector<Task> tasks, ReadTasks(read));
  std::vector<std::string> names, below;
  for (Task& task : tasks) {
    if (task.name == name_or_path) return std::move(task);
    if (task.name.starts_with(StrCat(name_or_path, "/"))) below.push_back(task.name);
    names.push_back(task.name);
  }
  if (!below.empty()) {
    return BadInput(StrCat(Quoted(name_or_path), " is the name of ", below.size(),
                           " tasks together; name one, such as ", below[0], "; 'kvgauge tasks ",
                           name_or_path, "' lists them"));
  }
  return BadInput(StrCat("unknown task ", Quoted(name_or_path), DidYouMean(name_or_path, names),
                         "; 'kvgauge tasks' lists them, and a path to a task file will do"));
}

Status RunTasks(const TasksOptions& options) {
  KVG_ASSIGN(const std::string directory, TaskDirectory(options.directory));
  KVG_ASSIGN(const std::vector<Task> tasks, ReadTasks(directory));
  const std::string data_directory = DataDirectory(options.data_directory);
  std::vector<std::vector<std::string>> rows;
  Json list = Json::array();
  std::vector<std::string> names;
  bool lacking = false;
  for (const Task& task : tasks) {
    names.push_back(task.name);
    const std::string folder = task.name.substr(0, task.name.find('/'));
    if (std::find(names.begin(), names.end(), folder) == names.end()) names.push_back(folder);
    if (!std::string_view(task.name).starts_with(options.only)) continue;
    const State state = StateOf(task, data_directory, options.data_directory);
    if (state.name == "data missing") lacking = true;
    rows.push_back({task.name, task.metric, StrCat(task.max_new_tokens), state.name, state.detail});
    list.push_back({{"name", task.name},
                    {"version", task.version},
                    {"group", task.group},
                    {"description", task.description},
                    {"metric", task.metric},
                    {"max_new_tokens", task.max_new_tokens},
                    {"source", task.source},
                    {"state", state.name},
                    {"missing", MissingFiles(task, data_directory)},
                    {"data_directory", data_directory},
                    {"detail", state.detail}});
  }
  if (rows.empty()) {
    return BadInput(
        StrCat("no task begins with ", Quoted(options.only), DidYouMean(options.only, names)));
  }
  if (options.json) {
    PrintJson(list);
  } else {
    PrintTable({"task", "metric", "new tokens", "state", ""}, rows);
    if (lacking) {
      Print(StrCat("\nData files were looked for in ", data_directory,
                   "; --data DIR or KVGAUGE_DATA name another directory.\n"));
    }
  }
  return {};
}

Status RunSample(const SampleOptions& options) {
  if (options.count < 1) return BadInput("the number of samples must be at least 1");
  KVG_ASSIGN(const Task task, FindTask(options.task, options.directory));
  TaskOptions opened;
  opened.data_directory = DataDirectory(options.data_directory);
  opened.seed = options.seed;
  opened.limit = options.count;
  opened.max_prompt_tokens = options.max_prompt_tokens;
  opened.skip_bad = options.skip_bad;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<TokenizerCodec> codec;
  std::string model = options.model;
  const SourceSpec* source = FindSource(task.source);
  const auto sized = [](const ParamSpec& param) { return param.name == "lengths"; };
  if (model.empty() && source != nullptr &&
      std::any_of(source->params.begin(), source->params.end(), sized)) {
    // Lengths are in tokens: those of the shipped model, so that there is something to read.
    const Result<std::string> shipped = FindConfigFile("../models/ref-gqa/tokenizer.json");
    if (shipped.ok()) model = shipped->substr(0, shipped->rfind('/'));
  }
  if (!model.empty()) {
    KVG_ASSIGN(tokenizer, LoadTokenizer(model));
    codec = std::make_unique<TokenizerCodec>(*tokenizer);
    opened.codec = codec.get();
  } else if (options.max_prompt_tokens > 0) {
    return BadInput("--max-prompt-tokens: needs a tokenizer, name a directory with --model");
  }
  KVG_ASSIGN(const std::unique_ptr<SampleStream> stream, OpenTask(task, opened));
  while (true) {
    KVG_ASSIGN(const std::optional<Sample> sample, stream->Next());
    if (!sample) break;
    if (options.json) {
      Print(ToJson(*sample).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
    } else {
      PrintSample(*sample);
    }
  }
  for (const std::string& fault : stream->faults()) LogWarning(StrCat("left out: ", fault));
  if (stream->skipped() > 0) {
    LogWarning(StrCat("malformed records left out: ", stream->skipped()));
  }
  return {};
}

}  // namespace kvgauge
