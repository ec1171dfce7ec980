// SPDX-License-Identifier: Apache-2.0
#include "src/run/run_shorthand.h"

#include <algorithm>

#include "core/json.h"
#include "core/strings.h"
#include "src/data/task_commands.h"
#include "src/model/method_flags.h"
#include "src/model/model_flags.h"

namespace kvgauge {
namespace {

// "reference/needle" as part of a file's name.
std::string AsFileName(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '/' || c == '\\' || c == ' '; }, '_');
  return text;
}

// "a", "a+b", "a+2_more".
std::string ShortList(const std::vector<std::string>& names) {
  if (names.size() == 1) return names[0];
  if (names.size() == 2) return StrCat(names[0], "+", names[1]);
  return StrCat(names[0], "+", names.size() - 1, "_more");
}

Status CheckPresent(const RunShorthand& run) {
  std::vector<std::string> missing;
  if (run.models.empty()) missing.emplace_back("--model DIR");
  if (run.tasks.empty()) missing.emplace_back("--task NAME");
  if (run.methods.empty()) missing.emplace_back("--method NAME,NAME");
  if (missing.empty()) return {};
  return BadInput(StrCat("a run without a file needs a model, a task and methods; add ",
                         Join(missing, " and ")));
}

// Names of methods, once each is known; the budgets fit them.
Status CheckMethods(const RunShorthand& run) {
  for (const std::string& text : run.budgets) {
    const Result<Budget> budget = Budget::Parse(text);
    if (!budget.ok()) return budget.error().Wrap("--budget");
  }
  KVG_ASSIGN(const std::string directory, MethodDirectory());
  for (const std::string& name : run.methods) {
    const Result<Method> method =
        ReadMethod(name.ends_with(".json") ? FindShipped(name) : name, directory, {});
    if (!method.ok()) return method.error().Wrap("--method");
    if (method->takes_budget && run.budgets.empty()) {
      return BadInput(
          StrCat("--method ", name, ": needs a budget; add --budget, such as --budget 10%,20%"));
    }
  }
  return {};
}

}  // namespace

Result<Json> ShorthandConfig(const RunShorthand& run, const RunOverrides& overrides,
                             int64_t limit) {
  KVG_TRY(CheckPresent(run));
  std::vector<std::string> models, tasks;
  for (const std::string& path : run.models) {
    KVG_ASSIGN(const RunModel model, ReadRunModel(Json(path), "--model"));
    models.push_back(model.name);
  }
  for (const std::string& name : run.tasks) {
    const Result<Task> task = FindTask(name, "");
    if (!task.ok()) return task.error().Wrap("--task");
    tasks.push_back(AsFileName(task->name));
  }
  KVG_TRY(CheckMethods(run));
  Json json = {{"name", StrCat(ShortList(models), "-", ShortList(tasks))},
               {"models", run.models},
               {"tasks", run.tasks},
               {"methods", run.methods}};
  if (!run.budgets.empty()) json["budgets"] = run.budgets;
  if (limit > 0) json["samples"] = limit;
  if (!overrides.seeds.empty()) json["seeds"] = overrides.seeds;
  if (overrides.temperature) json["sampling"]["temperature"] = *overrides.temperature;
  if (overrides.top_p) json["sampling"]["top_p"] = *overrides.top_p;
  if (overrides.draws) json["sampling"]["draws"] = *overrides.draws;
  if (overrides.unscored) json["unscored"] = true;
  if (overrides.skip_bad) json["skip_bad"] = true;
  if (!overrides.data_directory.empty()) json["data"] = overrides.data_directory;
  if (!overrides.max_memory.empty()) json["max_memory"] = overrides.max_memory;
  if (!overrides.backend.empty()) json["backend"] = overrides.backend;
  if (overrides.threads > 0) json["threads"] = overrides.threads;
  return json;
}

}  // namespace kvgauge
