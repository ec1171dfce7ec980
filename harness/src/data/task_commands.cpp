// SPDX-License-Identifier: Apache-2.0
#include "src/data/task_commands.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/files.h"
#include "core/json.h"
#include "core/log.h"
#include "core/strings.h"
#include "datasets/metric.h"
#include "runner/chat_template.h"
#include "src/cli/print.h"
#include "src/data/tasks_page.h"
#include "src/model/model_flags.h"
#include "src/model/tokenizer_codec.h"
#include "src/run/sample_prompt.h"
#include "src/run/sample_visuals.h"

namespace kvgauge {
namespace {

namespace fs = std::filesystem;

// A text longer than this is shown by its ends; --whole and JSON output have all of it.
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
    const std::string_view then = task.metric == kJudgeMetric       ? "; then needs a judge"
                                  : task.metric == kExecutionMetric ? "; then needs execution"
                                                                    : "";
    return {"data missing",
            StrCat(missing[0], "; ", command.empty() ? "put it there by hand" : command, then)};
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

std::string_view NameOf(MarkKind kind) {
  switch (kind) {
    case MarkKind::kSystem:
      return "system";
    case MarkKind::kContext:
      return "context";
    case MarkKind::kNeedle:
      return "needle";
    case MarkKind::kQuestion:
      return "question";
    default:
      return "turn";
  }
}

// What the model is given of one question: chat template, special tokens and all.
struct ShownPrompt {
  std::string text;
  int64_t tokens = 0;
  bool continues = false;  // behind the answer before it
};

// "<image><image>..." as "<image> x 64".
std::string WithoutRepeats(const std::string& text, const std::string& placeholder) {
  if (placeholder.empty()) return text;
  std::string out;
  size_t from = 0;
  for (size_t at = text.find(placeholder); at != std::string::npos;
       at = text.find(placeholder, from)) {
    out += text.substr(from, at - from) + placeholder;
    int64_t count = 0;
    for (from = at; text.compare(from, placeholder.size(), placeholder) == 0;
         from += placeholder.size()) {
      ++count;
    }
    if (count > 1) out += StrCat(" x ", count);
  }
  return out + text.substr(from);
}

// A model that sees, opened when the first picture comes: text needs its tokenizer alone.
struct Viewer {
  std::string model;
  std::optional<ModelConfig> config = {};
  std::optional<SampleEyes> eyes = {};

  Status Open() {
    if (eyes) return {};
    KVG_ASSIGN(config, ReadModelConfig(model));
    eyes.emplace(model, *config);
    return {};
  }
};

// One for each question, as a run feeds it.
Result<std::vector<ShownPrompt>> PromptsOf(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                           Viewer& viewer, const Task& task, const Sample& sample) {
  std::vector<ShownVisual> shown;
  std::string placeholder;
  if (!sample.pictures.empty()) {
    KVG_TRY(viewer.Open());
    KVG_ASSIGN(shown, viewer.eyes->Look(sample));
    placeholder = tokenizer.TokenText(static_cast<int32_t>(viewer.config->visual_ids.image));
  }
  const ModelConfig* config = viewer.config ? &*viewer.config : nullptr;
  KVG_ASSIGN(const EngineSample fed,
             PromptBuilder(tokenizer, chat, config).Build(sample, task, {}, shown));
  std::vector<ShownPrompt> prompts;
  for (const EngineTurn& turn : fed.turns) {
    std::vector<int32_t> ids = turn.continues ? std::vector<int32_t>() : fed.context;
    ids.insert(ids.end(), turn.ids.begin(), turn.ids.end());
    prompts.push_back(
        {WithoutRepeats(tokenizer.Spell(ids), placeholder), std::ssize(ids), turn.continues});
  }
  return prompts;
}

// "source.lengths=512": another value for a parameter of the task's source.
Result<Task> WithOverrides(const Task& task, const std::vector<std::string>& overrides) {
  constexpr std::string_view kSource = "source.";
  if (overrides.empty()) return task;
  const SourceSpec* source = FindSource(task.source);
  Json values = Json::object();
  for (const std::string& text : overrides) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || !text.starts_with(kSource)) {
      return BadInput(StrCat("--set ", Quoted(text),
                             ": must be source.param=value, such as source.lengths=512"));
    }
    const std::string name = text.substr(kSource.size(), equals - kSource.size());
    const std::string given = text.substr(equals + 1);
    const auto spec = std::find_if(source->params.begin(), source->params.end(),
                                   [&](const ParamSpec& param) { return param.name == name; });
    const bool is_text =
        spec != source->params.end() && std::holds_alternative<std::string>(spec->default_value);
    const Result<Json> parsed = ParseJson(given, "--set");
    values[name] = !is_text && parsed.ok() && !parsed->is_structured() ? *parsed : Json(given);
  }
  return WithSourceParams(task, values);
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
  Json marks = Json::array();
  for (const Mark& mark : sample.marks) {
    marks.push_back({{"kind", NameOf(mark.kind)}, {"begin", mark.begin}, {"end", mark.end}});
    if (mark.question >= 0) marks.back()["question"] = mark.question;
    if (mark.picture >= 0) marks.back()["picture"] = mark.picture;
  }
  Json json = {{"id", sample.id},
               {"hash", sample.hash},
               {"group", sample.group},
               {"system", sample.system},
               {"context", sample.context},
               {"questions", questions},
               {"mode", NameOf(sample.mode)},
               {"chat_template", sample.chat_template},
               {"language", sample.language},
               {"length", sample.length},
               {"marks", marks},
               {"facts", facts}};
  for (const Picture& picture : sample.pictures) {
    json["pictures"].push_back(
        {{"name", picture.name}, {"hash", picture.hash}, {"at", picture.at}});
    if (picture.question >= 0) json["pictures"].back()["question"] = picture.question;
  }
  return json;
}

// `prompts` is empty where there is no model, or no question.
void PrintSample(const Sample& sample, const std::vector<ShownPrompt>& prompts,
                 const std::string& template_name, bool whole) {
  std::vector<std::pair<std::string, std::string>> facts = {
      {"id", sample.id},
      {"hash", sample.hash.substr(0, 16)},
      {"group", sample.group},
      {"mode", std::string(NameOf(sample.mode))},
      {"chat template", !sample.chat_template   ? "no"
                        : template_name.empty() ? "yes; shown without, --model DIR adds it"
                                                : template_name},
      {"language", sample.language},
      {"length", StrCat(sample.length)},
      {"context", WithCommas(static_cast<int64_t>(sample.context.size())) + " bytes"}};
  if (!sample.pictures.empty()) facts.emplace_back("pictures", StrCat(sample.pictures.size()));
  if (!sample.system.empty()) {
    facts.emplace_back("system", WithCommas(std::ssize(sample.system)) + " bytes");
  }
  for (const auto& fact : sample.facts) {
    if (std::find(facts.begin(), facts.end(), fact) != facts.end()) continue;
    const bool named = std::any_of(facts.begin(), facts.end(),
                                   [&](const auto& other) { return other.first == fact.first; });
    facts.emplace_back(StrCat(named ? "fact " : "", fact.first), fact.second);
  }
  PrintFacts(facts);
  if (prompts.empty() && !sample.system.empty()) {
    Print(StrCat("--- system\n", whole ? sample.system : WithoutMiddle(sample.system), "\n"));
  }
  if (prompts.empty()) {
    const std::string context = WithPictureNames(sample);
    Print(StrCat("--- context\n", whole ? context : WithoutMiddle(context), "\n"));
  }
  for (size_t i = 0; i < sample.questions.size(); ++i) {
    const Question& question = sample.questions[i];
    const std::string most = StrCat(question.kind.empty() ? "" : StrCat(question.kind, ", "),
                                    "at most ", question.max_new_tokens, " new tokens");
    if (!prompts.empty()) {
      Print(StrCat("--- ", prompts[i].continues ? "behind that answer" : "prompt", " (",
                   WithCommas(prompts[i].tokens), " tokens; ", most, ")\n",
                   whole ? prompts[i].text : WithoutMiddle(prompts[i].text), "\n"));
    } else {
      const std::string text = WithPictureNames(sample, static_cast<int64_t>(i));
      Print(StrCat("--- question (", most, ")\n", whole ? text : WithoutMiddle(text), "\n"));
      if (!question.answer_prefix.empty()) {
        Print(StrCat("--- the answer begins with\n", question.answer_prefix, "\n"));
      }
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
  if (name_or_path.ends_with(".json") || name_or_path.starts_with('.') ||
      name_or_path.starts_with('/')) {
    std::error_code unknown;
    const std::string here = fs::current_path(unknown).string();
    return BadInput(
        StrCat(name_or_path, ": there is no such task file",
               name_or_path.starts_with('/') ? "" : StrCat("; it was looked for in ", here)));
  }
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
  return BadInput(
      StrCat("unknown task ", Quoted(name_or_path), DidYouMean(name_or_path, names),
             "; 'kvgauge tasks' lists them, and the path of a task file can be given instead"));
}

Status RunTasks(const TasksOptions& options) {
  KVG_ASSIGN(const std::string directory, TaskDirectory(options.directory));
  KVG_ASSIGN(const std::vector<Task> tasks, ReadTasks(directory));
  if (options.format == "markdown") {
    if (options.json || !options.only.empty()) {
      return BadInput("--format markdown: prints the page of all tasks; leave out NAME and --json");
    }
    Print(TasksPage(tasks));
    return {};
  }
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

Status ShowTaskSample(const SampleOptions& options) {
  if (options.count < 1) return BadInput("the number of samples must be at least 1");
  KVG_ASSIGN(const Task found, FindTask(options.task, options.directory));
  KVG_ASSIGN(const Task task, WithOverrides(found, options.overrides));
  std::optional<ChatTemplate> chat;
  if (!options.model.empty()) {
    KVG_ASSIGN(const ChatSwitches switches, SwitchesOf(options.chat));
    KVG_ASSIGN(chat, ChatTemplate::Load(options.model, options.chat.name, switches));
  }
  TaskOptions opened;
  opened.data_directory = DataDirectory(options.data_directory);
  opened.seed = options.seed;
  opened.limit = options.count;
  opened.max_prompt_tokens = options.max_prompt_tokens;
  opened.skip_bad = options.skip_bad;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<TokenizerCodec> codec;
  Viewer viewer = {.model = options.model};
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
    std::vector<ShownPrompt> prompts;
    if (chat) {
      KVG_ASSIGN(prompts, PromptsOf(*tokenizer, *chat, viewer, task, *sample));
    }
    if (!options.json) {
      PrintSample(*sample, prompts, chat ? chat->name() : "", options.whole);
      continue;
    }
    Json json = ToJson(*sample);
    if (chat) json["template"] = sample->chat_template ? chat->name() : "none";
    for (const ShownPrompt& prompt : prompts) {
      json["prompts"].push_back(
          {{"text", prompt.text}, {"tokens", prompt.tokens}, {"continues", prompt.continues}});
    }
    Print(json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
  }
  for (const std::string& fault : stream->faults()) LogWarning(StrCat("left out: ", fault));
  if (stream->skipped() > 0) {
    LogWarning(StrCat("malformed records left out: ", stream->skipped()));
  }
  return {};
}

}  // namespace kvgauge
