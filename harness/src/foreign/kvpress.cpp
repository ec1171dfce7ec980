// SPDX-License-Identifier: Apache-2.0
// A result directory of kvpress's evaluation: metrics.json, whose shape depends on the data set,
// and config.yaml, which says what was run. Only the flat scalars of the latter are read.
#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "src/foreign/foreign_parts.h"

namespace kvgauge {
namespace {

namespace fs = std::filesystem;

using Settings = std::map<std::string, std::string>;

std::string Unquoted(std::string text) {
  const bool quoted = text.size() >= 2 && (text.front() == '\'' || text.front() == '"') &&
                      text.back() == text.front();
  return quoted ? text.substr(1, text.size() - 2) : text;
}

Result<Settings> ReadSettings(const std::string& path) {
  KVG_ASSIGN(const std::string text, ReadForeignText(path));
  Settings settings;
  int64_t number = 0;
  for (const std::string& line : Split(text, '\n')) {
    ++number;
    // Nested values are indented; they say nothing that a row shows.
    if (line.empty() || line[0] == ' ' || line[0] == '-' || line[0] == '#' || line == "\r")
      continue;
    const size_t colon = line.find(':');
    if (colon == std::string::npos) {
      return BadInput(StrCat(path, ", line ", number, ": expected \"key: value\""));
    }
    const std::string value = Unquoted(std::string(Trim(line.substr(colon + 1))));
    if (value != "null" && !value.empty()) settings[line.substr(0, colon)] = value;
  }
  for (const char* key : {"dataset", "model", "press_name"}) {
    if (settings.count(key) > 0) continue;
    return BadInput(StrCat(path, ": has no ", key, ", expected a config.yaml of kvpress"));
  }
  return settings;
}

std::string KvpressMethod(const Settings& settings) {
  const std::string& press = settings.at("press_name");
  if (press == "no_press") return "full";
  std::string text = press;
  for (const char* key : {"compression_ratio", "threshold", "head_compression_ratio",
                          "key_channel_compression_ratio", "compression_interval", "target_size"}) {
    if (const auto found = settings.find(key); found != settings.end()) {
      text += StrCat(", ", key, " ", found->second);
    }
  }
  return text;
}

std::string KvpressProtocol(const Settings& settings) {
  std::vector<std::string> facts;
  const auto asked = settings.find("query_aware");
  facts.emplace_back(asked != settings.end() && asked->second == "true" ? "question seen"
                                                                        : "question unseen");
  for (const char* key : {"fraction", "max_context_length", "max_new_tokens", "fp8"}) {
    if (const auto found = settings.find(key); found != settings.end()) {
      facts.push_back(StrCat(key, " ", found->second));
    }
  }
  return Join(facts, ", ");
}

// Numbers at any depth: the keys above one are its task, the last its metric.
Status FlattenScores(const std::string& where, const Json& json,
                     const std::vector<std::string>& above, const ForeignRow& row,
                     std::vector<ForeignRow>& rows) {
  constexpr size_t kMostDepth = 8;
  if (above.size() > kMostDepth) return BadInput(StrCat(where, ": nested too deeply"));
  for (const auto& [key, value] : json.items()) {
    // Checked before it stands in a message: a terminal would obey what a file holds.
    KVG_TRY(CheckForeignName(StrCat(where, ": a name"), key));
    const std::string at = StrCat(where, ".", key);
    if (value.is_object()) {
      std::vector<std::string> below = above;
      below.push_back(key);
      KVG_TRY(FlattenScores(at, value, below, row, rows));
      continue;
    }
    if (!value.is_number()) {
      return BadInput(StrCat(at, ": ", Quoted(value.dump()), ", expected a number"));
    }
    ForeignRow one = row;
    for (const std::string& name : above) one.task += StrCat("/", name);
    one.metric = key;
    one.score = value.get<double>();
    rows.push_back(std::move(one));
  }
  return {};
}

Status ReadOne(const fs::path& directory, std::vector<ForeignRow>& rows) {
  const std::string metrics = (directory / "metrics.json").string();
  KVG_ASSIGN(const Settings settings, ReadSettings((directory / "config.yaml").string()));
  std::string text;
  KVG_ASSIGN(const Json json, ReadForeignJson(metrics, text));
  if (!json.is_object()) return BadInput(StrCat(metrics, ": expected an object of scores"));
  ForeignRow row;
  row.program = "kvpress";
  row.model = settings.at("model");
  row.task = settings.at("dataset");
  if (const auto found = settings.find("data_dir"); found != settings.end()) {
    row.task += StrCat("/", found->second);
  }
  row.method = KvpressMethod(settings);
  row.protocol = KvpressProtocol(settings);
  row.source = StrCat(directory.filename().string(), "/", ForeignSource(metrics, text));
  return FlattenScores(metrics, json, {}, row, rows);
}

}  // namespace

Result<std::vector<ForeignRow>> ReadKvpress(const std::string& directory) {
  if (!DirectoryExists(directory)) {
    return BadInput(StrCat(directory,
                           ": no such directory, expected one with metrics.json and "
                           "config.yaml of kvpress"));
  }
  std::vector<fs::path> found;
  std::error_code error;
  for (auto at = fs::recursive_directory_iterator(directory, error);
       !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    if (at->path().filename() == "metrics.json") found.push_back(at->path().parent_path());
  }
  if (error) return IoError(StrCat(directory, ": cannot be read: ", error.message()));
  if (found.empty()) {
    return BadInput(StrCat(directory,
                           ": holds no metrics.json, expected a result directory of "
                           "kvpress's evaluation"));
  }
  std::ranges::sort(found);
  std::vector<ForeignRow> rows;
  for (const fs::path& path : found) KVG_TRY(ReadOne(path, rows));
  KVG_TRY(CheckForeignRows(directory, rows));
  return rows;
}

}  // namespace kvgauge
