// SPDX-License-Identifier: Apache-2.0
// A run's configuration: what is to be measured. docs/formats/runs.md describes the file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/json_fwd.h"
#include "core/result.h"
#include "datasets/task.h"
#include "methods/method.h"
#include "runner/chat_template.h"
#include "runner/engine.h"
#include "src/cli/commands.h"

namespace kvgauge {

// ".../ref-gqa" and ".../ref-gqa/config.json" are "ref-gqa", ".../bench-s.json" is "bench-s",
// ".../tiny.gguf" and ".../tiny-00001-of-00003.gguf" are "tiny".
std::string NameOfPath(const std::string& path);

struct RunModel {
  std::string name;  // in tables; unique
  std::string path;  // a checkpoint directory, or a config.json with random weights
  std::string dtype = "auto";
  std::string weights = "file";        // or "random:SEED"
  std::string product_rows = "dtype";  // as ModelFlags::product_rows
  std::string tokenizer;  // a directory, in place of the model's own; random weights only
  std::string chat_template = "auto";
  ChatSwitches chat_switches;
  // -1: what the model was made for, less the answer; 0: no limit.
  int64_t max_prompt_tokens = -1;

  std::string directory() const;  // of the tokenizer
  ModelFlags flags() const;       // that say how it is loaded
};

struct RunTask {
  Task task;                   // its name may be the run's own, for another set of parameters
  int64_t samples = -1;        // -1: all
  int64_t max_new_tokens = 0;  // 0: as the task says
};

// A method at a budget: one row of the leaderboard.
struct RunContender {
  Method method;
  std::string variant;  // "read.tokens=512"; "" for the method as its file has it
  std::string source;   // the method as the configuration names it: an id or a path
  std::vector<std::string> overrides = {};  // "read.tokens=512"
  Budget budget;

  bool full_cache() const { return method.id == "full"; }
  std::string Name() const;  // "snapkv 20%", for people
};

// How answers are chosen. Greedy by default: of one draw, and no other would differ.
struct RunSampling {
  double temperature = 0;  // 0: greedy
  double top_p = 1;        // nucleus: the smallest set of likeliest tokens that reaches this mass
  int64_t draws = 1;       // answers to each prompt; each is a sample of its own

  bool sampled() const { return temperature > 0; }
  std::vector<int64_t> Numbers() const;  // of the draws, from 0
  // The id of the sample that a draw of a prompt is; a greedy answer has the prompt's own.
  std::string NameOf(const std::string& prompt, int64_t draw) const;
};

struct RunConfig {
  std::string path;  // of the file
  std::string name;
  std::string description;
  std::vector<std::string> plugins;  // loaded when the file is read
  std::vector<RunModel> models;
  std::vector<RunTask> tasks;
  std::vector<RunContender> contenders;  // the full cache first
  std::vector<CompressAt> compress_at = {CompressAt::kPrompt};
  int64_t chunk_tokens = kChunkTokens;  // where prompts are read in chunks

  // "prompt", "chunk 512": as cells and tables name it.
  std::string PlaceName(CompressAt at) const;
  std::vector<int64_t> seeds = {0};
  RunSampling sampling;
  int64_t fidelity_steps = 0;
  bool unscored = false;  // keep answers that only a judge, or running them, can score
  bool skip_bad = false;  // leave out malformed records of published files
  int64_t max_memory_bytes = 0;
  std::string data_directory;
  std::string backend = "cpu";
  int threads = 0;
  std::shared_ptr<const Json> latency;  // null: no latency phase
  // All of it but the data directory, defaults filled in, methods that --only leaves out included;
  // canonical JSON that reads back as the same configuration.
  std::string canonical;
};

// "8GiB", "500 MiB", "1.5e9"; 0 is no limit.
Result<int64_t> ParseBytes(const std::string& text);

// What the command line puts over the file.
struct RunOverrides {
  std::vector<int64_t> seeds = {};
  std::optional<int64_t> draws = {};
  std::optional<double> temperature = {}, top_p = {};
  std::vector<std::string> only = {};  // methods, beside the full cache
  std::string data_directory = {};
  std::string max_memory = {};
  std::string backend = {};
  int threads = 0;
  bool unscored = false;
  bool skip_bad = false;
};

// One entry of a configuration's models; `where` names it in messages.
Result<RunModel> ReadRunModel(const Json& json, const std::string& where);
// `origin` names the configuration in messages.
Result<RunConfig> ParseRunConfig(const Json& json, const std::string& origin,
                                 const RunOverrides& overrides);
// `name`: a path, or the name of a shipped file under configs/runs. Unknown keys, tasks and methods
// are errors that name the nearest known one; every number is checked.
Result<RunConfig> ReadRunConfig(const std::string& name, const RunOverrides& overrides);

}  // namespace kvgauge
