// SPDX-License-Identifier: Apache-2.0
#include "src/data/tasks_page.h"

#include "core/strings.h"
#include "src/cli/markdown.h"
#include "src/cli/table.h"

namespace kvgauge {
namespace {

std::string FolderOf(const Task& task) { return task.name.substr(0, task.name.find('/')); }

// What a user must provide before the task can run.
std::string NeedsText(const Task& task) {
  std::vector<std::string> needs;
  for (const std::string& file : MissingFiles(task, "")) needs.push_back(MarkdownCode(file));
  if (task.metric == kJudgeMetric) needs.emplace_back("a judge");
  if (task.metric == kExecutionMetric) needs.emplace_back("execution of programs");
  return needs.empty() ? "nothing" : Join(needs, ", ");
}

}  // namespace

std::string TasksPage(const std::vector<Task>& tasks) {
  std::string page = StrCat(
      "# Tasks\n\n"
      "This page is the output of `kvgauge tasks --format markdown`; `scripts/approve` renews it.\n"
      "It lists ",
      tasks.size(),
      " tasks. `kvgauge tasks` says which of them are ready on this machine, and\n"
      "`kvgauge sample TASK` prints samples. [datasets.md](datasets.md) says how far prompts and "
      "scores\n"
      "equal the published ones, and [formats/tasks.md](formats/tasks.md) describes the files.\n\n"
      "- **needs**: files below the data directory (`--data`, `KVGAUGE_DATA`, or `data/` of the\n"
      "  project), which `scripts/fetch_data FOLDER` downloads where their licence allows it. "
      "Generated\n"
      "  tasks need nothing.\n"
      "- **new tokens**: the longest answer.\n");
  for (size_t begin = 0; begin < tasks.size();) {
    const std::string folder = FolderOf(tasks[begin]);
    TextTable table{
        .columns = {{"task"}, {"what it asks"}, {"metric"}, {"new tokens", true}, {"needs"}},
        .rows = {}};
    for (; begin < tasks.size() && FolderOf(tasks[begin]) == folder; ++begin) {
      const Task& task = tasks[begin];
      table.rows.push_back({{MarkdownCode(task.name)},
                            {EscapedMarkdown(task.description)},
                            {MarkdownCode(task.metric)},
                            {StrCat(task.max_new_tokens)},
                            {NeedsText(task)}});
    }
    page += StrCat("\n## ", EscapedMarkdown(folder), "\n\n", table.ToMarkdown());
  }
  return page;
}

}  // namespace kvgauge
