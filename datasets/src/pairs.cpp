// SPDX-License-Identifier: Apache-2.0
#include "datasets/pairs.h"

#include <initializer_list>
#include <map>
#include <optional>
#include <utility>

#include "core/check.h"
#include "core/decimal.h"
#include "core/json.h"
#include "core/strings.h"
#include "src/lines.h"
#include "src/metric_language.h"
#include "src/python_text.h"
#include "src/records.h"

namespace kvgauge {
namespace {

Result<std::string> TextAt(const Json& object, const char* key, const std::string& origin) {
  const Json& value = object[key];
  if (!value.is_string()) {
    return BadInput(StrCat(origin, ": \"", key, "\" must be a text, not ", value.type_name()));
  }
  return value.get<std::string>();
}

// One text or number, or a list of them.
Result<std::vector<std::string>> ScalarsAt(const Json& object, const std::string& key,
                                           const std::string& origin) {
  const Json& given = object[key];
  // InfiniteBench's files of some models hold a list of one list.
  const bool wrapped = given.is_array() && given.size() == 1 && given[0].is_array();
  const Json& value = wrapped ? given[0] : given;
  if (std::optional<std::string> text = PythonScalar(value)) return std::vector{*std::move(text)};
  if (!value.is_array()) {
    return BadInput(StrCat(origin, ": \"", key,
                           "\" must be a text, a number or a list of them, not ",
                           value.type_name()));
  }
  std::vector<std::string> texts;
  for (const Json& item : value) {
    std::optional<std::string> text = PythonScalar(item);
    if (!text) {
      return BadInput(StrCat(origin, ": \"", key, "\"[", texts.size(),
                             "] must be a text or a number, not ", item.type_name()));
    }
    texts.push_back(*std::move(text));
  }
  return texts;
}

Result<std::vector<std::string>> TextsAt(const Json& object, const char* key,
                                         const std::string& origin) {
  const Json& value = object[key];
  if (!value.is_array()) {
    return BadInput(
        StrCat(origin, ": \"", key, "\" must be a list of texts, not ", value.type_name()));
  }
  std::vector<std::string> texts;
  for (const Json& item : value) {
    if (!item.is_string()) {
      return BadInput(StrCat(origin, ": \"", key, "\"[", texts.size(), "] must be a text, not ",
                             item.type_name()));
    }
    texts.push_back(item.get<std::string>());
  }
  return texts;
}

// The first of `names` that the object has; "" for none.
const char* FirstOf(const Json& object, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (object.contains(name)) return name;
  }
  return "";
}

Result<std::string> GroupOf(const Json& object, const std::string& key, const std::string& origin) {
  if (object.contains(key)) {
    if (std::optional<std::string> value = PythonScalar(object[key])) return *std::move(value);
    return BadInput(StrCat(origin, ": \"", key, "\" must be a text or a number to group by"));
  }
  if (key == "length_bucket" && object.contains("length") && object["length"].is_number_integer()) {
    return std::string(LengthBucket(object["length"].get<int64_t>()));
  }
  return BadInput(StrCat(origin, ": \"", key, "\" is missing; scores are grouped by it"));
}

}  // namespace

Result<MetricInput> PairOf(const Json& object, const std::string& origin, PairUse use) {
  std::vector<std::string> keys;
  for (const auto& entry : object.items()) keys.push_back(entry.key());
  std::string prediction = FirstOf(object, {"prediction", "pred"});
  const std::string answers =
      FirstOf(object, {"answers", "ground_truth", "label", "outputs", "answer"});
  // LongBench v2's files: the letter that was found in the response, or null.
  const bool extracted = prediction == "pred" && object.contains("response");
  if (extracted && use == PairUse::kTask) prediction = "response";
  for (const auto& [key, found] : {std::pair{"prediction", prediction}, {"answers", answers}}) {
    if (found.empty()) {
      return BadInput(StrCat(origin, ": \"", key, "\" is missing", DidYouMean(key, keys)));
    }
  }
  MetricInput input;
  if (!extracted || !object[prediction].is_null()) {
    KVG_ASSIGN(input.prediction, TextAt(object, prediction.c_str(), origin));
  }
  KVG_ASSIGN(input.answers, ScalarsAt(object, answers, origin));
  if (input.answers.empty()) {
    return BadInput(StrCat(origin, ": \"", answers, "\" is empty: no prediction could be right"));
  }
  if (use != PairUse::kProgram && AllBlank(input.answers)) {
    return BadInput(
        StrCat(origin, ": \"", answers, "\" holds blank text alone; an answer needs words"));
  }
  if (object.contains("all_classes") && !object["all_classes"].is_null()) {
    KVG_ASSIGN(input.all_classes, TextsAt(object, "all_classes", origin));
  }
  if (object.contains("language")) {
    KVG_ASSIGN(input.language, TextAt(object, "language", origin));
  }
  if (object.contains("kind")) {
    KVG_ASSIGN(input.kind, TextAt(object, "kind", origin));
  }
  return input;
}

Result<PairScores> ScorePairs(const MetricSpec& metric, const std::string& path,
                              const PairOptions& options) {
  KVG_ASSIGN(PairLines lines, PairLines::Open(path));
  SetScore all(metric);
  std::vector<std::map<std::string, SetScore>> groups(options.by.size());
  SampleIds ids(options.by);

  // Nothing is added to any set before all of the line is known to be good.
  const auto score_line = [&]() -> Result<double> {
    const std::string origin = lines.origin();
    KVG_ASSIGN(const Json object, lines.Object());
    const PairUse use = options.task != nullptr ? PairUse::kTask : PairUse::kMetric;
    KVG_ASSIGN(MetricInput input, PairOf(object, origin, use));
    const Task* task = options.task;
    if (object.contains("task") && !object["task"].is_null()) {
      KVG_ASSIGN(const std::string name, TextAt(object, "task", origin));
      // SCBench's files say by it of which kind a question is.
      if (task != nullptr && input.kind.empty()) input.kind = name;
      if (task == nullptr && options.find_task) {
        const Result<const Task*> found = options.find_task(name);
        if (!found.ok()) return found.error().Wrap(origin);
        task = *found;
      }
    }
    if (metric.of_group) {
      const bool told = !metric.group_of && object.contains("group");
      KVG_ASSIGN(input.group, GroupOf(object, told ? "group" : "id", origin));
    }
    if (metric.group_of) {
      Result<std::string> group = metric.group_of(input.group);
      if (!group.ok()) return group.error().Wrap(StrCat(origin, ": \"id\""));
      input.group = *std::move(group);
    }
    if (task != nullptr) {
      input.prediction = PostProcess(task->post, CutAtStop(task->stop, input.prediction));
    }
    std::vector<std::string> values;
    for (const std::string& key : options.by) {
      KVG_ASSIGN(std::string value, GroupOf(object, key, origin));
      values.push_back(std::move(value));
    }
    // A task's metric is its own choice.
    if (options.task == nullptr && object.contains("language")) {
      const Status fitting = CheckLanguage(metric.name, input.language);
      if (!fitting.ok()) return fitting.error().Wrap(origin);
    }
    KVG_TRY(ids.Add(object, lines));
    Result<double> score = all.Add(input);
    if (!score.ok()) return score.error().Wrap(origin);
    for (size_t i = 0; i < values.size(); ++i) {
      const Result<double> again =
          groups[i].try_emplace(values[i], metric).first->second.Add(input);
      KVG_CHECK(again.ok(), "a metric is a function");
    }
    return score;
  };

  PairScores out;
  while (lines.Next()) {
    const Result<double> score = score_line();
    if (score.ok()) {
      out.scores.push_back(*score);
      out.lines.push_back(lines.number());
    } else if (options.skip_bad) {
      out.bad_lines.push_back(score.error().message);
    } else {
      return score.error();
    }
  }
  KVG_TRY(lines.status());
  if (out.scores.empty()) {
    return BadInput(StrCat(path, ": no pair to score", out.bad_lines.empty() ? "" : "; first: ",
                           out.bad_lines.empty() ? "" : out.bad_lines.front()));
  }
  const Reporting report = options.task != nullptr ? options.task->report : Reporting{};
  out.mean = all.Value();
  out.reported = RoundDecimal(all.Value(report.scale), report.digits);
  for (size_t i = 0; i < groups.size(); ++i) {
    for (const auto& [value, group] : groups[i]) {
      out.groups.push_back(
          {options.by[i], value, group.count(), group.Value(), Reported(report, group.Value())});
    }
  }
  return out;
}

double MeanOfGroups(const PairScores& scores, const std::string& key) {
  double sum = 0, count = 0;
  for (const GroupScore& group : scores.groups) {
    if (group.key != key) continue;
    sum += group.score;
    ++count;
  }
  return count > 0 ? sum / count : 0;
}

}  // namespace kvgauge
