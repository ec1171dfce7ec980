// SPDX-License-Identifier: Apache-2.0
#include "src/foreign/foreign_rows.h"

#include <utility>

#include "core/counted.h"
#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "src/cli/print.h"
#include "src/cli/table.h"
#include "src/foreign/foreign_parts.h"
#include "src/run/config_object.h"

namespace kvgauge {
namespace {

constexpr std::string_view kFormat = "kvgauge_foreign";
constexpr int64_t kVersion = 1;
constexpr int kForeignDigits = 4;

Status ReadForeignRow(const Json& json, const std::string& where, ForeignRow& row) {
  if (!json.is_object()) return BadInput(StrCat(where, ": expected an object"));
  const ConfigObject object(json, where);
  KVG_TRY(object.Only({"program", "model", "task", "method", "metric", "score", "standard_error",
                       "samples", "protocol", "source"}));
  for (const auto& [key, text] : {std::pair<const char*, std::string*>("program", &row.program),
                                  {"model", &row.model},
                                  {"task", &row.task},
                                  {"method", &row.method},
                                  {"metric", &row.metric},
                                  {"protocol", &row.protocol},
                                  {"source", &row.source}}) {
    KVG_TRY(object.Text(key, *text));
  }
  const Json* score = object.Find("score");
  if (score == nullptr || !score->is_number()) {
    return BadInput(StrCat(object.At("score"), ": expected a number"));
  }
  row.score = score->get<double>();
  if (const Json* error = object.Find("standard_error"); error != nullptr) {
    if (!error->is_number()) return object.Wrong("standard_error", "a number");
    row.standard_error = error->get<double>();
  }
  if (const Json* samples = object.Find("samples"); samples != nullptr) {
    if (!samples->is_number_integer()) return object.Wrong("samples", "a whole number");
    row.samples = samples->get<int64_t>();
  }
  return {};
}

}  // namespace

Json ToJson(const std::vector<ForeignRow>& rows) {
  Json list = Json::array();
  for (const ForeignRow& row : rows) {
    Json json = {{"program", row.program}, {"model", row.model},   {"task", row.task},
                 {"method", row.method},   {"metric", row.metric}, {"score", row.score},
                 {"source", row.source}};
    if (row.standard_error) json["standard_error"] = *row.standard_error;
    if (row.samples) json["samples"] = *row.samples;
    if (!row.protocol.empty()) json["protocol"] = row.protocol;
    list.push_back(std::move(json));
  }
  return {{kFormat, kVersion}, {"rows", list}};
}

Result<std::vector<ForeignRow>> ReadForeignRows(const std::string& path) {
  std::string text;
  KVG_ASSIGN(const Json json, ReadForeignJson(path, text));
  const bool ours = json.is_object() && json.contains(kFormat) && json.contains("rows") &&
                    json["rows"].is_array();
  if (!ours) {
    return BadInput(StrCat(path, ": no foreign rows, expected a file that 'kvgauge import' wrote"));
  }
  if (json[kFormat] != kVersion) {
    return BadInput(StrCat(path, ".", kFormat, ": ", Quoted(json[kFormat].dump()), ", expected ",
                           kVersion, "; a newer kvgauge wrote it"));
  }
  std::vector<ForeignRow> rows;
  for (size_t i = 0; i < json["rows"].size(); ++i) {
    ForeignRow row;
    KVG_TRY(ReadForeignRow(json["rows"][i], StrCat(path, ": rows[", i, "]"), row));
    rows.push_back(std::move(row));
  }
  KVG_TRY(CheckForeignRows(path, rows));
  return rows;
}

Result<std::vector<ForeignRow>> ReadForeignRows(const std::vector<std::string>& paths) {
  std::vector<ForeignRow> all;
  for (const std::string& path : paths) {
    KVG_ASSIGN(std::vector<ForeignRow> rows, ReadForeignRows(path));
    std::move(rows.begin(), rows.end(), std::back_inserter(all));
  }
  if (!all.empty()) KVG_TRY(CheckForeignRows("--foreign", all));
  return all;
}

std::string ForeignText(const std::vector<ForeignRow>& rows, bool markdown) {
  TextTable table;
  table.columns = {{"program", false, 20}, {"model", false, 20},  {"task", false, 20},
                   {"method", false, 20},  {"metric", false, 20}, {"score", true, 20},
                   {"error", true, 12},    {"samples", true, 11}, {"protocol", false, 6},
                   {"source", false, 5}};
  for (const ForeignRow& row : rows) {
    table.rows.push_back({{row.program},
                          {row.model},
                          {row.task},
                          {row.method},
                          {row.metric},
                          {Fixed(row.score, kForeignDigits)},
                          {row.standard_error ? Fixed(*row.standard_error, kForeignDigits) : ""},
                          {row.samples ? StrCat(*row.samples) : ""},
                          {row.protocol},
                          {row.source}});
  }
  table.DropEmptyColumns();
  const std::string heading =
      "Measured by other programs: other prompts and protocols, so not ranked and not compared.";
  if (markdown) return StrCat(heading, "\n\n", table.ToMarkdown());
  if (const size_t width = StdoutWidth(); width > 0) table.FitTo(width);
  return StrCat(heading, "\n\n", table.ToText(StdoutTakesColour()));
}

Status RunImport(const std::string& program, const ImportOptions& options) {
  std::vector<ForeignRow> all;
  for (const std::string& input : options.inputs) {
    KVG_ASSIGN(std::vector<ForeignRow> rows,
               program == "lm-eval" ? ReadLmEval(input) : ReadKvpress(input));
    std::move(rows.begin(), rows.end(), std::back_inserter(all));
  }
  KVG_TRY(CheckForeignRows("all inputs", all));
  if (!options.out.empty()) KVG_TRY(WriteFile(options.out, ToJson(all).dump(1) + "\n"));
  if (options.json) {
    PrintJson(ToJson(all));
    return {};
  }
  Print(ForeignText(all, false));
  if (!options.out.empty()) {
    Print(StrCat("\n", Counted(std::ssize(all), "score"), " in ", options.out,
                 "; show them with: kvgauge leaderboard DATABASE --foreign ",
                 ShellWord(options.out), "\n"));
  }
  return {};
}

}  // namespace kvgauge
