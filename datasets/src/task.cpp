// SPDX-License-Identifier: Apache-2.0
#include "datasets/task.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <system_error>
#include <utility>

#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "datasets/metric.h"

namespace kvgauge {
namespace {

// A directory of texts, or of the parts of a table, is data once there is one.
bool HoldsTexts(const std::string& directory) {
  std::error_code error;
  std::filesystem::directory_iterator entry(directory, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string ending = entry->path().extension().string();
    if (ending == ".txt" || ending == ".parquet") return true;
  }
  return false;
}

constexpr int64_t kMaxNewTokens = 1000000;

// One JSON object of a task file. Every key must be asked for; Finish() reports the others.
class Reader {
 public:
  Reader(const Json& object, std::string owner) : object_(object), owner_(std::move(owner)) {}

  Error Wrong(const std::string& key, std::string_view expected) const {
    return BadInput(
        StrCat(owner_, key, ": ",
               object_.contains(key)
                   ? Quoted(object_[key].dump(-1, ' ', false, Json::error_handler_t::replace))
                   : "missing",
               "; expected ", expected));
  }

  Status Text(const std::string& key, std::string& value, bool required = false) {
    if (!Take(key)) return required ? Status(Wrong(key, "a string")) : Status();
    if (!object_[key].is_string()) return Wrong(key, "a string");
    value = object_[key].get<std::string>();
    if (required && value.empty()) return Wrong(key, "a string that is not empty");
    return {};
  }

  Status Bool(const std::string& key, bool& value) {
    if (!Take(key)) return {};
    if (!object_[key].is_boolean()) return Wrong(key, "true or false");
    value = object_[key].get<bool>();
    return {};
  }

  Status Int(const std::string& key, int64_t least, int64_t most, int64_t& value,
             bool required = false) {
    if (!Take(key) && !required) return {};
    const std::string range = StrCat("a whole number in [", least, ", ", most, "]");
    if (!object_.contains(key) || !object_[key].is_number_integer()) return Wrong(key, range);
    const Json& given = object_[key];
    if (given.is_number_unsigned() && given.get<uint64_t>() > static_cast<uint64_t>(most)) {
      return Wrong(key, range);
    }
    value = given.get<int64_t>();
    return value < least || value > most ? Status(Wrong(key, range)) : Status();
  }

  Status Texts(const std::string& key, std::vector<std::string>& values) {
    constexpr std::string_view kExpected = "an array of strings, none of them empty";
    if (!Take(key)) return {};
    if (!object_[key].is_array()) return Wrong(key, kExpected);
    for (const Json& text : object_[key]) {
      if (!text.is_string() || text.get<std::string>().empty()) return Wrong(key, kExpected);
      values.push_back(text.get<std::string>());
    }
    return {};
  }

  // The object under `key`, or null.
  Status Object(const std::string& key, const Json*& value, bool required = false) {
    if (!Take(key)) return required ? Status(Wrong(key, "an object")) : Status();
    if (!object_[key].is_object()) return Wrong(key, "an object");
    value = &object_[key];
    return {};
  }

  Status Finish() const {
    for (const auto& [key, value] : object_.items()) {
      if (std::find(known_.begin(), known_.end(), key) == known_.end()) {
        return BadInput(StrCat(owner_, key, ": unknown key", DidYouMean(key, known_),
                               "; known: ", Join(known_, ", ")));
      }
    }
    return {};
  }

 private:
  bool Take(const std::string& key) {
    known_.push_back(key);
    return object_.contains(key);
  }

  const Json& object_;
  std::string owner_;  // "trec.json: post."
  std::vector<std::string> known_;
};

// "extract": {"regex": ..., "group": ..., "take": ..., "fallback": ...}.
Status ReadPattern(const Json& json, const std::string& path, PostProcessing& post) {
  const std::string owner = path + ": post.extract.";
  Reader reader(json, owner);
  AnswerPattern::Settings settings;
  int64_t group = -1;
  std::string take = "first";
  KVG_TRY(reader.Text("regex", settings.regex, true));
  KVG_TRY(reader.Int("group", 0, 1000, group));
  KVG_TRY(reader.Text("take", take));
  KVG_TRY(reader.Text("fallback", settings.fallback));
  KVG_TRY(reader.Finish());
  if (take != "first" && take != "last") return reader.Wrong("take", "'first' or 'last'");
  settings.group = static_cast<int>(group);
  settings.last = take == "last";
  Result<std::shared_ptr<const AnswerPattern>> pattern =
      AnswerPattern::Compile(std::move(settings));
  if (!pattern.ok()) return Error{pattern.error().code, owner + pattern.error().message};
  post.pattern = *std::move(pattern);
  return {};
}

Status ReadPost(const Json& json, const std::string& path, PostProcessing& post) {
  Reader reader(json, path + ": post.");
  KVG_TRY(reader.Bool("skip_newlines", post.skip_newlines));
  KVG_TRY(reader.Bool("first_line", post.first_line));
  KVG_TRY(reader.Bool("strip", post.strip));
  KVG_TRY(reader.Texts("cut_at", post.cut_at));
  KVG_TRY(reader.Text("if_empty", post.if_empty));
  if (json.contains("extract") && json["extract"].is_object()) {
    const Json* pattern = nullptr;
    KVG_TRY(reader.Object("extract", pattern));
    KVG_TRY(reader.Finish());
    return ReadPattern(*pattern, path, post);
  }
  KVG_TRY(reader.Text("extract", post.extract));
  KVG_TRY(reader.Finish());
  if (post.extract.empty()) return {};
  std::vector<std::string> names;
  for (const ExtractionRule& rule : ExtractionRules()) names.push_back(rule.name);
  if (std::find(names.begin(), names.end(), post.extract) != names.end()) return {};
  return BadInput(StrCat(path, ": post.extract: unknown rule ", Quoted(post.extract),
                         DidYouMean(post.extract, names), "; known: ", Join(names, ", ")));
}

Status ReadStop(const Json& json, const std::string& path, StopRule& stop) {
  Reader reader(json, path + ": stop.");
  KVG_TRY(reader.Texts("last_token_of", stop.last_token_of));
  KVG_TRY(reader.Texts("texts", stop.texts));
  KVG_TRY(reader.Int("min_new_tokens", 0, kMaxNewTokens, stop.min_new_tokens));
  return reader.Finish();
}

Status ReadReport(const Json& json, const std::string& path, Reporting& report) {
  Reader reader(json, path + ": report.");
  int64_t scale = 1, digits = -1;
  KVG_TRY(reader.Int("scale", 1, 100, scale));
  KVG_TRY(reader.Int("digits", 0, 15, digits));
  KVG_TRY(reader.Texts("by", report.by));
  report.scale = static_cast<double>(scale);
  report.digits = static_cast<int>(digits);
  return reader.Finish();
}

Status CheckMetric(const Task& task) {
  const std::vector<const MetricSpec*> metrics = ListMetrics();
  if (metrics.empty() || task.metric == kJudgeMetric || task.metric == kExecutionMetric ||
      task.metric == kPerplexityMetric) {
    return {};
  }
  std::vector<std::string> names;
  names.reserve(metrics.size());
  for (const MetricSpec* metric : metrics) names.push_back(metric->name);
  if (FindMetric(task.metric) != nullptr) return {};
  return BadInput(StrCat(task.path, ": metric: unknown metric ", Quoted(task.metric),
                         DidYouMean(task.metric, names), "; known: ", Join(names, ", ")));
}

// Names go into cell keys, file names and command lines.
bool IsTaskName(std::string_view name) {
  return std::all_of(name.begin(), name.end(),
                     [](char c) {
                       return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' ||
                              c == '-' || c == '.' || c == '/';
                     }) &&
         !name.empty() && name.front() != '/' && name.back() != '/';
}

// "source": {"name": NAME, parameters ...}.
Status ReadSource(const Json& json, Task& task) {
  const std::string owner = task.path + ": source";
  const auto name = json.find("name");
  if (name == json.end() || !name->is_string()) {
    return BadInput(StrCat(owner, ".name: missing; expected a source's name, a string"));
  }
  task.source = name->get<std::string>();
  const SourceSpec* spec = FindSource(task.source);
  if (spec == nullptr) {
    std::vector<std::string> names;
    for (const SourceSpec* known : ListSources()) names.push_back(known->name);
    return BadInput(StrCat(owner, ".name: unknown source ", Quoted(task.source),
                           DidYouMean(task.source, names), "; known: ", Join(names, ", ")));
  }
  Json given = json;
  given.erase("name");
  KVG_ASSIGN(task.source_params, Params::Parse(spec->params, given, owner));
  if (!spec->check) return {};
  const Status checked = spec->check(task.source_params, *task.json);
  if (checked.ok()) return {};
  return Error{checked.error().code, owner + checked.error().message};
}

// Ends after `limit` samples and fills system texts and hashes.
class BoundedStream final : public SampleStream {
 public:
  BoundedStream(std::unique_ptr<SampleStream> inner, const Task& task, int64_t limit)
      : inner_(std::move(inner)), system_(task.system), left_(limit) {}

  Result<std::optional<Sample>> Next() override {
    if (left_ == 0) return std::optional<Sample>();
    KVG_ASSIGN(std::optional<Sample> sample, inner_->Next());
    if (sample) {
      sample->system = system_;
      FinishSample(*sample);
    }
    if (left_ > 0) --left_;
    return sample;
  }
  int64_t skipped() const override { return inner_->skipped(); }
  const std::vector<std::string>& faults() const override { return inner_->faults(); }

 private:
  std::unique_ptr<SampleStream> inner_;
  std::string system_;
  int64_t left_;  // -1: no end of its own
};

}  // namespace

Result<Task> ReadTask(const std::string& path) {
  KVG_ASSIGN(Json json, ReadJsonFile(path));
  return ParseTask(std::move(json), path);
}

Result<Task> ParseTask(Json json, const std::string& path) {
  if (!json.is_object()) return BadInput(StrCat(path, ": expected a JSON object"));
  Task task;
  task.path = path;
  task.json = std::make_shared<const Json>(std::move(json));

  Reader reader(*task.json, path + ": ");
  int64_t version = 0;
  const Json *post = nullptr, *stop = nullptr, *report = nullptr, *source = nullptr;
  KVG_TRY(reader.Text("name", task.name, true));
  KVG_TRY(reader.Int("version", 1, 1000000, version, true));
  KVG_TRY(reader.Text("group", task.group, true));
  KVG_TRY(reader.Text("description", task.description, true));
  KVG_TRY(reader.Text("citation", task.citation));
  KVG_TRY(reader.Text("metric", task.metric, true));
  KVG_TRY(reader.Text("system", task.system));
  KVG_TRY(reader.Int("max_new_tokens", 1, kMaxNewTokens, task.max_new_tokens, true));
  KVG_TRY(reader.Object("post", post));
  KVG_TRY(reader.Object("stop", stop));
  KVG_TRY(reader.Object("report", report));
  KVG_TRY(reader.Object("source", source, true));
  KVG_TRY(reader.Finish());
  task.version = static_cast<int>(version);
  if (!IsTaskName(task.name)) {
    return reader.Wrong("name", "lower-case letters, digits and _-./ (no slash at the ends)");
  }
  if (task.json->contains("system") && Trim(task.system).empty()) {
    return reader.Wrong("system", "a text that is not blank; leave the key out for none");
  }
  if (!task.system.empty() && task.metric == kPerplexityMetric) {
    return reader.Wrong("system", "no such key: perplexity is that of the text alone");
  }
  if (post != nullptr) KVG_TRY(ReadPost(*post, path, task.post));
  if (stop != nullptr) KVG_TRY(ReadStop(*stop, path, task.stop));
  if (report != nullptr) KVG_TRY(ReadReport(*report, path, task.report));
  KVG_TRY(CheckMetric(task));
  KVG_TRY(ReadSource(*source, task));
  return task;
}

Result<Task> WithSourceParams(const Task& task, const Json& values) {
  Json json = *task.json;
  for (const auto& [name, value] : values.items()) json["source"][name] = value;
  Task changed = task;
  changed.json = std::make_shared<const Json>(std::move(json));
  KVG_TRY(ReadSource((*changed.json)["source"], changed));
  return changed;
}

Result<std::vector<Task>> ReadTasks(const std::string& directory) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::vector<std::string> paths;
  fs::recursive_directory_iterator entries(directory, error);
  for (; !error && entries != fs::recursive_directory_iterator(); entries.increment(error)) {
    if (entries->path().extension() == ".json") paths.push_back(entries->path().string());
  }
  if (error) return BadInput(StrCat(directory, ": cannot list: ", error.message()));
  std::sort(paths.begin(), paths.end());

  std::vector<Task> tasks;
  for (const std::string& path : paths) {
    KVG_ASSIGN(Task task, ReadTask(path));
    tasks.push_back(std::move(task));
  }
  std::stable_sort(tasks.begin(), tasks.end(),
                   [](const Task& a, const Task& b) { return a.name < b.name; });
  for (size_t i = 1; i < tasks.size(); ++i) {
    if (tasks[i].name == tasks[i - 1].name) {
      return BadInput(StrCat(tasks[i].path, ": name: ", Quoted(tasks[i].name),
                             " is also the name of ", tasks[i - 1].path));
    }
  }
  return tasks;
}

Result<std::unique_ptr<SampleStream>> OpenTask(const Task& task, const TaskOptions& options) {
  const SourceSpec* spec = FindSource(task.source);
  if (spec == nullptr) {
    return BadInput(StrCat(task.path, ": source.name: unknown source ", Quoted(task.source)));
  }
  if (spec->files && !spec->files(task.source_params, *task.json).empty() &&
      options.data_directory.empty()) {
    return BadInput(StrCat("task ", Quoted(task.name), " reads data files: name their directory ",
                           "with --data DIR or KVGAUGE_DATA"));
  }
  const std::vector<std::string> missing = MissingFiles(task, options.data_directory);
  if (!missing.empty()) {
    return MissingData(missing[0], options.data_directory).Wrap(StrCat("task ", Quoted(task.name)));
  }
  KVG_ASSIGN(std::unique_ptr<SampleStream> stream,
             spec->open(task.source_params, *task.json, options));
  return std::unique_ptr<SampleStream>(
      std::make_unique<BoundedStream>(std::move(stream), task, options.limit));
}

std::vector<std::string> MissingFiles(const Task& task, const std::string& data_directory) {
  const SourceSpec* spec = FindSource(task.source);
  std::vector<std::string> missing;
  if (spec == nullptr || !spec->files) return missing;
  for (const std::string& file : spec->files(task.source_params, *task.json)) {
    const std::string path = StrCat(data_directory, "/", file);
    if (data_directory.empty() || (!FileExists(path) && !DirectoryExists(path))) {
      missing.push_back(file);
    } else if (DirectoryExists(path) && !HoldsTexts(path)) {
      missing.push_back(StrCat(file, "/*.txt"));
    }
  }
  return missing;
}

std::string FetchCommand(const std::string& missing_file, const std::string& data_directory) {
  const std::string set = missing_file.substr(0, missing_file.find('/'));
  const std::vector<std::string> known = Split(KVG_FETCHED_SETS, ',');
  if (std::find(known.begin(), known.end(), set) == known.end()) return "";
  if (data_directory.empty()) return StrCat("scripts/fetch_data ", set);
  // To be pasted into a shell.
  const bool plain = std::all_of(data_directory.begin(), data_directory.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("/._-").find(c) != std::string_view::npos;
  });
  return StrCat("scripts/fetch_data --data ",
                plain ? data_directory : StrCat("'", data_directory, "'"), " ", set);
}

Error MissingData(const std::string& missing_file, const std::string& data_directory) {
  const std::string command = FetchCommand(missing_file, data_directory);
  return BadInput(
      StrCat(data_directory, "/", missing_file, " not found; ",
             command.empty() ? std::string("put it there") : StrCat("get it with: ", command),
             ", or name another directory with --data DIR or KVGAUGE_DATA"));
}

}  // namespace kvgauge
