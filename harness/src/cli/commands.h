// SPDX-License-Identifier: Apache-2.0
// What each command takes, and the functions that do them. cli.cpp fills the structs; the command
// files do not parse arguments.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "runner/chat_template.h"

namespace kvgauge {

// Flags that every command with a model shares.
struct ModelFlags {
  std::string model;             // checkpoint directory, or a config.json with random weights
  std::string dtype = "auto";    // "auto": as stored
  std::string weights = "file";  // "file" or "random:SEED"
  std::string weights_memory = "packed";  // or "unpacked"
  std::string product_rows = "dtype";     // "int8" or "file"
  std::string backend = "cpu";
  int threads = 0;       // 0: one per processor
  bool divides = false;  // whether the command takes the layers of a model on several devices
};

// Flags that every command with a method shares.
struct MethodFlags {
  std::string method = {};  // id or path; empty: none
  std::string budget = "none";
  std::vector<std::string> overrides = {};  // stage.param=value
};

// Flags that every command with a chat template shares.
struct TemplateFlags {
  std::string name = "auto";          // as ChatTemplate::Load takes it
  std::vector<std::string> set = {};  // NAME=VALUE
  std::string date = {};              // "": the pinned one
};

struct InspectOptions {
  ModelFlags model;
  std::string image_size = "1024x768";  // WIDTHxHEIGHT: whose rows are counted
  bool families = false;                // list the model families, no model
  bool shapes = false;                  // list config files; `model` is their directory
  std::string times;                    // with shapes: a file of `bench latency --json`
  std::string format = "table";         // of the lists, or "markdown": pages under docs/
  bool json = false;
};

// Pictures and videos that a prompt shows.
struct VisualFlags {
  std::vector<std::string> images;      // files
  std::vector<std::string> videos;      // folders of frames, GIFs, or files
  int64_t frames = 16;                  // of each video
  std::string frame_rule = "uniform";   // as ParseFrameRule takes it
  double video_fps = 0;                 // 0: what frames.json says
  std::string video_next = "trained";   // or "sides": VideoPositions::next_by_sides
  std::string video_seconds = "exact";  // or "whole": VideoPositions::whole_seconds
};

struct GenerateFlags {
  ModelFlags model;
  MethodFlags method;
  VisualFlags visual;
  std::string prompt, prompt_file, ids_file;
  std::string system;
  TemplateFlags chat;
  int64_t max_new_tokens = 128;
  double temperature = 0;
  double top_p = 1;
  uint64_t seed = 0;
  bool ignore_stop = false;
  std::vector<std::string> stop_texts;
  std::string save_cache, load_cache;  // files
  bool json = false;
};

struct TemplateOptions {
  std::string model;
  TemplateFlags chat;
  std::string messages;  // a file: a JSON array
  std::string tools;     // the same; "": none
  bool no_generation_prompt = false;
  bool json = false;
};

struct TokenizeOptions {
  std::string model;
  std::string text_file;
  bool no_bos = false;
  bool no_special = false;
  bool json = false;
};

struct DetokenizeOptions {
  std::string model;
  std::string ids_file;
  bool skip_special = false;
  bool json = false;
};

struct LogitsOptions {
  ModelFlags model;
  VisualFlags visual;
  std::string ids_file;
  std::string out;
  int64_t chunk = 0;
  bool json = false;
};

struct MethodsOptions {
  std::string name;       // an id or the path of a method file; "": all
  std::string directory;  // of method files; "": the shipped ones
  std::vector<std::string> overrides;
  bool stages = false;           // every stage instead
  std::string format = "table";  // or "markdown": the page of all methods
  bool json = false;
};

struct DoctorOptions {
  bool json = false;
  std::string check;        // backend to hold against the reference; empty: only say what there is
  int64_t entries = 32768;  // cached entries a head for the rates
};

struct BenchRunnerOptions {
  std::vector<std::string> models;     // paths; empty: the shipped bench shapes
  std::string weights = "random:1";    // or "file", as ModelFlags::weights
  std::string product_rows = "dtype";  // as ModelFlags::product_rows
  std::vector<std::string> dtypes = {"bf16", "f16", "f32"};
  std::vector<int64_t> prefill = {512, 2048, 4096};
  std::vector<int64_t> depths = {0, 2048, 8192};
  int64_t decode_steps = 64;
  int repetitions = 3;
  double max_others = 0.03;
  std::string backend = "cpu";
  int threads = 0;
  bool json = false;
};

struct BenchKernelsOptions {
  std::vector<int64_t> entries = {32768};  // cached a head, each at least 1024
  std::string backend = "cpu";
  int threads = 0;
  bool json = false;
};

struct BenchVisionOptions {
  std::vector<std::string> models;  // paths; empty: a shipped shape
  std::vector<std::string> dtypes = {"bf16"};
  std::vector<int64_t> pictures = {1, 4};  // that are encoded together
  int repetitions = 3;
  std::string backend = "cpu";
  int threads = 0;
  bool json = false;
};

struct ProbeOptions {
  ModelFlags model;
  VisualFlags visual;
  MethodFlags method;
  std::string ids_file;
  std::string out;
  int64_t steps = 0;
  uint64_t seed = 0;
  bool json = false;
};

struct CalibrateOptions {
  ModelFlags model;
  MethodFlags method;
  std::string stage;  // "prepare", "store"; empty: the one that learns
  std::string text_file, ids_file;
  std::string import_file;  // published weights in place of texts
  int64_t window = 0;       // tokens; 0: chosen
  int64_t limit = 16;       // texts
  std::string out;
  bool json = false;
};

struct BenchLockstepOptions {
  std::string model;  // path; empty: the shipped bench shape
  std::string dtype = "bf16";
  std::vector<std::string> methods;  // empty: kLockstepMethods
  std::vector<std::string> budgets = {"5%", "10%", "20%", "40%"};
  std::vector<int64_t> rows = {1, 2, 4, 8, 16, 32, 64};
  int64_t prompt_tokens = 4096;
  int64_t new_tokens = 64;
  int64_t samples = 1;
  int repetitions = 3;
  bool alone = true;
  std::string backend = "cpu";
  int threads = 0;
  bool json = false;
};

struct BenchLatencyOptions {
  ModelFlags model;
  std::vector<std::string> beside;  // MODEL or MODEL:METHOD, measured in the same rounds
  std::vector<std::string> methods = {"snapkv", "streaming_llm", "kivi_4bit"};
  std::vector<std::string> budgets = {"20%"};  // each method that takes one at each of them
  std::vector<std::string> overrides;
  std::vector<int64_t> contexts = {1024, 4096};
  int64_t decode_steps = 32;
  int64_t repetitions = 5;
  double max_others = 0.1;
  bool pin_threads = false;
  uint64_t seed = 1;
  bool json = false;
};

Result<ChatSwitches> SwitchesOf(const TemplateFlags& flags);
Status RunTemplate(const TemplateOptions& options);
Status RunInspect(const InspectOptions& options);
Status RunGenerate(const GenerateFlags& flags);
Status RunTokenize(const TokenizeOptions& options);
Status RunDetokenize(const DetokenizeOptions& options);
Status RunLogits(const LogitsOptions& options);
Status RunMethods(const MethodsOptions& options);
Status RunDoctor(const DoctorOptions& options);
Status RunProbe(const ProbeOptions& options);
Status RunCalibrate(const CalibrateOptions& options);
Status RunBenchKernels(const BenchKernelsOptions& options);
Status RunBenchVision(const BenchVisionOptions& options);
Status RunBenchLatency(const BenchLatencyOptions& options);
Status RunBenchLockstep(const BenchLockstepOptions& options);
Status RunBenchRunner(const BenchRunnerOptions& options);

}  // namespace kvgauge
