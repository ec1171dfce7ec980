// SPDX-License-Identifier: Apache-2.0
// results_*.json of lm-evaluation-harness (0.4): "results" by task, with "METRIC,FILTER" beside
// "METRIC_stderr,FILTER".
#include <utility>

#include "core/json.h"
#include "core/strings.h"
#include "src/foreign/foreign_parts.h"

namespace kvgauge {
namespace {

constexpr std::string_view kStderr = "_stderr";

std::string TextOr(const Json& json, const char* key, std::string fallback) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_string()) return fallback;
  return found->get<std::string>();
}

std::string LmEvalModel(const Json& file) {
  std::string name = TextOr(file, "model_name", "");
  if (!name.empty() || !file.contains("config") || !file["config"].is_object()) return name;
  const Json& arguments = file["config"].value("model_args", Json());
  if (arguments.is_object()) return TextOr(arguments, "pretrained", "");
  const std::string text = arguments.is_string() ? arguments.get<std::string>() : "";
  for (const std::string& part : Split(text, ',')) {
    if (part.starts_with("pretrained=")) return part.substr(std::string("pretrained=").size());
  }
  return "";
}

std::optional<int64_t> LmEvalSamples(const Json& file, const std::string& task) {
  const auto all = file.find("n-samples");
  if (all == file.end() || !all->is_object() || !all->contains(task)) return std::nullopt;
  const Json& counts = (*all)[task];
  if (!counts.is_object() || !counts.contains("effective")) return std::nullopt;
  const Json& effective = counts["effective"];
  if (!effective.is_number_integer()) return std::nullopt;
  return effective.get<int64_t>();
}

std::string LmEvalProtocol(const Json& file, const std::string& task) {
  std::vector<std::string> facts;
  const auto add = [&](const char* section, const char* name) {
    const auto found = file.find(section);
    if (found == file.end() || !found->is_object() || !found->contains(task)) return;
    const Json& value = (*found)[task];
    if (value.is_primitive()) facts.push_back(StrCat(name, " ", value.dump()));
  };
  add("versions", "version");
  add("n-shot", "shots");
  const std::string template_name = TextOr(file, "chat_template_sha", "");
  facts.emplace_back(template_name.empty() ? "no chat template" : "chat template");
  return Join(facts, ", ");
}

Status ReadLmEvalTask(const Json& file, const std::string& path, const std::string& task,
                      const Json& scores, ForeignRow row, std::vector<ForeignRow>& rows) {
  // Checked before it stands in a message: a terminal would obey what a file holds.
  KVG_TRY(CheckForeignName(StrCat(path, ": a name in results"), task));
  const std::string where = StrCat(path, ": results.", task);
  if (!scores.is_object()) return BadInput(StrCat(where, ": expected an object of metrics"));
  row.task = task;
  row.samples = LmEvalSamples(file, task);
  row.protocol = LmEvalProtocol(file, task);
  for (const auto& [key, value] : scores.items()) {
    const size_t comma = key.find(',');
    if (comma == std::string::npos) continue;  // "alias", and what later versions add
    const std::string metric = key.substr(0, comma), filter = key.substr(comma + 1);
    if (metric.ends_with(kStderr)) continue;
    KVG_TRY(CheckForeignName(where, key));
    if (value.is_string()) continue;  // "N/A"
    if (!value.is_number()) {
      return BadInput(StrCat(where, ".", key, ": ", Quoted(value.dump()), ", expected a number"));
    }
    ForeignRow one = row;
    one.metric = filter == "none" ? metric : StrCat(metric, ", ", filter);
    one.score = value.get<double>();
    const std::string error = StrCat(metric, kStderr, ",", filter);
    if (scores.contains(error) && scores[error].is_number()) {
      one.standard_error = scores[error].get<double>();
    }
    rows.push_back(std::move(one));
  }
  return {};
}

}  // namespace

Result<std::vector<ForeignRow>> ReadLmEval(const std::string& path) {
  std::string text;
  KVG_ASSIGN(const Json file, ReadForeignJson(path, text));
  if (!file.is_object() || !file.contains("results") || !file["results"].is_object()) {
    return BadInput(StrCat(path,
                           ": no \"results\", expected a results_*.json of "
                           "lm-evaluation-harness"));
  }
  ForeignRow row;
  row.program = "lm-eval";
  row.model = LmEvalModel(file);
  if (row.model.empty()) {
    return BadInput(StrCat(path,
                           ": names no model, expected \"model_name\", or \"pretrained\" in "
                           "config.model_args"));
  }
  row.method = "full";  // it has no methods
  row.source = ForeignSource(path, text);
  std::vector<ForeignRow> rows;
  for (const auto& [task, scores] : file["results"].items()) {
    KVG_TRY(ReadLmEvalTask(file, path, task, scores, row, rows));
  }
  KVG_TRY(CheckForeignRows(path, rows));
  return rows;
}

}  // namespace kvgauge
