// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <algorithm>
#include <string_view>

#include "core/near_names.h"
#include "core/strings.h"
#include "src/cli/command_table.h"

namespace kvgauge {

std::string UnknownFlag(const std::vector<std::string>& words, const std::string& name,
                        const std::vector<const CLI::App*>& apps) {
  std::vector<std::string> known;
  for (const CLI::App* app : apps) {
    for (const CLI::Option* option : app->get_options()) {
      for (const std::string& flag : option->get_lnames()) known.push_back("--" + flag);
    }
  }
  for (const std::string& word : words) {
    if (word == "--") break;
    const std::string flag = word.substr(0, word.find('='));
    if (!flag.starts_with("--")) continue;
    if (std::find(known.begin(), known.end(), flag) != known.end()) continue;
    return StrCat(Quoted(flag), " is no flag of '", name, "'", DidYouMean(flag, known));
  }
  return "";
}

std::string UnknownFlag(const CLI::App& app, int argc, const char* const* argv) {
  std::vector<const CLI::App*> apps = {&app};
  std::string name = "kvgauge";
  while (!apps[0]->get_subcommands().empty()) {
    apps.insert(apps.begin(), apps[0]->get_subcommands()[0]);
    name.append(" ").append(apps[0]->get_name());
  }
  const std::string wrong = UnknownFlag({argv + 1, argv + argc}, name, apps);
  return wrong.empty() ? "" : StrCat(wrong, "; '", name, " --help' lists all");
}

Status CheckCommandName(const CLI::App& app, int argc, const char* const* argv) {
  const CLI::App* at = &app;
  int i = 1;
  for (; i < argc && *argv[i] != '-' && *argv[i] != 0; ++i) {
    const std::string_view word = argv[i];
    const CLI::App* next = nullptr;
    std::vector<std::string> names;
    for (const CLI::App* command : at->get_subcommands([](const CLI::App*) { return true; })) {
      if (command->get_name() == word) next = command;
      names.push_back(command->get_name());
    }
    if (names.empty()) return {};
    if (next == nullptr) {
      return BadInput(StrCat("unknown command ", Quoted(word), DidYouMeanOneOf(word, names), "; '",
                             at == &app ? "kvgauge" : StrCat("kvgauge ", at->get_name(), " --help"),
                             "' ", at == &app ? "alone " : "", "lists all of them"));
    }
    at = next;
  }
  if (i < argc || at == &app || at->get_require_subcommand_min() == 0) return {};
  return BadInput(StrCat("'kvgauge ", at->get_name(), "' has commands of its own; 'kvgauge ",
                         at->get_name(), " --help' lists all of them"));
}

}  // namespace kvgauge
