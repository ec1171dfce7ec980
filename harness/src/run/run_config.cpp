// SPDX-License-Identifier: Apache-2.0
#include "src/run/run_config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <set>
#include <utility>

#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "methods/plugin.h"
#include "reports/drawn_by.h"
#include "src/data/task_commands.h"
#include "src/latency/latency_phase.h"
#include "src/model/method_flags.h"
#include "src/model/model_flags.h"
#include "src/run/config_object.h"

namespace kvgauge {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostSamples = 1 << 30;
constexpr size_t kMostContenders = 4096;
constexpr int64_t kMostDraws = 1024;

// What stands beside a path that is not there, and the shipped models.
std::vector<std::string> ModelsNear(const std::string& path) {
  std::vector<std::string> known;
  const fs::path parent = fs::path(path).parent_path();
  for (const fs::path& shown : {parent, fs::path("models")}) {
    std::error_code ignored;
    const std::string directory = shown.empty() ? "." : FindShipped(shown.string());
    for (const auto& entry : fs::directory_iterator(directory, ignored)) {
      if (!entry.is_directory() && entry.path().extension() != ".json") continue;
      known.push_back((shown / entry.path().filename()).string());
    }
  }
  std::sort(known.begin(), known.end());
  known.erase(std::unique(known.begin(), known.end()), known.end());
  return known;
}

Status ReadTaskEntry(const Json& json, const std::string& where, int64_t samples,
                     int64_t max_new_tokens, RunTask& out) {
  out.samples = samples;
  out.max_new_tokens = max_new_tokens;
  std::string name, own_name;
  const Json *source = nullptr, *whole = nullptr;
  if (json.is_string()) {
    name = json.get<std::string>();
  } else if (json.is_object()) {
    const ConfigObject object(json, where);
    KVG_TRY(object.Only({"task", "name", "samples", "max_new_tokens", "source"}));
    whole = object.Find("task");
    if (whole == nullptr || !whole->is_object()) {
      whole = nullptr;
      KVG_TRY(object.Text("task", name));
    }
    KVG_TRY(object.Text("name", own_name));
    KVG_TRY(object.Int("samples", 1, kMostSamples, out.samples));
    KVG_TRY(object.Int("max_new_tokens", 1, 1 << 20, out.max_new_tokens));
    source = object.Find("source");
    if (source != nullptr && !source->is_object()) {
      return object.Wrong("source", "an object of the source's parameters");
    }
  } else {
    return BadInput(StrCat(where, ": ", Quoted(json.dump()),
                           ", expected a task's name, or an object with \"task\""));
  }
  if (whole == nullptr && name.empty()) {
    return BadInput(StrCat(where, ".task: missing; expected a task's name"));
  }
  Result<Task> task =
      whole != nullptr ? ParseTask(*whole, StrCat(where, ".task")) : FindTask(name, "");
  if (!task.ok()) return task.error().Wrap(where);
  if (!own_name.empty()) {
    Json renamed = *task->json;
    renamed["name"] = own_name;
    task = ParseTask(std::move(renamed), task->path);
    if (!task.ok()) return task.error().Wrap(where);
  }
  if (source != nullptr) {
    task = WithSourceParams(*task, *source);
    if (!task.ok()) return task.error().Wrap(where);
  }
  out.task = std::move(task).value();
  return {};
}

Result<std::vector<Budget>> ReadBudgets(const ConfigObject& object, const std::string& key) {
  std::vector<Budget> budgets;
  for (const Json& value : object.List(key)) {
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    const Result<Budget> budget = Budget::Parse(text);
    if (!budget.ok()) return budget.error().Wrap(object.At(key));
    budgets.push_back(*budget);
  }
  return budgets;
}

std::string OverrideText(const std::string& key, const Json& value) {
  return StrCat(key, "=", value.is_string() ? value.get<std::string>() : value.dump());
}

// Every point of the grid, the last key running fastest.
Status ReadSweep(const Json& json, const std::string& where,
                 std::vector<std::vector<std::string>>& points) {
  for (const auto& [key, values] : json.items()) {
    if (!values.is_array() || values.empty()) {
      return BadInput(StrCat(where, ".", key, ": ", Quoted(values.dump()),
                             ", expected a list of values, such as [8, 16, 32]"));
    }
    std::vector<std::vector<std::string>> more;
    for (const std::vector<std::string>& point : points) {
      for (const Json& value : values) {
        more.push_back(point);
        more.back().push_back(OverrideText(key, value));
      }
    }
    points = std::move(more);
    if (points.size() > kMostContenders) {
      return BadInput(StrCat(where, ": more than ", kMostContenders, " points"));
    }
  }
  return {};
}

Status ReadMethodEntry(const Json& json, const std::string& where,
                       const std::vector<Budget>& shared_budgets,
                       std::vector<RunContender>& contenders) {
  std::string name;
  std::optional<std::vector<Budget>> own_budgets;
  std::vector<std::vector<std::string>> points = {{}};
  if (json.is_string()) {
    name = json.get<std::string>();
  } else if (json.is_object()) {
    const ConfigObject object(json, where);
    KVG_TRY(object.Only({"method", "budgets", "overrides", "sweep"}));
    KVG_TRY(object.Text("method", name));
    if (json.contains("budgets")) {
      KVG_ASSIGN(own_budgets, ReadBudgets(object, "budgets"));
    }
    for (const char* key : {"overrides", "sweep"}) {
      const Json* value = object.Find(key);
      if (value == nullptr) continue;
      if (!value->is_object()) {
        return object.Wrong(key, "an object, such as {\"score.window\": 16}");
      }
      if (std::string_view(key) == "sweep") {
        KVG_TRY(ReadSweep(*value, object.At(key), points));
      } else {
        for (const auto& [param, given] : value->items()) {
          points[0].push_back(OverrideText(param, given));
        }
      }
    }
  } else {
    return BadInput(StrCat(where, ": ", Quoted(json.dump()),
                           ", expected a method's id, or an object with \"method\""));
  }
  if (name.empty()) return BadInput(StrCat(where, ".method: missing; expected a method's id"));
  KVG_ASSIGN(const std::string directory, MethodDirectory());
  for (std::vector<std::string>& point : points) {
    // By name, as the canonical form has them: a row has one name, however its file says it.
    std::ranges::sort(point, {}, [](std::string_view set) { return set.substr(0, set.find('=')); });
    RunContender contender;
    Result<Method> method =
        ReadMethod(name.ends_with(".json") ? FindShipped(name) : name, directory, point);
    if (!method.ok()) return method.error().Wrap(where);
    contender.method = std::move(method).value();
    contender.variant = Join(point, ", ");
    contender.source = name.ends_with(".json") ? FindShipped(name) : name;
    contender.overrides = point;
    std::vector<Budget> budgets = {Budget{}};
    if (contender.method.takes_budget) {
      budgets = own_budgets ? *own_budgets : shared_budgets;
      if (budgets.empty()) {
        return BadInput(StrCat(where, ": method ", contender.method.id,
                               " needs a budget; give \"budgets\", such as [\"10%\", \"20%\"]"));
      }
    } else if (own_budgets && !own_budgets->empty()) {
      return BadInput(StrCat(where, ".budgets: method ", contender.method.id,
                             " takes no budget, expected none; its size follows from its store"));
    }
    for (const Budget& budget : budgets) {
      contender.budget = budget;
      contenders.push_back(contender);
    }
    if (contenders.size() > kMostContenders) {
      return BadInput(StrCat(where, ": more than ", kMostContenders, " rows; divide the run"));
    }
  }
  return {};
}

Status KeepOnly(const std::vector<std::string>& only, std::vector<RunContender>& contenders) {
  if (only.empty()) return {};
  std::set<std::string> ids;
  for (const RunContender& contender : contenders) ids.insert(contender.method.id);
  for (const std::string& id : only) {
    const std::vector<std::string> known(ids.begin(), ids.end());
    if (ids.count(id) > 0) continue;
    return BadInput(StrCat("--only: the run has no method ", Quoted(id), DidYouMean(id, known),
                           "; it has ", Join(known, ", ")));
  }
  std::erase_if(contenders, [&](const RunContender& contender) {
    return !contender.full_cache() &&
           std::find(only.begin(), only.end(), contender.method.id) == only.end();
  });
  return {};
}

// What two entries of a list must not share.
Status Distinct(const std::string& where, const std::vector<std::string>& names,
                std::string_view advice) {
  std::set<std::string> seen;
  for (const std::string& name : names) {
    if (seen.insert(name).second) continue;
    return BadInput(StrCat(where, ": ", Quoted(name), " is there twice; ", advice));
  }
  return {};
}

Status ReadContenders(const ConfigObject& object, std::vector<RunContender>& contenders) {
  KVG_ASSIGN(const std::vector<Budget> budgets, ReadBudgets(object, "budgets"));
  const std::vector<Json> methods = object.List("methods");
  if (methods.empty()) {
    return BadInput(StrCat(object.At("methods"), ": missing; expected a list of methods"));
  }
  for (size_t i = 0; i < methods.size(); ++i) {
    KVG_TRY(ReadMethodEntry(methods[i], StrCat(object.At("methods"), "[", i, "]"), budgets,
                            contenders));
  }
  const auto full =
      std::find_if(contenders.begin(), contenders.end(),
                   [](const RunContender& contender) { return contender.full_cache(); });
  if (full == contenders.end()) {
    // Everything is compared with it.
    std::vector<RunContender> first;
    KVG_TRY(ReadMethodEntry(Json("full"), object.where(), {}, first));
    contenders.insert(contenders.begin(), std::move(first[0]));
  } else {
    std::rotate(contenders.begin(), full, full + 1);
  }
  std::vector<std::string> names;
  names.reserve(contenders.size());
  for (const RunContender& contender : contenders) names.push_back(contender.Name());
  return Distinct(object.At("methods"), names, "leave out one of the two");
}

bool ReadsChunks(const RunConfig& config) {
  return std::find(config.compress_at.begin(), config.compress_at.end(), CompressAt::kChunk) !=
         config.compress_at.end();
}

Json Canonical(const RunConfig& config, const std::vector<RunContender>& contenders) {
  Json models = Json::array(), tasks = Json::array(), methods = Json::array();
  for (const RunModel& model : config.models) {
    Json entry = {{"name", model.name},
                  {"path", model.path},
                  {"dtype", model.dtype},
                  {"weights", model.weights},
                  {"template", model.chat_template}};
    if (model.product_rows != RunModel().product_rows) entry["product_rows"] = model.product_rows;
    if (!model.tokenizer.empty()) entry["tokenizer"] = model.tokenizer;
    if (model.max_prompt_tokens >= 0) entry["max_prompt_tokens"] = model.max_prompt_tokens;
    for (const auto& [name, json] : model.chat_switches.variables) {
      entry["template_set"][name] = Json::parse(json);
    }
    if (model.chat_switches.date != ChatSwitches().date) {
      entry["template_date"] = model.chat_switches.date;
    }
    models.push_back(std::move(entry));
  }
  for (const RunTask& task : config.tasks) {
    Json entry = {{"task", *task.task.json}};
    if (task.samples >= 0) entry["samples"] = task.samples;
    if (task.max_new_tokens > 0) entry["max_new_tokens"] = task.max_new_tokens;
    tasks.push_back(std::move(entry));
  }
  // By name: the cells hold what the method's file said.
  for (const RunContender& contender : contenders) {
    Json entry = {{"method", contender.source}};
    for (const std::string& text : contender.overrides) {
      const size_t equals = text.find('=');
      entry["overrides"][text.substr(0, equals)] = text.substr(equals + 1);
    }
    if (contender.method.takes_budget) entry["budgets"] = {contender.budget.ToString()};
    methods.push_back(std::move(entry));
  }
  Json at = Json::array();
  for (const CompressAt when : config.compress_at) at.push_back(NameOf(when));
  Json json = {{"name", config.name},
               {"description", config.description},
               {"models", models},
               {"tasks", tasks},
               {"methods", methods},
               {"compress_at", at},
               {"seeds", config.seeds},
               {"fidelity_steps", config.fidelity_steps},
               {"unscored", config.unscored},
               {"skip_bad", config.skip_bad},
               {"max_memory", config.max_memory_bytes},
               {"backend", config.backend},
               {"threads", config.threads}};
  if (ReadsChunks(config)) json["chunk_tokens"] = config.chunk_tokens;
  if (config.sampling.sampled()) {
    json["sampling"] = {{"temperature", config.sampling.temperature},
                        {"top_p", config.sampling.top_p},
                        {"draws", config.sampling.draws}};
  }
  if (!config.plugins.empty()) json["plugins"] = config.plugins;
  if (config.latency != nullptr) json["latency"] = *config.latency;
  return json;
}

Status ReadAxes(const ConfigObject& object, RunConfig& config) {
  std::vector<std::string> texts;
  KVG_TRY(object.Texts("compress_at", texts));
  if (!texts.empty()) config.compress_at.clear();
  for (const std::string& text : texts) {
    const Result<CompressAt> at = ParseCompressAt(text);
    if (!at.ok()) {
      const std::vector<std::string> known = {"prompt", "context", "turn", "chunk"};
      return BadInput(StrCat(object.At("compress_at"), ": ", Quoted(text), DidYouMean(text, known),
                             ", expected prompt, context, turn or chunk"));
    }
    config.compress_at.push_back(*at);
  }
  KVG_TRY(object.Int("chunk_tokens", 1, 1 << 24, config.chunk_tokens));
  if (object.Find("chunk_tokens") != nullptr && !ReadsChunks(config)) {
    return BadInput(StrCat(object.At("chunk_tokens"),
                           ": nothing is read in chunks; expected \"chunk\" in ",
                           object.At("compress_at"), ", or no chunk_tokens"));
  }
  const std::vector<Json> seeds = object.List("seeds");
  if (!seeds.empty()) config.seeds.clear();
  for (const Json& seed : seeds) {
    if (!seed.is_number_integer() || seed.get<double>() < 0 || seed.get<double>() > 9e18) {
      return object.Wrong("seeds", "whole numbers from 0");
    }
    config.seeds.push_back(seed.get<int64_t>());
  }
  return {};
}

// "sampling": {"temperature": 0.6, "top_p": 0.95, "draws": 8}, and what flags put over it.
Status ReadSampling(const ConfigObject& object, const RunOverrides& overrides,
                    RunSampling& sampling) {
  Json given = Json::object();
  if (const Json* json = object.Find("sampling"); json != nullptr) {
    if (!json->is_object()) {
      return object.Wrong("sampling", R"(an object such as {"temperature": 0.6, "draws": 8})");
    }
    given = *json;
  }
  const std::string at = object.At("sampling");
  KVG_TRY(ConfigObject(given, at).Only({"temperature", "top_p", "draws"}));
  if (overrides.temperature) given["temperature"] = *overrides.temperature;
  if (overrides.top_p) given["top_p"] = *overrides.top_p;
  if (overrides.draws) given["draws"] = *overrides.draws;
  const ConfigObject settings(given, at);
  constexpr double kHottest = 100;
  const Json* temperature = settings.Find("temperature");
  if (temperature != nullptr) {
    if (!temperature->is_number() || !(temperature->get<double>() >= 0) ||
        temperature->get<double>() > kHottest) {
      return settings.Wrong("temperature", "a number from 0 (greedy) to 100");
    }
    sampling.temperature = temperature->get<double>();
  }
  if (const Json* top_p = settings.Find("top_p"); top_p != nullptr) {
    if (!top_p->is_number() || !(top_p->get<double>() > 0) || top_p->get<double>() > 1) {
      return settings.Wrong("top_p", "a number above 0, up to 1");
    }
    sampling.top_p = top_p->get<double>();
  }
  KVG_TRY(settings.Int("draws", 1, kMostDraws, sampling.draws));
  if (sampling.sampled()) return {};
  for (const char* key : {"draws", "top_p"}) {
    const bool asks = std::string_view(key) == "draws" ? sampling.draws > 1 : sampling.top_p < 1;
    if (!asks) continue;
    return settings.Wrong(key, "a temperature above 0 beside it: greedy answers are all alike");
  }
  return {};
}

Status ReadModels(const ConfigObject& object, RunConfig& config) {
  const std::vector<Json> models = object.List("models");
  if (models.empty()) {
    return BadInput(StrCat(object.At("models"), ": missing; expected a list of checkpoints"));
  }
  std::vector<std::string> names;
  for (size_t i = 0; i < models.size(); ++i) {
    KVG_ASSIGN(RunModel model, ReadRunModel(models[i], StrCat(object.At("models"), "[", i, "]")));
    names.push_back(model.name);
    config.models.push_back(std::move(model));
  }
  KVG_TRY(Distinct(object.At("models"), names, "give one of them another \"name\""));
  const std::string dtype_key = "dtype";
  std::string dtype = "auto";
  KVG_TRY(object.Text(dtype_key, dtype));
  if (dtype == "auto") return {};
  const Result<ModelOptions> options = ParseModelOptions({.model = "", .dtype = dtype});
  if (!options.ok()) return options.error().Wrap(object.At(dtype_key));
  for (RunModel& model : config.models) {
    if (model.dtype == "auto") model.dtype = dtype;
  }
  return {};
}

Status ReadTaskList(const ConfigObject& object, RunConfig& config) {
  int64_t samples = -1, max_new_tokens = 0;
  KVG_TRY(object.Int("samples", 1, kMostSamples, samples));
  KVG_TRY(object.Int("max_new_tokens", 1, 1 << 20, max_new_tokens));
  const std::vector<Json> tasks = object.List("tasks");
  if (tasks.empty()) {
    return BadInput(StrCat(object.At("tasks"), ": missing; expected a list of tasks"));
  }
  std::vector<std::string> names;
  for (size_t i = 0; i < tasks.size(); ++i) {
    RunTask task;
    KVG_TRY(ReadTaskEntry(tasks[i], StrCat(object.At("tasks"), "[", i, "]"), samples,
                          max_new_tokens, task));
    names.push_back(task.task.name);
    config.tasks.push_back(std::move(task));
  }
  return Distinct(object.At("tasks"), names, "give one of them another \"name\"");
}

// What of the answers is kept, and what is measured beside them.
Status ReadRecording(const ConfigObject& object, const RunOverrides& overrides, RunConfig& config) {
  KVG_TRY(object.Int("fidelity_steps", 0, 1 << 20, config.fidelity_steps));
  for (const auto& [key, value] : {std::pair<const char*, bool*>("unscored", &config.unscored),
                                   {"skip_bad", &config.skip_bad}}) {
    const Json* given = object.Find(key);
    if (given == nullptr) continue;
    if (!given->is_boolean()) return object.Wrong(key, "true or false");
    *value = given->get<bool>();
  }
  config.unscored = config.unscored || overrides.unscored;
  config.skip_bad = config.skip_bad || overrides.skip_bad;
  if (const Json* latency = object.Find("latency"); latency != nullptr) {
    if (!latency->is_object()) return object.Wrong("latency", "an object with \"contexts\"");
    KVG_ASSIGN(const LatencyOptions options, ParseLatencyOptions(*latency, object.At("latency")));
    config.latency = std::make_shared<const Json>(ToJson(options));
  }
  return {};
}

// Memory, data, backend and threads: where the run takes place.
Status ReadPlace(const ConfigObject& object, const RunOverrides& overrides, RunConfig& config) {
  std::string max_memory = "0";
  if (const Json* value = object.Find("max_memory"); value != nullptr) {
    max_memory = value->is_string() ? value->get<std::string>() : value->dump();
  }
  if (!overrides.max_memory.empty()) max_memory = overrides.max_memory;
  const Result<int64_t> bytes = ParseBytes(max_memory);
  if (!bytes.ok()) {
    return bytes.error().Wrap(overrides.max_memory.empty() ? object.At("max_memory")
                                                           : "--max-memory");
  }
  config.max_memory_bytes = *bytes;
  KVG_TRY(object.Text("data", config.data_directory));
  if (!overrides.data_directory.empty()) config.data_directory = overrides.data_directory;
  config.data_directory = DataDirectory(config.data_directory);
  KVG_TRY(object.Text("backend", config.backend));
  if (!overrides.backend.empty()) config.backend = overrides.backend;
  int64_t threads = 0;
  KVG_TRY(object.Int("threads", 0, 4096, threads));
  config.threads = overrides.threads > 0 ? overrides.threads : static_cast<int>(threads);
  return {};
}

Status CheckAxes(const ConfigObject& object, const RunConfig& config) {
  std::vector<std::string> names;
  for (const int64_t seed : config.seeds) names.push_back(StrCat(seed));
  KVG_TRY(Distinct(object.At("seeds"), names, "leave out one of the two"));
  names.clear();
  for (const CompressAt at : config.compress_at) names.emplace_back(NameOf(at));
  return Distinct(object.At("compress_at"), names, "leave out one of the two");
}

// A path, or the name of a shipped file.
Result<std::string> FindRunFile(const std::string& name) {
  const std::string found = FindShipped(name);
  if (FileExists(found)) return found;
  KVG_ASSIGN(const std::string methods, MethodDirectory());
  const fs::path directory = fs::path(methods).parent_path() / "runs";
  std::vector<std::string> known;
  std::error_code ignored;
  for (const auto& file : fs::directory_iterator(directory, ignored)) {
    if (file.path().extension() == ".json") known.push_back(file.path().stem().string());
  }
  std::sort(known.begin(), known.end());
  if (std::find(known.begin(), known.end(), name) != known.end()) {
    return (directory / (name + ".json")).string();
  }
  if (DirectoryExists(found)) {
    return BadInput(StrCat(name, ": is a directory, expected a run configuration"));
  }
  return BadInput(StrCat("no run configuration ", Quoted(name), DidYouMean(NameOfPath(name), known),
                         "; expected a path, or one of ", Join(known, ", ")));
}

}  // namespace

std::string NameOfPath(const std::string& path) {
  fs::path p = fs::path(path).lexically_normal();
  if (p.filename().empty()) p = p.parent_path();
  if (p.filename() == "config.json") p = p.parent_path();
  const bool file = p.extension() == ".json" || p.extension() == ".gguf";
  const std::string name = file ? p.stem().string() : p.filename().string();
  // "-00001-of-00003" of a model in several files names the first of them, and not the model.
  constexpr size_t kDigits = 5;
  constexpr std::string_view kFirst = "-00001-of-";
  const bool several = p.extension() == ".gguf" && name.size() > kFirst.size() + kDigits &&
                       name.substr(name.size() - kDigits - kFirst.size()).starts_with(kFirst);
  return several ? name.substr(0, name.size() - kDigits - kFirst.size()) : name;
}

ModelFlags RunModel::flags() const {
  return {.model = path, .dtype = dtype, .weights = weights, .product_rows = product_rows};
}

std::string RunModel::directory() const {
  if (!tokenizer.empty()) return tokenizer;
  if (DirectoryExists(path) || path.ends_with(".gguf")) return path;
  const std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

std::vector<int64_t> RunSampling::Numbers() const {
  std::vector<int64_t> numbers(static_cast<size_t>(draws));
  std::iota(numbers.begin(), numbers.end(), int64_t{0});
  return numbers;
}

std::string RunSampling::NameOf(const std::string& prompt, int64_t draw) const {
  return sampled() ? DrawName(prompt, draw) : prompt;
}

std::string RunConfig::PlaceName(CompressAt at) const {
  std::string place(NameOf(at));
  if (at == CompressAt::kChunk) place += StrCat(" ", chunk_tokens);
  return place;
}

std::string RunContender::Name() const {
  std::string name = method.id;
  if (!variant.empty()) name.append(" (").append(variant).append(")");
  if (budget.kind != Budget::Kind::kNone) name.append(" ").append(budget.ToString());
  return name;
}

Result<int64_t> ParseBytes(const std::string& text) {
  size_t used = 0;
  double value = -1;
  try {
    value = std::stod(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  const std::string unit(Trim(std::string_view(text).substr(used)));
  double scale = 0;
  if (unit.empty() || unit == "B") scale = 1;
  if (unit == "KiB") scale = 1024.0;
  if (unit == "MiB") scale = 1024.0 * 1024;
  if (unit == "GiB") scale = 1024.0 * 1024 * 1024;
  if (used == 0 || scale == 0 || !(value >= 0) || value * scale > 9e18) {
    return BadInput(StrCat(Quoted(text), " is no size, expected one such as 8GiB or 500MiB"));
  }
  return static_cast<int64_t>(value * scale);
}

Result<RunModel> ReadRunModel(const Json& json, const std::string& where) {
  RunModel model;
  if (json.is_string()) {
    model.path = json.get<std::string>();
  } else if (json.is_object()) {
    const ConfigObject object(json, where);
    KVG_TRY(object.Only({"path", "name", "dtype", "weights", "product_rows", "tokenizer",
                         "template", "template_set", "template_date", "max_prompt_tokens"}));
    KVG_TRY(object.Text("path", model.path));
    KVG_TRY(object.Text("name", model.name));
    KVG_TRY(object.Text("dtype", model.dtype));
    KVG_TRY(object.Text("weights", model.weights));
    KVG_TRY(object.Text("product_rows", model.product_rows));
    KVG_TRY(object.Text("tokenizer", model.tokenizer));
    KVG_TRY(object.Text("template", model.chat_template));
    KVG_TRY(object.Text("template_date", model.chat_switches.date));
    if (const Json* set = object.Find("template_set"); set != nullptr) {
      if (!set->is_object()) return object.Wrong("template_set", "an object of variables");
      for (const auto& item : set->items()) {
        model.chat_switches.variables[item.key()] = item.value().dump();
      }
    }
    KVG_TRY(object.Int("max_prompt_tokens", 0, int64_t{1} << 40, model.max_prompt_tokens));
  } else {
    return BadInput(
        StrCat(where, ": ", Quoted(json.dump()), ", expected a path, or an object with \"path\""));
  }
  if (model.path.empty()) return BadInput(StrCat(where, ".path: missing; expected a path"));
  const std::string found = FindShipped(model.path);
  if (!FileExists(found) && !DirectoryExists(found)) {
    return BadInput(StrCat(where, ": no such model ", Quoted(model.path),
                           DidYouMean(model.path, ModelsNear(model.path)),
                           ", expected a checkpoint directory with config.json"));
  }
  model.path = found;
  if (model.name.empty()) model.name = NameOfPath(model.path);
  const Result<ModelOptions> options = ParseModelOptions(model.flags());
  if (!options.ok()) return options.error().Wrap(where);
  if (!model.tokenizer.empty()) {
    // Tokens of another vocabulary mean nothing to weights that were trained.
    if (!options->random_seed) {
      return BadInput(StrCat(where, ".tokenizer: ", Quoted(model.tokenizer),
                             ", expected none but with \"weights\": \"random:SEED\""));
    }
    const std::string beside = FindShipped(model.tokenizer);
    if (!DirectoryExists(beside)) {
      return BadInput(StrCat(where, ".tokenizer: no such directory ", Quoted(model.tokenizer),
                             ", expected one with tokenizer.json or tokenizer.model"));
    }
    model.tokenizer = beside;
  }
  return model;
}

Result<RunConfig> ParseRunConfig(const Json& json, const std::string& origin,
                                 const RunOverrides& overrides) {
  if (!json.is_object()) return BadInput(StrCat(origin, ": expected a JSON object"));
  RunConfig config;
  config.path = origin;
  const ConfigObject object(json, origin);
  KVG_TRY(object.Only({"name",           "description",    "models",      "tasks",    "methods",
                       "plugins",        "budgets",        "compress_at", "seeds",    "samples",
                       "max_new_tokens", "fidelity_steps", "unscored",    "skip_bad", "latency",
                       "dtype",          "max_memory",     "data",        "backend",  "threads",
                       "chunk_tokens",   "sampling"}));
  config.name = fs::path(origin).stem().string();
  KVG_TRY(object.Text("name", config.name));
  // It names the database, which is put below results/.
  const bool a_file = !config.name.empty() && config.name.find('/') == std::string::npos;
  if (object.Find("name") != nullptr && !a_file) {
    return object.Wrong("name", "a file's name, without '/'");
  }
  KVG_TRY(object.Text("description", config.description));
  KVG_TRY(object.Texts("plugins", config.plugins));
  for (std::string& plugin : config.plugins) {
    plugin = FindShipped(plugin);
    const Status loaded = LoadPlugin(plugin);
    if (!loaded.ok()) return loaded.error().Wrap(object.At("plugins"));
  }
  KVG_TRY(ReadModels(object, config));
  KVG_TRY(ReadTaskList(object, config));
  KVG_TRY(ReadContenders(object, config.contenders));
  KVG_TRY(ReadAxes(object, config));
  if (!overrides.seeds.empty()) config.seeds = overrides.seeds;
  KVG_TRY(CheckAxes(object, config));
  KVG_TRY(ReadSampling(object, overrides, config.sampling));
  KVG_TRY(ReadRecording(object, overrides, config));
  KVG_TRY(ReadPlace(object, overrides, config));
  const std::vector<RunContender> all = config.contenders;
  KVG_TRY(KeepOnly(overrides.only, config.contenders));
  config.canonical = CanonicalJson(Canonical(config, all));
  return config;
}

Result<RunConfig> ReadRunConfig(const std::string& name, const RunOverrides& overrides) {
  KVG_ASSIGN(const std::string path, FindRunFile(name));
  KVG_ASSIGN(const Json json, ReadJsonFile(path));
  return ParseRunConfig(json, path, overrides);
}

}  // namespace kvgauge
