// SPDX-License-Identifier: Apache-2.0
// What the files of cli/ share: the commands, and what runs when one of them was named.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/result.h"
#include "harness/cli.h"

namespace CLI {
class App;
}

namespace kvgauge {

struct ModelFlags;

// `app` outlives it, and it outlives what its actions refer to.
class CommandTable {
 public:
  CommandTable(CLI::App& root, std::string command_line, BuildInfo program)
      : app(root), typed(std::move(command_line)), build(std::move(program)) {}

  CLI::App& app;
  const std::string typed;              // the command line, as a shell takes it
  std::vector<std::string> words = {};  // of it, behind the program's name
  const BuildInfo build;
  int exit_code = kExitOk;  // of what went well

  void Add(CLI::App* command, std::function<Status()> action);
  // Runs the action of the first command that was named; nullopt: none was.
  std::optional<Status> RunParsed() const;

 private:
  std::vector<std::pair<CLI::App*, std::function<Status()>>> actions_;
};

void AddJsonFlag(CLI::App& command, bool& json);
// Paths that do not exist are searched among what comes with the program (FindShipped).
void SearchShipped(CLI::Option* option);
void AddModelFlags(CLI::App& command, ModelFlags& flags);
// Numbers of all commands are finite, as "nan" would lie in every range, and whole ones are those
// that were typed. What is refused is told what would be right.
void CheckNumbers(CLI::App& app);
// Says which of `words` is a flag of none of `apps`, the first of which is the command `name`;
// empty: all flags are known. The second for a command line that has more than its command takes.
std::string UnknownFlag(const std::vector<std::string>& words, const std::string& name,
                        const std::vector<const CLI::App*>& apps);
std::string UnknownFlag(const CLI::App& app, int argc, const char* const* argv);
// A first word that is no command, or a second one where the command has commands of its own.
Status CheckCommandName(const CLI::App& app, int argc, const char* const* argv);

// Commands about models, methods, tasks and this machine; about results; about what others have
// published.
void AddModelCommands(CommandTable& table);
void AddResultCommands(CommandTable& table);
void AddPaperCommands(CommandTable& table);

}  // namespace kvgauge
