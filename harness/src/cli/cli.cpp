// SPDX-License-Identifier: Apache-2.0
// Argument parsing. Beside cli_*.cpp the only file that sees CLI11, which is slow to compile.
#include "harness/cli.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <new>

#include "core/log.h"
#include "core/strings.h"
#include "methods/plugin.h"
#include "src/bench/bench_load.h"
#include "src/cli/command_table.h"
#include "src/cli/commands.h"
#include "src/cli/help.h"
#include "src/cli/print.h"
#include "src/cluster/submit_command.h"
#include "src/model/shipped_files.h"
#include "src/run/run_command.h"
#include "src/serve/capacity_options.h"
#include "src/serve/speculate_options.h"

namespace kvgauge {
namespace {

void AddDeviceFlags(CLI::App& command, std::string& backend, int& threads) {
  command.add_option("--backend", backend, "cpu, cpu:ISA, cuda, cuda:N or reference")
      ->capture_default_str();
  command.add_option("--threads", threads, "threads; 0: one per processor")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
}

void AddRecordingFlags(CLI::App& command, std::string& database, bool& again) {
  command.add_option("--db", database,
                     "record in this result store; what it holds of this machine is not measured "
                     "again");
  command.add_flag("--again", again, "with --db: measure once more what is recorded");
}

void AddBenchKernels(CLI::App& bench, CommandTable& table) {
  auto options = std::make_shared<BenchKernelsOptions>();
  CLI::App* command = bench.add_subcommand(
      "kernels", "Products and attention against what the device itself reaches");
  command->add_option("--entries", options->entries, "cached entries a head")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(1024, 1 << 20));
  AddDeviceFlags(*command, options->backend, options->threads);
  AddJsonFlag(*command, options->json);
  table.Add(command, [options] { return RunBenchKernels(*options); });
}

void AddBenchLoad(CLI::App& bench, CommandTable& table) {
  auto options = std::make_shared<BenchLoadOptions>();
  CLI::App* command = bench.add_subcommand(
      "load",
      "How long a checkpoint takes to load with its fingerprint, beside reading its files, and in "
      "how much memory");
  AddModelFlags(*command, options->model);
  command
      ->add_option("--repetitions", options->repetitions,
                   "with files in memory, and as many from storage, of which the median counts")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  AddJsonFlag(*command, options->json);
  table.Add(command, [options] { return RunBenchLoad(*options); });
}

constexpr std::string_view kOrShape = ", or the name of a shape under configs/models";

// Shapes have no weights, so the commands that take their names are those that need none.
void AddShapeFlags(CLI::App& command, ModelFlags& flags) {
  AddModelFlags(command, flags);
  CLI::Option& model = *command.get_option("model");
  model.description(StrCat(model.get_description(), kOrShape));
}

void AddBenchVision(CLI::App& bench, CommandTable& table) {
  auto options = std::make_shared<BenchVisionOptions>();
  CLI::App* command = bench.add_subcommand(
      "vision", "Vision towers of random weights against the machine's rate of products");
  SearchShipped(command->add_option(
      "--model", options->models,
      StrCat("config.json or directory", kOrShape, ", repeatable; default: smolvlm-256m")));
  command->add_option("--dtype", options->dtypes, "weights")->delimiter(',')->capture_default_str();
  command->add_option("--pictures", options->pictures, "how many are encoded together")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(1, 256));
  command->add_option("--repetitions", options->repetitions, "of which the median counts")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  AddDeviceFlags(*command, options->backend, options->threads);
  AddJsonFlag(*command, options->json);
  table.Add(command, [options] { return RunBenchVision(*options); });
}

void AddBenchLockstep(CLI::App& bench, CommandTable& table) {
  auto options = std::make_shared<BenchLockstepOptions>();
  CLI::App* command = bench.add_subcommand(
      "lockstep", "Many method rows at once against one full row, and against one at a time");
  SearchShipped(
      command->add_option("--model", options->model,
                          StrCat("config.json or directory", kOrShape, "; default: bench-s")));
  command->add_option("--dtype", options->dtype, "weights and cache")->capture_default_str();
  command->add_option("--methods", options->methods, "method ids; default: eight cheap selectors")
      ->delimiter(',');
  command->add_option("--budgets", options->budgets, "each method at each of them")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--rows", options->rows, "how many rows to run together")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--prompt-tokens", options->prompt_tokens, "length of each sample")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--new-tokens", options->new_tokens, "length of each answer")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--samples", options->samples, "how many samples")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--repetitions", options->repetitions, "of which the median counts")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_flag_callback(
      "--no-alone", [options] { options->alone = false; },
      "leave out the same rows one at a time, and the check that they agree");
  AddDeviceFlags(*command, options->backend, options->threads);
  AddJsonFlag(*command, options->json);
  table.Add(command, [options] { return RunBenchLockstep(*options); });
}

void AddBenchLatency(CLI::App& bench, CommandTable& table) {
  auto options = std::make_shared<BenchLatencyOptions>();
  CLI::App* command = bench.add_subcommand(
      "latency", "Time and memory of methods, each alone and beside the full cache");
  AddShapeFlags(*command, options->model);
  command
      ->add_option("--beside", options->beside,
                   "other models in the same rounds, paths or shipped shapes, with the full cache "
                   "or as MODEL:METHOD; ratios are to the first model's full cache")
      ->delimiter(',');
  command->add_option("--methods", options->methods, "method ids, beside the full cache")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--budgets", options->budgets, "each method at each of them")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--set", options->overrides,
                      "another value for a parameter of every method: stage.param=value");
  command->add_option("--contexts", options->contexts, "prompt lengths in tokens")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--decode-steps", options->decode_steps, "tokens after the first")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--repetitions", options->repetitions, "of every row at every length")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--max-others", options->max_others,
                   "redo, then leave out what ran beside other programs with more than this share "
                   "of the processors")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  command->add_flag("--pin", options->pin_threads, "bind every thread to a processor of its own");
  command->add_option("--seed", options->seed, "of the prompts")->capture_default_str();
  AddJsonFlag(*command, options->json);
  table.Add(command, [options] { return RunBenchLatency(*options); });
}

void AddCapacityWorkload(CLI::App& command, BenchCapacityOptions& options) {
  command.add_option("--trace", options.trace,
                     "requests from a file: JSON lines, or the traces of Azure, BurstGPT and "
                     "Mooncake; the flags of generated ones do not count then");
  command.add_option("--first", options.first, "the first so many of the file; 0: all")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  command.add_option("--length-scale", options.length_scale, "of a file's prompts and answers")
      ->capture_default_str()
      ->check(CLI::Range(1e-6, 1e6));
  command
      .add_option("--time-scale", options.time_scale, "of a file's arrivals: 0.5 is twice as fast")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e6));
  command.add_option("--arrivals", options.arrivals, "together, poisson or bursts")
      ->capture_default_str();
  command.add_option("--per-second", options.per_second, "how many arrive, on average")
      ->capture_default_str()
      ->check(CLI::Range(1e-6, 1e6));
  command
      .add_option("--burstiness", options.burstiness,
                  "of bursts: the squared coefficient of variation of the gaps")
      ->capture_default_str()
      ->check(CLI::Range(1.0, 1e4));
  command.add_option("--requests", options.requests, "how many are generated")
      ->capture_default_str()
      ->check(CLI::Range(1, 10'000'000));
  command.add_option("--prompt-tokens", options.prompt_tokens, "lengths: 64,128,512 or 64..512")
      ->capture_default_str();
  command.add_option("--answer-tokens", options.answer_tokens, "lengths: 16,32 or 16..64")
      ->capture_default_str();
  command
      .add_option("--shared-tokens", options.shared_tokens,
                  "more at the beginning of every prompt, that others have too")
      ->capture_default_str()
      ->check(CLI::Range(0, 10'000'000));
  command
      .add_option("--shared-groups", options.shared_groups, "how many such beginnings there are")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command.add_option("--turns", options.turns, "of every conversation")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  command.add_option("--pause", options.pause_s, "seconds between two turns")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  command.add_option("--save-trace", options.save_trace, "write the requests as JSON lines");
  command.add_option("--seed", options.seed, "of requests and of their tokens")
      ->capture_default_str();
}

void AddBenchCapacity(CLI::App& bench, CommandTable& table) {
  auto options = std::make_shared<BenchCapacityOptions>();
  CLI::App* command = bench.add_subcommand(
      "capacity", "How many sequences fit into a memory with each method, and how fast they go");
  AddShapeFlags(*command, options->model);
  command->add_option("--methods", options->methods, "method ids")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--budgets", options->budgets, "each method at each of them")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--set", options->overrides,
                      "another value for a parameter of every method: stage.param=value");
  command
      ->add_option("--policies", options->policies,
                   "who is served when: fcfs, whole_prompts, shortest, recompute, swap, queues, "
                   "radix, chunk_tree, keep_host, keep_disk")
      ->delimiter(',')
      ->capture_default_str();
  command
      ->add_option("--batches", options->batches,
                   "the most sequences that decode together; max: as many as fit, or as fit at "
                   "first under recompute, swap and queues")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--max-memory", options->max_memory,
                      "weights, working memory and caches, such as 8GiB; default: no limit");
  command->add_option(
      "--host-memory", options->host_memory,
      "the same on the host: of kept conversations, and of what swap and queues move");
  command->add_option("--disk", options->disk, "folder of kept conversations that go to disk");
  AddCapacityWorkload(*command, *options);
  command->add_flag("--estimate", options->estimate,
                    "load no weights: count passes, and take the time that they would need");
  command->add_option("--bytes-per-s", options->bytes_per_s, "with --estimate: of memory")
      ->capture_default_str()
      ->check(CLI::Range(1.0, 1e18));
  command
      ->add_option("--operations-per-s", options->operations_per_s, "with --estimate: of products")
      ->capture_default_str()
      ->check(CLI::Range(1.0, 1e18));
  command->add_option("--repetitions", options->repetitions, "of every case")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  AddRecordingFlags(*command, options->database, options->again);
  AddJsonFlag(*command, options->json);
  options->command = table.typed;
  options->build = table.build;
  table.Add(command, [options, &table]() -> Status {
    KVG_ASSIGN(table.exit_code, RunBenchCapacity(*options));
    return {};
  });
}

void AddBenchSpeculate(CLI::App& bench, CommandTable& table) {
  auto options = std::make_shared<BenchSpeculateOptions>();
  CLI::App* command = bench.add_subcommand(
      "speculate", "A compressed cache drafts tokens, the full one judges them: acceptance, speed");
  AddModelFlags(*command, options->model);
  command
      ->add_option("--forms", options->forms,
                   "published forms: magicdec, magicdec_streaming, quantspec, rapid, triforce")
      ->delimiter(',');
  command
      ->add_option("--drafts", options->drafts,
                   "method ids; default, without --forms: snapkv, streaming_llm, quest, kivi_4bit")
      ->delimiter(',');
  SearchShipped(command->add_option("--draft-model", options->draft_model,
                                    "of forms whose draft reads a shorter prompt: the directory of "
                                    "another checkpoint with the same tokenizer"));
  command
      ->add_option("--retrieve-tokens", options->retrieve_tokens,
                   "of such forms: how many tokens of chunks the draft reads")
      ->check(CLI::PositiveNumber);
  command->add_option("--retrieve-chunk", options->retrieve_chunk, "of such forms: of each chunk")
      ->check(CLI::PositiveNumber);
  command->add_option("--budgets", options->budgets, "each draft at each of them")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--set", options->overrides,
                      "another value for a parameter of every draft: stage.param=value");
  command
      ->add_option("--gammas", options->gammas,
                   "how many tokens are drafted for a check; a form has its own")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  SearchShipped(command->add_option("--text", options->texts,
                                    "a file whose text is a prompt, repeatable; default: random "
                                    "tokens"));
  command->add_option("--prompts", options->prompts, "how many random ones")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  command
      ->add_option("--prompt-tokens", options->prompt_tokens,
                   "of a random one; the most of a text, whose end counts")
      ->capture_default_str()
      ->check(CLI::Range(1, 10'000'000));
  command->add_option("--answer-tokens", options->answer_tokens, "of every answer")
      ->capture_default_str()
      ->check(CLI::Range(2, 1'000'000));
  command->add_option("--repetitions", options->repetitions, "of which the median counts")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  command->add_option("--seed", options->seed, "of random prompts and choices")
      ->capture_default_str();
  AddRecordingFlags(*command, options->database, options->again);
  AddJsonFlag(*command, options->json);
  options->command = table.typed;
  options->build = table.build;
  table.Add(command, [options, &table]() -> Status {
    KVG_ASSIGN(table.exit_code, RunBenchSpeculate(*options));
    return {};
  });
}

void AddBench(CommandTable& table) {
  CLI::App* bench =
      table.app.add_subcommand("bench",
                               "Measure latency and capacity of methods, rows in "
                               "lockstep, the runner, loading, kernels, vision towers");
  bench->require_subcommand(1);
  auto options = std::make_shared<BenchRunnerOptions>();
  CLI::App* command = bench->add_subcommand(
      "runner", "Prefill and decode speed of models; contended repetitions are redone");
  SearchShipped(command->add_option(
      "--model", options->models,
      StrCat("config.json or directory", kOrShape, ", repeatable; default: bench-s and bench-l")));
  command
      ->add_option("--weights", options->weights,
                   "random:SEED, or file: those of a directory or a GGUF file, in blocks as it has "
                   "them")
      ->capture_default_str();
  command
      ->add_option("--product-rows", options->product_rows,
                   "dtype; int8: rows of 8 bits for matrices in blocks; file: rows rounded as "
                   "the file says")
      ->capture_default_str();
  command->add_option("--dtype", options->dtypes, "weights and cache")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--prefill", options->prefill, "prompt lengths; 0: none")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--depth", options->depths, "cache lengths to decode at; -1: none")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--decode-steps", options->decode_steps, "tokens per decode repetition")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--repetitions", options->repetitions, "clean repetitions per cell")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--max-others", options->max_others,
                   "drop a repetition when other processes used more than this share")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  AddDeviceFlags(*command, options->backend, options->threads);
  AddJsonFlag(*command, options->json);
  table.Add(command, [options] { return RunBenchRunner(*options); });
  AddBenchLockstep(*bench, table);
  AddBenchLatency(*bench, table);
  AddBenchCapacity(*bench, table);
  AddBenchSpeculate(*bench, table);
  AddBenchLoad(*bench, table);
  AddBenchKernels(*bench, table);
  AddBenchVision(*bench, table);
}

void AddRunFlags(CLI::App& command, RunOptions& options) {
  command.add_option("config", options.config, "a JSON file, or the name of a shipped one");
  command.add_option("--db,--out", options.database, "the result store; default: results/NAME.db");
  command.add_option("--limit", options.limit, "the first so many samples of each task at most")
      ->check(CLI::PositiveNumber);
  command.add_option("--samples", options.samples, "only these, by position from 0: 0-9,17");
  command.add_option("--seed", options.seeds, "other seeds than the configuration's, repeatable")
      ->check(CLI::NonNegativeNumber);
  command.add_option("--temperature", options.temperature, "draw answers at it; 0: greedy")
      ->check(CLI::NonNegativeNumber);
  command.add_option("--top-p", options.top_p, "nucleus sampling, with a temperature");
  command.add_option("--draws", options.draws, "answers to each prompt, with a temperature")
      ->check(CLI::PositiveNumber);
  command.add_option("--shard", options.shard,
                     "one part of the samples, for several machines: 1/4 is the first of four");
  command.add_option("--only", options.only, "only these methods, and the full cache; repeatable");
  command.add_option("--data", options.data_directory,
                     "directory of data files; default: KVGAUGE_DATA, else data/ beside configs/");
  command.add_option("--max-memory", options.max_memory, "bound on memory, such as 8GiB");
  command.add_option("--backend", options.backend,
                     "cpu, cpu:ISA, cuda, cuda:N, cuda:0+1 (layers over these) or reference");
  command.add_option("--threads", options.threads, "threads; 0: one per processor")
      ->check(CLI::NonNegativeNumber);
  command.add_flag("--unscored", options.unscored,
                   "keep answers that only a judge, or running them, can score");
  command.add_flag("--skip-bad", options.skip_bad,
                   "leave out malformed records of published files, and count them");
  command.add_flag("--retry", options.retry, "also samples that failed or were skipped");
  AddJsonFlag(command, options.json);
}

// A run without a file.
void AddShorthandFlags(CLI::App& command, RunShorthand& run) {
  const auto add = [&](const char* name, std::vector<std::string>& values, const char* about) {
    command.add_option(name, values, about)->delimiter(',')->group("Instead of a configuration");
  };
  add("--model", run.models, "checkpoint directories");
  add("--task", run.tasks, "tasks by name, or their files");
  add("--method", run.methods, "methods by id, or their files; the full cache comes with them");
  add("--budget", run.budgets,
      "for each method that takes one: 20%, 512 (entries a head), 64B (bytes per token)");
}

void AddRunOnlyFlags(CLI::App& command, RunOptions& options) {
  command
      .add_option("--devices", options.devices,
                  "with --backend cuda: a worker on each of these, all into one database; "
                  "numbers from 0, such as 0,1, or all")
      ->check([](const std::string& text) {  // empty, such as of a variable that is not set
        return text.empty() ? "'', expected numbers of devices from 0, such as 0,1, or all" : "";
      });
  command
      .add_option("--processors", options.processors,
                  "with --devices: so many are divided among the workers; default: all there are")
      ->check(CLI::PositiveNumber);
  // For the workers that such a run starts.
  command.add_option("--worker", options.worker)->group("");
  command.add_flag("--dry-run", options.dry_run, "show the plan instead");
  command.add_flag("--quiet", options.quiet, "no progress");
}

void AddPluginOption(CLI::App& app, std::vector<std::string>& plugins) {
  app.add_option("--plugin", plugins,
                 "a shared object with stages of your own (docs/plugins.md), repeatable")
      ->allow_extra_args(false);
}

Status LoadPlugins(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) KVG_TRY(LoadPlugin(path));
  return {};
}

// What follows -- for the shards, as 'kvgauge run' would take it. Plugins are loaded here as well;
// whatever is loaded is passed on by absolute path, so their flags are taken out.
Status ParseShardArguments(SubmitOptions& options) {
  if (!options.run_arguments.empty() && !options.run_arguments[0].starts_with('-')) {
    return BadInput(StrCat(Quoted(options.run_arguments[0]),
                           ": expected nothing more, or arguments for 'kvgauge run' after --"));
  }
  CLI::App app;
  app.set_help_flag("");
  AddRunFlags(app, options.run);
  AddRunOnlyFlags(app, options.run);
  std::vector<std::string> plugins;
  AddPluginOption(app, plugins);
  CheckNumbers(app);
  std::vector<std::string> words(options.run_arguments.rbegin(), options.run_arguments.rend());
  words.push_back(options.config);  // read from the back
  try {
    app.parse(words);
  } catch (const CLI::ParseError& error) {
    const std::string wrong = UnknownFlag(options.run_arguments, "kvgauge run", {&app});
    if (!wrong.empty()) return BadInput(StrCat("after --: ", wrong));
    return BadInput(StrCat("after --: ", error.what()));
  }
  std::vector<std::string>& arguments = options.run_arguments;
  for (auto at = arguments.begin(); at != arguments.end();) {
    if (*at == "--plugin") {
      at = arguments.erase(at, at + 2);
    } else if (at->starts_with("--plugin=")) {
      at = arguments.erase(at);
    } else {
      ++at;
    }
  }
  return LoadPlugins(plugins);
}

void AddRun(CommandTable& table) {
  auto planned = std::make_shared<RunOptions>();
  CLI::App* command = table.app.add_subcommand(
      "plan", "Show what a run would do: prefills, cells, time, memory, and what is done already");
  AddRunFlags(*command, *planned);
  AddShorthandFlags(*command, planned->shorthand);
  table.Add(command, [planned] { return RunPlanCommand(*planned); });

  auto options = std::make_shared<RunOptions>();
  options->command = table.typed;
  options->words = table.words;
  options->build = table.build;
  command = table.app.add_subcommand(
      "run", "Run methods on tasks and record every answer; repeat it to go on where it stopped");
  AddRunFlags(*command, *options);
  AddShorthandFlags(*command, options->shorthand);
  AddRunOnlyFlags(*command, *options);
  table.Add(command, [options, &table]() -> Status {
    KVG_ASSIGN(table.exit_code, ExecuteRunCommand(*options));
    return {};
  });
}

void AddSubmit(CommandTable& table) {
  auto options = std::make_shared<SubmitOptions>();
  CLI::App* command = table.app.add_subcommand(
      "submit", "Run on a cluster: an array job of shards, and a job that merges them");
  command->add_flag("--slurm", options->slurm, "the scheduler; there is no other yet");
  command->add_option("config", options->config, "a JSON file, or the name of a shipped one")
      ->required();
  command->add_option("run-arguments", options->run_arguments,
                      "after --: more for 'kvgauge run', such as --limit 100");
  command->add_option("--shards", options->shards, "how many parts")->required();
  command
      ->add_option("--db", options->database,
                   "the merged result; scripts, logs and shards are put beside it, in FILE.shards")
      ->required();
  command->add_option("--partition", options->partition, "where the jobs go");
  command->add_option("--time", options->time,
                      "limit of each job: 90 (minutes), 2:00:00, 1-12:00:00");
  command->add_option("--cpus", options->cpus,
                      "processors of each shard, and threads: divided among its devices");
  command->add_option("--gpus", options->gpus,
                      "devices of each shard: it runs on all that Slurm hands it");
  command->add_option("--mem", options->memory, "memory of each job: 16G");
  command->add_option("--array-limit", options->array_limit, "shards that run at a time");
  command->add_flag("--dry-run", options->dry_run, "write the scripts and submit nothing");
  AddJsonFlag(*command, options->json);
  table.Add(command, [options]() -> Status {
    KVG_TRY(ParseShardArguments(*options));
    return RunSubmit(*options);
  });
}

constexpr std::string_view kAbout = "kvgauge: what KV-cache compression costs, and what it saves";

void AddCommands(CommandTable& table) {
  CLI::App& app = table.app;
  app.require_subcommand(0, 1);
  app.get_formatter()->column_width(28);
  AddRun(table);
  AddModelCommands(table);
  AddBench(table);
  AddSubmit(table);
  AddResultCommands(table);
  AddPaperCommands(table);
  AddHelp(app);
  CheckNumbers(app);
}

int ExitCodeOf(const Error& error) {
  return error.code == ErrorCode::kIo || error.code == ErrorCode::kResource ? kExitFailure
                                                                            : kExitBadInput;
}

}  // namespace

std::string BuildInfo::Text() const {
  return revision.empty() ? version : StrCat(version, " (", revision, ")");
}

void CommandTable::Add(CLI::App* command, std::function<Status()> action) {
  actions_.emplace_back(command, std::move(action));
}

std::optional<Status> CommandTable::RunParsed() const {
  for (const auto& [command, action] : actions_) {
    if (command->parsed()) return action();
  }
  return std::nullopt;
}

void AddJsonFlag(CLI::App& command, bool& json) {
  command.add_flag("--json", json, "machine-readable output");
}

void SearchShipped(CLI::Option* option) {
  const auto search = [](std::string& path) {
    path = FindShipped(path);
    return std::string();
  };
  option->transform(CLI::Validator(search, ""));
}

Status CheckCommandLine(int argc, const char* const* argv) {
  CLI::App app{std::string(kAbout), "kvgauge"};
  CommandTable table(app, "", {});
  AddCommands(table);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return BadInput(error.what());
  }
  return {};
}

int RunCommandLine(int argc, const char* const* argv, const BuildInfo& build) {
  CLI::App app{std::string(kAbout), "kvgauge"};
  app.set_version_flag("--version", StrCat("kvgauge ", build.Text()));
  std::string typed = "kvgauge";
  for (int i = 1; i < argc; ++i) typed.append(" ").append(ShellWord(argv[i]));
  // Before or after the command's name.
  app.fallthrough();
  std::vector<std::string> plugins;
  AddPluginOption(app, plugins);
  CommandTable table(app, typed, build);
  table.words.assign(argv + 1, argv + std::max(argc, 1));
  AddCommands(table);
  if (const Status known = CheckCommandName(app, argc, argv); !known.ok()) {
    Log(LogLevel::kError, known.error().message);
    return kExitBadInput;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ExtrasError& error) {
    const std::string wrong = UnknownFlag(app, argc, argv);
    if (wrong.empty()) {
      app.exit(error);
    } else {
      Log(LogLevel::kError, wrong);
    }
    return kExitBadInput;
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? kExitOk : kExitBadInput;
  }
  if (app.get_subcommands().empty()) {
    Print(app.help());
    return CheckPrinted().ok() ? kExitOk : kExitFailure;
  }
  std::optional<Status> status;
  try {
    status = LoadPlugins(plugins);
    if (status->ok()) status = table.RunParsed();
  } catch (const std::bad_alloc& error) {
    // Where nothing smaller than the command could fail. A device says how much it has.
    const std::string_view what = error.what();
    status = ResourceError(what.starts_with("out of") ? std::string(what) : "out of memory");
  }
  if (!status) return kExitBadInput;
  if (status->ok() && table.exit_code == kExitOk) status = CheckPrinted();
  if (status->ok()) return table.exit_code;
  Log(LogLevel::kError, status->error().message);
  return ExitCodeOf(status->error());
}

}  // namespace kvgauge
