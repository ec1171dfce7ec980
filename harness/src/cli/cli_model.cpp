// SPDX-License-Identifier: Apache-2.0
// Arguments of the commands about models, methods, tasks and this machine.
#include <CLI/CLI.hpp>
#include <memory>

#include "src/cli/command_table.h"
#include "src/cli/commands.h"
#include "src/data/data_command.h"
#include "src/data/frames_command.h"
#include "src/data/score.h"
#include "src/data/task_commands.h"

namespace kvgauge {
namespace {

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

void AddTemplateFlags(CLI::App& command, TemplateFlags& flags) {
  command
      .add_option("--template", flags.name,
                  "chat template: auto (the checkpoint's), none, another one of the checkpoint, a "
                  "shipped name, or a .jinja file")
      ->capture_default_str();
  command.add_option("--template-set", flags.set,
                     "a variable that the template reads, repeatable: enable_thinking=true");
  command.add_option("--template-date", flags.date,
                     "the day that the template is told: YYYY-MM-DD; default 2024-07-26");
}

void AddVisualFlags(CLI::App& command, VisualFlags& flags) {
  command
      .add_option("--image", flags.images,
                  "a picture that the prompt shows: JPEG, PNG, WebP, PPM or GIF; repeatable")
      ->allow_extra_args(false);
  CLI::Option* video =
      command
          .add_option("--video", flags.videos,
                      "a video: a folder of its frames, an animated GIF, or a file that FFmpeg's "
                      "libraries decode; repeatable")
          ->allow_extra_args(false);
  // Flags of videos say nothing without one.
  command.add_option("--frames", flags.frames, "frames of a video that are shown")
      ->needs(video)
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{4096}));
  command
      .add_option("--frame-rule", flags.frame_rule,
                  "which frames: uniform, interior, fps:NUMBER or every:NUMBER (the last two "
                  "say how many, too)")
      ->needs(video)
      ->capture_default_str();
  command
      .add_option("--video-fps", flags.video_fps,
                  "frames a second of the source; 0: what its frames.json says")
      ->needs(video)
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e6));
  command
      .add_option("--video-next", flags.video_next,
                  "where text stands behind a video, for models with three axes of positions: "
                  "trained, or sides as transformers 5.23 has it")
      ->needs(video)
      ->capture_default_str()
      ->check(CLI::IsMember({"trained", "sides"}));
  command
      .add_option("--video-seconds", flags.video_seconds,
                  "seconds between times of a video, for Qwen2.5-VL: exact, or whole as "
                  "transformers 4.57 cuts them")
      ->needs(video)
      ->capture_default_str()
      ->check(CLI::IsMember({"exact", "whole"}));
}

void AddTemplate(CommandTable& table) {
  auto options = std::make_shared<TemplateOptions>();
  CLI::App* command = table.app.add_subcommand(
      "template", "Show what a checkpoint's chat template makes of a conversation");
  SearchShipped(command->add_option("model", options->model, "checkpoint directory")->required());
  command
      ->add_option("--messages", options->messages,
                   "a file: one JSON array of objects with role and content")
      ->required();
  command->add_option("--tools", options->tools, "a file: one JSON array of tools");
  command->add_flag("--no-generation-prompt", options->no_generation_prompt,
                    "do not begin the answer");
  AddTemplateFlags(*command, options->chat);
  AddJsonFlag(*command, options->json);
  table.Add(command, [options] { return RunTemplate(*options); });
}

void AddInspect(CommandTable& table) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* command = table.app.add_subcommand(
      "inspect", "Show a checkpoint: shapes, parameters, tokenizer, template, KV bytes per token");
  AddModelFlags(*command, options->model);
  command->get_option("model")->required(false);
  command
      ->add_option("--image-size", options->image_size,
                   "WIDTHxHEIGHT of a picture whose rows and KV bytes are shown, where the "
                   "model sees")
      ->capture_default_str();
  command->add_flag("--families", options->families,
                    "list the model families that can be read, instead of a model");
  command->add_flag("--shapes", options->shapes,
                    "list what sequences take in config files side by side: those of a directory, "
                    "MODEL, or the shipped ones");
  command->add_option("--times", options->times,
                      "with --shapes: beside what `bench latency --json` wrote to this file");
  command
      ->add_option("--format", options->format,
                   "with --families and --shapes: table, or markdown for docs/families.md and "
                   "docs/architectures.md")
      ->capture_default_str()
      ->check(CLI::IsMember({"table", "markdown"}));
  AddJsonFlag(*command, options->json);
  table.Add(command, [options] { return RunInspect(*options); });
}

void AddGenerate(CommandTable& table) {
  auto flags = std::make_shared<GenerateFlags>();
  CLI::App* command = table.app.add_subcommand(
      "generate", "Answer one prompt, with or without a method; measurements go to stderr");
  AddModelFlags(*command, flags->model);
  command->add_option("--prompt", flags->prompt, "the user's text");
  command->add_option("--prompt-file", flags->prompt_file, "read the user's text from a file");
  command->add_option("--ids-file", flags->ids_file, "read token ids from a file: one JSON array");
  command->add_option("--system", flags->system, "system message, where the template has one");
  AddTemplateFlags(*command, flags->chat);
  AddVisualFlags(*command, flags->visual);
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
  command->add_option("--save-cache", flags->save_cache,
                      "write the cache behind the answer to a file that --load-cache reads");
  command->add_option("--load-cache", flags->load_cache,
                      "go on where the answer of --save-cache ended, in place of a prompt");
  AddMethodFlags(*command, flags->method);
  AddJsonFlag(*command, flags->json);
  table.Add(command, [flags] { return RunGenerate(*flags); });
}

void AddProbe(CommandTable& table) {
  auto options = std::make_shared<ProbeOptions>();
  CLI::App* command = table.app.add_subcommand(
      "probe", "Write what a method leaves in the cache: positions, keys and values");
  AddModelFlags(*command, options->model);
  command->add_option("--ids-file", options->ids_file, "one JSON array of token ids")->required();
  AddVisualFlags(*command, options->visual);
  AddMethodFlags(*command, options->method);
  command->get_option("--method")->required();
  command->add_option("--steps", options->steps, "tokens to decode greedily before looking")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  command->add_option("--seed", options->seed, "seed of random choices")->capture_default_str();
  command->add_option("--out", options->out, "the .safetensors file to write")->required();
  AddJsonFlag(*command, options->json);
  table.Add(command, [options] { return RunProbe(*options); });
}

void AddCalibrate(CommandTable& table) {
  auto options = std::make_shared<CalibrateOptions>();
  CLI::App* command = table.app.add_subcommand(
      "calibrate", "Learn from text what a method needs of a model: ranks, codebooks, ranges");
  AddModelFlags(*command, options->model);
  command
      ->add_option("--method", options->method.method, "a KV method's id, or the path of its file")
      ->required();
  command->add_option("--set", options->method.overrides,
                      "another value for a parameter, repeatable: stage.param=value");
  command->add_option("--stage", options->stage,
                      "which stage learns, where several could: prepare or store");
  command->add_option("--text-file", options->text_file,
                      "UTF-8 text, cut into neighbouring windows");
  command->add_option("--ids-file", options->ids_file,
                      "one JSON array of token ids, or of such arrays, each a text");
  command->add_option("--import", options->import_file,
                      "what authors publish, .safetensors, .tsv or .json, in place of texts");
  command
      ->add_option("--window", options->window,
                   "tokens of a window; 0: 2048, or what the model was made for where less")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  command->add_option("--limit", options->limit, "most windows or texts")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--out", options->out, "the .safetensors file to write")->required();
  AddJsonFlag(*command, options->json);
  table.Add(command, [options] { return RunCalibrate(*options); });
}

void AddTokens(CommandTable& table) {
  auto tokenize = std::make_shared<TokenizeOptions>();
  CLI::App* command = table.app.add_subcommand("tokenize", "Turn text into token ids");
  SearchShipped(command->add_option("model", tokenize->model, "checkpoint directory")->required());
  command->add_option("--text-file", tokenize->text_file, "UTF-8 text, taken whole")->required();
  command->add_flag("--no-bos", tokenize->no_bos, "add no special tokens around the text");
  command->add_flag("--no-special", tokenize->no_special,
                    "special tokens written in the text stay text");
  AddJsonFlag(*command, tokenize->json);
  table.Add(command, [tokenize] { return RunTokenize(*tokenize); });

  auto detokenize = std::make_shared<DetokenizeOptions>();
  command = table.app.add_subcommand("detokenize", "Turn token ids into text");
  SearchShipped(
      command->add_option("model", detokenize->model, "checkpoint directory")->required());
  command->add_option("--ids-file", detokenize->ids_file, "one JSON array of ids")->required();
  command->add_flag("--skip-special", detokenize->skip_special, "leave out special tokens");
  AddJsonFlag(*command, detokenize->json);
  table.Add(command, [detokenize] { return RunDetokenize(*detokenize); });
}

void AddLogits(CommandTable& table) {
  auto options = std::make_shared<LogitsOptions>();
  CLI::App* command = table.app.add_subcommand(
      "logits", "Write the logits of every position, as a float32 .npy [tokens, vocab]");
  AddModelFlags(*command, options->model);
  command->add_option("--ids-file", options->ids_file, "one JSON array of ids")->required();
  AddVisualFlags(*command, options->visual);
  command->add_option("--out", options->out, "the .npy file to write")->required();
  command->add_option("--chunk", options->chunk, "rows per forward pass; 0: chosen")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  AddJsonFlag(*command, options->json);
  table.Add(command, [options] { return RunLogits(*options); });
}

void AddDatasets(CommandTable& table) {
  auto tasks = std::make_shared<TasksOptions>();
  CLI::App* command =
      table.app.add_subcommand("tasks", "List every task: ready, or what is missing");
  command->add_option("name", tasks->only, "only tasks whose name begins so");
  command->add_option("--tasks", tasks->directory, "directory of task files; default: shipped");
  command->add_option("--data", tasks->data_directory,
                      "directory of data files; default: KVGAUGE_DATA, else data/ beside configs/");
  command
      ->add_option("--format", tasks->format,
                   "table, or markdown: the page docs/tasks.md of all tasks")
      ->capture_default_str()
      ->check(CLI::IsMember({"table", "markdown"}));
  AddJsonFlag(*command, tasks->json);
  table.Add(command, [tasks] { return RunTasks(*tasks); });

  auto sample = std::make_shared<SampleOptions>();
  command = table.app.add_subcommand(
      "sample", "Print samples of a task; with --model, the prompts that the model is given");
  command->add_option("task", sample->task, "a task's name, or the path of a task file")
      ->required();
  command->add_option("--n", sample->count, "how many")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--seed", sample->seed, "seed of generated tasks")->capture_default_str();
  SearchShipped(command->add_option(
      "--model", sample->model,
      "directory of a checkpoint: its tokens, and prompts in its chat template"));
  AddTemplateFlags(*command, sample->chat);
  command->add_option("--set", sample->overrides,
                      "another value for a parameter of the task's source, repeatable: "
                      "source.lengths=512");
  command->add_flag("--whole", sample->whole, "long texts too, not their ends alone");
  command
      ->add_option("--max-prompt-tokens", sample->max_prompt_tokens,
                   "cut prompts of published sets as the task says; 0: as they are")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  command->add_option("--tasks", sample->directory, "directory of task files; default: shipped");
  command->add_option("--data", sample->data_directory,
                      "directory of data files; default: KVGAUGE_DATA, else data/ beside configs/");
  command->add_flag("--skip-bad", sample->skip_bad, "leave out malformed records");
  AddJsonFlag(*command, sample->json);
  table.Add(command, [sample] { return ShowTaskSample(*sample); });

  auto score = std::make_shared<ScoreOptions>();
  command =
      table.app.add_subcommand("score", "Score a file of predictions with a metric or as a task");
  CLI::Option* metric = command->add_option("--metric", score->metric, "metric id; see --list");
  command->add_flag("--list", score->list, "every metric, and what it is equal to");
  command
      ->add_option("--task", score->task,
                   "a task's name or file: its metric, stop texts, post-processing and rounding")
      ->excludes(metric);
  command->add_option("--tasks", score->task_directory,
                      "directory of task files; default: shipped");
  command->add_option(
      "--pairs", score->pairs,
      "JSON lines with prediction, answers, optional all_classes, language, kind and task");
  command->add_option(
      "--by", score->by,
      "a key of the lines, repeatable: a score for each of its values, and the mean of "
      "these (of accuracies: M-Avg)");
  command->add_option(
      "--execute", score->execute,
      "for pass_at_k: interpreter for the predictions; if omitted, no program is executed");
  command->add_option("--k", score->ks, "for pass_at_k: samples drawn, e.g. 1,10; default: 1")
      ->delimiter(',')
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--timeout", score->timeout_s,
                   "for pass_at_k: seconds a program may take; default: 10")
      ->check(CLI::Range(0.1, 3600.0));
  command->add_flag("--unisolated", score->unisolated,
                    "for pass_at_k: run programs even where the kernel gives no namespaces, with "
                    "your network and your files");
  command->add_option("--judge", score->judge_url,
                      "for judge, judge_wins: address of an OpenAI-compatible endpoint, its key is "
                      "in KVGAUGE_JUDGE_KEY; or a model's directory. Default: KVGAUGE_JUDGE_URL");
  command->add_option("--judge-model", score->judge_model, "for judge: the model's name there");
  command
      ->add_option("--judge-requests", score->judge_requests,
                   "for judge: ask at most so often; what --grades holds is free")
      ->check(CLI::NonNegativeNumber);
  command
      ->add_option("--judge-tokens", score->judge_tokens,
                   "for judge: ask no further once so many tokens were counted")
      ->check(CLI::NonNegativeNumber);
  command->add_option(
      "--grades", score->grades,
      "for judge: file that keeps what was asked and replied as it comes; what it holds is not "
      "asked for again");
  command->add_flag("--skip-bad", score->skip_bad, "leave out malformed lines and count them");
  AddJsonFlag(*command, score->json);
  table.Add(command, [score] { return RunScore(*score); });
}

void AddDataFrames(CommandTable& table, CLI::App& data) {
  auto options = std::make_shared<DataFramesOptions>();
  CLI::App* command = data.add_subcommand(
      "frames", "Write the frames of video files into folders, as tasks read them");
  command->add_option("videos", options->videos, "files of videos, or directories of such")
      ->required();
  command->add_option("--out", options->out, "directory: a folder of frames for each video")
      ->required();
  CLI::Option* task =
      command->add_option("--task", options->task, "a task's name or file: the frames it shows");
  command
      ->add_option("--frame-rule", options->frame_rule,
                   "uniform, interior, fps:NUMBER or every:NUMBER")
      ->capture_default_str()
      ->excludes(task);
  command->add_option("--frames", options->frames, "how many, of uniform and interior")
      ->capture_default_str()
      ->check(CLI::PositiveNumber)
      ->excludes(task);
  command->add_option("--fps", options->fps, "frames a second of the videos; 0: as the files say")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  command->add_option("--tasks", options->task_directory,
                      "directory of task files; default: shipped");
  AddJsonFlag(*command, options->json);
  table.Add(command, [options] { return RunDataFrames(*options); });
}

void AddData(CommandTable& table) {
  CLI::App* data = table.app.add_subcommand(
      "data", "Make data: texts with questions and answers, frames of videos");
  data->require_subcommand(1);
  AddDataFrames(table, *data);
  auto options = std::make_shared<DataGenerateOptions>();
  CLI::App* command = data->add_subcommand(
      "generate",
      "Write texts of closed-English or picture tasks as JSON lines, to train on or to look at");
  command
      ->add_option("--task", options->tasks, "a task's name or file, repeatable: they take turns")
      ->required();
  command
      ->add_option("--split", options->split,
                   "train or eval: texts of the two share no name and no seed")
      ->capture_default_str()
      ->check(CLI::IsMember({"train", "eval"}));
  command->add_option("--lengths", options->lengths,
                      "tokens of a text, e.g. 128,256, in turn; default: the task's");
  command->add_option("--pictures", options->pictures,
                      "pictures of a text, e.g. 4,16, in turn; default: the task's");
  command->add_option("--images", options->images,
                      "directory for the pictures of tasks that show some, as PNG files");
  SearchShipped(
      command->add_option("--model", options->model,
                          "directory with a tokenizer; without one words, digits and signs count"));
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
  AddJsonFlag(*command, options->json);
  table.Add(command, [options] { return RunDataGenerate(*options); });
}

void AddMethods(CommandTable& table) {
  auto options = std::make_shared<MethodsOptions>();
  CLI::App* command = table.app.add_subcommand(
      "methods", "List every method, or show one with its stages and parameters");
  command->add_option("name", options->name, "a method's id, or the path of a method file");
  command->add_option("--set", options->overrides,
                      "another value for a parameter, repeatable: stage.param=value");
  command->add_flag("--stages", options->stages, "list the stages that method files can name");
  command->add_option("--methods", options->directory,
                      "directory of method files; default: shipped");
  command
      ->add_option("--format", options->format,
                   "table, or markdown: the page docs/methods.md of all methods")
      ->capture_default_str()
      ->check(CLI::IsMember({"table", "markdown"}));
  AddJsonFlag(*command, options->json);
  table.Add(command, [options] { return RunMethods(*options); });
}

void AddDoctor(CommandTable& table) {
  auto options = std::make_shared<DoctorOptions>();
  CLI::App* command =
      table.app.add_subcommand("doctor", "Show what this machine offers, and what is missing");
  AddJsonFlag(*command, options->json);
  CLI::Option* check =
      command->add_option("--check", options->check,
                          "backend whose operations are held against the reference, and timed");
  command
      ->add_option("--entries", options->entries,
                   "with --check: cached entries a head for the timings; 0: none are taken")
      ->needs(check)
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  table.Add(command, [options] { return RunDoctor(*options); });
}

}  // namespace

void AddModelFlags(CLI::App& command, ModelFlags& flags) {
  SearchShipped(
      command
          .add_option(
              "model", flags.model,
              "checkpoint directory (Hugging Face layout), a GGUF file, or a config.json with "
              "--weights random:SEED")
          ->required());
  command
      .add_option("--dtype", flags.dtype, "weights and products: auto (as stored), f32, f16, bf16")
      ->capture_default_str();
  command
      .add_option("--weights", flags.weights,
                  "file, or random:SEED for a model of this shape without weights")
      ->capture_default_str();
  command
      .add_option("--weights-memory", flags.weights_memory,
                  "packed: matrices that a file has in blocks of few bits stay so where products "
                  "can read them; unpacked: all are dequantised. Results are the same to the bit")
      ->capture_default_str();
  command
      .add_option("--product-rows", flags.product_rows,
                  "dtype; int8: matrices in blocks are multiplied by rows of 8 bits, 256 numbers "
                  "to a scale (faster); or file: rows are rounded as a quantised directory says "
                  "of the inputs of its matrices. Results differ, and are results of their own")
      ->capture_default_str();
  command.add_option("--backend", flags.backend, "cpu, cpu:ISA, cuda, cuda:N or reference")
      ->capture_default_str();
  command.add_option("--threads", flags.threads, "threads; 0: one per processor")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
}

void AddModelCommands(CommandTable& table) {
  AddInspect(table);
  AddGenerate(table);
  AddProbe(table);
  AddCalibrate(table);
  AddTokens(table);
  AddTemplate(table);
  AddLogits(table);
  AddMethods(table);
  AddDatasets(table);
  AddData(table);
  AddDoctor(table);
}

}  // namespace kvgauge
