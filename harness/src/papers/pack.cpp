// SPDX-License-Identifier: Apache-2.0
#include "src/papers/pack.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "runner/tokenizer.h"
#include "src/model/shipped_files.h"
#include "src/run/config_object.h"

namespace kvgauge {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStandInTokenizer = "models/ref-gqa";

std::string TaskNameOf(const Json& task) {
  if (task.is_string()) return task.get<std::string>();
  if (task.contains("name")) return task["name"].get<std::string>();
  return task["task"].is_string() ? task["task"].get<std::string>() : "";
}

Status NeedText(const ConfigObject& object, const std::string& key, std::string& out) {
  KVG_TRY(object.Text(key, out));
  if (out.empty()) return BadInput(StrCat(object.At(key), ": missing; expected a text"));
  return {};
}

Status ReadPaperTasks(const ConfigObject& object, PaperTable& table) {
  table.tasks = object.List("tasks");
  if (table.tasks.empty()) {
    return BadInput(StrCat(object.At("tasks"), ": missing; expected tasks as in a run file"));
  }
  std::set<std::string> known;
  for (const Json& task : table.tasks) {
    const bool named = task.is_string() || (task.is_object() && task.contains("task"));
    const std::string name = named ? TaskNameOf(task) : "";
    if (name.empty() || !known.insert(name).second) {
      return object.Wrong("tasks", "tasks as in a run file, each with a name of its own");
    }
    if (!object.Find("columns")) table.columns.push_back({name, {name}});
  }
  const std::vector<Json> columns = object.List("columns");
  for (size_t i = 0; i < columns.size(); ++i) {
    const ConfigObject column(columns[i], StrCat(object.At("columns"), "[", i, "]"));
    if (!columns[i].is_object()) {
      return object.Wrong("columns", "a list of objects {\"name\": ..., \"mean\": [tasks]}");
    }
    KVG_TRY(column.Only({"name", "mean"}));
    PaperColumn read;
    KVG_TRY(NeedText(column, "name", read.name));
    KVG_TRY(column.Texts("mean", read.tasks));
    for (const std::string& task : read.tasks) {
      if (known.count(task) == 0) return column.Wrong("mean", "names of the table's tasks");
    }
    if (read.tasks.empty()) return BadInput(StrCat(column.At("mean"), ": expected tasks"));
    table.columns.push_back(std::move(read));
  }
  return {};
}

std::string OverrideOf(const std::string& key, const Json& value) {
  return StrCat(key, "=", value.is_string() ? value.get<std::string>() : value.dump());
}

Status ReadPaperRow(const Json& json, const std::string& where, const PaperTable& table,
                    PaperRow& row) {
  if (!json.is_object()) return BadInput(StrCat(where, ": expected an object with \"method\""));
  const ConfigObject object(json, where);
  KVG_TRY(object.Only({"label", "method", "budget", "overrides", "scores", "note"}));
  KVG_TRY(NeedText(object, "label", row.label));
  KVG_TRY(NeedText(object, "method", row.method));
  KVG_TRY(object.Text("budget", row.budget));
  KVG_TRY(object.Text("note", row.note));
  if (const Json* overrides = object.Find("overrides"); overrides != nullptr) {
    if (!overrides->is_object()) return object.Wrong("overrides", "an object of parameters");
    for (const auto& [key, value] : overrides->items()) {
      row.overrides.push_back(OverrideOf(key, value));
    }
    std::ranges::sort(row.overrides);
  }
  const std::vector<Json> scores = object.List("scores");
  if (scores.size() != table.columns.size()) {
    return BadInput(StrCat(object.At("scores"), ": ", scores.size(), " numbers, expected ",
                           table.columns.size(), ", one for each column"));
  }
  for (const Json& score : scores) {
    if (!score.is_null() && !score.is_number()) {
      return object.Wrong("scores", "numbers, or null where none is published");
    }
    row.scores.push_back(score.is_null() ? std::nullopt : std::optional(score.get<double>()));
  }
  return {};
}

Status ReadPaperTable(const Json& json, const std::string& where, PaperTable& table) {
  if (!json.is_object()) return BadInput(StrCat(where, ": expected an object with \"rows\""));
  const ConfigObject object(json, where);
  KVG_TRY(object.Only({"model", "shape", "checkpoint", "source", "protocol", "tasks", "columns",
                       "rows", "decimals", "max_prompt_tokens"}));
  KVG_TRY(NeedText(object, "model", table.model));
  KVG_TRY(NeedText(object, "shape", table.shape));
  KVG_TRY(object.Text("checkpoint", table.checkpoint));
  int64_t decimals = table.decimals;
  KVG_TRY(object.Int("decimals", 0, 6, decimals));
  table.decimals = static_cast<int>(decimals);
  KVG_TRY(object.Int("max_prompt_tokens", 0, int64_t{1} << 40, table.max_prompt_tokens));
  for (const char* key : {"source", "protocol"}) {
    if (const Json* value = object.Find(key); value == nullptr || !value->is_object()) {
      return BadInput(StrCat(object.At(key), ": missing; expected an object"));
    }
  }
  const ConfigObject source(json["source"], object.At("source"));
  KVG_TRY(source.Only({"table", "page", "read"}));
  KVG_TRY(NeedText(source, "table", table.table));
  KVG_TRY(source.Text("page", table.page));
  KVG_TRY(NeedText(source, "read", table.read));
  const ConfigObject protocol(json["protocol"], object.At("protocol"));
  KVG_TRY(protocol.Only({"question", "prompt", "details"}));
  KVG_TRY(NeedText(protocol, "question", table.question));
  if (table.question != "seen" && table.question != "unseen") {
    return protocol.Wrong("question", "\"seen\" or \"unseen\"");
  }
  KVG_TRY(NeedText(protocol, "prompt", table.prompt));
  if (table.prompt != "chat" && table.prompt != "raw") {
    return protocol.Wrong("prompt", "\"chat\" (the model's template) or \"raw\"");
  }
  table.chat_template = table.prompt == "chat";
  KVG_TRY(protocol.Text("details", table.details));
  KVG_TRY(ReadPaperTasks(object, table));
  const std::vector<Json> rows = object.List("rows");
  for (size_t i = 0; i < rows.size(); ++i) {
    PaperRow row;
    KVG_TRY(ReadPaperRow(rows[i], StrCat(object.At("rows"), "[", i, "]"), table, row));
    table.rows.push_back(std::move(row));
  }
  if (table.rows.empty()) return BadInput(StrCat(object.At("rows"), ": missing; expected rows"));
  return {};
}

Result<Paper> ReadPack(const std::string& path) {
  KVG_ASSIGN(const std::string text, ReadFile(path));
  KVG_ASSIGN(const Json json, ParseJson(text, path));
  if (!json.is_object()) return BadInput(StrCat(path, ": expected a JSON object"));
  const ConfigObject object(json, path);
  KVG_TRY(object.Only({"id", "title", "paper", "without_numbers", "tables"}));
  Paper paper;
  KVG_TRY(NeedText(object, "id", paper.id));
  KVG_TRY(NeedText(object, "title", paper.title));
  KVG_TRY(NeedText(object, "paper", paper.paper));
  KVG_TRY(object.Text("without_numbers", paper.without_numbers));
  if (paper.id != fs::path(path).stem().string()) {
    return object.Wrong("id", StrCat("the file's name, ", Quoted(fs::path(path).stem().string())));
  }
  const std::vector<Json> tables = object.List("tables");
  for (size_t i = 0; i < tables.size(); ++i) {
    PaperTable table;
    KVG_TRY(ReadPaperTable(tables[i], StrCat(object.At("tables"), "[", i, "]"), table));
    paper.tables.push_back(std::move(table));
  }
  if (paper.tables.empty()) {
    return BadInput(StrCat(object.At("tables"), ": missing; expected a list of tables"));
  }
  return paper;
}

Result<std::vector<std::string>> PackFiles() {
  KVG_ASSIGN(const std::string first, FindConfigFile("papers/snapkv.json"));
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(fs::path(first).parent_path())) {
    if (entry.path().extension() == ".json") files.push_back(entry.path().string());
  }
  std::ranges::sort(files);
  return files;
}

// {"method": "snapkv", "overrides": {...}, "budgets": [...]} of rows that differ in budgets alone.
Json MethodsOf(const PaperTable& table) {
  std::vector<std::pair<std::string, Json>> methods;
  for (const PaperRow& row : table.rows) {
    const std::string key = StrCat(row.method, " ", Join(row.overrides, " "));
    auto found = std::ranges::find(methods, key, &std::pair<std::string, Json>::first);
    if (found == methods.end()) {
      Json method = {{"method", row.method}};
      for (const std::string& text : row.overrides) {
        const size_t equals = text.find('=');
        method["overrides"][text.substr(0, equals)] = text.substr(equals + 1);
      }
      methods.emplace_back(key, std::move(method));
      found = methods.end() - 1;
    }
    if (!row.budget.empty()) found->second["budgets"].push_back(row.budget);
  }
  Json list = Json::array();
  for (auto& [key, method] : methods) list.push_back(std::move(method));
  return list;
}

}  // namespace

Result<std::vector<Paper>> ReadPapers() {
  KVG_ASSIGN(const std::vector<std::string> files, PackFiles());
  std::vector<Paper> papers;
  for (const std::string& file : files) {
    KVG_ASSIGN(Paper paper, ReadPack(file));
    papers.push_back(std::move(paper));
  }
  return papers;
}

Result<Paper> ReadPaper(const std::string& name) {
  if (name.ends_with(".json")) return ReadPack(name);
  KVG_ASSIGN(const std::vector<std::string> files, PackFiles());
  std::vector<std::string> known;
  for (const std::string& file : files) {
    known.push_back(fs::path(file).stem().string());
    if (known.back() == name) return ReadPack(file);
  }
  return BadInput(StrCat("no paper ", Quoted(name), DidYouMean(name, known),
                         "; 'kvgauge reproduce' lists them"));
}

std::string ModelNameOf(const PaperTable& table, const PaperRun& run) {
  if (run.model.empty()) return table.shape;
  fs::path path = fs::absolute(run.model).lexically_normal();
  if (path.filename().empty()) path = path.parent_path();
  // A directory's name may have a point: Mistral-7B-Instruct-v0.2.
  const bool file = path.extension() == ".json" || path.extension() == ".gguf";
  return (file ? path.stem() : path.filename()).string();
}

Result<Json> RunOfTable(const Paper& paper, size_t index, const PaperRun& run) {
  const PaperTable& table = paper.tables[index];
  Json model = {{"name", ModelNameOf(table, run)}, {"weights", run.weights}, {"dtype", run.dtype}};
  if (run.model.empty()) {
    KVG_ASSIGN(const std::string shape, FindConfigFile(StrCat("models/", table.shape, ".json")));
    model["path"] = shape;
  } else {
    model["path"] = run.model;
  }
  const bool random = run.weights != "file";
  if (run.model.empty() && !random) {
    return BadInput(StrCat("--model: missing; expected the directory of a checkpoint of ",
                           table.model, ", or --weights random:1 --dry-run to see the plan"));
  }
  const std::string path = model["path"];
  const std::string beside = DirectoryExists(path) ? path : fs::path(path).parent_path().string();
  if (random && !HasTokenizer(beside)) model["tokenizer"] = kStandInTokenizer;
  if (!table.chat_template) model["template"] = "none";
  if (table.max_prompt_tokens >= 0) model["max_prompt_tokens"] = table.max_prompt_tokens;
  std::string name = StrCat("reproduce-", paper.id);
  if (paper.tables.size() > 1) name += StrCat("-", index + 1);
  return Json{{"name", name},
              {"description", StrCat(paper.title, ", ", table.table, ", ", table.model)},
              {"models", {model}},
              {"tasks", table.tasks},
              {"methods", MethodsOf(table)},
              {"compress_at", {table.question == "seen" ? "prompt" : "context"}}};
}

}  // namespace kvgauge
