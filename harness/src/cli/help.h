// SPDX-License-Identifier: Apache-2.0
// What a user reads first: the overview of commands, and examples under every command's help.
#pragma once

#include <span>
#include <string_view>

namespace CLI {
class App;
}

namespace kvgauge {

struct CommandHelp {
  std::string_view command;   // "run", "bench latency"
  std::string_view group;     // of the overview; "" for commands below another
  std::string_view examples;  // command lines without "kvgauge", one a line; the first is the best
};
// Every command once, in the order of the overview.
std::span<const CommandHelp> AllHelp();

// Groups the commands of `app`, puts examples under their help and lays the overview out.
// Precondition: all commands are there; each has its CommandHelp.
void AddHelp(CLI::App& app);

}  // namespace kvgauge
