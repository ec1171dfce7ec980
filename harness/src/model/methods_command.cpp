// SPDX-License-Identifier: Apache-2.0
// methods: what can be run, of which stages it is made, and what can be set.
#include <filesystem>
#include <optional>

#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "methods/method.h"
#include "src/cli/commands.h"
#include "src/cli/print.h"
#include "src/model/method_facts.h"
#include "src/model/model_flags.h"

namespace kvgauge {
namespace {

std::string OrDash(const std::string& text) { return text.empty() ? "-" : text; }

// "budget, experimental"
std::string FamilyText(const Method& method) {
  return StrCat(method.family, method.experimental ? ", experimental" : "");
}

// A value as it is written in a method file; texts without their quotes.
std::string Shown(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

Json SpecToJson(const StageSpec& spec) {
  Json params = Json::array();
  for (const ParamSpec& param : spec.params) {
    params.push_back({{"name", param.name}, {"range", DescribeParam(param)}, {"help", param.help}});
  }
  return {{"kind", NameOf(spec.kind)}, {"id", spec.id},           {"version", spec.version},
          {"paper", spec.paper},       {"summary", spec.summary}, {"departures", spec.departures},
          {"bytes", spec.bytes},       {"params", params}};
}

Json MethodToJson(const Method& method) {
  Json published = Json::array();
  for (const PublishedNumber& number : method.published) {
    published.push_back({{"what", NameOf(number.what)},
                         {"value", number.value},
                         {"context_tokens", number.context_tokens},
                         {"latent_numbers", number.latent_numbers},
                         {"source", number.source}});
  }
  Json stages = Json::array();
  for (const StageChoice* choice : method.stages()) {
    Json stage = SpecToJson(*choice->spec);
    stage["values"] = choice->params.ToJson();
    stages.push_back(stage);
  }
  return {{"id", method.id},
          {"title", method.title},
          {"family", method.family},
          {"paper", method.paper},
          {"version", method.version},
          {"experimental", method.experimental},
          {"experimental_because", method.experimental_because},
          {"takes_budget", method.takes_budget},
          {"protect",
           {{"sinks", method.sinks},
            {"recent", method.recent},
            {"recent_share", method.recent_share},
            {"coming", method.coming}}},
          {"place", method.place.any() ? method.place.ToJson() : Json()},
          {"signals", SignalNames(method.needs())},
          {"departures", AllDepartures(method)},
          {"published", published},
          {"stages", stages}};
}

void PrintMethod(const Method& method) {
  std::vector<std::pair<std::string, std::string>> facts = {
      {"id", method.id},
      {"title", method.title},
      {"family", FamilyText(method)},
      {"paper", OrDash(method.paper)},
      {"version", StrCat(method.version)},
      {"budget", method.takes_budget ? "needed: 0.2 or 20%, 512, 64B" : "none"},
      {"signals", OrDash(Join(SignalNames(method.needs()), ", "))}};
  if (!method.experimental_because.empty()) {
    facts.emplace_back("experimental", method.experimental_because);
  }
  if (method.takes_budget) {
    facts.emplace_back(
        "protected", StrCat(method.sinks, " first, ", method.recent, " last",
                            method.recent_share > 0 ? StrCat(", ", Shown(Json(method.recent_share)),
                                                             " of what a head may hold")
                                                    : "",
                            method.coming > 0 ? StrCat("; ", method.coming, " left to come") : ""));
  }
  if (method.place.any()) facts.emplace_back("on the host", method.place.Describe());
  PrintFacts(facts);
  std::vector<std::vector<std::string>> rows;
  for (const StageChoice* choice : method.stages()) {
    const StageSpec& spec = *choice->spec;
    Print(StrCat("\n", NameOf(spec), "  version ", spec.version,
                 spec.paper.empty() ? "" : StrCat("  ", spec.paper), "\n  ", spec.summary, "\n"));
    if (!spec.bytes.empty()) Print(StrCat("  bytes: ", spec.bytes, "\n"));
    const Json values = choice->params.ToJson();
    for (const ParamSpec& param : spec.params) {
      rows.push_back({StrCat(choice->slot, ".", param.name), Shown(values[param.name]),
                      DescribeParam(param), param.help});
    }
  }
  if (!rows.empty()) {
    Print("\n");
    PrintTable({"parameter", "value", "range", ""}, rows);
  }
  if (!method.published.empty()) {
    Print("\npublished, of other models and machines\n");
    std::vector<std::vector<std::string>> numbers;
    for (const PublishedNumber& number : method.published) {
      numbers.push_back({std::string(Describe(number.what)), Shown(Json(number.value)),
                         number.context_tokens > 0 ? StrCat(number.context_tokens) : "any",
                         number.source});
    }
    PrintTable({"what", "value", "tokens", "source"}, numbers);
  }
  const std::vector<std::string> departures = AllDepartures(method);
  if (!departures.empty()) {
    Print(StrCat("\ndepartures from the reference\n  ", Join(departures, "\n  "), "\n"));
  }
}

Status ListStages(bool json) {
  std::vector<std::vector<std::string>> rows;
  Json list = Json::array();
  for (const StageSpec* spec : AllStages()) {
    std::vector<std::string> params;
    for (const ParamSpec& param : spec->params) params.push_back(param.name);
    rows.push_back({NameOf(*spec), OrDash(spec->paper), spec->summary, OrDash(Join(params, ", "))});
    list.push_back(SpecToJson(*spec));
  }
  if (json) {
    PrintJson(list);
  } else {
    PrintTable({"stage", "paper", "", "parameters"}, rows);
  }
  return {};
}

Result<std::vector<Method>> AllMethods(const std::string& directory) {
  KVG_ASSIGN(const std::vector<std::string> ids, ListMethods(directory));
  std::vector<Method> methods;
  for (const std::string& id : ids) {
    KVG_ASSIGN(methods.emplace_back(), LoadMethod(id, directory, {}));
  }
  return methods;
}

// What the field knows under a name that is no file's goes to the end of the error.
Error WithTheField(Error error, const MethodsOptions& options, const std::string& directory) {
  if (options.name.ends_with(".json") || !options.directory.empty() ||
      FileExists(StrCat(directory, "/", options.name, ".json"))) {
    return error;
  }
  const Result<std::vector<Method>> methods = AllMethods(directory);
  if (!methods.ok()) return error;
  const Result<std::string> field = FindConfigFile("field.json");
  if (!field.ok()) return error;
  const Result<std::vector<FieldRow>> rows = ReadField(*field, *methods);
  if (rows.ok()) error.message += KnownOtherwise(options.name, *rows, *methods);
  return error;
}

}  // namespace

Status RunMethods(const MethodsOptions& options) {
  if (options.format == "markdown" &&
      (options.json || options.stages || !options.name.empty() || !options.overrides.empty())) {
    return BadInput(
        "--format markdown: prints the page of all methods; leave out NAME, --set, "
        "--stages and --json");
  }
  if (options.stages) {
    if (!options.name.empty() || !options.overrides.empty() || !options.directory.empty()) {
      return BadInput("--stages: lists all stages; leave out NAME, --set and --methods");
    }
    return ListStages(options.json);
  }
  std::string directory = options.directory;
  if (directory.empty()) {
    KVG_ASSIGN(const std::string known, FindConfigFile("methods/full.json"));
    directory = std::filesystem::path(known).parent_path().string();
  }
  if (!options.name.empty()) {
    const Result<Method> method = LoadMethod(options.name, directory, options.overrides);
    if (!method.ok()) return WithTheField(method.error(), options, directory);
    if (options.json) {
      PrintJson(MethodToJson(*method));
    } else {
      PrintMethod(*method);
    }
    return {};
  }
  if (!options.overrides.empty()) return BadInput("--set needs the name of a method");
  KVG_ASSIGN(const std::vector<std::string> ids, ListMethods(directory));
  if (options.format == "markdown") {
    KVG_ASSIGN(const std::vector<Method> methods, AllMethods(directory));
    std::vector<FieldRow> rows;
    if (options.directory.empty()) {  // what is shipped is what the field is compared with
      KVG_ASSIGN(const std::string field, FindConfigFile("field.json"));
      KVG_ASSIGN(rows, ReadField(field, methods));
    }
    Print(MethodsPage(methods, rows));
    return {};
  }
  std::vector<std::vector<std::string>> rows;
  Json list = Json::array();
  for (const std::string& id : ids) {
    KVG_ASSIGN(const Method method, LoadMethod(id, directory, {}));
    rows.push_back({method.id, FamilyText(method), method.takes_budget ? "needed" : "-",
                    StageNames(method), OrDash(method.paper)});
    list.push_back(MethodToJson(method));
  }
  if (options.json) {
    PrintJson(list);
  } else {
    PrintTable({"method", "family", "budget", "stages", "paper"}, rows);
  }
  return {};
}

}  // namespace kvgauge
