// SPDX-License-Identifier: Apache-2.0
// tasks, sample: what can be run, and what a model would be asked.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "datasets/task.h"
#include "src/cli/commands.h"

namespace kvgauge {

struct TasksOptions {
  std::string directory;         // of task files; "": the shipped ones
  std::string data_directory;    // "": DataDirectory
  std::string only;              // tasks whose name begins so; "": all
  std::string format = "table";  // or "markdown": the page of all tasks
  bool json = false;
};

struct SampleOptions {
  std::string task;            // a name, or the path of a task file
  std::string directory;       // as above
  std::string data_directory;  // as above
  int64_t count = 1;
  uint64_t seed = 0;
  std::string model;  // a directory with a tokenizer; with one, prompts are shown as it is fed them
  TemplateFlags chat;
  std::vector<std::string> overrides;  // source.param=value
  bool whole = false;                  // long texts too
  int64_t max_prompt_tokens = 0;       // 0: prompts as they are
  bool skip_bad = false;
  bool json = false;  // one JSON object per line, texts whole
};

// Where published files are: as given, else KVGAUGE_DATA, else data/ beside configs/, where
// scripts/fetch_data puts them; "" when there is no configs/.
std::string DataDirectory(const std::string& given);

// The task of this name in `directory` ("": the shipped ones), or of this file.
Result<Task> FindTask(const std::string& name_or_path, const std::string& directory);

// Every task with its state: "ready", "data missing" (with file and command), "needs a judge",
// "needs execution", or
// "no metric" (its metric is not in this build).
Status RunTasks(const TasksOptions& options);
// Prints samples as a run would see them.
Status ShowTaskSample(const SampleOptions& options);

}  // namespace kvgauge
