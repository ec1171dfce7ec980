// SPDX-License-Identifier: Apache-2.0
// Arguments of the commands that read what was run.
#include <CLI/CLI.hpp>
#include <memory>

#include "src/cli/command_table.h"
#include "src/results/board_command.h"
#include "src/results/report_command.h"
#include "src/results/results.h"

namespace kvgauge {
namespace {

void AddStatisticsFlags(CLI::App& command, StatisticsFlags& flags) {
  command.add_option("--margin", flags.margin, "differences of the score up to this are SAME")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  command.add_option("--alpha", flags.alpha, "level of tests and intervals")
      ->capture_default_str()
      ->check(CLI::Range(1e-6, 0.49));
  command.add_option("--resamples", flags.resamples, "draws of the bootstrap")
      ->capture_default_str()
      ->check(CLI::Range(100, 1000000));
  command.add_option("--seed", flags.seed, "seed of the bootstrap")->capture_default_str();
}

void AddLeaderboard(CommandTable& table) {
  auto flags = std::make_shared<LeaderboardFlags>();
  CLI::App* command = table.app.add_subcommand(
      "leaderboard", "Rank what was run: scores with intervals, verdicts, bytes, times");
  command->add_option("databases", flags->stores, "result databases; several count as one")
      ->required();
  command->add_option("--by", flags->by, "task, or group: a table for each group of tasks")
      ->capture_default_str();
  command->add_option("--sort", flags->sort, "a column; with - before it turned round: -score");
  command->add_option("--filter", flags->filters,
                      "rows to show, repeatable: method=snapkv,h2o, task=ruler/*, "
                      "bytes<0.3");
  command->add_option("--columns", flags->columns, "which columns, in which order")->delimiter(',');
  command
      ->add_option("--split", flags->split,
                   "also scores by what the data says of samples: length_bucket, or two at once: "
                   "depth,length")
      ->delimiter(',');
  command->add_option("--foreign", flags->foreign,
                      "a file of 'kvgauge import', shown below and never ranked; repeatable");
  command->add_option("--format", flags->format, "table, markdown, csv or json")
      ->capture_default_str();
  command->add_flag("--across-models", flags->across_models,
                    "one table for the rows of all models, instead of one each");
  command->add_flag("--all", flags->all, "also rows without a rank, and why they have none");
  AddStatisticsFlags(*command, flags->statistics);
  command->add_flag("--json", flags->json, "machine-readable output: --format json");
  table.Add(command, [flags] { return RunLeaderboard(*flags); });
}

void AddGate(CommandTable& table) {
  auto flags = std::make_shared<GateFlags>();
  CLI::App* command = table.app.add_subcommand("gate",
                                               "Fail if accuracy, bytes or latency got worse: 0 "
                                               "pass, 1 worse, 2 no comparison, 3 undecided");
  command->add_option("--baseline", flags->baseline, "database of the state before")->required();
  command->add_option("--candidate", flags->candidate, "database of the state after")->required();
  command->add_option("--margins", flags->margins,
                      "JSON file of margins; default: configs/gate/default.json");
  command->add_flag("--strict", flags->strict, "fail on what is undecided, with exit code 3");
  command->add_option("--junit", flags->junit, "write a JUnit XML file");
  command->add_option("--markdown", flags->markdown, "write a Markdown file");
  command->add_flag("--all", flags->all, "also show what is the same");
  AddJsonFlag(*command, flags->json);
  table.Add(command, [flags, &table] { return RunGate(*flags, table.exit_code); });
}

void AddCompare(CommandTable& table) {
  auto flags = std::make_shared<CompareFlags>();
  CLI::App* command = table.app.add_subcommand(
      "compare", "Compare two methods of a database, or two databases, in one sentence");
  command->add_option("a", flags->a, "method@budget or method[variant]@budget; or a database")
      ->required();
  command->add_option("b", flags->b, "what is held against it")->required();
  command->add_option("--db", flags->stores, "result database of methods, repeatable");
  command->add_option("--task", flags->task, "only tasks whose name begins so, or of this group");
  command->add_option("--model", flags->model, "only models whose name begins so");
  command->add_option("--at", flags->compress_at,
                      "only what was compressed at prompt, context, turn, chunk");
  command->add_option("--margins", flags->margins,
                      "of two databases: JSON file of margins; default: configs/gate/default.json");
  command
      ->add_option("--margin", flags->margin,
                   "differences of the score up to this are SAME; default: 0.01, of two databases "
                   "the file's, as of the next three")
      ->check(CLI::Range(0.0, 1.0));
  command->add_option("--alpha", flags->alpha, "level of tests and intervals; default: 0.05")
      ->check(CLI::Range(1e-6, 0.49));
  command->add_option("--resamples", flags->resamples, "draws of the bootstrap; default: 10000")
      ->check(CLI::Range(100, 1000000));
  command->add_option("--seed", flags->seed, "seed of the bootstrap; default: 0");
  AddJsonFlag(*command, flags->json);
  table.Add(command, [flags] { return RunCompare(*flags); });
}

void AddMerge(CommandTable& table) {
  auto flags = std::make_shared<MergeFlags>();
  CLI::App* command = table.app.add_subcommand(
      "merge", "Join databases, such as those of shards; a repeated merge changes nothing");
  command
      ->add_option("out", flags->out,
                   "database to write; made if there is none, left as it is on a conflict")
      ->required();
  command->add_option("in", flags->inputs, "databases to take over")->required();
  AddJsonFlag(*command, flags->json);
  table.Add(command, [flags] { return RunMerge(*flags); });
}

void AddShow(CommandTable& table) {
  auto flags = std::make_shared<ShowFlags>();
  CLI::App* command = table.app.add_subcommand(
      "show", "Show a sample: the prompt, both answers, scores, what each layer kept");
  command->add_option("database", flags->store, "result database")->required();
  command
      ->add_option("cell", flags->cell,
                   "method@budget, method[variant]@budget, or the beginning of a cell's key")
      ->required();
  command->add_option("sample", flags->sample, "the sample's id; without it the cell's samples");
  command->add_option("--task", flags->task, "the cell's task");
  command->add_option("--model", flags->model, "the cell's model");
  command->add_option("--at", flags->compress_at, "prompt, context, turn or chunk");
  command->add_option("--seed", flags->seed, "the cell's seed")->check(CLI::NonNegativeNumber);
  command->add_flag("--prompt", flags->prompt, "the context whole, not its ends");
  command->add_option("--data", flags->data_directory,
                      "directory of data files; default: KVGAUGE_DATA, else data/ beside configs/");
  command->add_option("--tokenizer", flags->tokenizer,
                      "the model's directory; default: where the run had it");
  AddJsonFlag(*command, flags->json);
  table.Add(command, [flags] { return RunShow(*flags); });
}

void AddReport(CommandTable& table) {
  auto flags = std::make_shared<ReportFlags>();
  CLI::App* command = table.app.add_subcommand(
      "report", "Write one HTML file: leaderboard, fronts, curves, samples");
  command->add_option("databases", flags->stores, "one; two with --compare, the baseline first")
      ->required();
  command->add_option("-o,--out", flags->out,
                      "the file to write; default: the database's, .html; -: print it");
  command->add_flag("--compare", flags->compare, "two databases side by side, with verdicts");
  command->add_option("--margins", flags->margins,
                      "with --compare: a JSON file of margins, as the gate reads it");
  command
      ->add_option("--margin", flags->margin,
                   "differences to the full cache up to this are equivalent, in points of 100")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 100.0));
  command
      ->add_option("--max-answers", flags->max_answers,
                   "answers of methods that the file holds; the others stay in the database")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  command
      ->add_option("--max-pictures", flags->max_pictures,
                   "different pictures of samples that it holds, at most 12 MiB of them")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  command->add_option("--max-text-bytes", flags->max_text_bytes, "bytes of each text that it holds")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  command->add_option("--title", flags->title, "heading; default: made of what was run");
  command
      ->add_option("--format", flags->format,
                   "html, or the main tables on standard output: table, markdown")
      ->capture_default_str()
      ->check(CLI::IsMember({"html", "table", "markdown"}));
  command->add_flag("--json", flags->json, "tell what was written as JSON");
  table.Add(command, [flags] { return RunReport(*flags); });
}

void AddBoard(CommandTable& table) {
  auto flags = std::make_shared<BoardFlags>();
  CLI::App* command = table.app.add_subcommand(
      "board", "Make a static site of many databases: where methods stand, and what changed");
  command->add_option("directory", flags->stores, "every *.db below it is taken, oldest first")
      ->required();
  command->add_option("-o,--out", flags->out, "directory of the site; made, or an earlier board")
      ->required();
  command->add_option("--title", flags->title, "heading (default: kvgauge board)");
  command
      ->add_option("--margin", flags->margin,
                   "differences of the score up to this are equivalent, in points of 100")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 100.0));
  command->add_flag("--skip-bad", flags->skip_bad,
                    "leave out files that cannot be read as databases, with a warning");
  AddJsonFlag(*command, flags->json);
  table.Add(command, [flags] { return RunBoard(*flags); });
}

}  // namespace

void AddResultCommands(CommandTable& table) {
  AddLeaderboard(table);
  AddCompare(table);
  AddShow(table);
  AddGate(table);
  AddMerge(table);
  AddReport(table);
  AddBoard(table);
}

}  // namespace kvgauge
