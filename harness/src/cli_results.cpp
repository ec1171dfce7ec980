// SPDX-License-Identifier: Apache-2.0
// Beside cli.cpp, so that neither takes long to compile.
#include "src/cli_results.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "src/results.h"

namespace kvgauge {
namespace {

using Actions = std::vector<std::pair<CLI::App*, std::function<Status()>>>;

void AddLeaderboard(CLI::App& app, Actions& actions) {
  auto flags = std::make_shared<LeaderboardFlags>();
  CLI::App* command = app.add_subcommand(
      "leaderboard", "Rank what was run: scores with intervals, verdicts, bytes, times");
  command->add_option("databases", flags->stores, "result databases; several count as one")
      ->required();
  command->add_option("--by", flags->by, "task, or group: a table for each group of tasks")
      ->capture_default_str();
  command->add_option("--sort", flags->sort, "a column; with - before it turned round: -score");
  command->add_option("--filter", flags->filters,
                      "rows to show, repeatable: method=snapkv,h2o, task=ruler/*, "
                      "logical_ratio<0.3");
  command->add_option("--columns", flags->columns, "which columns, in which order")->delimiter(',');
  command->add_option("--format", flags->format, "table, markdown, csv or json")
      ->capture_default_str();
  command->add_flag("--all", flags->all, "also rows without a rank, and why they have none");
  command->add_option("--margin", flags->margin, "differences of the score up to this are SAME")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  command->add_option("--alpha", flags->alpha, "level of tests and intervals")
      ->capture_default_str()
      ->check(CLI::Range(1e-6, 0.49));
  command->add_option("--resamples", flags->resamples, "draws of the bootstrap")
      ->capture_default_str()
      ->check(CLI::Range(100, 1000000));
  command->add_option("--seed", flags->seed, "seed of the bootstrap")->capture_default_str();
  command->add_flag("--json", flags->json, "machine-readable output: --format json");
  actions.emplace_back(command, [flags] { return RunLeaderboard(*flags); });
}

}  // namespace

void AddResultCommands(CLI::App& app, Actions& actions, int& exit_code) {
  static_cast<void>(exit_code);
  AddLeaderboard(app, actions);
}

}  // namespace kvgauge
