// SPDX-License-Identifier: Apache-2.0
// The page docs/tasks.md, written by `kvgauge tasks --format markdown`.
#pragma once

#include <string>
#include <vector>

#include "datasets/task.h"

namespace kvgauge {

// Markdown: a table for each folder of tasks. It depends on the task files alone, not on the data
// that this machine has. `tasks` is sorted by name.
std::string TasksPage(const std::vector<Task>& tasks);

}  // namespace kvgauge
