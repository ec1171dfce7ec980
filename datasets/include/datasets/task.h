// SPDX-License-Identifier: Apache-2.0
// A task: where samples come from and how answers are scored. It is a JSON file under
// configs/tasks/; what it names as its source is a loader or a generator that registers itself.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/json_fwd.h"
#include "core/params.h"
#include "core/result.h"
#include "core/text_codec.h"
#include "datasets/sample.h"

namespace kvgauge {

// What a run gives a task.
struct TaskOptions {
  std::string data_directory;        // of published files; unused by generators
  uint64_t seed = 0;                 // generators: sample i depends on (seed, i) alone
  int64_t limit = -1;                // at most so many samples; -1: all (generators: their default)
  const TextCodec* codec = nullptr;  // the model's tokens; needed for lengths and truncation
  int64_t max_prompt_tokens = 0;     // of the model; 0: no truncation
  bool skip_bad = false;             // leave out malformed records and count them
};

// Samples in a fixed order. Not thread-safe.
class SampleStream {
 public:
  virtual ~SampleStream() = default;
  // The next sample, or nothing at the end. An error names file, line and what would be right.
  virtual Result<std::optional<Sample>> Next() = 0;
  virtual int64_t skipped() const { return 0; }
};

// A loader or generator. `name` is its file's stem.
struct SourceSpec {
  std::string name;
  int version = 1;  // raised whenever a sample would change
  std::string description;
  bool generated = false;  // needs no data
  std::vector<ParamSpec> params;
  // `params` are the task file's "source" entries, checked.
  std::function<Result<std::unique_ptr<SampleStream>>(const Params& params, const Json& task,
                                                      const TaskOptions& options)>
      open;
  // Files below the data directory that the task needs; empty for generators.
  std::function<std::vector<std::string>(const Params& params, const Json& task)> files;
};

// How a raw prediction becomes what is scored, in this order.
struct PostProcessing {
  bool first_line = false;          // keep what stands before the first newline
  bool strip = false;               // trim white space
  std::vector<std::string> cut_at;  // drop everything from the first of these on
};

struct Task {
  std::string name;
  int version = 1;
  std::string group;  // "longbench", "ruler", "needle", ...
  std::string description;
  std::string citation;
  std::string metric;  // id in datasets/metric.h
  PostProcessing post;
  int64_t max_new_tokens = 0;
  std::string source;  // SourceSpec::name
  Params source_params;
  std::string path;                  // of the task file
  std::shared_ptr<const Json> json;  // the file itself
};

// Reads and checks one task file; unknown keys are errors with near-miss suggestions.
Result<Task> ReadTask(const std::string& path);
// Every task below `directory` (configs/tasks), sorted by name.
Result<std::vector<Task>> ReadTasks(const std::string& directory);
Result<std::unique_ptr<SampleStream>> OpenTask(const Task& task, const TaskOptions& options);
// The task's files that are missing below the data directory.
std::vector<std::string> MissingFiles(const Task& task, const std::string& data_directory);
std::string PostProcess(const PostProcessing& post, const std::string& prediction);

// The registry: filled before main, read-only afterwards, sorted by name.
const SourceSpec* FindSource(const std::string& name);
std::vector<const SourceSpec*> ListSources();

struct SourceRegistrar {
  explicit SourceRegistrar(SourceSpec spec);
};
#define KVG_REGISTER_SOURCE(...) \
  static const ::kvgauge::SourceRegistrar kvg_source_registrar(__VA_ARGS__)

}  // namespace kvgauge
