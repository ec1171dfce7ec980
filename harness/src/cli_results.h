// SPDX-License-Identifier: Apache-2.0
// Arguments of the commands that read what was run.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "core/result.h"

namespace CLI {
class App;
}

namespace kvgauge {

// `exit_code` is what the program returns after a success; it outlives the actions.
void AddResultCommands(CLI::App& app,
                       std::vector<std::pair<CLI::App*, std::function<Status()>>>& actions,
                       int& exit_code);

}  // namespace kvgauge
