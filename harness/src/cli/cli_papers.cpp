// SPDX-License-Identifier: Apache-2.0
// Arguments of the commands about what others have published.
#include <CLI/CLI.hpp>
#include <memory>

#include "src/cli/command_table.h"
#include "src/foreign/foreign_rows.h"
#include "src/papers/reproduce_command.h"

namespace kvgauge {
namespace {

void AddReproduce(CommandTable& table) {
  auto options = std::make_shared<ReproduceOptions>();
  options->run.command = table.typed;
  options->run.build = table.build;
  CLI::App* command = table.app.add_subcommand(
      "reproduce", "Run a published table again and print ours beside theirs; lists the tables");
  command->add_option("paper", options->paper, "which paper; left out: all are listed");
  command->add_option("--table", options->table,
                      "which of its tables, from 1; default: the one of this model");
  SearchShipped(command->add_option("--model", options->model,
                                    "directory of a checkpoint of the paper's model"));
  command
      ->add_option("--weights", options->weights,
                   "random:SEED instead of the model's; without --model of the paper's shape")
      ->capture_default_str();
  command->add_option("--dtype", options->dtype, "auto, f32, f16 or bf16")->capture_default_str();
  command->add_option("--from", options->from, "compare what these databases hold; run nothing")
      ->delimiter(',');
  command->add_option("--model-name", options->model_name,
                      "the model's name in the databases, where they hold several");
  command
      ->add_option("--margin", options->margin,
                   "differences up to this agree: points of 100, of perplexities per cent")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 100.0));
  command->add_option("--alpha", options->alpha, "level of intervals and verdicts")
      ->capture_default_str()
      ->check(CLI::Range(1e-6, 0.49));
  command->add_option("--format", options->format, "of the list: table or markdown")
      ->capture_default_str()
      ->check(CLI::IsMember({"table", "markdown"}));
  command->add_option("--db,--out", options->run.database,
                      "the result store; default: results/reproduce-PAPER.db");
  command->add_option("--limit", options->run.limit, "the first so many samples of each task")
      ->check(CLI::PositiveNumber);
  command->add_option("--only", options->run.only,
                      "only these methods, and the full cache; repeatable");
  command->add_option("--data", options->run.data_directory,
                      "directory of data files; default: KVGAUGE_DATA, else data/ beside configs/");
  command->add_option("--max-memory", options->run.max_memory, "bound on memory, such as 8GiB");
  command->add_option("--backend", options->run.backend, "cpu, cpu:ISA, cuda, cuda:N or reference");
  command->add_option("--threads", options->run.threads, "threads; 0: one per processor")
      ->check(CLI::NonNegativeNumber);
  command->add_flag("--skip-bad", options->run.skip_bad,
                    "leave out malformed records of published files, and count them");
  command->add_flag("--retry", options->run.retry, "also samples that failed or were skipped");
  command->add_flag("--dry-run", options->run.dry_run, "show the plan instead");
  command->add_flag("--quiet", options->run.quiet, "no progress");
  AddJsonFlag(*command, options->run.json);
  table.Add(command, [options, &table]() -> Status {
    KVG_ASSIGN(table.exit_code, RunReproduce(*options));
    return {};
  });
}

void AddImport(CommandTable& table) {
  CLI::App* import = table.app.add_subcommand(
      "import", "Read scores that other programs measured, to be shown beside ours");
  import->require_subcommand(1);
  const auto add = [&](const char* program, const char* about, const char* inputs) {
    auto options = std::make_shared<ImportOptions>();
    CLI::App* command = import->add_subcommand(program, about);
    command->add_option("inputs", options->inputs, inputs)->required();
    command->add_option("-o,--out", options->out,
                        "write them to this file, for 'kvgauge leaderboard --foreign'");
    AddJsonFlag(*command, options->json);
    table.Add(command, [options, program] { return RunImport(program, *options); });
  };
  add("lm-eval", "Results of lm-evaluation-harness", "its results_*.json");
  add("kvpress", "Results of kvpress's evaluation",
      "directories with metrics.json and config.yaml, or with such below");
}

}  // namespace

void AddPaperCommands(CommandTable& table) {
  AddReproduce(table);
  AddImport(table);
}

}  // namespace kvgauge
