// SPDX-License-Identifier: Apache-2.0
// Argument parsing. Beside cli_results.cpp the only file that sees CLI11, which is slow to compile.
#include "harness/cli.h"

#include <CLI/CLI.hpp>
#include <functional>

#include "core/log.h"
#include "core/strings.h"
#include "src/cli_results.h"
#include "src/commands.h"
#include "src/data_command.h"
#include "src/report_command.h"
#include "src/run_command.h"
#include "src/score.h"
#include "src/submit_command.h"
#include "src/tasks.h"

namespace kvgauge {
namespace {

// Runs after parsing, when its command was named.
using Action = std::function<Status()>;

void AddModelFlags(CLI::App& command, ModelFlags& flags) {
  command
      .add_option("model", flags.model,
                  "checkpoint directory (Hugging Face layout), or a config.json with "
                  "--weights random:SEED")
      ->required();
  command
      .add_option("--dtype", flags.dtype, "weights and products: auto (as stored), f32, f16, bf16")
      ->capture_default_str();
  command
      .add_option("--weights", flags.weights,
                  "file, or random:SEED for a model of this shape without weights")
      ->capture_default_str();
  command.add_option("--backend", flags.backend, "cpu, cpu:ISA, cuda or reference")
      ->capture_default_str();
  command.add_option("--threads", flags.threads, "threads; 0: one per processor")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
}

void AddMethodFlags(CLI::App& command, MethodFlags& flags) {
  command.add_option("--method", flags.method, "a KV method's id, or the path of its file");
  command
      .add_option("--budget", flags.budget,
                  "what it may keep: 0.2 or 20%, 512 (entries a head), 64B (bytes per context "
                  "token), none")
      ->capture_default_str();
  command.add_option("--set", flags.overrides,
                     "another value for a parameter, repeatable: stage.param=value");
}

void AddJsonFlag(CLI::App& command, bool& json) {
  command.add_flag("--json", json, "machine-readable output");
}

void AddInspect(CLI::App& app, std::vector<std::pair<CLI::App*, Action>>& actions) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* command =
      app.add_subcommand("inspect", "Shapes, parameters, tokenizer, template, KV bytes per token");
  AddModelFlags(*command, options->model);
  AddJsonFlag(*command, options->json);
  actions.emplace_back(command, [options] { return RunInspect(*options); });
}

void AddGenerate(CLI::App& app, std::vector<std::pair<CLI::App*, Action>>& actions) {
  auto flags = std::make_shared<GenerateFlags>();
  CLI::App* command =
      app.add_subcommand("generate", "Answer one prompt; text to stdout, measurements to stderr");
  AddModelFlags(*command, flags->model);
  command->add_option("--prompt", flags->prompt, "the user's text");
  command->add_option("--prompt-file", flags->prompt_file, "read the user's text from a file");
  command->add_option("--ids-file", flags->ids_file, "read token ids from a file: one JSON array");
  command->add_option("--system", flags->system, "system message, where the template has one");
  command
      ->add_option("--template", flags->chat_template,
                   "chat template: auto (the checkpoint's), none, or a name")
      ->capture_default_str();
  command->add_option("--max-new-tokens", flags->max_new_tokens, "limit on the answer")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24));
  command->add_option("--temperature", flags->temperature, "0: greedy")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 100.0));
  command->add_option("--top-p", flags->top_p, "nucleus sampling, with a temperature")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  command->add_option("--seed", flags->seed, "seed of the sampling")->capture_default_str();
  command->add_option("--stop", flags->stop_texts,
                      "end the answer before this text, repeatable; \\n stands for a newline");
  command->add_flag("--ignore-stop", flags->ignore_stop, "go on past stop tokens");
  AddMethodFlags(*command, flags->method);
  AddJsonFlag(*command, flags->json);
  actions.emplace_back(command, [flags] { return RunGenerate(*flags); });
}

void AddProbe(CLI::App& app, std::vector<std::pair<CLI::App*, Action>>& actions) {
  auto options = std::make_shared<ProbeOptions>();
  CLI::App* command = app.add_subcommand(
      "probe", "What a method leaves in the cache: positions, keys, values as safetensors");
  AddModelFlags(*command, options->model);
  command->add_option("--ids-file", options->ids_file, "one JSON array of token ids")->required();
  AddMethodFlags(*command, options->method);
  command->get_option("--method")->required();
  command->add_option("--steps", options->steps, "tokens to decode greedily before looking")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  command->add_option("--seed", options->seed, "seed of random choices")->capture_default_str();
  command->add_option("--out", options->out, "the .safetensors file to write")->required();
  AddJsonFlag(*command, options->json);
  actions.emplace_back(command, [options] { return RunProbe(*options); });
}

void AddTokens(CLI::App& app, std::vector<std::pair<CLI::App*, Action>>& actions) {
  auto tokenize = std::make_shared<TokenizeOptions>();
  CLI::App* command = app.add_subcommand("tokenize", "Text to token ids");
  command->add_option("model", tokenize->model, "checkpoint directory")->required();
  command->add_option("--text-file", tokenize->text_file, "UTF-8 text, taken whole")->required();
  command->add_flag("--no-bos", tokenize->no_bos, "add no special tokens around the text");
  command->add_flag("--no-special", tokenize->no_special,
                    "special tokens written in the text stay text");
  AddJsonFlag(*command, tokenize->json);
  actions.emplace_back(command, [tokenize] { return RunTokenize(*tokenize); });

  auto detokenize = std::make_shared<DetokenizeOptions>();
  command = app.add_subcommand("detokenize", "Token ids to text");
  command->add_option("model", detokenize->model, "checkpoint directory")->required();
  command->add_option("--ids-file", detokenize->ids_file, "one JSON array of ids")->required();
  command->add_flag("--skip-special", detokenize->skip_special, "leave out special tokens");
  AddJsonFlag(*command, detokenize->json);
  actions.emplace_back(command, [detokenize] { return RunDetokenize(*detokenize); });
}

void AddLogits(CLI::App& app, std::vector<std::pair<CLI::App*, Action>>& actions) {
  auto options = std::make_shared<LogitsOptions>();
  CLI::App* command =
      app.add_subcommand("logits", "Logits of every position, as a float32 .npy [tokens, vocab]");
  AddModelFlags(*command, options->model);
  command->add_option("--ids-file", options->ids_file, "one JSON array of ids")->required();
  command->add_option("--out", options->out, "the .npy file to write")->required();
  command->add_option("--chunk", options->chunk, "rows per forward pass; 0: chosen")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  AddJsonFlag(*command, options->json);
  actions.emplace_back(command, [options] { return RunLogits(*options); });
}

void AddDatasets(CLI::App& app, std::vector<std::pair<CLI::App*, Action>>& actions) {
  auto tasks = std::make_shared<TasksOptions>();
  CLI::App* command = app.add_subcommand("tasks", "Every task: ready, or what is missing");
  command->add_option("name", tasks->only, "only tasks whose name begins so");
  command->add_option("--tasks", tasks->directory, "directory of task files; default: shipped");
  command->add_option("--data", tasks->data_directory,
                      "directory of published files; default: KVGAUGE_DATA");
  AddJsonFlag(*command, tasks->json);
  actions.emplace_back(command, [tasks] { return RunTasks(*tasks); });

  auto sample = std::make_shared<SampleOptions>();
  command = app.add_subcommand("sample", "Print samples of a task as a model would be asked");
  command->add_option("task", sample->task, "a task's name, or the path of a task file")
      ->required();
  command->add_option("--n", sample->count, "how many")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--seed", sample->seed, "seed of generated tasks")->capture_default_str();
  command->add_option("--model", sample->model,
                      "directory with a tokenizer, for lengths and truncation");
  command
      ->add_option("--max-prompt-tokens", sample->max_prompt_tokens,
                   "truncate prompts in the middle; 0: as they are")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  command->add_option("--tasks", sample->directory, "directory of task files; default: shipped");
  command->add_option("--data", sample->data_directory,
                      "directory of published files; default: KVGAUGE_DATA");
  command->add_flag("--skip-bad", sample->skip_bad, "leave out malformed records");
  AddJsonFlag(*command, sample->json);
  actions.emplace_back(command, [sample] { return RunSample(*sample); });

  auto score = std::make_shared<ScoreOptions>();
  command = app.add_subcommand("score", "Score a file of predictions with a metric or as a task");
  CLI::Option* metric = command->add_option("--metric", score->metric, "metric id");
  command
      ->add_option("--task", score->task,
                   "a task's name or file: its metric, stop texts, post-processing and rounding")
      ->excludes(metric);
  command->add_option("--tasks", score->task_directory,
                      "directory of task files; default: shipped");
  command
      ->add_option("--pairs", score->pairs,
                   "JSON lines with prediction, answers, optional all_classes and language")
      ->required();
  command->add_option("--by", score->by,
                      "a key of the lines, repeatable: a score for each of its values");
  command->add_option(
      "--execute", score->execute,
      "for pass_at_k: the interpreter that runs the predictions; none, none is run");
  command->add_option("--k", score->ks, "for pass_at_k: samples drawn, e.g. 1,10")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--timeout", score->timeout_s, "for pass_at_k: seconds a program may take")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 3600.0));
  command->add_option("--judge", score->judge_url,
                      "for judge: http address of an OpenAI-compatible endpoint; its key is in "
                      "KVGAUGE_JUDGE_KEY. Default: KVGAUGE_JUDGE_URL");
  command->add_option("--judge-model", score->judge_model, "for judge: the model's name there");
  command->add_flag("--skip-bad", score->skip_bad, "leave out malformed lines and count them");
  AddJsonFlag(*command, score->json);
  actions.emplace_back(command, [score] { return RunScore(*score); });
}

void AddData(CLI::App& app, std::vector<std::pair<CLI::App*, Action>>& actions) {
  CLI::App* data = app.add_subcommand("data", "Texts with questions and answers");
  data->require_subcommand(1);
  auto options = std::make_shared<DataGenerateOptions>();
  CLI::App* command = data->add_subcommand(
      "generate", "Write texts of closed-English tasks as JSON lines, to train on or to look at");
  command
      ->add_option("--task", options->tasks, "a task's name or file, repeatable: they take turns")
      ->required();
  command->add_option("--split", options->split, "train or eval; they share no thing and no seed")
      ->capture_default_str()
      ->check(CLI::IsMember({"train", "eval"}));
  command->add_option("--lengths", options->lengths,
                      "tokens of a text, e.g. 128,256, in turn; default: the task's");
  command->add_option("--model", options->model,
                      "directory with a tokenizer; without one words, digits and signs count");
  command->add_option("--questions", options->questions, "most of a text; 0: drawn for each")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  command->add_option("--texts", options->texts, "end after so many; 0: no such end")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  command->add_option("--tokens", options->tokens, "end after so many tokens; 0: no such end")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  command->add_option("--first", options->first, "index of the first text")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  command->add_option("--seed", options->seed, "of the texts")->capture_default_str();
  command->add_option("--out", options->out, "file to write; -: standard output")
      ->capture_default_str();
  command->add_option("--tasks", options->task_directory,
                      "directory of task files; default: shipped");
  actions.emplace_back(command, [options] { return RunDataGenerate(*options); });
}

void AddMethods(CLI::App& app, std::vector<std::pair<CLI::App*, Action>>& actions) {
  auto options = std::make_shared<MethodsOptions>();
  CLI::App* command =
      app.add_subcommand("methods", "Every method, or one with its stages and parameters");
  command->add_option("name", options->name, "a method's id, or the path of a method file");
  command->add_option("--set", options->overrides,
                      "another value for a parameter, repeatable: stage.param=value");
  command->add_flag("--stages", options->stages, "list the stages that method files can name");
  command->add_option("--methods", options->directory,
                      "directory of method files; default: shipped");
  AddJsonFlag(*command, options->json);
  actions.emplace_back(command, [options] { return RunMethods(*options); });
}

void AddDoctor(CLI::App& app, std::vector<std::pair<CLI::App*, Action>>& actions) {
  auto options = std::make_shared<DoctorOptions>();
  CLI::App* command = app.add_subcommand("doctor", "What this machine offers, and what is missing");
  AddJsonFlag(*command, options->json);
  command->add_option("--check", options->check,
                      "backend whose operations are held against the reference, and timed");
  command
      ->add_option("--entries", options->entries,
                   "with --check: cached entries a head for the timings; 0: none are taken")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  actions.emplace_back(command, [options] { return RunDoctor(*options); });
}

void AddBenchLockstep(CLI::App& bench, std::vector<std::pair<CLI::App*, Action>>& actions) {
  auto options = std::make_shared<BenchLockstepOptions>();
  CLI::App* command = bench.add_subcommand(
      "lockstep", "Many method rows at once against one full row, and against one at a time");
  command->add_option("--model", options->model,
                      "config.json or directory; default: the shipped bench shape");
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
  command->add_flag("!--no-alone", options->alone,
                    "leave out the same rows one at a time, and the check that they agree");
  command->add_option("--backend", options->backend, "cpu, cpu:ISA, cuda or reference")
      ->capture_default_str();
  command->add_option("--threads", options->threads, "threads; 0: one per processor")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  AddJsonFlag(*command, options->json);
  actions.emplace_back(command, [options] { return RunBenchLockstep(*options); });
}

void AddBenchLatency(CLI::App& bench, std::vector<std::pair<CLI::App*, Action>>& actions) {
  auto options = std::make_shared<BenchLatencyOptions>();
  CLI::App* command = bench.add_subcommand(
      "latency", "Time and memory of methods, each alone and beside the full cache");
  AddModelFlags(*command, options->model);
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
  actions.emplace_back(command, [options] { return RunBenchLatency(*options); });
}

void AddBench(CLI::App& app, std::vector<std::pair<CLI::App*, Action>>& actions) {
  CLI::App* bench = app.add_subcommand("bench", "Measurements of speed");
  bench->require_subcommand(1);
  auto options = std::make_shared<BenchRunnerOptions>();
  CLI::App* command = bench->add_subcommand(
      "runner", "Prefill and decode speed of random models; contended repetitions are redone");
  command->add_option("--model", options->models,
                      "config.json or directory, repeatable; default: the shipped bench shapes");
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
  command->add_option("--backend", options->backend, "cpu, cpu:ISA, cuda or reference")
      ->capture_default_str();
  command->add_option("--threads", options->threads, "threads; 0: one per processor")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  AddJsonFlag(*command, options->json);
  actions.emplace_back(command, [options] { return RunBenchRunner(*options); });
  AddBenchLockstep(*bench, actions);
  AddBenchLatency(*bench, actions);
}

void AddSubmit(CLI::App& app, std::vector<std::pair<CLI::App*, Action>>& actions) {
  auto options = std::make_shared<SubmitOptions>();
  CLI::App* command = app.add_subcommand(
      "submit", "Divide a run over a cluster: an array job of shards, and a job that merges them");
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
  command->add_option("--cpus", options->cpus, "processors, and threads, of each shard");
  command->add_option("--mem", options->memory, "memory of each job: 16G");
  command->add_option("--array-limit", options->array_limit, "shards that run at a time");
  command->add_flag("--dry-run", options->dry_run, "write the scripts and submit nothing");
  AddJsonFlag(*command, options->json);
  actions.emplace_back(command, [options] { return RunSubmit(*options); });
}

void AddRunFlags(CLI::App& command, RunOptions& options) {
  command.add_option("config", options.config, "a JSON file, or the name of a shipped one")
      ->required();
  command.add_option("--db", options.database, "the result store; default: results/NAME.db");
  command.add_option("--limit", options.limit, "the first so many samples of each task at most")
      ->check(CLI::PositiveNumber);
  command.add_option("--samples", options.samples, "only these, by position from 0: 0-9,17");
  command.add_option("--seed", options.seeds, "other seeds than the configuration's, repeatable");
  command.add_option("--shard", options.shard,
                     "one part of the samples, for several machines: 1/4 is the first of four");
  command.add_option("--only", options.only, "only these methods, and the full cache; repeatable");
  command.add_option("--data", options.data_directory,
                     "directory of published files; default: KVGAUGE_DATA");
  command.add_option("--max-memory", options.max_memory, "bound on memory, such as 8GiB");
  command.add_option("--backend", options.backend, "cpu, cpu:ISA, cuda or reference");
  command.add_option("--threads", options.threads, "threads; 0: one per processor")
      ->check(CLI::NonNegativeNumber);
  command.add_flag("--unscored", options.unscored,
                   "keep answers that only a judge, or running them, can score");
  command.add_flag("--retry", options.retry, "also samples that failed or were skipped");
  AddJsonFlag(command, options.json);
}

void AddRun(CLI::App& app, const std::string& typed,
            std::vector<std::pair<CLI::App*, Action>>& actions, int& exit_code) {
  auto planned = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand(
      "plan", "What a run would do: groups by shared prefill, cells, time, memory, what is done");
  AddRunFlags(*command, *planned);
  actions.emplace_back(command, [planned] { return RunPlanCommand(*planned); });

  auto options = std::make_shared<RunOptions>();
  options->command = typed;
  options->version = KVG_VERSION;
  command = app.add_subcommand(
      "run", "Run a configuration; the same command again goes on where it stopped");
  AddRunFlags(*command, *options);
  command->add_flag("--dry-run", options->dry_run, "show the plan instead");
  command->add_flag("--quiet", options->quiet, "no progress");
  actions.emplace_back(command, [options, &exit_code]() -> Status {
    KVG_ASSIGN(exit_code, RunRunCommand(*options));
    return {};
  });
}

void AddReport(CLI::App& app, std::vector<std::pair<CLI::App*, Action>>& actions) {
  auto flags = std::make_shared<ReportFlags>();
  CLI::App* command = app.add_subcommand(
      "report", "One HTML file of a database: leaderboard, fronts, curves, samples");
  command->add_option("databases", flags->stores, "one; two with --compare, the baseline first")
      ->required();
  command->add_option("-o,--out", flags->out, "the file to write; default: the database's, .html");
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
  command->add_option("--max-text-bytes", flags->max_text_bytes, "bytes of each text that it holds")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  command->add_option("--title", flags->title, "heading; default: made of what was run");
  actions.emplace_back(command, [flags] { return RunReport(*flags); });
}

int ExitCodeOf(const Error& error) {
  return error.code == ErrorCode::kIo || error.code == ErrorCode::kResource ? kExitFailure
                                                                            : kExitBadInput;
}

}  // namespace

int RunCommandLine(int argc, const char* const* argv) {
  CLI::App app{"kvgauge: what KV-cache compression costs, and what it saves", "kvgauge"};
  app.set_version_flag("--version", std::string("kvgauge ") + KVG_VERSION);
  app.require_subcommand(1);
  app.get_formatter()->column_width(28);
  std::vector<std::pair<CLI::App*, Action>> actions;
  int exit_code = kExitOk;  // of what went well
  std::vector<std::string> typed = {"kvgauge"};
  typed.insert(typed.end(), argv + 1, argv + argc);
  AddRun(app, Join(typed, " "), actions, exit_code);
  AddInspect(app, actions);
  AddGenerate(app, actions);
  AddProbe(app, actions);
  AddTokens(app, actions);
  AddLogits(app, actions);
  AddMethods(app, actions);
  AddDatasets(app, actions);
  AddData(app, actions);
  AddReport(app, actions);
  AddDoctor(app, actions);
  AddBench(app, actions);
  AddSubmit(app, actions);
  AddResultCommands(app, actions, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? kExitOk : kExitBadInput;
  }
  for (const auto& [command, action] : actions) {
    if (!command->parsed()) continue;
    const Status status = action();
    if (status.ok()) return exit_code;
    Log(LogLevel::kError, status.error().message);
    return ExitCodeOf(status.error());
  }
  return kExitBadInput;
}

}  // namespace kvgauge
