// SPDX-License-Identifier: Apache-2.0
// A task: where samples come from and how answers are scored. It is a JSON file under
// configs/tasks/; what it names as its source is a loader or a generator that registers itself.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json_fwd.h"
#include "core/params.h"
#include "core/result.h"
#include "core/text_codec.h"
#include "datasets/answer_pattern.h"
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
  // Why records were left out, a message each; of many the first.
  virtual const std::vector<std::string>& faults() const {
    static const std::vector<std::string> none;
    return none;
  }
};

// A loader or generator. `name` is its file's stem.
struct SourceSpec {
  std::string name;
  int version = 1;  // raised whenever a sample would change
  std::string description = {};
  bool generated = false;  // needs no data
  std::vector<ParamSpec> params = {};
  // `params` are the task file's "source" entries, checked.
  std::function<Result<std::unique_ptr<SampleStream>>(const Params& params, const Json& task,
                                                      const TaskOptions& options)>
      open = {};
  // Files, or directories of texts, below the data directory that the task needs. The first part of
  // each path is the name under which scripts/fetch_data knows the set.
  std::function<std::vector<std::string>(const Params& params, const Json& task)> files = {};
  // Optional: what the parameters' types cannot say, checked when the task file is read. Messages
  // begin with the parameter: ".prompt: must hold {context}".
  std::function<Status(const Params& params, const Json& task)> check = {};
};

// How a raw prediction becomes what is scored, in this order.
struct PostProcessing {
  bool skip_newlines = false;                         // drop newlines (only those) at the front
  bool first_line = false;                            // keep what stands before the first newline
  bool strip = false;                                 // trim white space; again after cut_at
  std::vector<std::string> cut_at = {};               // drop everything from the first of these on
  std::string extract = {};                           // a rule of ExtractionRules(); "" for none
  std::shared_ptr<const AnswerPattern> pattern = {};  // in the place of a rule; null for none
  std::string if_empty = {};  // what stands for a text of which nothing is left
};

// What ends an answer besides the model's own stop tokens and max_new_tokens.
struct StopRule {
  // The last token of each text, encoded alone, is a stop token.
  std::vector<std::string> last_token_of = {};
  std::vector<std::string> texts = {};  // the answer ends before the first of these
  int64_t min_new_tokens = 0;           // stop tokens are masked until so many were made
};

// How the task's authors print its scores.
struct Reporting {
  double scale = 1;             // 100 for percentages
  int digits = -1;              // decimals that are kept, as Python's round does; -1: all
  std::vector<std::string> by;  // keys whose values get a score each, e.g. "length_bucket"
};

// The metric id of tasks that only a person or another model can grade; never registered.
inline constexpr std::string_view kJudgeMetric = "judge";
// The metric id of tasks whose answers are programs that must be run (datasets/execution.h); never
// registered either.
inline constexpr std::string_view kExecutionMetric = "pass_at_k";
// The metric id of tasks that take the model's perplexity of a text; there is no answer to score.
inline constexpr std::string_view kPerplexityMetric = "perplexity";

struct Task {
  std::string name;
  int version = 1;
  std::string group;  // "longbench", "ruler", "needle", ...
  std::string description;
  std::string citation;
  std::string metric;  // id in datasets/metric.h
  std::string system;  // of every sample; "" for none
  PostProcessing post;
  StopRule stop;
  Reporting report;
  int64_t max_new_tokens = 0;
  std::string source;  // SourceSpec::name
  Params source_params;
  std::string path;                  // of the task file
  std::shared_ptr<const Json> json;  // the file itself
};

// Reads and checks one task file; unknown keys are errors with near-miss suggestions.
// docs/formats/tasks.md describes the file.
Result<Task> ReadTask(const std::string& path);
// The same from a value; `origin` is the file it stands for.
Result<Task> ParseTask(Json json, const std::string& origin);
// The task with other values for some of its source's parameters (a JSON object), checked.
Result<Task> WithSourceParams(const Task& task, const Json& values);
// Every *.json below `directory` (configs/tasks), sorted by name. Two tasks of one name are an
// error.
Result<std::vector<Task>> ReadTasks(const std::string& directory);
// The stream ends after options.limit samples and fills every sample's system text and hash.
Result<std::unique_ptr<SampleStream>> OpenTask(const Task& task, const TaskOptions& options);
// The task's files that are missing below the data directory, relative to it; a directory of texts
// without a text in it as "essays/*.txt".
std::vector<std::string> MissingFiles(const Task& task, const std::string& data_directory);
// "scripts/fetch_data longbench": what brings a file that MissingFiles named below the data
// directory, or with "" below the default one; "" where the file is of no set that it knows.
std::string FetchCommand(const std::string& missing_file, const std::string& data_directory);
// An error for such a file: where it was looked for, and how to get it.
Error MissingData(const std::string& missing_file, const std::string& data_directory);

// What is left before the first of stop.texts. Stop tokens are the decoder's business.
std::string CutAtStop(const StopRule& stop, const std::string& prediction);
// score * scale, rounded as `report` says.
double Reported(const Reporting& report, double score);
// LongBench-E's buckets of Sample::length: "0-4k", "4-8k", "8k+".
std::string_view LengthBucket(int64_t length);

// Bytes in, bytes out; deterministic. An extraction that finds nothing gives "".
std::string PostProcess(const PostProcessing& post, const std::string& prediction);
struct ExtractionRule {
  std::string name;
  std::string description;
};
std::vector<ExtractionRule> ExtractionRules();  // sorted by name

// The registry: filled before main, read-only afterwards, sorted by name.
const SourceSpec* FindSource(const std::string& name);
std::vector<const SourceSpec*> ListSources();

struct SourceRegistrar {
  explicit SourceRegistrar(SourceSpec spec);
};
#define KVG_REGISTER_SOURCE(...) \
  static const ::kvgauge::SourceRegistrar kvg_source_registrar(__VA_ARGS__)

}  // namespace kvgauge
